"""The pictures: share of a copy by width, speed-ups, roofline, accuracy against the mean's offset, the copy itself.
Each function takes what was measured and gives a Figure, or None where nothing was. SPDX-License-Identifier: MIT"""

from typing import Any

from . import theme
from .costs import Work, largest_copy
from .duels import Duel, duels
from .figure import Figure, Key, Panel, Pen
from .read import Source
from .rows import Row, by_width, measured_or_quoted, one_run, panels, select

DASHES = (0, (3, 2))
SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
DTYPE_COLOURS = {"bf16": "ours", "f16": "quack", "f32": "torch", "f64": "apex"}
EVEN = 64  # columns: widths that are no multiple stand alone, for they say nothing of their neighbours
PASS_MARKERS = {"forward": "o", "backward": "s", "both": "D"}


def panel_title(op: str, dtype: str, direction: str) -> str:
    return f"{theme.OPS.get(op, op)} {theme.PASS_NAMES[direction]}, {dtype}"


def times(value: float) -> str:
    return f"{value:.2f}×"


def in_units(value: float, unit: str) -> str:
    """3.9e12 as 3.9 TB/s."""
    scale, prefix = next(((s, p) for s, p in SUFFIXES if value >= s), (1, ""))
    return f"{value / scale:.3g} {prefix}{unit}"


def width_words(cols: int) -> str:
    return f"{cols // 1024}k" if cols >= 16384 and cols % 1024 == 0 else str(cols)


def shown(backend: str) -> bool:
    """evenkeel called in other ways stands in the tables alone: its lines would lie on evenkeel's own."""
    return backend == "evenkeel" or not theme.is_ours(backend)


def said_where(row: Row) -> str:
    return f" (quoted, {row.date})" if row.status == "quoted" else ""


# ---- share of a copy by width ----


def _draw_shares(pen: Pen, lines: dict[str, list[Row]]) -> None:
    axes = pen.axes
    widths = sorted({row.cols for line in lines.values() for row in line})
    for backend in sorted(lines, key=theme.place, reverse=True):  # ours last, on top
        line, known = lines[backend], theme.library(backend)
        ours = known.colour == "ours"
        quoted = line[0].status == "quoted"  # as all of them
        style = {"color": pen[known.colour], "zorder": 4 if ours else 3}
        joined = [row for row in line if row.cols % EVEN == 0]
        axes.plot(
            [r.cols for r in joined],
            [r.of_copy for r in joined],
            linewidth=2.4 if ours else 1.2,
            linestyle=DASHES if quoted else "-",
            **style,
        )
        for row in line:
            (mark,) = axes.plot(
                row.cols, row.of_copy, known.marker, ms=5.5 if ours else 4, mew=0, clip_on=False, **style
            )
            words = f"{theme.label(backend)} {row.shape}: {row.of_copy:.2f} of a copy, {row.seconds * 1e6:.4g} µs"
            pen.tip(mark, words + said_where(row))
    axes.axhline(1, color=pen["text"], linewidth=1, linestyle=(0, (4, 3)), zorder=2)
    axes.set_xscale("log", base=2)
    powers = [2**i for i in range(32) if widths[0] <= 2**i <= widths[-1]]
    ticks = powers if 3 <= len(powers) <= 7 else powers[::2] if powers else widths
    axes.set_xticks(ticks, [width_words(t) for t in ticks])
    axes.minorticks_off()
    top = max([1.0] + [row.of_copy for line in lines.values() for row in line])
    axes.set_ylim(0, top + 0.06)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    pen.frame()
    pen.name_axes("columns", "share of a copy's speed")


def _library_keys(lines: list[dict[str, list[Row]]]) -> list[Key]:
    statuses: dict[str, set[str]] = {}
    for panel in lines:
        for backend, line in panel.items():
            statuses.setdefault(backend, set()).update(row.status for row in line)
    keys = []
    for backend in sorted(statuses, key=theme.place):
        known = theme.library(backend)
        for status, mark in (("ok", ""), ("quoted", " (quoted)")):  # both where panels differ
            if status in statuses[backend]:
                label = theme.label(backend) + mark
                keys.append(Key(label, known.colour, dashed=status == "quoted", marker=known.marker))
    return keys


