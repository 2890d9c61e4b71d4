"""The page: headline figures, then pictures, then tables, in one HTML file that needs nothing else. __main__.py writes
it. SPDX-License-Identifier: MIT"""

import pathlib
import string
from dataclasses import dataclass
from html import escape

from . import headlines, plots, tables, theme
from .costs import Work, largest_rows, work_of
from .figure import FIRST, Figure, Key, inline
from .read import Reading, Source
from .rows import Row, all_rows

GLYPHS = {"o": "●", "s": "■", "D": "◆"}  # markers of matplotlib in a line of text
HERE = pathlib.Path(__file__).resolve().parent


@dataclass
class Section:
    name: str
    title: str
    text: str
    parts: list[str]
    command: str  # what makes the figures, said where there are none


# ---- pieces ----


def _key(key: Key) -> str:
    if key.form == "point":
        return f'<li><span style="color: var(--{key.colour})">{GLYPHS[key.marker]}</span>{escape(key.label)}</li>'
    form = "bar" if key.form == "bar" else "dashed" if key.dashed else "solid"
    colour = f"background: var(--{key.colour})" if form == "bar" else f"border-color: var(--{key.colour})"
    return f'<li><i class="{form}" style="{colour}"></i>{escape(key.label)}</li>'


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return ""
    keys = f'<ul class="keys">{"".join(map(_key, figure.keys))}</ul>' if figure.keys else ""
    note = f'<span class="note">{escape(figure.note)}</span>' if figure.note else ""
    drawn = [
        f'<div class="panel"><h3>{escape(panel.title)}</h3>\n{svg}</div>'
        for panel, svg in zip(figure.panels, inline(figure), strict=True)
    ]
    grids = ['<div class="panels">\n' + "\n".join(drawn[:FIRST]) + "\n</div>"]
    if drawn[FIRST:]:
        names = escape(", ".join(panel.title for panel in figure.panels[FIRST:]))
        more = '<div class="panels">\n' + "\n".join(drawn[FIRST:]) + "\n</div>"
        grids.append(f"<details><summary>{len(drawn) - FIRST} more: {names}</summary>\n{more}</details>")
    caption = f"<figcaption><strong>{escape(figure.place)}</strong>{note}{keys}</figcaption>"
    return f'<figure id="figure-{figure.name}">\n{caption}\n' + "\n".join(grids) + "</figure>\n"


def _tiles(reading: Reading, rows: list[Row]) -> str:
    made = "\n".join(
        f"<li><em>{escape(tile.over)}</em><b>{escape(tile.figure)}</b>"
        f"<span>{escape(tile.what)}</span><small>{escape(tile.more)}</small></li>"
        for tile in headlines.tiles(reading, rows)
    )
    return f'<ul class="tiles" aria-label="Headline figures">\n{made}\n</ul>\n'


def _section(section: Section) -> str:
    shown = "".join(section.parts)
    if not shown:
        shown = f'<p class="missing">Not measured yet. This makes it: <code>{escape(section.command)}</code></p>\n'
    text = f"<p>{section.text}</p>\n" if section.text else ""
    return f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{text}{shown}</section>\n'


def _problems(reading: Reading) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in reading.problems + reading.remarks)
    return f'<ul class="problems">{lines}</ul>\n' if lines else ""


# ---- the pictures of the page, which are also written as files ----


def roofline_points(rows: list[Row], device: str, explained: list[Source]) -> list[tuple[Row, Work]]:
    found = [(row, work_of(row, explained)) for row in largest_rows(rows, device)]
    return [(row, work) for row, work in found if work]


def machine_file(reading: Reading, device: str) -> Source | None:
    for source in reading.of("machine"):
        if source.device == device and source.data["copy"]:
            return source
    return None


def figures(reading: Reading) -> dict[str, list[Figure]]:
    """The pictures of each section that has any."""
    rows = all_rows(reading)
    names = {device: headlines.machine_name(reading, rows, device) for device in theme.DEVICES}
    roofs = [(names[d], roofline_points(rows, d, reading.of("explain")), machine_file(reading, d)) for d in names]
    made = {
        "share": [plots.shares(rows, device, names[device]) for device in names],
        "speedup": [plots.speedups(rows, device, names[device]) for device in names],
        "roofline": [plots.roofline(roofs)],
        "accuracy": [plots.accuracy(reading.of("compare"))],
        "machines": [plots.copies(reading.of("machine"))],
    }
    return {section: [figure for figure in found if figure] for section, found in made.items()}


