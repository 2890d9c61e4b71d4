#!/usr/bin/env python3
"""The bytes that a GPU's memory moves for a norm, counted by Nsight Compute, beside those of `evenkeel explain`.

    python3 tests/dram/count.py build/evenkeel              every case; exit status 0 where all agree, else 1
    python3 tests/dram/count.py build/evenkeel --quick      two cases
    python3 tests/dram/count.py build/evenkeel --keep DIR   keeps what ncu wrote, a file a case

A case is one call of the op by `evenkeel run`. ncu empties the caches before every kernel, so that all that a kernel
reads comes from memory. What it writes may still be in the L2 when it ends (25 MB on an H200): tensors have a gigabyte,
of which that is little. Called by tests/gpu_check.sh (part dram). SPDX-License-Identifier: MIT"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
METRICS = (READ, WRITTEN)
TOLERANCE = 0.05

PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Case:
    """One call."""

    op: str
    direction: str
    dtype: str
    rows: int
    cols: int

    def __str__(self) -> str:
        return f"{self.op} {self.direction} {self.rows}x{self.cols} {self.dtype}"

    def words(self) -> list[str]:
        words = [self.op, "--pass", self.direction, "--dtype", self.dtype, "--device", "cuda"]
        return [*words, "--weight", "1", "--bias", "1"]


SHAPES = (
    ("layer_norm", "bf16", 131072, 4096),
    ("layer_norm", "bf16", 1048576, 512),
    ("layer_norm", "bf16", 65536, 8192),
    ("layer_norm", "bf16", 16384, 32768),
    ("layer_norm", "f32", 65536, 4096),
    ("rms_norm", "bf16", 131072, 4096),
)
CASES = [Case(op, direction, *shape) for op, *shape in SHAPES for direction in ("forward", "backward")]
QUICK = CASES[:2]


class Unreadable(Exception):
    """What a tool wrote is not what was expected; the text says what."""


@dataclass
class Kernel:
    name: str
    bytes: dict[str, float]


# ---- what ncu writes ----


def number_of(text: str) -> float:
    """1,234,567.8 and 1234567.8 alike."""
    try:
        return float(text.replace(",", "").replace("\u202f", "").replace(" ", ""))
    except ValueError:
        raise Unreadable(f"{text!r} is no number") from None


def bytes_of(text: str, unit: str) -> float:
    """A value of ncu in bytes: of byte, Kbyte, Mbyte, …"""
    word = unit.strip().lower()
    if not word.endswith("byte") or word[:-4] not in PREFIXES:
        raise Unreadable(f"{unit!r} is no unit of bytes")
    return number_of(text) * PREFIXES[word[:-4]]


def kernels_of(rows: list[list[str]]) -> list[Kernel]:
    """A row a kernel, a column a metric; the second row has the units."""
    head, units = rows[0], rows[1]
    missing = [metric for metric in METRICS if metric not in head]
    if missing:
        raise Unreadable(f"ncu's table has no {missing[0]}")
    columns = {metric: head.index(metric) for metric in METRICS}
    name = head.index("Kernel Name")
    return [Kernel(row[name], {key: bytes_of(row[at], units[at]) for key, at in columns.items()}) for row in rows[2:]]


def complaint_in(text: str) -> str:
    """What ncu says of itself in its log, if anything."""
    said = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    return said[0] if said else ""


def read_csv(text: str) -> list[Kernel]:
    """The kernels in what `ncu --csv` wrote, whatever it or the program said before."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        raise Unreadable(complaint_in(text) or "ncu wrote no table")
    rows = [row for row in csv.reader(line for line in lines[first:] if line.startswith('"')) if row]
    return kernels_of(rows)


# ---- a case ----