def shares(
    rows: list[Row], device: str, machine: str, wanted: list[tuple[str, str, str]] | None = None
) -> Figure | None:
    """One panel for each op, dtype and pass that was measured at three widths or more."""
    drawn = []
    for key in wanted or panels(rows, device):
        op, dtype, direction = key
        found = [row for row in select(rows, device, op, dtype, direction) if shown(row.backend)]
        lines = by_width(measured_or_quoted(one_run(found)))
        if len(lines.get("evenkeel", ())) >= 3:
            drawn.append((panel_title(*key), lines))
    drawn = [panel for panel in drawn if len(panel[1]) > 1] or drawn  # ours alone says little beside the others
    if not drawn:
        return None
    made = [Panel(title, lambda pen, lines=lines: _draw_shares(pen, lines)) for title, lines in drawn]
    quoted = sorted({r.date for _, lines in drawn for line in lines.values() for r in line if r.status == "quoted"})
    note = "At each width the largest shape that was measured; widths that are no multiple of 64 stand alone. "
    note += "The dashed line at 1 is a copy of the same bytes."
    if quoted:
        note += (
            f" Dashed lines are quoted from runs of their own ({', '.join(quoted)}), against the copy of those runs; "
            "what is quoted of a library that was measured, so or in its default form, stands in the tables alone."
        )
    keys = _library_keys([lines for _, lines in drawn])
    alt = "Lines by number of columns, one for each library: the time of a copy over the time of the op."
    return Figure(f"share-{device}", f"Share of the speed of a copy, {machine}", machine, alt, made, keys, note)


# ---- speed-ups ----


def _draw_speedups(pen: Pen, found: list[Duel]) -> None:
    axes, names = pen.axes, []
    longest = max(pair.times for duel in found for pair in (duel.best, duel.torch or duel.best))
    for at, duel in enumerate(reversed(found)):
        names.append(duel.ours.shape)
        best, torch = duel.best, duel.torch
        both = torch is not None and torch is not best
        height = 0.4 if both else 0.62
        name = theme.label(best.peer.backend) + (", quoted" if best.quoted else "")
        bars = [(best, at + (0.2 if both else 0), "ours", f"{times(best.times)} {name}")]
        if both:
            bars.append((torch, at - 0.22, "faint", times(torch.times)))
        for pair, y, colour, words in bars:
            (bar,) = axes.barh(y, pair.times, height, color=pen[colour], zorder=2)
            name = theme.label(pair.peer.backend) + said_where(pair.peer)
            pen.tip(bar, f"{duel.ours.shape}: {times(pair.times)} {name}")
            end = max(pair.times, 1 if pair.times > 0.6 else 0)  # words do not lie across the line at 1
            axes.text(end + longest * 0.012, y, words, va="center", fontsize=8.5, color=pen["text"])
    axes.axvline(1, color=pen["text"], linewidth=1, linestyle=(0, (4, 3)), zorder=3)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(0, longest * 1.24)
    pen.frame(grid="")
    axes.set_xticks([0, 1] + ([2] if longest > 2 else []) + ([4] if longest > 4 else []))
    pen.name_axes("times as fast", "")


def speedups(rows: list[Row], device: str, machine: str) -> Figure | None:
    drawn = []
    for key in panels(rows, device):
        op, dtype, direction = key
        found = duels(select(rows, device, op, dtype, direction))
        if len(found) >= 2:
            drawn.append((panel_title(*key), found))
    if not drawn:
        return None
    made = [
        Panel(title, lambda pen, found=found: _draw_speedups(pen, found), height=0.8 + 0.34 * len(found))
        for title, found in drawn
    ]
    keys = [Key("over the fastest other library, named", "ours", "bar")]
    if any(duel.torch and duel.torch is not duel.best for _, found in drawn for duel in found):
        keys.append(Key("over PyTorch", "faint", "bar"))
    best = {theme.label(d.best.peer.backend) for _, found in drawn for d in found if d.best.quoted}
    note = f"Of runs of their own, quoted where none here has them: {', '.join(sorted(best))}." if best else ""
    alt = "Bars, one for each shape: evenkeel's share of a copy over the fastest other's. Longer than 1 is faster."
    return Figure(f"speedup-{device}", f"Speed over the others, {machine}", machine, alt, made, keys, note)


# ---- roofline ----


def _peak_lines(machine: Source | None, rows: list[Row]) -> tuple[float, str, dict[str, float]]:
    """The bandwidth of the largest copy and the FLOP rates: of the machine's file, else the copies of the runs."""
    if machine is None:
        rate = max(row.bytes / row.limit_seconds for row in rows)
        return rate, "fastest copy of the runs", {}
    rates: dict[str, float] = {}
    for record in machine.data["flops"]:
        rates[record["dtype"]] = max(rates.get(record["dtype"], 0), record["flops_per_second"])
    copy = largest_copy(machine)
    return copy["bytes_per_second"], f"measured copy of {copy['bytes'] / 2**20:g} MB", rates


