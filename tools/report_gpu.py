"""The GPU's part of the report: tables and picture from what `evenkeel bench --device cuda --json` wrote, beside peers'
times on the same model of GPU. report.py calls it. SPDX-License-Identifier: MIT"""

# Peers on an H200 (CUDA 13.0, PyTorch 2.11, bf16, affine, statistics written; calls in a CUDA graph over rotating
# buffers), in microseconds, each shape: PyTorch's copy, PyTorch's own norm, and the best of PyTorch eager and
# compiled, Liger, flash-attn's Triton kernels, Apex and quack 0.6.5 with its name. Measured apart from ours: quoted.
QUOTED = {
    "forward": {
        "32768x4096": (127.6, 201, 137, "torch.compile"), "4096x32768": (127.4, 240, 169, "torch.compile"),
        "1024x131072": (127.2, 326, 228, "torch.compile"), "4096x8192": (33.1, 62.0, 39.8, "flash-attn"),
        "4096x16384": (64.7, 123.8, 86.7, "flash-attn"), "65536x512": (33.8, 115, 37.0, "quack"),
        "2048x4096": (9.9, 17.8, 11.6, "Liger"), "1024x8192": (9.9, 20.9, 12.6, "flash-attn"),
        "8192x1024": (9.8, 21.6, 11.0, "flash-attn"), "16384x768": (14.1, 35.8, 15.8, "flash-attn"),
        "32768x256": (10.0, None, 11.5, "quack"), "2048x2048": (5.9, 10.6, 6.6, "flash-attn"),
        "2048x5120": (11.6, 21.4, 16.5, "flash-attn"), "1000x3333": (6.6, 21.4, 11.1, "flash-attn"),
        "1000x3336": (6.7, None, 8.0, "quack"), "1x4096": (0.9, 6.1, 1.8, "Liger"),
        "8x8192": (1.2, 10.6, 2.4, "Liger"), "128x4096": (2.2, 9.0, 3.1, "flash-attn"),
    },
    "backward": {
        "32768x4096": (127.6, 463, 236, "quack"), "4096x32768": (127.4, None, 378, "quack"),
        "1024x131072": (127.2, 559, 559, "PyTorch"), "4096x8192": (33.1, 133, 76.6, "quack"),
        "4096x16384": (64.7, 258, 165, "quack"), "65536x512": (33.8, 357, 80.6, "torch.compile"),
        "2048x4096": (9.9, 34.6, 30.9, "quack"), "1024x8192": (9.9, 37.6, 29.8, "quack"),
        "8192x1024": (9.8, 56.8, 38.6, "flash-attn"), "16384x768": (14.1, 105, 47.3, "torch.compile"),
        "32768x256": (10.0, None, 36.0, "quack"), "2048x2048": (5.9, 18.7, 18.7, "PyTorch"),
        "2048x5120": (11.6, 48.9, 39.8, "quack"), "1000x3336": (6.7, 17.4, 17.4, "PyTorch"),
        "1x4096": (0.9, 5.3, 5.3, "PyTorch"), "8x8192": (1.2, 7.7, 6.8, "torch.compile"),
        "128x4096": (2.2, 9.9, 9.9, "PyTorch"),
    },
}

# The share of a copy that the design set out to reach, 16-bit elements; the smallest shapes have none.
TARGETS = {
    "forward": {"32768x4096": .97, "4096x32768": .92, "1024x131072": .90, "4096x8192": .95, "4096x16384": .95,
                "65536x512": .95, "2048x4096": .90, "1024x8192": .90, "8192x1024": .90, "16384x768": .90,
                "32768x256": .90, "2048x2048": .88, "2048x5120": .88, "1000x3333": .88, "1000x3336": .88},
    "backward": {"32768x4096": .92, "4096x32768": .85, "1024x131072": .80, "4096x8192": .90, "4096x16384": .90,
                 "65536x512": .90, "2048x4096": .78, "1024x8192": .78, "8192x1024": .85, "16384x768": .85,
                 "32768x256": .85, "2048x2048": .65, "2048x5120": .65, "1000x3333": .65, "1000x3336": .65},
}
PICTURED = ("2048x2048", "8192x1024", "16384x768", "2048x4096", "1024x8192", "4096x8192", "65536x512", "4096x16384",
            "32768x4096")


def shape(result):
    return f"{result['rows']}x{result['cols']}"


def copies(direction):
    """Copies of one tensor that move the bytes of a pass."""
    return 1.5 if direction == "backward" else 1


def cells(data, op, dtype, direction):
    found = [r for r in data["results"] if (r["op"], r["dtype"], r["pass"]) == (op, dtype, direction)]
    order = list(TARGETS["forward"]) + ["128x4096", "8x8192", "1x4096"]
    return sorted(found, key=lambda r: order.index(shape(r)) if shape(r) in order else len(order))


