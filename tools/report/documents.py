"""The tables that README.md and docs/performance.md hold between markers, and the two pictures of the README. They come
from the kept files of `evenkeel bench` and the peers that were measured or are quoted beside them.
SPDX-License-Identifier: MIT"""

import pathlib

from . import plots, theme
from .duels import Duel, Pair, duels
from .figure import as_svg
from .headlines import machine_name
from .read import Reading, Source
from .rows import Row, all_rows, of_bench, select
from .targets import CPU_SHAPES, GPU_SHAPES, SMALL, in_order, target

DTYPES = {"cpu": ("f32", "bf16", "f16", "f64"), "gpu": ("bf16", "f16", "f32", "f64")}
README_GPU_SHAPES = ((2048, 2048), (8192, 1024), (16384, 768), (2048, 4096), (1024, 8192), (4096, 8192), (65536, 512),
                     (4096, 16384), (32768, 4096))  # fmt: skip
ALL_FIGURES = "All figures: [docs/performance.md](docs/performance.md)."


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def held_against(row: Row) -> str:
    """The target, and whether it is reached."""
    want = target(row)
    return "–" if want is None else f"{want:.2f}" + (" ✓" if round(row.of_copy, 2) >= want else " (short)")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


# ---- CPU: evenkeel and the peer of the same run ----


def machine_line(source: Source) -> str:
    cell = next(iter(source.data["results"]), {})
    name = source.machine.get("cpu") or "this machine"
    return (
        f"{name}, {cell.get('threads', '?')} threads, level {cell.get('isa', '?')}, evenkeel {source.data['evenkeel']}."
    )


def _pairs(rows: list[Row], op: str, dtype: str, direction: str) -> list[tuple[Row, Row | None]]:
    """Ours and the peer at each shape."""
    found = select(rows, "cpu", op, dtype, direction)
    peers = {r.cell: r for r in found if r.backend == "onednn"}
    ours = in_order([r for r in found if r.backend == "evenkeel"], CPU_SHAPES)
    return [(r, peers.get(r.cell)) for r in ours]


def cpu_readme(source: Source) -> list[str]:
    """LayerNorm: one row a shape, one column a dtype and direction."""
    rows, columns = of_bench(source), [(d, p) for d in ("f32", "bf16") for p in ("forward", "backward")]
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for key in columns:
        for ours, peer in _pairs(rows, "layer_norm", *key):
            cells.setdefault(ours.shape, {})[key] = f"**{share(ours.of_copy)}** · {share(peer and peer.of_copy)}"
    body = [[shape, *(row.get(key, "–") for key in columns)] for shape, row in cells.items()]
    return table(["rows × cols", *(f"{d} {p}" for d, p in columns)], body) + [
        "LayerNorm's share of the speed of a copy of the same bytes (1.00 is the limit of the memory): **evenkeel** · "
        f"oneDNN. {machine_line(source)} {ALL_FIGURES}"
    ]


def cpu_performance(source: Source) -> list[str]:
    rows, lines = of_bench(source), [f"Measured on {machine_line(source)[:-1]}: `make report OPTIONS=--measure`.", ""]
    for op in theme.OPS:
        for dtype in DTYPES["cpu"]:
            for direction in ("forward", "backward"):
                body = [
                    [ours.shape, f"{ours.seconds * 1e3:.3f}", f"{ours.bytes / ours.seconds * 1e-9:.1f}",
                     f"**{share(ours.of_copy)}**", held_against(ours), share(peer and peer.of_copy),
                     share(peer and Pair(ours, peer).times)]
                    for ours, peer in _pairs(rows, op, dtype, direction)
                ]  # fmt: skip
                head = ["rows × cols", "ms", "GB/s", "of copy", "target", "oneDNN", "times faster"]
                lines += [f"### {theme.OPS[op]} {direction}, {dtype}", "", *table(head, body)] if body else []
    return (lines + small_calls(rows))[:-1]


def small_calls(rows: list[Row]) -> list[str]:
    """Calls whose data lies in the caches."""
    peers = {r.cell: r for r in rows if r.cached and r.backend == "onednn"}
    body = []
    for r in rows:
        if r.cached and r.backend == "evenkeel":
            want = SMALL.get((r.rows, r.cols)) if (r.dtype, r.direction) == ("f32", "forward") else None
            peer = peers.get(r.cell)
            body.append([theme.OPS.get(r.op, r.op), r.shape, r.dtype, r.direction, r.isa, str(r.threads),
                         f"{r.seconds * 1e6:.2f}", "–" if want is None else f"{want:g}",
                         f"{peer.seconds * 1e6:.2f}" if peer else "–"])  # fmt: skip
    head = ["op", "rows × cols", "dtype", "pass", "level", "threads", "µs", "target", "oneDNN µs"]
    return ["### Small calls, data in the caches", "", *table(head, body)] if body else []


# ---- GPU: evenkeel's own run, and beside it the others, of the comparisons or quoted ----


def _who(row: Row) -> str:
    return theme.label(row.backend) + (f", quoted {row.date}" if row.status == "quoted" else "")


def _gpu_cells(rows: list[Row], source: Source, op: str, dtype: str, direction: str) -> list[tuple[Row, Duel | None]]:
    """Ours of `evenkeel bench`, and what the others did there."""
    found = select(rows, "gpu", op, dtype, direction)
    beside = {duel.ours.cell: duel for duel in duels(found)}
    ours = [r for r in found if r.backend == "evenkeel" and r.source == source.name]
    return [(r, beside.get(r.cell)) for r in in_order(ours, GPU_SHAPES)]