def _draw_roofline(pen: Pen, points: list[tuple[Row, Work]], peaks: tuple[float, str, dict[str, float]]) -> None:
    axes, (bandwidth, what, rates) = pen.axes, peaks
    low = min(work.intensity for _, work in points) / 3
    ridge = max([rate / bandwidth for rate in rates.values()], default=max(work.intensity for _, work in points) * 3)
    high = ridge * 4 if rates else ridge
    axes.plot([low, ridge], [low * bandwidth, ridge * bandwidth], color=pen["text"], linewidth=1.6, zorder=2)
    words = f"the slope is the {what}, {in_units(bandwidth, 'B/s')}"
    axes.text(0.99, 0.03, words, transform=axes.transAxes, color=pen["text"], fontsize=9, ha="right")
    for dtype, rate in rates.items():
        axes.plot([rate / bandwidth, high], [rate, rate], color=pen["text"], linewidth=1.2, linestyle=DASHES, zorder=2)
        axes.text(high, rate * 1.08, f"{dtype}: {in_units(rate, 'FLOP/s')} ", color=pen["text"], fontsize=9, ha="right",
                  va="bottom")  # fmt: skip
    for row, work in points:
        colour = pen[DTYPE_COLOURS.get(row.dtype, "soft")]
        face = colour if row.op == "layer_norm" else "none"
        rate = work.flops / row.seconds
        (mark,) = axes.plot(work.intensity, rate, PASS_MARKERS[row.direction], ms=6.5, color=colour, mfc=face,
                            mew=1.4, zorder=3)  # fmt: skip
        reached = rate / (work.intensity * bandwidth)
        pen.tip(mark, f"{panel_title(row.op, row.dtype, row.direction)}, {row.shape}: {work.intensity:.2f} FLOP a "
                f"byte, {in_units(rate, 'FLOP/s')}, {reached:.2f} of the roof")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    bottom = min(work.flops / row.seconds for row, work in points) / 3
    axes.set_ylim(min(bottom, low * bandwidth), ridge * bandwidth * 2.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: in_units(value, ""))
    axes.minorticks_off()
    pen.frame(grid="both")
    pen.name_axes("FLOP for each byte moved", "FLOP/s")


def roofline(machines: list[tuple[str, list[tuple[Row, Work]], Source | None]]) -> Figure | None:
    """A panel for each machine: every op that was measured there, at its largest shape."""
    made, seen = [], []
    for name, points, limits in machines:
        if points:
            peaks = _peak_lines(limits, [row for row, _ in points])
            made.append(Panel(name, lambda pen, points=points, peaks=peaks: _draw_roofline(pen, points, peaks), 3.5))
            seen += [row for row, _ in points]
    if not made:
        return None
    passes = sorted({row.direction for row in seen}, key=theme.PASSES.index)
    keys = [Key(theme.PASS_NAMES[direction], "text", "point", marker=PASS_MARKERS[direction]) for direction in passes]
    for dtype in theme.DTYPES:
        if any(row.dtype == dtype for row in seen):
            keys.append(Key(dtype, DTYPE_COLOURS[dtype], "bar"))
    alt = "FLOP rate by FLOP for each byte, on logarithmic axes: every op lies below the slope of the memory."
    note = (
        "Each op, dtype and pass at the largest shape that was measured. Filled marks are LayerNorm, open ones RMSNorm."
    )
    return Figure("roofline", "Roofline", "Where the ops lie", alt, made, keys, note)


# ---- accuracy ----


def _offset_words(offset: float) -> str:
    return f"{offset:g}" if offset < 1e4 else f"{offset:.0e}".replace("e+0", "e")


