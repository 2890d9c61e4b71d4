"""Puts measured speed into the documents: fills the tables between the markers of README.md and
docs/performance.md and draws docs/speed*.svg, from the files that `evenkeel bench --json` wrote on a CPU and on a
GPU. `make report` calls it. SPDX-License-Identifier: MIT"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import report_gpu

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER_NAMES = {"onednn": "oneDNN"}
OP_NAMES = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm"}
DTYPES = ("f32", "bf16", "f16", "f64")
PASSES = ("forward", "backward")

# The shapes of the speed list, in the order of the tables, and the share of a copy to reach on two
# threads with data from memory.
SHAPES = ("512x768", "2048x1024", "16384x768", "2048x4096", "4096x8192", "333x1000", "7x131072")
TARGETS = {
    ("f32", "forward"): (0.90, 0.90, 0.90, 0.80, 0.80, 0.80, 0.60),
    ("f32", "backward"): (0.85, 0.85, 0.85, 0.75, 0.75, 0.60, 0.45),
    ("bf16", "forward"): (0.75, 0.75, 0.75, 0.70, 0.70, 0.60, 0.45),
    ("bf16", "backward"): (0.65, 0.65, 0.65, 0.60, 0.60, 0.45, 0.35),
    ("f16", "forward"): (0.75, 0.75, 0.75, 0.70, 0.70, 0.60, 0.45),
    ("f16", "backward"): (0.65, 0.65, 0.65, 0.60, 0.60, 0.45, 0.35),
}
# Calls whose data lies in the caches: microseconds to stay under, f32 forward.
SMALL_TARGETS = {"1x1": 0.1, "8x768": 1.3, "1x4096": 0.9}

# Two palettes, each with its own background, so that either picture can be read anywhere.
THEMES = {
    "speed.svg": dict(back="#ffffff", text="#1f2328", faint="#d1d9e0", ours="#0969da", peer="#afb8c1"),
    "speed-dark.svg": dict(back="#0d1117", text="#e6edf3", faint="#30363d", ours="#58a6ff", peer="#6e7681"),
}


# ---- the figures ----

def shape(result):
    return f"{result['rows']}x{result['cols']}"


def load(path):
    """The results of a file, or one line that says what is wrong with it."""
    try:
        data = json.loads(path.read_text())
        data.setdefault("cached", [])  # cells timed on data in the caches: no copy to compare with
        for result in data["results"] + data["cached"]:
            for key in ("op", "pass", "dtype", "rows", "cols", "seconds"):
                result[key]
        return data
    except FileNotFoundError:
        sys.exit(f"report: {path} is not there: run with --measure, or evenkeel bench --json {path}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"report: {path} is not a file of evenkeel bench --json: {error!r}")


def target(result):
    cells = TARGETS.get((result["dtype"], result["pass"]))
    if cells and result.get("threads") == 2 and shape(result) in SHAPES:
        return cells[SHAPES.index(shape(result))]
    return None


def peers(result):
    return result.get("peers") or {}


def peer_of_copy(result, name):
    """A peer's share of the copy, or None where it was not measured."""
    seconds = peers(result).get(name)
    return result["copy_seconds"] / seconds if seconds and result.get("copy_seconds") else None


def in_order(results):
    """By the order of SHAPES; a shape outside the list comes after, as it was measured."""
    place = {s: i for i, s in enumerate(SHAPES)}
    return sorted(results, key=lambda r: place.get(shape(r), len(SHAPES)))


def select(data, op, dtype, direction, level=None):
    return [r for r in in_order(data["results"]) if r["op"] == op and r["dtype"] == dtype
            and r["pass"] == direction and (level is None or r.get("isa") == level)]


def first(data):
    """The first cell: its level and threads are those that the machine chose."""
    return next(iter(data["results"]), {})


def first_level(data):
    return first(data).get("isa")


# ---- tables ----

def share(value):
    return "–" if value is None else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def machine_line(data):
    machine = data.get("machine") or {}
    name = machine.get("cpu") or machine.get("name") or "this machine"
    cell = first(data)
    return (f"{name}, {cell.get('threads', '?')} threads, level {cell.get('isa', '?')}, "
            f"evenkeel {data.get('evenkeel', '?')}.")


