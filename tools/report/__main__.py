"""`make report`: reads results, writes the page and its pictures, and (from the tree's own files) fills the documents.
Exit status: 0; 1 where something was left out, and a line says what; 2 bad arguments. SPDX-License-Identifier: MIT"""

import argparse
import pathlib
import re
import shutil
import sys

from . import program, theme
from .costs import largest_rows
from .documents import draw_pictures, fill_tables
from .figure import as_png, as_svg
from .page import figures, machine_file, page
from .read import ROWS, Reading, read_answer, read_files
from .rows import all_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version_of(root: pathlib.Path) -> str:
    text = (root / "include" / "evenkeel.h").read_text(encoding="utf-8")
    return re.search(r'#define EK_VERSION_STRING "([^"]+)"', text)[1]


def kept_files(root: pathlib.Path) -> list[pathlib.Path]:
    """The results of the tree, and the figures that it quotes."""
    return [*sorted((root / "docs" / "results").glob("*.json")), root / "bench" / "quoted.json"]


def ask_program(reading: Reading, path: pathlib.Path, root: pathlib.Path, version: str) -> None:
    """Adds what no file holds and the program knows without measuring: costs and support. What it does not answer, the
    page says how to get."""
    rows = all_rows(reading)
    for device in theme.DEVICES if not reading.of("explain") else ():
        limits = machine_file(reading, device)
        for row in largest_rows(rows, device):
            answer = program.explain(path, row, root / limits.name if limits else None)
            read_answer(reading, f"evenkeel explain {row.op}", answer, version)
    if not any(source.data["op"] == "block" for source in reading.of("explain")):
        for order in ("reordered", "pre"):
            read_answer(reading, f"evenkeel explain block --order {order}", program.block(path, order), version)
    if not reading.of("info"):
        read_answer(reading, "evenkeel info", program.support(path), version)


def why_no_answers(reading: Reading, path: pathlib.Path) -> str:
    """What the page lacks since the program did not say it; "" where nothing is."""
    has_rows = any(largest_rows(all_rows(reading), device) for device in theme.DEVICES)
    lacking = ["costs"] if has_rows and not reading.of("explain") else []
    lacking += [] if reading.of("info") else ["support"]
    why = "does not answer" if shutil.which(path) else "cannot be run"
    return f"{path} {why}, and so the page has no {' and no '.join(lacking)}: make build makes it" if lacking else ""


def write_page(reading: Reading, folder: pathlib.Path, version: str) -> None:
    drawn = figures(reading)
    folder.mkdir(parents=True, exist_ok=True)
    for figure in (figure for found in drawn.values() for figure in found):
        for ending, svg in as_svg(figure).items():
            (folder / f"{figure.name}{ending}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{figure.name}.png").write_bytes(as_png(figure))
    (folder / "index.html").write_text(page(reading, drawn, version), encoding="utf-8")


def arguments_of(command: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make report", description=__doc__.split(" SPDX")[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="results; docs/results/*.json and "
                        "bench/quoted.json, and then the documents are filled too")  # fmt: skip
    parser.add_argument("--output", type=pathlib.Path, help="the folder to write to (build/report)")
    parser.add_argument("--measure", action="store_true", help="measure this CPU first, into docs/results/cpu.json")
    parser.add_argument("--program", type=pathlib.Path, help="the program to ask (build/evenkeel)")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the tree whose documents are filled")
    return parser.parse_args(command)


def main(command: list[str] | None = None) -> int:
    options = arguments_of(command)
    root = options.root.resolve()
    results, path = root / "docs" / "results", options.program or root / "build" / "evenkeel"
    output = options.output or root / "build" / "report"
    if options.measure and (wrong := program.measure(path, results / "cpu.json", root / ".venv" / "lib")):
        print(f"report: {wrong}", file=sys.stderr)
        return 1
    paths = [file.resolve() for file in options.files] or kept_files(root)
    version = version_of(root)
    reading = read_files(paths, version, root)
    ask_program(reading, path, root, version)
    if lacking := why_no_answers(reading, path):
        reading.remarks.append(lacking)
    for line in reading.problems + reading.remarks:
        print(f"report: {line}", file=sys.stderr)
    try:
        write_page(reading, output, version)
    except OSError as error:
        print(f"report: --output {output}: it cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    if not options.files and reading.problems:
        print("report: README.md, docs/performance.md and their pictures are left as they are: without what is left "
              "out above they would say something else", file=sys.stderr)  # fmt: skip
    elif not options.files:
        fill_tables(root, reading)
        draw_pictures(root, reading)
    empty = [kind for kind in ROWS if not reading.of(kind)]
    files = [source for source in reading.sources if source.name.endswith(".json")]
    print(f"{output / 'index.html'}: {len(files)} files, {len(all_rows(reading))} results"
          + (f"; nothing of the kinds {', '.join(empty)}" if empty else ""))  # fmt: skip
    return 1 if reading.problems else 0


if __name__ == "__main__":
    sys.exit(main())
