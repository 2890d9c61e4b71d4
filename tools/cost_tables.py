"""Keeps the tables of docs/cost.md true: they lie between `<!-- evenkeel explain ... -->` and `<!-- end -->`, and are
what that command prints. `<!-- evenkeel explain ...; without symbols, assumptions -->` leaves out the parts that begin
with **symbols** and **assumptions**, which a page need not have many times.

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
BLOCK = re.compile(
    r"(?P<mark><!-- evenkeel (?P<command>explain [^\n;]*)(; without (?P<without>[^\n]*))? -->\n)"
    r"(?P<kept>.*?)(?P<end><!-- end -->)",
    re.S,
)


def without(text: str, names: list[str]) -> str:
    """The parts whose first word, in bold, is none of the names; a name that is no part is a mistake."""
    parts = [(part.split("**")[1], part) for part in re.split(r"(?m)^(?=\*\*)", text) if part]
    unknown = set(names) - {name for name, _ in parts}
    if unknown:
        raise SystemExit(f"FAIL  {DOCUMENT.name}: without {', '.join(sorted(unknown))}: there is no such part")
    return "".join(part for name, part in parts if name not in names).rstrip("\n") + "\n"


def printed(program: str, block: re.Match[str]) -> str:
    command, names = block["command"], block["without"]
    done = subprocess.run([program, *shlex.split(command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"FAIL  evenkeel {command}: {done.stderr.strip()}")
    return without(done.stdout, names.split(", ") if names else [])


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
        DOCUMENT.write_text(BLOCK.sub(lambda block: block["mark"] + printed(program, block) + block["end"], text))
        return 0
    failed = 0
    for block in blocks:
        difference = first_difference(block["kept"], printed(program, block))
        failed += bool(difference)
        print(("FAIL  " if difference else "ok    ") + f"{DOCUMENT.name}: evenkeel {block['command']}")
        if difference:
            print(difference)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
