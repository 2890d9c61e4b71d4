"""Keeps the tables of docs/cost.md true: each lies between `<!-- evenkeel explain ... -->` and `<!-- end -->`,
and is what that command prints.

    python3 tools/cost_tables.py build/evenkeel             compare; prints ok or FAIL for each table
    python3 tools/cost_tables.py build/evenkeel --update    write them

`make test` runs the first, `make golden` the second. SPDX-License-Identifier: MIT"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "cost.md"
BLOCK = re.compile(r"(<!-- evenkeel (explain [^\n]*) -->\n)(.*?)(<!-- end -->)", re.S)


def printed(program: str, command: str) -> str:
    done = subprocess.run([program, *shlex.split(command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"FAIL  evenkeel {command}: {done.stderr.strip()}")
    return done.stdout


def first_difference(kept: str, now: str) -> str:
    before, after = kept.splitlines(), now.splitlines()
    for i in range(max(len(before), len(after))):
        have = before[i] if i < len(before) else "(nothing)"
        want = after[i] if i < len(after) else "(nothing)"
        if have != want:
            return f"      the document has  {have}\n      the command says  {want}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the program evenkeel")
    parser.add_argument("--update", action="store_true", help="write the tables")
    options = parser.parse_args()
    program, text = str(pathlib.Path(options.program).resolve()), DOCUMENT.read_text()
    blocks = list(BLOCK.finditer(text))
    if text.count("<!-- evenkeel ") != len(blocks) or not blocks:
        print(f"FAIL  {DOCUMENT.name}: a table is without <!-- end -->, or there is none")
        return 1
    if options.update:
        DOCUMENT.write_text(BLOCK.sub(lambda b: b.group(1) + printed(program, b.group(2)) + b.group(4), text))
        return 0
    failed = 0
    for block in blocks:
        difference = first_difference(block.group(3), printed(program, block.group(2)))
        failed += bool(difference)
        print(("FAIL  " if difference else "ok    ") + f"{DOCUMENT.name}: evenkeel {block.group(2)}")
        if difference:
            print(difference)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
