"""Every timed cell of every file as one kind of row, and the questions that tables and pictures ask of them.
SPDX-License-Identifier: MIT"""

import statistics
from dataclasses import dataclass
from typing import Any

from . import theme
from .read import Reading, Source, shape_of

ELEMENT_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
TENSORS = {"forward": 2, "backward": 3, "both": 5}  # read or written once by a pass of a norm alone
LARGE = 8 << 20  # bytes of a pass from which a shape counts as large: launches and caches no longer decide


@dataclass(frozen=True)
class Row:
    source: str
    device: str  # "gpu" or "cpu"
    backend: str
    op: str
    direction: str
    dtype: str
    rows: int
    cols: int
    status: str
    seconds: float | None = None
    host_seconds: float | None = None
    of_copy: float | None = None  # time of a copy of the same bytes in the same run / time
    weight_dtype: str = ""
    weight: int = 1  # operands: 1 with, 0 without
    bias: int = 1
    threads: int = 0
    isa: str = ""
    model: str = ""
    group: str = ""
    note: str = ""
    date: str = ""
    cached: bool = False  # data in the caches: no copy to compare with
    moved_bytes: int = 0  # what the pass reads and writes, where the file says so

    @property
    def shape(self) -> str:
        return f"{self.rows} × {self.cols}"

    @property
    def cell(self) -> tuple[str, str, str, str, int, int]:
        return self.device, self.op, self.direction, self.dtype, self.rows, self.cols

    @property
    def bytes(self) -> int:
        alone = self.rows * self.cols * ELEMENT_BYTES.get(self.dtype, 4) * TENSORS[self.direction]
        return self.moved_bytes or alone

    @property
    def limit_seconds(self) -> float | None:
        return self.of_copy * self.seconds if self.of_copy and self.seconds else None

    @property
    def affine(self) -> bool:
        """With all operands that its op has, as models use it: what panels and tables compare."""
        return self.weight == 1 and (self.bias == 1 or "rms_norm" in self.op)

    @property
    def usable(self) -> bool:
        """Checked and timed, here or where it is quoted from."""
        return self.status in ("ok", "quoted") and self.seconds is not None and not self.cached


def _common(source: Source, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": source.name,
        "device": "gpu" if record["device"].startswith("cuda") else "cpu",
        "op": record["op"],
        "direction": record["pass"],
        "dtype": record["dtype"],
        "weight_dtype": record.get("weight_dtype") or "",
        "rows": record["rows"],
        "cols": record["cols"],
        "host_seconds": record.get("host_seconds"),
        "weight": record.get("weight", 1),
        "bias": record.get("bias", 1),
        "date": source.data.get("date", ""),
    }


def of_bench(source: Source) -> list[Row]:
    """Cells of `evenkeel bench`: ours, and a row for each peer that took turns with it."""
    found = []
    for cached in (False, True):
        for record in source.data["cached" if cached else "results"]:
            common = _common(source, record) | {"threads": record.get("threads", 0), "cached": cached, "status": "ok"}
            times = {"evenkeel": record["seconds"], **(record.get("peers") or {})}
            for backend, seconds in times.items():
                ours = backend == "evenkeel"
                share = None if cached else record["of_copy"] if ours else record["copy_seconds"] / seconds
                extra = common | ({"isa": record.get("isa", "")} if ours else {"host_seconds": None})
                found.append(Row(backend=backend, seconds=seconds, of_copy=share, **extra))
    return found


QUOTED = "quoted, "  # and the date of the figures: the note of a row that a comparison quotes


def _of_comparison(source: Source, record: dict[str, Any]) -> Row:
    fields, note = _common(source, record), record.get("note") or ""
    if record["status"] == "quoted" and note.startswith(QUOTED):
        fields["date"], note = note.removeprefix(QUOTED), ""  # older than the run that quotes it
    return Row(
        backend=record["backend"],
        status=record["status"],
        seconds=record.get("seconds"),
        of_copy=record.get("of_copy"),
        model=record.get("model") or "",
        group=record.get("set") or "",
        note=note,
        moved_bytes=record.get("bytes") or 0,
        **fields,
    )


def _of_compare(source: Source) -> list[Row]:
    return [_of_comparison(source, record) for record in source.data["results"]]


def _quoted_row(source: Source, table: dict[str, Any], shape: str, backend: str, figures: tuple[Any, float]) -> Row:
    """A library's time, or the word that stands in its place, and the copy's beside it."""
    found, copy = figures
    rows, cols = shape_of(shape)
    weight_dtype = table["weight_dtype"].get(backend, table["dtype"])
    common = _common(source, table | {"device": "cuda", "rows": rows, "cols": cols, "weight_dtype": weight_dtype})
    if isinstance(found, str):
        return Row(backend=backend, status="failed", note=f"quoted: {found}", **common)
    return Row(backend=backend, status="quoted", seconds=found * 1e-6, of_copy=copy / found, **common)