def readme_block(data):
    """LayerNorm on the level the machine chose: one row a shape, one column a dtype and direction."""
    columns = [(d, p) for d in ("f32", "bf16") for p in PASSES]
    level = first_level(data)
    cells = {(shape(r), d, p): r for d, p in columns for r in select(data, "layer_norm", d, p, level)}
    rows = []
    for s in dict.fromkeys(key[0] for key in cells):
        row = [s.replace("x", " × ")]
        for d, p in columns:
            result = cells.get((s, d, p))
            row.append("–" if result is None else f"**{share(result.get('of_copy'))}** · "
                       + share(peer_of_copy(result, "onednn")))
        rows.append(row)
    head = ["rows × cols"] + [f"{d} {p}" for d, p in columns]
    lines = table(head, rows)
    lines += ["LayerNorm's share of the speed of a copy of the same bytes (1.00 is the limit of the memory): "
              "**evenkeel** · oneDNN. " + machine_line(data) + " All figures: "
              "[docs/performance.md](docs/performance.md)."]
    return lines


def large_table(results):
    names = sorted({name for r in results for name in peers(r)})
    several = len({(r.get("isa"), r.get("threads")) for r in results}) > 1
    head = ["rows × cols"] + (["level", "threads"] if several else []) + ["ms", "GB/s", "of copy", "target"]
    for name in names:
        head += [PEER_NAMES.get(name, name), "times faster"]
    rows = []
    for r in results:
        row = [shape(r).replace("x", " × ")] + ([str(r.get("isa")), str(r.get("threads"))] if several else [])
        got, want = r.get("of_copy"), target(r)
        mark = "" if want is None or got is None else " ✓" if round(got, 2) >= want else " (short)"
        rate = f"{r['bytes'] / r['seconds'] * 1e-9:.1f}" if r.get("bytes") else "–"
        row += [f"{r['seconds'] * 1e3:.3f}", rate, f"**{share(got)}**", share(want) + mark]
        for name in names:
            seconds = peers(r).get(name)
            row += [share(peer_of_copy(r, name)), f"{seconds / r['seconds']:.2f}" if seconds else "–"]
        rows.append(row)
    return table(head, rows)


def small_table(results):
    rows = []
    for r in results:
        want = SMALL_TARGETS.get(shape(r)) if (r["dtype"], r["pass"]) == ("f32", "forward") else None
        seconds = peers(r).get("onednn")
        rows.append([OP_NAMES.get(r["op"], r["op"]), shape(r).replace("x", " × "), r["dtype"], r["pass"],
                     str(r.get("isa")), str(r.get("threads")), f"{r['seconds'] * 1e6:.2f}",
                     "–" if want is None else f"{want:g}", f"{seconds * 1e6:.2f}" if seconds else "–"])
    head = ["op", "rows × cols", "dtype", "pass", "level", "threads", "µs", "target", "oneDNN µs"]
    return table(head, rows)


def performance_block(data):
    lines = ["Measured on " + machine_line(data), ""]
    for op in dict.fromkeys(r["op"] for r in data["results"]):
        for dtype in DTYPES:
            for direction in PASSES:
                results = select(data, op, dtype, direction)
                if results:
                    lines += [f"### {OP_NAMES.get(op, op)} {direction}, {dtype}", ""] + large_table(results)
    if data["cached"]:
        lines += ["### Small calls, data in the caches", ""] + small_table(data["cached"])
    return lines[:-1]


def fill(path, lines, name="bench"):
    """Replaces what stands between the markers of a document."""
    text, begin, end = path.read_text(), f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        sys.exit(f"report: {path} must hold {begin} and then {end}, each once")
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1])


# ---- the pictures ----

