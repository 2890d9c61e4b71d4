"""A figure that stands in several places against the table it was measured for: run.py calls the check.
SPDX-License-Identifier: MIT"""

import re

from sources import ROOT

TABLE = ROOT / "docs/cuda.md"
MEASURED = r"\| first call of a new width, compiled \| ([\d.]+ m?s)"
SAID = {
    "include/evenkeel.h": r"compiles \(([\d.]+ m?s)\)",
    "docs/troubleshooting.md": r"is compiled \(([\d.]+ m?s)\)",
    "docs/optimization.md": r"first call of a width ([\d.]+ m?s) compiled",
}


def a_compilation_takes_as_long_everywhere() -> list[str]:
    measured = re.findall(MEASURED, TABLE.read_text())
    said = {name: re.findall(pattern, (ROOT / name).read_text()) for name, pattern in SAID.items()}
    where = TABLE.relative_to(ROOT)
    return [f"{name} has {times}, {where} {measured}" for name, times in said.items() if times != measured or not times]


CHECKS = [a_compilation_takes_as_long_everywhere]
