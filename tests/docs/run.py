"""Checks that the guides stay true to the sources: files, functions and messages that they name are there, and every
message has its place in them. Standard library alone.

    python3 tests/docs/run.py        a line for each check; exit status 1 where one fails

SPDX-License-Identifier: MIT
"""

import sys
from collections.abc import Callable

import architecture
import figures
import links
import troubleshooting

CHECKS: list[Callable[[], list[str]]] = [*architecture.CHECKS, *troubleshooting.CHECKS, *links.CHECKS, *figures.CHECKS]


def main() -> int:
    failed = 0
    for check in CHECKS:
        wrong = check()
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'} {check.__name__}" + "".join(f"\n    {line}" for line in wrong))
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