def panel_style(axes, theme, title, shapes):
    """What all panels share: the copy as a line, shapes below, no frame."""
    axes.set_facecolor(theme["back"])
    axes.hlines([0.25, 0.5, 0.75], -0.6, len(shapes) - 0.4, color=theme["faint"], linewidth=0.6, zorder=0)
    axes.hlines([1], -0.6, len(shapes) - 0.4, color=theme["text"], linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_title(title, loc="left", fontsize=11, color=theme["text"], fontweight="bold", pad=2)
    axes.set_xticks(list(range(len(shapes))), [s.replace("x", "\n× ") for s in shapes])
    axes.set_xlim(-0.6, max(len(shapes), 1) - 0.4)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylim(0, 1.08)
    axes.tick_params(colors=theme["text"], length=0, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)


def panel(axes, results, theme, title):
    """One dtype and direction: two bars a shape. Returns what the legend names."""
    ours = [r.get("of_copy") or 0 for r in results]
    peer = [peer_of_copy(r, "onednn") for r in results]
    at = range(len(results))
    panel_style(axes, theme, title, [shape(r) for r in results])
    bars = axes.bar([i - 0.2 for i in at], ours, 0.4, color=theme["ours"], zorder=2)
    others = axes.bar([i + 0.2 for i in at], [p or 0 for p in peer], 0.4, color=theme["peer"], zorder=2)
    for i, value in enumerate(ours):  # at the foot, where nothing else is
        axes.annotate(f"{value:.2f}".lstrip("0"), (i - 0.2, 0), (0, 4), textcoords="offset points", ha="center",
                      fontsize=7.5, color=theme["back"], fontweight="bold")
    axes.set_ylim(0, max([1.08] + [value + 0.05 for value in ours]))
    return {"evenkeel": bars, **({"oneDNN": others} if any(peer) else {})}


def draw(data, path, theme):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    # The same figures give the same bytes: no date, fixed ids, glyphs as outlines.
    matplotlib.rcParams.update({"svg.hashsalt": "evenkeel", "svg.fonttype": "path", "font.family": "DejaVu Sans"})
    figure, grid = plt.subplots(2, 2, figsize=(10, 5.4), sharey="row", facecolor=theme["back"])
    named = {}
    for row, direction in enumerate(PASSES):
        for column, dtype in enumerate(("f32", "bf16")):
            results = select(data, "layer_norm", dtype, direction, first_level(data))
            named.update(panel(grid[row][column], results, theme, f"{direction}, {dtype}"))
    named["a copy of the same bytes"] = plt.Line2D([], [], color=theme["text"], linewidth=1,
                                                   linestyle=(0, (4, 3)))
    figure.suptitle("LayerNorm: share of the speed of a copy", x=0.012, y=0.985, ha="left", fontsize=13,
                    color=theme["text"], fontweight="bold")
    figure.legend(list(named.values()), list(named), loc="upper right", ncols=len(named), frameon=False,
                  fontsize=9, labelcolor=theme["text"], bbox_to_anchor=(0.995, 0.998))
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, format="svg", facecolor=theme["back"], metadata={"Date": None, "Creator": None})
    plt.close(figure)


# ---- the command ----

def measure(program, path):
    """Runs the whole speed list; the peer's library, where make has installed it, lies in .venv/lib."""
    environment = dict(os.environ)
    folders = [str(ROOT / ".venv" / "lib"), environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    status = subprocess.run([program, "bench", "--json", path], env=environment).returncode
    if status:
        sys.exit(f"report: {program} bench ended with status {status}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(". `make")[0])
    parser.add_argument("--measure", action="store_true", help="run the benchmark first, into the JSON file")
    parser.add_argument("--program", default=str(ROOT / "build" / "evenkeel"), help="the program to measure")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "docs" / "bench-cpu.json",
                        help="the measurements (docs/bench-cpu.json)")
    parser.add_argument("--gpu", type=pathlib.Path, default=ROOT / "docs" / "bench-h200.json",
                        help="those of a GPU (docs/bench-h200.json)")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the tree whose documents are filled")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.program, str(arguments.json))
    data = load(arguments.json)
    fill(arguments.root / "README.md", readme_block(data))
    fill(arguments.root / "docs" / "performance.md", performance_block(data))
    for name, theme in THEMES.items():
        draw(data, arguments.root / "docs" / name, theme)
    gpu = load(arguments.gpu)
    fill(arguments.root / "README.md", report_gpu.readme_block(gpu, table), "gpu")
    fill(arguments.root / "docs" / "performance.md", report_gpu.performance_block(gpu, table), "gpu")
    for name, theme in THEMES.items():
        report_gpu.draw(gpu, arguments.root / "docs" / name.replace("speed", "speed-gpu"), theme, panel_style)


if __name__ == "__main__":
    main()
