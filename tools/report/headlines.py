"""The figures at the top of the page: share of a copy, speed over the best peer, accuracy, same bits. page.py shows
them. SPDX-License-Identifier: MIT"""

from dataclasses import dataclass

from . import theme
from .duels import duels
from .read import Reading
from .rows import LARGE, Row, geometric_mean, median, one_run, panels, select


@dataclass(frozen=True)
class Tile:
    over: str
    figure: str
    what: str
    more: str


def machine_name(reading: Reading, rows: list[Row], device: str) -> str:
    """What the files call the machine that a device's rows were measured on."""
    names = {row.source for row in rows if row.device == device and row.status == "ok"}
    for source in reading.sources:
        if source.name in names:
            return str(source.machine.get("gpu" if device == "gpu" else "cpu") or theme.DEVICES[device])
    return theme.DEVICES[device]


def _large(rows: list[Row], device: str, dtype: str, direction: str) -> list[Row]:
    return [row for row in select(rows, device, "layer_norm", dtype, direction) if row.bytes >= LARGE]


def share_tile(rows: list[Row], device: str, machine: str, dtype: str) -> Tile | None:
    """LayerNorm at large shapes: the median share of a copy."""
    found = {}
    for direction in ("forward", "backward"):
        ours = [row for row in one_run(_large(rows, device, dtype, direction)) if row.backend == "evenkeel"]
        found[direction] = median([row.of_copy for row in ours])
    if found["forward"] is None:
        return None
    more = "forward" + (f", and {found['backward']:.2f} backward" if found["backward"] is not None else "")
    return Tile(
        f"{machine}, {dtype}", f"{found['forward']:.2f}", "of a copy’s speed", f"{more}: median of large shapes"
    )


def speed_tile(rows: list[Row], device: str, machine: str, dtype: str) -> Tile | None:
    """LayerNorm at large shapes: the mean gain over whichever library is fastest at each."""
    found = {d: duels(_large(rows, device, dtype, d)) for d in ("forward", "backward")}
    gains = {d: geometric_mean([duel.best.times for duel in cells]) for d, cells in found.items()}
    if gains["backward"] is None:
        return None
    pairs = [pair for cells in found.values() for duel in cells for pair in duel.pairs]
    peers = sorted({pair.peer.backend for pair in pairs}, key=theme.place)
    quoted = set(peers) - {pair.peer.backend for pair in pairs if not pair.quoted}
    forward = f", and {gains['forward']:.2f}× forward" if gains["forward"] else ""
    names = ", ".join(theme.label(peer) + " (quoted)" * (peer in quoted and quoted != set(peers)) for peer in peers)
    more = f"backward{forward}; of {names}, where each ran" + ", all quoted" * (quoted == set(peers))
    what = "the best other library" if len(peers) > 1 else theme.label(peers[0])
    return Tile(f"{machine}, {dtype}", f"{gains['backward']:.2f}×", what, more)


def _short(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def accuracy_tile(reading: Reading) -> Tile | None:
    """Error of y where the mean is far from zero: ours, and PyTorch's over it."""
    for source in reading.of("compare"):
        cells = {(r["backend"], r["op"], r["dtype"], r["offset"]): r["error"] for r in source.data["offsets"]}
        ours = cells.get(("evenkeel", "layer_norm", "f32", 1e4))
        others = [e for (b, op, dtype, o), e in cells.items()
                  if (op, dtype, o) == ("layer_norm", "f32", 1e4) and theme.label(b) == "PyTorch" and e]  # fmt: skip
        if ours:
            more = "where the mean is 10,000 deviations" + (f"; PyTorch’s: {_short(others[0])}" if others else "")
            return Tile("Accuracy, f32", _short(ours), "largest error of y", more)
    return None


def bits_tile(reading: Reading) -> Tile:
    versions = sorted({str(s.machine["numerics"]) for s in reading.sources if "numerics" in s.machine})
    rules = f", numerics {', '.join(versions)}" if versions else ""
    more = "on CPU and GPU, every instruction set, any threads, any batch; make test compares them"
    return Tile(f"Same bits{rules}", "1", "exact result", more)


def tiles(reading: Reading, rows: list[Row]) -> list[Tile]:
    found: list[Tile | None] = []
    for device in ("gpu", "cpu"):
        machine = machine_name(reading, rows, device)
        dtype = next((d for op, d, _ in panels(rows, device) if op == "layer_norm"), "bf16")
        if device == "cpu" and ("layer_norm", "f32", "forward") in panels(rows, device):
            dtype = "f32"
        found += [share_tile(rows, device, machine, dtype), speed_tile(rows, device, machine, dtype)]
    found += [accuracy_tile(reading), bits_tile(reading)]
    return [tile for tile in found if tile]
