"""evenkeel beside other libraries' LayerNorm and RMSNorm, alone and with their neighbours, in one run.

    python bench/compare.py                                        every backend, on the GPU if there is one
    python bench/compare.py --backends evenkeel,pytorch --quick    two of them, two shapes: under a minute
    python bench/compare.py --device cpu --threads 2 --output-dir results
    python bench/compare.py --shapes 2048x4096,7x1000 --dtypes bf16,f16 --pass backward
    python bench/compare.py --sets fused --draw 8 --seed 3         eight cells of fused ops
    python bench/compare.py --budget 600 --json compare.json       at most ten minutes, the least important left out

Every backend runs in a process of its own: one that crashes or hangs costs its own rows and no others. Its values are
held against float64 before it is timed, and one that is wrong is not timed. A copy of as many bytes is timed by turns
with it: `of copy` is the time of that copy over the time of the op, so 1.00 is the limit of the memory. On a GPU the
time is the device's, by CUDA graphs over buffers that do not fit its cache; `host us` is that of a loop of calls.
bench/README.md has the rest. SPDX-License-Identifier: MIT
"""

import argparse
import datetime
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from comparison import plan, runner, tables
from comparison.backends import BACKENDS
from comparison.case import DTYPES, SETS, Case
from comparison.ops import OPS, PASSES, PLAIN
from comparison.progress import Progress
from comparison.quoted import Quoted
from comparison.results import Results, write_csv, write_folder, write_json
from comparison.shapes import Shape, model_of
from comparison.yardstick import compile_copy

BEGAN = time.monotonic()
MOST_COLS, MOST_ELEMENTS = 1 << 24, 1 << 36


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"compare.py: {message}\n")  # one line; --help has the rest


# ---- options ----


