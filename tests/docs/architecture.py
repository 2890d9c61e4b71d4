"""ARCHITECTURE.md and docs/optimization.md against the tree: run.py calls the checks, which return what is wrong.
SPDX-License-Identifier: MIT"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sources import ROOT, defines, sources

GUIDE = ROOT / "ARCHITECTURE.md"
NAMING = (GUIDE, ROOT / "docs/optimization.md")  # the guides that name files and functions
CODE = ("include", "src", "verify", "cli", "python", "tests", "bench", "examples", "tools", "docs")
FILE = re.compile(r"[\w./*-]*[\w*]\.(?:inc\.h|c|h|cu|py|pyi|md|sh|txt)\b")


class Step(NamedTuple):
    """A row of a trail."""

    number: int
    function: str
    path: Path


@cache
def _tree() -> list[str]:
    """Every file of the project, from its root."""
    files = [str(path.relative_to(ROOT)) for folder in CODE for path in (ROOT / folder).rglob("*") if path.is_file()]
    return files + [path.name for path in ROOT.iterdir() if path.is_file()]


@cache
def _code() -> str:
    """All identifiers of the sources."""
    endings = (".c", ".h", ".cu", ".py", ".pyi")
    return "\n".join(path.read_text() for folder in CODE for path in sources(folder, *endings))


def _is_there(name: str) -> bool:
    """Whether a file ends in that path; * stands for part of a name."""
    pattern = re.escape(name).replace(r"\*", r"[^/]*")
    return any(re.search(rf"(?:^|/){pattern}$", file) for file in _tree())


def _trails() -> list[list[Step]]:
    """The tables of `How a call travels`, each from a row 1 on."""
    section = GUIDE.read_text().partition("## How a call travels\n")[2].partition("\n## ")[0]
    trails: list[list[Step]] = []
    for number, function, path in re.findall(r"^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|", section, re.M):
        if number == "1":
            trails.append([])
        trails[-1].append(Step(int(number), function, ROOT / path))
    return trails


def every_file_they_name_is_there() -> list[str]:
    found = {name for guide in NAMING for name in FILE.findall(guide.read_text())}
    names = {name.removeprefix("../") for name in found if "NAME" not in name}  # NAME is for a reader to fill in
    return [f"{name}: no file of the project ends so" for name in sorted(names) if not _is_there(name)]


def every_folder_of_the_tree_is_there() -> list[str]:
    block = GUIDE.read_text().partition("```\n")[2].partition("```")[0]
    wrong, above = [], [ROOT]
    for line in block.splitlines():
        entry = re.match(r"( *)((?:[\w.-]+/)+)(?:\s|$)", line)
        if entry:
            depth = len(entry[1]) // 2
            folder = above[min(depth, len(above) - 1)] / entry[2]
            above[depth + 1 :] = [folder]
            if not folder.is_dir():
                wrong.append(f"{folder.relative_to(ROOT)}: no such folder")
    return wrong


def every_word_in_code_type_is_in_the_sources() -> list[str]:
    words = {word for guide in NAMING for word in re.findall(r"`_*([A-Za-z]\w*)[`(]", guide.read_text())}
    return [f"{word}: in no source" for word in sorted(words) if not re.search(rf"\b_*{word}\b", _code())]


def every_step_is_defined_where_the_trail_says() -> list[str]:
    wrong = [] if len(_trails()) == 3 else [f"there are {len(_trails())} trails: three are expected"]
    for step in (step for trail in _trails() for step in trail):
        if not step.path.is_file() or not defines(step.path, step.function):
            wrong.append(f"{step.function} is not defined in {step.path.relative_to(ROOT)}")
    return wrong


def _calls(caller: Path, step: Step) -> bool:
    """Whether a file names the function; a kernel is named by the text it is in, a method by its class."""
    name = rf"ek_text_(?:\w+_)?{step.path.stem}" if step.path.suffix == ".cu" else step.function.partition(".")[0]
    return len(re.findall(rf"\b{name}\b", caller.read_text())) > (caller == step.path)


def every_step_is_called_from_a_step_before_it() -> list[str]:
    wrong = []
    for trail in _trails():
        for i, step in enumerate(trail):
            if step.number != i + 1:
                wrong.append(f"{step.function} is step {step.number}: it must be {i + 1}")
            if i > 0 and not any(_calls(before.path, step) for before in trail[:i] if before.path.is_file()):
                wrong.append(f"{step.function} is called from no file of the steps before it")
    return wrong


CHECKS = [
    every_file_they_name_is_there,
    every_folder_of_the_tree_is_there,
    every_word_in_code_type_is_in_the_sources,
    every_step_is_defined_where_the_trail_says,
    every_step_is_called_from_a_step_before_it,
]