def _draw_offsets(pen: Pen, lines: dict[str, dict[float, float | None]]) -> None:
    axes = pen.axes
    offsets = sorted({offset for line in lines.values() for offset in line})
    finite = [error for line in lines.values() for error in line.values() if error]
    floor, top = max(min(finite, default=1e-9) / 2, 1e-30), max(finite, default=1) * 4
    for backend in sorted(lines, key=theme.place, reverse=True):
        line, known = lines[backend], theme.library(backend)
        ours = known.colour == "ours"
        style = {"color": pen[known.colour], "zorder": 4 if ours else 3}
        good = [(offsets.index(o), max(e, floor)) for o, e in sorted(line.items()) if e is not None]
        axes.plot([x for x, _ in good], [y for _, y in good], linewidth=2.4 if ours else 1.2, **style)
        for offset, error in sorted(line.items()):
            y = top if error is None else max(error, floor)
            (mark,) = axes.plot(offsets.index(offset), y, "x" if error is None else known.marker,
                                ms=5.5 if ours or error is None else 4, clip_on=False, **style)  # fmt: skip
            words = "not a number" if error is None else f"{error:.2g}"
            pen.tip(mark, f"{theme.label(backend)}, mean {_offset_words(offset)} deviations: {words}")
    axes.set_yscale("log")
    axes.set_ylim(floor, top)
    axes.set_xticks(range(len(offsets)), [_offset_words(offset) for offset in offsets])
    axes.minorticks_off()
    pen.frame()
    pen.name_axes("mean, in deviations", "largest error of y")


def accuracy(sources: list[Source]) -> Figure | None:
    """Error against float64 as the mean moves away from 0; the widest rows of each op and dtype."""
    kinds: dict[tuple[str, str, str], dict[str, dict[float, float | None]]] = {}
    for source in sources:
        drawn = [r for r in source.data["offsets"] if shown(r["backend"])]
        for record in sorted(drawn, key=lambda r: r.get("cols", 0)):
            lines = kinds.setdefault((source.device, record["op"], record["dtype"]), {})
            lines.setdefault(record["backend"], {})[record["offset"]] = record["error"]
    if not kinds:
        return None
    made, backends = [], set()
    for where, op, dtype in sorted(kinds, key=lambda k: (k[0] != "gpu", k[1], k[2])):
        lines = kinds[where, op, dtype]
        backends |= set(lines)
        title = f"{theme.OPS.get(op, op)}, {dtype}, {theme.DEVICES[where]}"
        made.append(Panel(title, lambda pen, lines=lines: _draw_offsets(pen, lines)))
    keys = [
        Key(theme.label(backend), theme.library(backend).colour, marker=theme.library(backend).marker)
        for backend in sorted(backends, key=theme.place)
    ]
    alt = "Lines by the mean's distance from zero, one for each library: the largest error of y. Lower is better."
    note = "The largest error of y, from float64. A cross at the top is a result that is not a number."
    return Figure(
        "accuracy", "Accuracy against the offset of the mean", "Against the offset of the mean", alt, made, keys, note
    )


# ---- the limit itself ----


def _draw_copy(pen: Pen, records: list[dict[str, Any]]) -> None:
    lines: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        lines.setdefault(record.get("threads", 0), []).append(record)
    for threads in sorted(lines):
        line = sorted(lines[threads], key=lambda r: r["bytes"])
        colour = pen["ours"] if threads == max(lines) else pen["soft"]
        pen.axes.plot([r["bytes"] / 2**20 for r in line], [r["bytes_per_second"] * 1e-9 for r in line], color=colour)
        for r in line:
            (mark,) = pen.axes.plot(r["bytes"] / 2**20, r["bytes_per_second"] * 1e-9, "o", ms=4, color=colour)
            with_threads = f", {threads} threads" if threads else ""
            pen.tip(mark, f"{r['bytes'] / 2**20:g} MB{with_threads}: {in_units(r['bytes_per_second'], 'B/s')}")
        if threads:
            pen.axes.annotate(f" {threads} thread{'s' * (threads > 1)}", (line[-1]["bytes"] / 2**20,
                              line[-1]["bytes_per_second"] * 1e-9), fontsize=9, color=colour, va="bottom")  # fmt: skip
    pen.axes.set_xscale("log", base=2)
    pen.axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} MB" if value >= 1 else f"{value * 1024:g} KB")
    pen.axes.set_ylim(0)
    pen.axes.minorticks_off()
    pen.frame()
    pen.name_axes("bytes moved", "GB/s, read and written")


def copies(sources: list[Source]) -> Figure | None:
    made = []
    for source in sources:
        if source.data["copy"]:
            records = source.data["copy"]
            made.append(Panel(source.machine_name, lambda pen, records=records: _draw_copy(pen, records)))
    alt = "Lines: bandwidth of a copy by its size."
    return Figure("copy", "The limit: a copy, by size", "The limit: a copy, by size", alt, made) if made else None