def _gpu_row(row: Row, duel: Duel | None, with_peers: bool) -> list[str]:
    cells = [row.shape, f"{row.seconds * 1e6:.2f}", f"{row.limit_seconds * 1e6:.2f}", f"**{share(row.of_copy)}**"]
    if with_peers:
        best = duel and duel.best
        compared = best and best.ours if best and best.ours.source != row.source else None
        cells += [share(compared and compared.of_copy), held_against(row),
                  f"{best.peer.seconds * 1e6:.4g} ({_who(best.peer)})" if best else "–",
                  share(best and best.times)]  # fmt: skip
    return cells + [f"{row.host_seconds * 1e6:.2f}" if row.host_seconds else "–"]


def gpu_performance(source: Source, rows: list[Row]) -> list[str]:
    name, version = source.machine.get("gpu", "a GPU"), source.data["evenkeel"]
    lines = [f"Measured on {name}, evenkeel {version}: `evenkeel bench --device cuda --json {source.name}`.", ""]
    for op in theme.OPS:
        for dtype in DTYPES["gpu"]:
            for direction in ("forward", "backward"):
                found = _gpu_cells(rows, source, op, dtype, direction)
                with_peers = any(duel for _, duel in found)
                head = ["rows × cols", "µs", "copy µs" if direction == "forward" else "1.5 copies µs", "of copy"]
                if with_peers:
                    head += ["of PyTorch's copy", "target", "best peer, µs", "times faster"]
                body = [_gpu_row(row, duel, with_peers) for row, duel in found]
                title = [f"### {theme.OPS[op]} {direction}, {dtype}, on the GPU", ""]
                lines += title + table([*head, "µs in a loop"], body) if found else []
    return lines[:-1]


def _counted(pairs: list[Pair]) -> str:
    """Each library and in how many cells it is; that its weights are of another dtype, where they are."""
    names = []
    for backend in sorted({pair.peer.backend for pair in pairs}, key=theme.place):
        peers = [pair.peer for pair in pairs if pair.peer.backend == backend]
        weights = {peer.weight_dtype for peer in peers if peer.weight_dtype not in ("", peer.dtype)}
        other = f" (weights in {', '.join(sorted(weights))})" if weights else ""
        names.append(f"{theme.label(backend)} {len(peers)}{other}")
    return ", ".join(names)


def _who_counts(found: list[Duel]) -> str:
    """Which libraries the best peer was the best of: those that ran beside ours, and those that are quoted."""
    pairs = [pair for duel in found for pair in duel.pairs]
    ran, quoted = [pair for pair in pairs if not pair.quoted], [pair for pair in pairs if pair.quoted]
    words = f"A library counts where it ran, in so many of the {len(found)} cells: {_counted(ran)}." if ran else ""
    if quoted:
        dates = ", ".join(sorted({pair.peer.date for pair in quoted}))
        words += f" Quoted from runs of their own ({dates}): {_counted(quoted)}."
    return words.strip()


def gpu_readme(source: Source, rows: list[Row]) -> list[str]:
    """LayerNorm in bf16 against the best of the others."""
    found = {d: {(r.rows, r.cols): (r, duel) for r, duel in _gpu_cells(rows, source, "layer_norm", "bf16", d)}
             for d in ("forward", "backward")}  # fmt: skip
    body, told = [], []
    for shape in README_GPU_SHAPES:
        cells = []
        for ours, duel in (found[direction].get(shape, (None, None)) for direction in found):
            told += [duel] if duel else []
            cells += [f"**{share(ours.of_copy)}**" if ours else "–", share(duel and duel.best.times)]
        body += [[f"{shape[0]} × {shape[1]}", *cells]] if any(cell != "–" for cell in cells) else []
    lines = table(["rows × cols", "forward, of a copy", "times the best peer", "backward, of a copy",
                   "times the best peer"], body)  # fmt: skip
    words = (
        f"LayerNorm in bf16 on {source.machine.get('gpu', 'a GPU')}: share of the speed of a copy of the same bytes."
    )
    if told:
        words += (
            " Times the best peer: evenkeel's share over that of the fastest other library at that shape, both of one "
            f"run of [`bench/compare.py`](bench) where it has both. {_who_counts(told)}"
        )
    return [*lines, f"{words} {ALL_FIGURES}"]


# ---- into the tree ----


def fill(path: pathlib.Path, lines: list[str], name: str) -> None:
    """Replaces what stands between the markers of a document."""
    text, begin, end = path.read_text(encoding="utf-8"), f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"{path} must hold {begin} and then {end}, each once")
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1], encoding="utf-8")


# The README's pictures: panels, by device.
PICTURES = {
    "gpu": [("layer_norm", "bf16", "forward"), ("layer_norm", "bf16", "backward")],
    "cpu": [("layer_norm", "f32", "forward"), ("layer_norm", "f32", "backward")],
}


def fill_tables(root: pathlib.Path, reading: Reading) -> None:
    rows = all_rows(reading)
    for source in reading.of("bench"):
        device = "gpu" if any(r["device"].startswith("cuda") for r in source.data["results"]) else "cpu"
        marker = {"gpu": "gpu", "cpu": "bench"}[device]
        tables = {
            "README.md": gpu_readme(source, rows) if device == "gpu" else cpu_readme(source),
            "docs/performance.md": gpu_performance(source, rows) if device == "gpu" else cpu_performance(source),
        }
        for document, lines in tables.items():
            fill(root / document, lines, marker)


def draw_pictures(root: pathlib.Path, reading: Reading) -> None:
    rows = all_rows(reading)
    for device, wanted in PICTURES.items():
        figure = plots.shares(rows, device, machine_name(reading, rows, device), wanted)
        for ending, svg in (as_svg(figure) if figure else {}).items():
            (root / "docs" / f"share-{device}{ending}.svg").write_text(svg, encoding="utf-8")
