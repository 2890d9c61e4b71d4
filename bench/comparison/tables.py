"""Results as tables for people. Called by bench/compare.py. SPDX-License-Identifier: MIT"""

from collections.abc import Callable, Iterable
from typing import Any, TextIO

from comparison.case import PARTS
from comparison.ops import OPS, PASSES
from comparison.results import Results

Rows = list[dict]


def _grouped(rows: Iterable[dict], *keys: str) -> dict[tuple, Rows]:
    groups: dict[tuple, Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "–" if value is None else format(value * scale, form)


def _write(out: TextIO, head: tuple[str, ...], body: list[tuple[str, ...]], left: int) -> None:
    """A table; the first `left` columns and the last are words, the others numbers."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    for line in (head, *body):
        words = [
            text.ljust(width) if i < left or i == len(line) - 1 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(words).rstrip(), file=out)


# ---- speed ----


def speed_up(row: dict, ours: dict | None) -> float | None:
    """How many times evenkeel's speed is this one's: the ratio of their shares of a copy, each of its own process."""
    if not ours or ours["backend"] == row["backend"] or not ours["of_copy"] or not row["of_copy"]:
        return None
    return ours["of_copy"] / row["of_copy"]


def _speed_line(row: dict, ours: dict | None) -> tuple[str, ...]:
    faster = speed_up(row, ours)
    seconds = row["seconds"]
    note = row["note"] if row["status"] in ("ok", "quoted") else f"{row['status']}: {row['note']}"
    return (
        f"{row['rows']}x{row['cols']}",
        row["backend"],
        _number(row["of_copy"], ".2f"),
        _number(seconds, ".1f", 1e6),
        _number(row["host_seconds"], ".1f", 1e6),
        _number(row["bytes"] / seconds if seconds else None, ".0f", 1e-9),
        "" if faster is None else f"{faster:.2f}x",
        f"{row['model']}{': ' if row['model'] and note else ''}{note}",
    )


def _speed(results: Results, out: TextIO) -> None:
    gpu = results.machine["device"] == "cuda"
    head = "shape", "backend", "of copy", "device us" if gpu else "us", "host us", "GB/s", "evenkeel is", ""
    reached = (row for row in results.results if row["status"] != "timeout")  # the list of backends says why
    for (op, what, dtype, bias), rows in _grouped(reached, "op", "pass", "dtype", "bias").items():
        form = "forward + backward" if what == "both" else what
        print(f"\n{op} {form}, {dtype}, {'weight and bias' if bias else 'weight'}", file=out)
        lines = []
        for shape in _grouped(rows, "rows", "cols").values():
            ours = next((row for row in shape if row["backend"] == "evenkeel"), None)
            lines += [_speed_line(row, ours) for row in shape]
        _write(out, head, lines, 2)


# ---- shares of a copy at a glance ----

# Sets whose results are also one table: what a line and a column stand for.
GLANCES: dict[str, tuple[Callable[[dict], tuple[str, str]], Callable[[dict], str]]] = {
    "fused": (lambda row: (row["op"], row["backend"]), lambda row: f"{row['rows']}x{row['cols']}"),
    "block": (lambda row: (row["op"], row["backend"]), lambda row: f"{row['rows']}x{row['cols']}"),
    "sizes": (lambda row: (row["op"], f"{row['cols']} columns"), lambda row: row["model"]),
}


def _glance(rows: Rows, name: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and body: in each cell the shares of forward and backward."""
    line_of, column_of = GLANCES[name]
    shares: dict[tuple[str, str], dict[tuple[str, str], float | None]] = {}
    for row in sorted(rows, key=lambda row: list(OPS).index(row["op"])):  # which keeps the order of one op
        shares.setdefault(line_of(row), {})[column_of(row), row["pass"]] = row["of_copy"]
    columns = list(dict.fromkeys(map(column_of, rows)))
    body = [
        (
            *line,
            *(" / ".join(_number(found.get((column, what)), ".2f") for what in PASSES[:2]) for column in columns),
            "",
        )
        for line, found in shares.items()
    ]
    return ("op", "", *columns, ""), body


def _glances(results: Results, out: TextIO) -> None:
    """Of evenkeel alone at sizes: others are in the tables above."""
    for (name, dtype), rows in _grouped(results.results, "set", "dtype").items():
        shown = [row for row in rows if name != "sizes" or row["backend"] == "evenkeel"]
        if name in GLANCES and shown:
            print(f"\n{name}, {dtype}: share of a copy, forward / backward", file=out)
            _write(out, *_glance(shown, name), 2)


# ---- values, memory, backends ----


def _accuracy(results: Results, out: TextIO) -> None:
    for (op, dtype), rows in _grouped(results.accuracy, "op", "dtype").items():
        print(f"\n{op} {dtype}: the largest difference from float64", file=out)
        parts = [part for part in PARTS if any(row[part] is not None for row in rows)]
        body = [
            (f"{row['rows']}x{row['cols']}", row["backend"], *(_number(row[part], ".1e") for part in parts), "")
            for shape in _grouped(rows, "rows", "cols").values()
            for row in shape
        ]
        _write(out, ("shape", "backend", *parts, ""), body, 2)


def _offsets(results: Results, out: TextIO) -> None:
    for (op, dtype), rows in _grouped(results.offsets, "op", "dtype").items():
        offsets = list(dict.fromkeys(row["offset"] for row in rows))
        print(f"\n{op} {dtype}: the largest error of y where the mean is so many times the deviation", file=out)
        body = []
        for (backend,), found in _grouped(rows, "backend").items():
            errors = {row["offset"]: _number(row["error"], ".1e") for row in found}
            body.append((backend, *(errors.get(offset, "–") for offset in offsets), ""))
        _write(out, ("backend", *(f"{offset:g}" for offset in offsets), ""), body, 1)


def _memory(results: Results, out: TextIO) -> None:
    for (op, dtype), rows in _grouped(results.memory, "op", "dtype").items():
        print(f"\n{op} {dtype}: MB of forward + backward beyond its inputs", file=out)
        body = [
            (f"{row['rows']}x{row['cols']}", row["backend"])
            + tuple(_number(row[key], ".2f", 1e-6) for key in ("peak_bytes", "saved_bytes"))
            + (row["model"],)
            for shape in _grouped(rows, "rows", "cols").values()
            for row in shape
        ]
        _write(out, ("shape", "backend", "peak", "kept for backward", ""), body, 2)


def _backends(results: Results, out: TextIO) -> None:
    print("\nbackends", file=out)
    body = [
        (backend["name"], backend["version"] or "–", backend["status"], backend["note"]) for backend in results.backends
    ]
    _write(out, ("name", "version", "status", ""), body, 3)


PARTS_OF_A_REPORT: tuple[Callable[[Results, TextIO], Any], ...] = (
    _speed,
    _accuracy,
    _offsets,
    _memory,
    _glances,
    _backends,
)


def show(results: Results, out: TextIO) -> None:
    machine = results.machine
    where = machine["gpu"] if machine["device"] == "cuda" else f"{machine['cpu']}, {machine['threads']} threads"
    copy = f" ({machine['copy']})" if "copy" in machine else ""
    print(f"{where}, torch {machine['torch']}; of copy: 1.00 is the speed of a copy{copy} of the same bytes", file=out)
    for part in PARTS_OF_A_REPORT:
        part(results, out)