def _of_quoted(source: Source) -> list[Row]:
    """bench/quoted.json: of each shape a list, first a copy's time, then those of the table's libraries."""
    return [
        _quoted_row(source, table, shape, backend, (found, copy))
        for table in source.data["tables"]
        for shape, (copy, *times) in table["microseconds"].items()
        for backend, found in zip(table["backends"], times, strict=True)
        if found is not None
    ]


MAKERS = {"bench": of_bench, "quoted": _of_quoted, "compare": _of_compare}


def all_rows(reading: Reading) -> list[Row]:
    """What is quoted stands once, as the file of quoted figures has it, however many runs took it from there."""
    found = [row for kind, rows_of in MAKERS.items() for source in reading.of(kind) for row in rows_of(source)]
    kept, quoted = [], set()
    for row in found:
        key = (row.backend, row.cell, row.weight, row.bias) if row.status == "quoted" else None
        if key is None or key not in quoted:
            kept.append(row)
            quoted.add(key)
    return kept


# ---- questions ----


def select(rows: list[Row], device: str, op: str, dtype: str, direction: str) -> list[Row]:
    """Usable rows of one panel or table. A library that was measured is not quoted besides, nor quoted twice."""
    found = [r for r in rows if r.usable and r.affine and r.cell[:4] == (device, op, direction, dtype)]
    known = {(theme.label(r.backend), r.rows, r.cols) for r in found if r.status == "ok"}
    kept = []
    for row in found:
        key = (theme.label(row.backend), row.rows, row.cols)
        if row.status == "ok" or key not in known:
            kept.append(row)
            known.add(key)
    return kept


def one_run(rows: list[Row]) -> list[Row]:
    """Of a panel's rows: where one file holds ours and measured peers, that run alone (and what is quoted), so that
    lines compare; else ours of one file. Files of `evenkeel bench`, whose copy is the fastest, come first."""
    files = {r.source for r in rows if r.status == "ok" and theme.is_ours(r.backend)}
    shared = {
        f for f in files if any(r.source == f and r.status == "ok" and not theme.is_ours(r.backend) for r in rows)
    }
    benches = {r.source for r in rows if r.isa}  # the level is what evenkeel's own program knows
    chosen = max(shared or files, key=lambda f: (f in benches, sum(r.source == f for r in rows), f), default=None)
    return [r for r in rows if r.source == chosen or r.status == "quoted"]


def measured_or_quoted(rows: list[Row]) -> list[Row]:
    """Of a picture's rows: what is quoted of a library alone that was measured neither so nor in its default form, so
    that a line is all of one kind."""
    measured = {theme.label(r.backend) for r in rows if r.status == "ok"}

    def is_known(row: Row) -> bool:
        return bool(measured & {theme.label(row.backend), theme.library(row.backend).default})

    return [r for r in rows if r.status == "ok" or not is_known(r)]


def by_width(rows: list[Row]) -> dict[str, list[Row]]:
    """A line for each library: at each width the largest shape that ours was measured at."""
    most: dict[int, int] = {}
    for row in rows:
        if row.backend == "evenkeel":
            most[row.cols] = max(most.get(row.cols, 0), row.rows)
    lines: dict[str, dict[int, Row]] = {}
    for row in rows:
        if most.get(row.cols) == row.rows:
            lines.setdefault(row.backend, {})[row.cols] = row
    return {name: [lines[name][cols] for cols in sorted(lines[name])] for name in sorted(lines, key=theme.place)}


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def geometric_mean(values: list[float]) -> float | None:
    return statistics.geometric_mean(values) if values else None


def panels(rows: list[Row], device: str) -> list[tuple[str, str, str]]:
    """The (op, dtype, pass) that a device was measured in: single passes first, LayerNorm, 16 bits."""
    found = {(r.op, r.dtype, r.direction) for r in rows if r.device == device and r.usable}
    ops, dtypes = list(theme.OPS), list(theme.DTYPES)

    def order(key: tuple[str, str, str]) -> tuple:
        op, dtype, direction = key
        return (
            direction == "both",
            ops.index(op) if op in ops else len(ops),
            dtypes.index(dtype) if dtype in dtypes else len(dtypes),
            theme.PASSES.index(direction),
            key,
        )

    return sorted(found, key=order)