def said_by(command: list[str], log: Path | None = None) -> str:
    """Standard output, or what is in the log; of a program that fails its last words are the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = log.read_text() if log and log.exists() else done.stdout
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = complaint_in(text) or (lines[-1] if lines else "")
        raise Unreadable(f"{Path(command[0]).name} ended with status {done.returncode}: {last}")
    return text


def model_of(program: str, case: Case) -> dict[str, list]:
    """The kernels of the cost model, and their bytes."""
    sizes = ["--batch", "1", "--seq", str(case.rows), "--hidden", str(case.cols)]
    text = said_by([program, "explain", *case.words(), *sizes, "--json", "-"])
    variant = next(each for each in json.loads(text)["variants"] if each["name"] == "evenkeel")
    return {key: [kernel[key] for kernel in variant["kernels"]] for key in ("name", "read_bytes", "write_bytes")}


def count(program: str, ncu: str, case: Case, folder: Path) -> list[Kernel]:
    """The kernels of one call. `run` checks it on the CPU, by rows of a sample, which also shows that it is right."""
    log = folder / (str(case).replace(" ", "-") + ".csv")
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log), "--force-overwrite",
             "--cache-control", "all", "--clock-control", "none", "--kernel-name", f"regex:_{case.direction}_",
             "--metrics", ",".join(METRICS), program, "run", *case.words(), "--rows", str(case.rows),
             "--cols", str(case.cols), "--time", "0"]  # fmt: skip
    return read_csv(said_by(command, log))


@dataclass
class Row:
    """A line of the table: bytes that the model has, and bytes counted."""

    case: Case
    model_read: float
    model_written: float
    read: float
    written: float

    def complaints(self) -> list[str]:
        ratios = {"read": self.read / self.model_read, "written": self.written / self.model_written}
        return [name for name, ratio in ratios.items() if abs(ratio - 1) > TOLERANCE]


def row_of(case: Case, model: dict[str, list], kernels: list[Kernel]) -> Row:
    if len(kernels) != len(model["name"]):
        names = ", ".join(kernel.name for kernel in kernels) or "none"
        raise Unreadable(f"{len(model['name'])} kernels in the model, {len(kernels)} counted: {names}")
    read, written = (sum(kernel.bytes[metric] for kernel in kernels) for metric in METRICS)
    return Row(case, sum(model["read_bytes"]), sum(model["write_bytes"]), read, written)


HEAD = f"{'MB':38} {'model in':>9} {'dram in':>9} {'ratio':>6}  {'model out':>9} {'dram out':>9} {'ratio':>6}"


def line_of(row: Row) -> str:
    mb = 1e-6
    verdict = ", ".join(row.complaints())
    return (
        f"{row.case!s:38} {row.model_read * mb:9.1f} {row.read * mb:9.1f} {row.read / row.model_read:6.3f}"
        f"  {row.model_written * mb:9.1f} {row.written * mb:9.1f} {row.written / row.model_written:6.3f}"
        f"  {'ok' if not verdict else 'DIFFERS: ' + verdict}"
    )


def count_all(program: str, ncu: str, cases: list[Case], folder: Path) -> int:
    """Prints the table; how many cases differ or could not be counted."""
    wrong = 0
    print(HEAD)
    for case in cases:
        try:
            row = row_of(case, model_of(program, case), count(program, ncu, case, folder))
            wrong += bool(row.complaints())
            print(line_of(row), flush=True)
        except (Unreadable, OSError, KeyError, ValueError, StopIteration) as error:
            wrong += 1
            print(f"{case!s:38} NOT COUNTED: {error}", flush=True)
    print(f"{len(cases) - wrong} of {len(cases)} within {TOLERANCE:.0%}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program evenkeel")
    parser.add_argument("--ncu", default=shutil.which("ncu") or "/usr/local/cuda/bin/ncu", help="Nsight Compute")
    parser.add_argument("--keep", type=Path, help="a folder for what ncu writes")
    parser.add_argument("--quick", action="store_true", help="two cases")
    options = parser.parse_args()
    if not shutil.which(options.ncu):
        print(f"{options.ncu} is not there: install Nsight Compute, or name it with --ncu", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        keep = options.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        return 1 if count_all(options.program, options.ncu, QUICK if options.quick else CASES, keep) else 0


if __name__ == "__main__":
    sys.exit(main())