def row_of(result, with_peers):
    s, direction = shape(result), result["pass"]
    microseconds = result["seconds"] * 1e6
    want = TARGETS[direction].get(s) if with_peers else None
    got = result["of_copy"]
    quoted = QUOTED[direction].get(s) if with_peers else None
    row = [s.replace("x", " × "), f"{microseconds:.2f}", f"{result['copy_seconds'] * 1e6:.2f}", f"**{got:.2f}**"]
    if with_peers:
        against = quoted[0] * copies(direction) / microseconds if quoted else None
        mark = "" if want is None else " ✓" if round(got, 2) >= want else " (short)"
        row += ["–" if against is None else f"{against:.2f}", "–" if want is None else f"{want:.2f}{mark}",
                "–" if not quoted else f"{quoted[2]:g} ({quoted[3]})",
                "–" if not quoted else f"{quoted[2] / microseconds:.2f}"]
    return row + [f"{result['host_seconds'] * 1e6:.2f}" if result.get("host_seconds") else "–"]


def performance_block(data, table):
    lines = [f"Measured on {data['machine'].get('gpu', 'a GPU')}, evenkeel {data['evenkeel']}: "
             "`evenkeel bench --device cuda --json docs/bench-h200.json`.", ""]
    for op, title in (("layer_norm", "LayerNorm"), ("rms_norm", "RMSNorm")):
        for dtype in ("bf16", "f16", "f32", "f64"):
            for direction in ("forward", "backward"):
                found = cells(data, op, dtype, direction)
                if not found:
                    continue
                with_peers = (op, dtype) == ("layer_norm", "bf16")
                head = ["rows × cols", "µs", "copy µs" if direction == "forward" else "1.5 copies µs", "of copy"]
                if with_peers:
                    head += ["of PyTorch's copy", "target", "best peer, µs", "times faster"]
                lines += [f"### {title} {direction}, {dtype}, on the GPU", ""]
                lines += table(head + ["µs in a loop"], [row_of(r, with_peers) for r in found])
    return lines[:-1]


def readme_block(data, table):
    rows = []
    for s in PICTURED:
        row = [s.replace("x", " × ")]
        for direction in ("forward", "backward"):
            result = next((r for r in cells(data, "layer_norm", "bf16", direction) if shape(r) == s), None)
            quoted = QUOTED[direction].get(s)
            row += ["–", "–"] if result is None else [
                f"**{result['of_copy']:.2f}**", f"{quoted[2] / (result['seconds'] * 1e6):.2f}" if quoted else "–"]
        rows.append(row)
    return table(["rows × cols", "forward, of a copy", "times the best peer", "backward, of a copy",
                  "times the best peer"], rows) + [
        f"LayerNorm in bf16 on {data['machine'].get('gpu', 'a GPU')}: share of the speed of a copy of the same bytes, and "
        "speed over the fastest of PyTorch (eager and compiled), Liger, flash-attn's Triton kernels, Apex and quack at "
        "that shape, whose times are quoted from runs of their own. All figures: "
        "[docs/performance.md](docs/performance.md)."]


def draw(data, path, theme, panel_style):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    matplotlib.rcParams.update({"svg.hashsalt": "evenkeel", "svg.fonttype": "path", "font.family": "DejaVu Sans"})
    figure, grid = plt.subplots(2, 1, figsize=(10, 5.4), facecolor=theme["back"])
    for axes, direction in zip(grid, ("forward", "backward")):
        found = {shape(r): r for r in cells(data, "layer_norm", "bf16", direction)}
        shown = [s for s in PICTURED if s in found]
        ours = [found[s]["of_copy"] for s in shown]
        limit = [found[s]["copy_seconds"] * 1e6 for s in shown]  # backward: of 1.5 copies
        best = [limit[i] / QUOTED[direction][s][2] if s in QUOTED[direction] else 0 for i, s in enumerate(shown)]
        torch = [limit[i] / QUOTED[direction][s][1] if QUOTED[direction].get(s, (0, None))[1] else 0
                 for i, s in enumerate(shown)]
        panel_style(axes, theme, f"{direction}, bf16", shown)
        for offset, values, colour in ((-0.27, ours, theme["ours"]), (0, best, theme["peer"]),
                                       (0.27, torch, theme["faint"])):
            axes.bar([i + offset for i in range(len(shown))], values, 0.27, color=colour, zorder=2)
        for i, value in enumerate(ours):
            axes.annotate(f"{value:.2f}".lstrip("0"), (i - 0.27, 0), (0, 4), textcoords="offset points", ha="center",
                          fontsize=7.5, color=theme["back"], fontweight="bold")
    keys = [plt.Rectangle((0, 0), 1, 1, color=theme[c]) for c in ("ours", "peer", "faint")]
    keys.append(plt.Line2D([], [], color=theme["text"], linewidth=1, linestyle=(0, (4, 3))))
    figure.suptitle("LayerNorm on an H200: share of the speed of a copy", x=0.012, y=0.985, ha="left", fontsize=13,
                    color=theme["text"], fontweight="bold")
    figure.legend(keys, ["evenkeel", "best peer", "PyTorch", "a copy of the same bytes"], loc="upper right", ncols=4,
                  frameon=False, fontsize=9, labelcolor=theme["text"], bbox_to_anchor=(0.995, 0.998))
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, format="svg", facecolor=theme["back"], metadata={"Date": None, "Creator": None})
    plt.close(figure)
