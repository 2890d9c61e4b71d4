"""The cost model's answers, `evenkeel explain --json`: the work that belongs to a measured row; and the copy that is
its limit. page.py, plots.py, tables.py and __main__.py call it. SPDX-License-Identifier: MIT"""

from dataclasses import dataclass
from typing import Any

from .read import Source
from .rows import ELEMENT_BYTES, Row


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes


def largest_copy(machine: Source) -> dict[str, Any]:
    """The copy that is a roofline's slope, as `evenkeel explain` takes it: of the largest size, which no cache holds;
    with so many threads as are fastest."""
    return max(machine.data["copy"], key=lambda record: (record["bytes"], record["bytes_per_second"]))


def key_of(data: dict[str, Any]) -> tuple:
    """What a row is found by: op, pass, bytes of an element, rows, columns, device ("" where it is not said)."""
    sizes = data["sizes"]
    device = {"cuda": "gpu", "cpu": "cpu"}.get(data.get("device", ""), "")
    rows = sizes.get("batch_size", 1) * sizes.get("seq_len", 1)
    return data["op"], data["pass"], ELEMENT_BYTES.get(data.get("dtype", "")), rows, sizes.get("hidden_size"), device


def largest_rows(rows: list[Row], device: str) -> list[Row]:
    """Of each op, dtype and pass of ours the row with the most bytes; of equals the faster."""
    best: dict[tuple, Row] = {}
    for row in rows:
        if row.device == device and row.usable and row.backend == "evenkeel" and row.of_copy:
            kept = best.get(row.cell[:4])
            if kept is None or (row.bytes, -row.seconds) > (kept.bytes, -kept.seconds):
                best[row.cell[:4]] = row
    return [best[key] for key in sorted(best)]


def work_of(row: Row, explained: list[Source]) -> Work | None:
    """FLOP and bytes of our kernels at a row's shape; those of another shape scaled, for both grow with rows x cols."""
    size, fallback = ELEMENT_BYTES.get(row.dtype), None
    for source in explained:
        op, direction, element, rows, cols, device = key_of(source.data)
        ours = next((v["total"] for v in source.data["variants"] if v["name"] == "evenkeel"), None)
        if ours is None or (op, direction, element) != (row.op, row.direction, size) or not rows or not cols:
            continue
        if device not in (row.device, ""):
            continue
        moved = ours["read_bytes"] + ours["write_bytes"]
        if not ours["flops"] or not moved:
            continue
        scale = row.rows * row.cols / (rows * cols)
        if scale == 1:
            return Work(ours["flops"], moved)
        fallback = fallback or Work(ours["flops"] * scale, moved * scale)
    return fallback
