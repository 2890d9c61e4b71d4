"""A picture is panels and a legend; here it becomes SVG and PNG. Drawn once in colours that stand for names, an SVG
then gets CSS variables for the page or a palette for a file. plots.py makes the panels. SPDX-License-Identifier: MIT"""

import html
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.artist import Artist  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from . import theme  # noqa: E402

FIRST = 4  # panels that a picture shows at once: the page has the others a click away, a file leaves them out
LEGEND_LETTERS = 100  # of eight names that fit beside each other above two panels
WIDTH = 5.2  # inches of a panel: text is then readable where a phone shows it at 340 pixels
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
# Each name of a palette as a colour that nothing else has.
_STAND_INS = {name: f"#fe{number:04x}" for number, name in enumerate(theme.LIGHT)}
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small files that a search finds words in
    "font.family": "DejaVu Sans",  # matplotlib brings it, so that measures are the same everywhere
    "font.size": 10,
    "axes.linewidth": 0.8,
    "savefig.dpi": 144,
}

# What matplotlib writes and nothing here needs: ids of groups, blanks, a style that would reach the whole page.
_SHORTER = (
    (r"(?s)<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", ""),
    (r'<g id="[^"]*"', "<g"),
    (r' transform="rotate\(-0 [^"]*"', ""),
    (r"font-size: 10px; |font-family: 'DejaVu Sans'; ", ""),
    (r' xmlns:xlink="[^"]*"', ""),
    (r"xlink:href", "href"),
    (r"\s*\n\s*", "\n"),
    (r"\n(?=[MLQCZz\d\"])", " "),
)


class Pen:
    """What a panel draws with: the axes, the colours, and the words shown when a pointer rests on a mark."""

    def __init__(self, axes: Axes, palette: dict[str, str], tips: list[str]) -> None:
        self.axes, self.palette, self.tips = axes, palette, tips

    def __getitem__(self, name: str) -> str:
        return self.palette[name]

    def tip(self, artist: Artist, words: str) -> None:
        artist.set_gid(f"tip-{len(self.tips)}")
        self.tips.append(words)

    def frame(self, grid: str = "y") -> None:
        """What all panels share: soft labels, faint lines, no box."""
        self.axes.set_facecolor("none")
        self.axes.tick_params(colors=self["soft"], length=0, which="both")
        if grid:
            self.axes.grid(axis=grid, color=self["faint"], linewidth=0.7, zorder=0)
        self.axes.set_axisbelow(True)
        for side in self.axes.spines.values():
            side.set_visible(False)

    def name_axes(self, x: str, y: str) -> None:
        self.axes.set_xlabel(x, color=self["soft"])
        self.axes.set_ylabel(y, color=self["soft"])


@dataclass(frozen=True)
class Key:
    """A line of the legend. `form` is line, bar or point."""

    label: str
    colour: str
    form: str = "line"
    dashed: bool = False
    marker: str = ""


@dataclass
class Panel:
    title: str
    draw: Callable[[Pen], None]
    height: float = 3.1  # inches, at WIDTH


@dataclass
class Figure:
    name: str
    title: str
    place: str  # what the title adds under the heading of its section
    alt: str
    panels: list[Panel]
    keys: list[Key] = field(default_factory=list)
    note: str = ""


# ---- SVG ----


def _svg_of(figure: plt.Figure, name: str, alt: str, tips: list[str]) -> str:
    """The same panels give the same bytes: no date, ids that depend on the picture alone."""
    with matplotlib.rc_context({"svg.hashsalt": name}):
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True)
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<g id="tip-(\d+)">', lambda m: f"<g><title>{html.escape(tips[int(m[1])])}</title>", text)
    for pattern, instead in _SHORTER:
        text = re.sub(pattern, instead, text)
    text = re.sub(r' (d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\d+\.\d)\d+", r"\1", m[0]), text)
    head = (
        f'<svg role="img" aria-label="{html.escape(alt)}" font-family="{FONT}" font-size="10" stroke-linejoin="round"'
    )
    return text.replace("<svg", head, 1)


def _painted(svg: str, colour_of: Callable[[str], str]) -> str:
    for name, stand_in in _STAND_INS.items():
        svg = svg.replace(stand_in, colour_of(name))
    return svg


def inline(figure: Figure) -> list[str]:
    """Each panel by itself, in the page's own colours."""
    made = []
    for number, panel in enumerate(figure.panels):
        with matplotlib.rc_context(_SETTINGS):
            drawn, axes = plt.subplots(figsize=(WIDTH, panel.height), layout="constrained")
            tips: list[str] = []
            panel.draw(Pen(axes, _STAND_INS, tips))
            svg = _svg_of(drawn, f"{figure.name}-{number}", f"{figure.title}: {panel.title}. {figure.alt}", tips)
        svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)  # as wide as its place
        made.append(_painted(svg, lambda name: f"var(--{name})"))
    return made