def _sections(reading: Reading, drawn: dict[str, list[Figure]]) -> list[Section]:
    rows, compared = all_rows(reading), reading.of("compare")

    def pictures(name: str) -> list[str]:
        return [_figure(figure) for figure in drawn[name]]

    blocks = [source for source in reading.of("explain") if source.data["op"] == "block"]
    ops = [source for source in reading.of("explain") if source.data["op"] != "block"]
    compare = "python bench/compare.py --json docs/results/compare-h200.json"
    measure = "evenkeel info --measure docs/results/machine-cpu.json"
    return [
        Section("share", "Share of a copy", "A norm moves each byte once, so a copy of the same bytes, timed "
                "in the same run, is the limit: 1 is as fast as the memory.", pictures("share"),
                "evenkeel bench --json docs/results/cpu.json"),
        Section("speedup", "Speed-ups", "How many times evenkeel’s speed is another library’s: the ratio of their "
                "shares of a copy, both of one run where a run has both. A library counts at the shapes where it ran.",
                pictures("speedup"), compare),
        Section("roofline", "Roofline", "FLOP and bytes are the cost model’s (<code>evenkeel explain</code>), times "
                "are measured. Norms lie far left of the ridge: the memory decides.", pictures("roofline"),
                "evenkeel explain layer_norm --json docs/results/explain-layer_norm.json"),
        Section("accuracy", "Accuracy", "", pictures("accuracy") + [tables.differences(compared)], compare),
        Section("cost", "Cost", "The work of one call, as formulas and numbers. reference is the decomposition, every "
                "step of it a kernel of its own; pytorch and evenkeel are what the two launch. B is batch_size, S "
                "seq_len, H hidden_size, a, w and s the bytes of an activation, a weight and a statistic; other names "
                "stand under their table. The limit is the roofline’s of the machine that is named.",
                [tables.cost(source) for source in _one_each(ops)],
                "evenkeel explain layer_norm --json docs/results/explain-layer_norm.json"),
        Section("block", "A block", "What a training step of a transformer block launches, by the cost model: loads, "
                "stores and FLOP of every kernel, what bounds it, and the least time on the machine that is named. "
                "torch.compile is an estimate by the rules of inductor’s fusion.",
                [tables.block(source) for source in blocks] + [tables.corrections(blocks)],
                "evenkeel explain block --order pre --pass step --json docs/results/explain-block.json"),
        Section("memory", "Peak memory", "", [tables.memory(compared)], compare),
        Section("support", "Support", "", [tables.support(reading.of("info"))],
                "evenkeel info --json docs/results/info-h200.json"),
        Section("results", "All results", "Press a head to sort. Times on the GPU are the device’s, from graphs; "
                "“host” is a loop of calls, with what the host does.", [tables.results(rows, d) for d in theme.DEVICES],
                "evenkeel bench --json docs/results/cpu.json"),
        Section("libraries", "Libraries", "", [tables.backends(compared)], compare),
        Section("machines", "Machines", "", [tables.machines(reading.sources), tables.peaks(reading.of("machine")),
                *pictures("machines")], measure),
        Section("files", "Files", "", [_problems(reading), tables.files(reading)], "make report"),
    ]  # fmt: skip


def _one_each(explained: list[Source]) -> list[Source]:
    """Of the costs of one op and pass the first: the others differ in sizes alone."""
    kept: dict[tuple[str, str], Source] = {}
    for source in explained:
        kept.setdefault((source.data["op"], source.data["pass"]), source)
    return [kept[key] for key in sorted(kept, key=lambda key: (key[0], theme.PASSES.index(key[1])))]


def page(reading: Reading, drawn: dict[str, list[Figure]], version: str) -> str:
    rows, sections = all_rows(reading), _sections(reading, drawn)
    names = [headlines.machine_name(reading, rows, d) for d in theme.DEVICES if any(r.device == d for r in rows)]
    contents = "\n".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    parts = {
        "title": f"evenkeel {version}: how far from the limit",
        "lead": escape(
            "LayerNorm and RMSNorm, forward and backward" + (f", measured on {' and '.join(names)}." if names else ".")
        ),
        "contents": contents,
        "body": _tiles(reading, rows) + "".join(map(_section, sections)),
        "footer": "Made by <code>make report</code> from the files named above. Times depend on the machine and the "
        "hour; ratios of one run do so far less.",
        "light": theme.css_variables(theme.LIGHT),
        "dark": theme.css_variables(theme.DARK),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "script": (HERE / "page.js").read_text(encoding="utf-8"),
    }
    return string.Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(parts)