def listed(names: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """A parser of `a,b,c`, each one of the names."""

    def parse(text: str) -> tuple[str, ...]:
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return tuple(dict.fromkeys(text.split(",")))

    return parse


def parse_shapes(text: str) -> tuple[Shape, ...]:
    shapes = []
    for part in text.split(","):
        rows, _, cols = part.partition("x")
        if not (rows.isascii() and rows.isdigit() and cols.isascii() and cols.isdigit()) or not int(rows) * int(cols):
            raise argparse.ArgumentTypeError(f"{part!r} is no shape: ROWSxCOLS, both from 1 on, as 2048x4096")
        if int(cols) > MOST_COLS or int(rows) * int(cols) > MOST_ELEMENTS:
            raise argparse.ArgumentTypeError(f"{part!r} is too large: at most {MOST_COLS} columns, 2^36 elements")
        shapes.append(Shape(int(rows), int(cols), model_of(int(rows), int(cols))))
    return tuple(shapes)


def number(least: float, kind: type = float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if not least <= value < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:g} on")
        return value

    return parse


def file(text: str) -> str:
    path = Path(text)
    if text != "-" and (not path.absolute().parent.is_dir() or path.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: its folder is not there, or it is one")
    return text


def python_file(text: str) -> str:
    if not text.endswith(".py") or not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no Python file")
    if label_of(text) in BACKENDS:
        raise argparse.ArgumentTypeError(f"{text!r} would be called {label_of(text)}, as one of --backends is")
    return text


def label_of(name: str) -> str:
    """What a backend is called: by its own name, or that of the file that holds it."""
    return Path(name).stem if name.endswith(".py") else name


def arguments() -> Parser:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is compared (lists are separated by commas)").add_argument
    what("--backends", type=listed(tuple(BACKENDS)), metavar="A,B", help=", ".join(BACKENDS))
    what("--extra", type=python_file, action="append", default=[], metavar="FILE.py",
         help="one more backend: the class Backend of a file; comparison/backends/base.py says how")  # fmt: skip
    what("--ops", type=listed(tuple(OPS)), default=(), metavar="OP,OP",
         help=f"{', '.join(OPS)}; by default those of a set, mostly {' and '.join(PLAIN)}")  # fmt: skip
    what("--pass", type=listed(PASSES), default=PASSES, dest="passes", metavar="P,P",
         help=", ".join(PASSES) + " (forward + backward)")  # fmt: skip
    what("--dtypes", type=listed(tuple(DTYPES)), default=(), metavar="D,D",
         help=f"{', '.join(DTYPES)}; by default what a set is about")  # fmt: skip
    what("--sets", type=listed(SETS), default=(), metavar="S,S",
         help=f"of shapes: {', '.join(SETS)}; the first four on a GPU, models on a CPU")  # fmt: skip
    what("--shapes", type=parse_shapes, default=(), metavar="MxN,MxN", help="these instead of sets")
    what("--draw", type=number(1, int), default=0, metavar="N",
         help="so many cells (op, shape, dtype, pass) of --sets, else of any op at many shapes")  # fmt: skip
    what("--seed", type=number(0, int), default=0, metavar="S", help="of --draw: a number stands for its cells (0)")
    what("--quick", action="store_true", help="two shapes, one dtype, fewer rounds")
    what("--full", action="store_true", help="also the edges: one row, one column, odd widths")
    what("--quoted", action=argparse.BooleanOptionalAction, default=True,
         help="figures of quoted.json for what is not installed, on the GPU they come from")  # fmt: skip
    how = parser.add_argument_group("how").add_argument
    how("--device", choices=("cpu", "cuda"), help="the GPU where there is one, else the CPU")
    how("--threads", type=number(1, int), default=len(os.sched_getaffinity(0)), help="of the CPU (all)")
    how("--time-limit", type=number(1), default=600.0, metavar="SECONDS", help="of one backend (600)")
    how("--budget", type=number(1), metavar="SECONDS", help="of the whole run, shared by the backends")
    files = parser.add_argument_group("files (- is standard output)").add_argument
    files("--json", type=file, metavar="FILE", help="everything")
    files("--csv", type=file, metavar="FILE", help="the times")
    files("--output-dir", type=Path, metavar="DIR", help="compare.json, and a CSV file of every list")
    return parser


def wishes_of(options: argparse.Namespace, device: str) -> plan.Wishes:
    fields = ("ops", "passes", "dtypes", "sets", "shapes", "quick", "full", "draw", "seed")
    return plan.Wishes(device, **{name: getattr(options, name) for name in fields})


def check_together(options: argparse.Namespace) -> str:
    """What is wrong with options that are right one by one; "" where nothing is."""
    if options.json == options.csv == "-":
        return "--json - --csv -: only one of them can be standard output"
    labels = [label_of(path) for path in options.extra]
    if twice := next((label for label in labels if labels.count(label) > 1), ""):
        return f"argument --extra: two files are called {twice}: their results could not be told apart"
    return plan.why_nothing(wishes_of(options, options.device or "cpu"))  # which does not depend on the device


# ---- the run ----


class Run:
    """One comparison: the backends one after another, their results as they come."""

    def __init__(self, options: argparse.Namespace, machine: dict, evenkeel: str | None, copy: str | None) -> None:
        self.options, self.device, self.copy = options, machine["device"], copy
        self.wishes = wishes_of(options, self.device)
        self.cases = plan.cases(self.wishes)
        self.units = plan.units(self.wishes, self.cases)
        command = shlex.join(["python", "bench/compare.py", *sys.argv[1:]])
        self.results = Results(evenkeel, datetime.date.today().isoformat(), command, machine)
        self.ops: dict[str, list[str]] = {}  # that a backend has, once it is loaded
        self.quoted = Quoted(machine["gpu"] if options.quoted and self.device == "cuda" else None)

    def backends(self) -> list[str]:
        alone = self.wishes.chosen_sets == ("sizes",)  # a set about evenkeel's own widths
        here = [name for name, place in BACKENDS.items() if self.device in place.devices]
        here = ["evenkeel"] if alone else here
        return [*(self.options.backends or here), *self.options.extra]

    def _why_not(self, name: str) -> str:
        """Why there is no use in starting a backend; "" where there is."""
        place = BACKENDS.get(name)
        if place and self.device not in place.devices:
            return f"does not run on {self.device}"
        return "" if not place or place.is_installed() else f"not installed: {place.install}"

    def measure(self) -> None:
        absent = {name: why for name in self.backends() if (why := self._why_not(name))}
        left = len(self.backends()) - len(absent)
        progress = Progress(left, len(self.units))
        ends = BEGAN + (self.options.budget or float("inf"))
        for name in self.backends():
            found = {"name": label_of(name), "version": None, "status": "failed", "note": ""}
            self.results.backends.append(found)
            if name in absent:
                self._absent(found, absent[name])
                continue
            share = max(0.0, (ends - time.monotonic()) / left)
            self._measure(name, found, min(self.options.time_limit, share), progress)
            left -= 1
            progress.finish()
            self.write()
        self.write()
        progress.close()

    def _measure(self, name: str, found: dict, limit: float, progress: Progress) -> None:
        def hear(message: dict) -> None:
            if message["kind"] == "loaded":
                found.update(version=message["version"], note=message["note"])
                self.ops[found["name"]] = message["ops"]
            elif message["kind"] in ("missing", "broken"):
                status = {"missing": "missing", "broken": "failed"}[message["kind"]]
                self._absent(found, f"does not load: {_joined(message['why'], message['install'])}", status)
            elif message["kind"] == "begin":
                progress.step(found["name"])
            self.results.hear(message)

        options, place = self.options, BACKENDS.get(name)
        job = {"backend": name, "name": found["name"], "install": place.install if place else "", "device": self.device}
        job |= {"threads": options.threads, "quick": options.quick, "copy": self.copy, "units": self.units}
        end = runner.run(job, limit, hear, lambda unit, end: self._lost(found["name"], unit, end))
        self._conclude(found, end.why)

    def _conclude(self, found: dict, why: str) -> None:
        """The status of all its rows, and beside its own note what went wrong: not done, wrong values, or nothing but
        failures."""
        rows = self.results.rows_of(found["name"])
        wrong = [row for row in rows if row["status"] == "wrong"]
        if any(row["status"] == "ok" for row in rows):
            found["status"] = "run"
        elif not self._has_any(found["name"]):
            found.update(status="skipped", note=_joined(found["note"], "has none of the ops"))
        elif wrong:
            found["status"] = "wrong"
        if wrong:
            found["note"] = _joined(found["note"], f"wrong in {len(wrong)} of {len(rows)} results: {wrong[0]['note']}")
        elif found["status"] == "failed" and rows and not why:
            found["note"] = _joined(found["note"], rows[0]["note"])
        found["note"] = _joined(found["note"], why)

    def _has_any(self, name: str) -> bool:
        return name not in self.ops or any(case.op in self.ops[name] for case in self.cases)

    def interrupted(self) -> None:
        """What there is, is kept."""
        if self.results.backends:
            self._conclude(self.results.backends[-1], "interrupted")
        self.write()

    def _absent(self, found: dict, why: str, status: str = "missing") -> None:
        """Quoted where there are figures of this GPU."""
        found.update(status=status, note=why)
        if self.quoted.has(found["name"]):
            self.results.results += self.quoted.rows(found["name"], self.cases, self.device)
            found.update(status="quoted", note=f"{self.quoted.date}, {self.quoted.source}; {why}")

    def _lost(self, name: str, unit: int, end: runner.End) -> None:
        """Rows for what was not measured."""
        if self.units[unit]["do"] != "case":
            return
        case = Case.from_json(self.units[unit]["case"])
        if case.op not in self.ops.get(name, (case.op,)):
            return
        status = "timeout" if end.how == "timeout" else "failed"
        has = {row["pass"] for row in self.results.rows_of(name) if _same(row, case)}
        for what in case.passes:
            if what not in has:
                self.results.results.append(case.row(name, what, self.device, case.dtype, status, end.why))

    def write(self) -> None:
        """After every backend, so that a run that is ended leaves what it has."""
        options = self.options
        if options.json and options.json != "-":
            write_json(self.results, options.json)
        if options.csv and options.csv != "-":
            write_csv(self.results, options.csv)
        if options.output_dir:
            write_folder(self.results, options.output_dir)

    def show(self) -> None:
        files = ((write_json, self.options.json), (write_csv, self.options.csv))
        to_stdout = [write for write, path in files if path == "-"]
        tables.show(self.results, sys.stderr if to_stdout else sys.stdout)
        for write in to_stdout:
            write(self.results, "-")


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _same(row: dict, case: Case) -> bool:
    return all(row[key] == getattr(case, key) for key in ("op", "dtype", "rows", "cols", "set")) and (
        row["bias"] == int(case.bias)
    )


def yardstick(machine: dict, folder: Path) -> str | None:
    """The library that holds a CPU's copy; where it cannot be compiled, the results and a line say so."""
    if machine["device"] != "cpu":
        return None
    try:
        library = str(compile_copy(folder))
    except RuntimeError as error:
        machine["copy"] = "PyTorch's alone"
        print(f"compare.py: shares are of PyTorch's copy, for cli/copy.c is not compiled: {error}", file=sys.stderr)
        return None
    machine["copy"] = "the faster of PyTorch's and evenkeel bench's"
    return library


def start(options: argparse.Namespace, folder: Path) -> Run:
    try:
        machine, evenkeel = runner.describe()
    except RuntimeError as error:
        sys.exit(f"compare.py: PyTorch does not load: {error}: pip install torch")
    if options.device == "cuda" and not machine["gpu"]:
        print("compare.py: --device cuda: there is no GPU that PyTorch can use; --device cpu is", file=sys.stderr)
        sys.exit(3)
    machine |= {"threads": options.threads, "device": options.device or ("cuda" if machine["gpu"] else "cpu")}
    return Run(options, machine, evenkeel, yardstick(machine, folder))


def measure_and_show(run: Run) -> int:
    try:
        run.measure()
        ours = (*run.results.rows_of("evenkeel"), *run.results.rows_of("evenkeel-dlpack"))
        status = int(any(row["status"] == "wrong" for row in ours))
    except KeyboardInterrupt:
        run.interrupted()
        status = 130
    try:
        run.show()
    except BrokenPipeError:  # of a reader such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return status


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    if complaint := check_together(options):
        parser.error(complaint)
    if options.output_dir:
        try:
            options.output_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"argument --output-dir: {error.strerror}: {str(options.output_dir)!r} must be a folder")
    with tempfile.TemporaryDirectory() as folder:
        run = start(options, Path(folder))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside: the same as Ctrl-C
        return measure_and_show(run)


if __name__ == "__main__":
    sys.exit(main())