# ---- files ----


def _legend_marks(figure: Figure, palette: dict[str, str]) -> list[Artist]:
    marks: list[Artist] = []
    for key in figure.keys:
        colour = palette[key.colour]
        if key.form == "bar":
            marks.append(plt.Rectangle((0, 0), 1, 1, color=colour))
        else:
            style = "none" if key.form == "point" else (0, (3, 2)) if key.dashed else "-"
            width = 2.4 if key.colour == "ours" else 1.2
            marks.append(plt.Line2D([], [], color=colour, linewidth=width, linestyle=style, marker=key.marker, ms=5))
    return marks


def _composed(figure: Figure, palette: dict[str, str], tips: list[str]) -> plt.Figure:
    """The first panels in one picture, with title and legend."""
    shown = figure.panels[:FIRST]
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    long = sum(len(key.label) for key in figure.keys) > LEGEND_LETTERS
    per_line = 4 if columns == 1 or long else 8
    head = 0.45 + 0.25 * (-(-len(figure.keys) // per_line) if figure.keys else 0)
    heights = [max(panel.height for panel in shown[i * 2 : i * 2 + 2]) for i in range(lines)]
    size = (WIDTH * columns + (0.8 if columns == 1 else 0), sum(heights) + head)
    drawn, grid = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False, height_ratios=heights)
    drawn.get_layout_engine().set(rect=(0, 0, 1, 1 - head / size[1]), wspace=0.04, hspace=0.06)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, shown, strict=False):
        panel.draw(Pen(axes, palette, tips))
        axes.set_title(panel.title, loc="left", fontsize=10.5, fontweight="bold", color=palette["text"])
    at = 1 - 0.08 / size[1]
    drawn.suptitle(
        figure.title, x=0.08 / size[0], y=at, ha="left", va="top", fontsize=13, fontweight="bold", color=palette["text"]
    )
    if figure.keys:
        drawn.legend(
            _legend_marks(figure, palette), [key.label for key in figure.keys], loc="upper left", ncols=per_line,
            frameon=False, fontsize=9, labelcolor=palette["text"], borderaxespad=0, borderpad=0, columnspacing=1.4,
            handlelength=1.6, bbox_to_anchor=(0.08 / size[0], 1 - 0.42 / size[1]),
        )  # fmt: skip
    return drawn


def as_svg(figure: Figure) -> dict[str, str]:
    """The picture as a file of its own, on a light and on a dark ground."""
    with matplotlib.rc_context(_SETTINGS):
        tips: list[str] = []
        svg = _svg_of(_composed(figure, _STAND_INS, tips), figure.name, f"{figure.title}. {figure.alt}", tips)
    made = {}
    for ending, palette in (("", theme.LIGHT), ("-dark", theme.DARK)):
        ground = f'<rect width="100%" height="100%" fill="{palette["back"]}"/>'
        painted = _painted(svg, palette.__getitem__)
        made[ending] = re.sub(r"(<svg [^>]*>)", lambda m, g=ground: f"{m[1]}\n {g}", painted, count=1)
    return made


def as_png(figure: Figure) -> bytes:
    with matplotlib.rc_context(_SETTINGS):
        drawn = _composed(figure, theme.LIGHT, [])
        out = io.BytesIO()
        drawn.savefig(out, format="png", facecolor=theme.LIGHT["back"], metadata={"Software": None})
        plt.close(drawn)
    return out.getvalue()
