"""The tables of the page: results, memory, differences, cost, support, machines, files. Each function gives HTML, or ""
where there is nothing to show. SPDX-License-Identifier: MIT"""

import re
from html import escape
from typing import Any

from . import theme
from .costs import largest_copy
from .plots import in_units
from .read import Reading, Source
from .rows import Row

FILTERED = 15  # tables of more rows get a field that narrows them
MEBI = 1 << 20


class Cell:
    """What is shown, and the number it sorts by; markup is taken as it is."""

    def __init__(self, text: str, value: float | None = None, markup: str = "", kind: str = "") -> None:
        self.text, self.value, self.markup, self.kind = text, value, markup, kind


def number(value: float | None, form: str = "{:.2f}", scale: float = 1) -> Cell:
    return Cell("–") if value is None else Cell(form.format(value * scale), value)


def code(text: str) -> Cell:
    return Cell(text, markup=f"<code>{escape(text)}</code>")


def _data_cell(cell: Cell | str, numeric: bool, first: bool) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    kinds = " ".join(word for word in ("n" if numeric else "", cell.kind) if word)
    attributes = f' class="{kinds}"' if kinds else ""
    if cell.value is not None:
        attributes += f' data-v="{cell.value!r}"'
    tag = 'th scope="row"' if first else "td"
    return f"<{tag}{attributes}>{cell.markup or escape(cell.text)}</{tag.split()[0]}>"


def table(name: str, caption: str, columns: list[str], rows: list[list[Cell | str]]) -> str:
    """A table that sorts by its columns. A column whose name starts with # holds numbers."""
    if not rows:
        return ""
    numeric = [column.startswith("#") for column in columns]
    head = "".join(
        f'<th scope="col" aria-sort="none"{" class=n" if is_number else ""}><button type="button">'
        f"{escape(column.lstrip('#'))}</button></th>"
        for column, is_number in zip(columns, numeric, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(_data_cell(cell, numeric[i], i == 0) for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    field = ""
    if len(rows) > FILTERED:
        field = (
            f'<label class="filter">Narrow <span class="count">{len(rows)} rows</span>'
            f'<input type="search" data-for="{name}" placeholder="bf16 backward 4096" autocomplete="off"></label>'
        )
    return (
        f'{field}<div class="box" tabindex="0" role="region" aria-label="{escape(caption)}">\n'
        f'<table id="{name}"><caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>\n"
    )


def backend_cell(name: str) -> Cell:
    colour = theme.library(name).colour
    return Cell(
        name, markup=f'<span class="dot" style="background: var(--{colour})"></span>{escape(theme.label(name))}'
    )


# ---- results ----

STATUS_WORDS = {"ok": "", "wrong": "wrong values", "failed": "failed", "timeout": "took too long"}


def _remark(row: Row) -> Cell:
    words = f"quoted, {row.date}" if row.status == "quoted" else STATUS_WORDS[row.status]
    if row.cached:
        words = "data in the caches"
    operands = "" if row.affine else "no weight" if not row.weight else "no bias"
    bad = row.status in ("wrong", "failed", "timeout")
    return Cell(
        "; ".join(part for part in (words, operands, row.model, row.note) if part), kind="wide bad" if bad else "wide"
    )


def results(rows: list[Row], device: str) -> str:
    shown = [row for row in rows if row.device == device]
    shown.sort(key=lambda r: (r.op, theme.PASSES.index(r.direction), r.dtype, r.cols, r.rows, theme.place(r.backend)))
    scale, unit = (1e6, "µs") if device == "gpu" else (1e3, "ms")
    columns = ["library", "op", "pass", "dtype", "#rows", "#columns", f"#{unit}", "#GB/s", "#of a copy"]
    columns += [f"#host {unit}" if device == "gpu" else "#threads", "file", "remark"]
    body = []
    for row in shown:
        rate = row.bytes / row.seconds * 1e-9 if row.seconds else None
        last = number(row.host_seconds, "{:.2f}", scale) if device == "gpu" else number(row.threads or None, "{:.0f}")
        body.append([
            backend_cell(row.backend), theme.OPS.get(row.op, row.op), theme.PASS_NAMES[row.direction], row.dtype,
            number(row.rows, "{:d}"), number(row.cols, "{:d}"),
            number(row.seconds, "{:.2f}" if device == "gpu" else "{:.4f}", scale), number(rate, "{:.0f}"),
            number(row.of_copy), last, code(row.source), _remark(row),
        ])  # fmt: skip
    return table(f"results-{device}", f"Every result on the {theme.DEVICES[device]}", columns, body)


def backends(sources: list[Source]) -> str:
    body = [
        [backend_cell(b["name"]), b.get("version") or "–",
         Cell(b["status"], kind="bad" * (b["status"] in ("failed", "wrong"))),
         Cell(b.get("note") or "", kind="wide"), source.data.get("date", ""), code(source.name)]
        for source in sources
        for b in sorted(source.data["backends"], key=lambda b: theme.place(b["name"]))
    ]  # fmt: skip
    return table(
        "backends", "Libraries that were asked", ["library", "version", "status", "note", "date", "file"], body
    )


def memory(sources: list[Source]) -> str:
    body = []
    for source in sources:
        torch = {}
        for r in source.data["memory"]:
            if theme.label(r["backend"]) == "PyTorch" and r["peak_bytes"]:
                torch[r["op"], r["dtype"], r["rows"], r["cols"], r.get("model")] = r["peak_bytes"]
        for r in source.data["memory"]:
            beside = torch.get((r["op"], r["dtype"], r["rows"], r["cols"], r.get("model")))
            ratio = r["peak_bytes"] / beside if beside and r["peak_bytes"] is not None else None
            body.append([
                backend_cell(r["backend"]), theme.OPS.get(r["op"], r["op"]), r["dtype"], number(r["rows"], "{:d}"),
                number(r["cols"], "{:d}"), number(r["peak_bytes"], "{:.2f}", 1e-6),
                number(r.get("saved_bytes"), "{:.2f}", 1e-6), number(ratio), r.get("model") or "",
            ])  # fmt: skip
    columns = ["library", "op", "dtype", "#rows", "#columns", "#peak MB", "#kept for backward MB", "#of PyTorch's peak"]
    return table("memory-table", "Peak memory of forward and backward", [*columns, "model"], body)


def differences(sources: list[Source]) -> str:
    fields = ("out", "mean", "rstd", "dx", "dweight", "dbias")
    body = [
        [backend_cell(r["backend"]), theme.OPS.get(r["op"], r["op"]), r["dtype"], number(r["rows"], "{:d}"),
         number(r["cols"], "{:d}"), *(number(r.get(name), "{:.1e}") for name in fields),
         theme.DEVICES[source.device]]
        for source in sources
        for r in source.data["accuracy"]
    ]  # fmt: skip
    columns = ["library", "op", "dtype", "#rows", "#columns", *(f"#{name}" for name in fields), "device"]
    return table("differences", "Largest difference from float64", columns, body)


# ---- the cost model ----


LETTERS = {
    "batch_size": "B",
    "seq_len": "S",
    "hidden_size": "H",
    "a_bytes": "a",
    "w_bytes": "w",
    "s_bytes": "s",
}


def in_letters(formula: str) -> str:
    """8*batch_size*seq_len as 8·B·S: whole names would make the table wider than any window."""
    return re.sub(r"\w+", lambda name: LETTERS.get(name[0], name[0]), formula).replace("*", "·")


def _other_symbols(variants: list[dict[str, Any]]) -> str:
    """What the names mean that have no letter, as the program says."""
    found = {s["name"]: s for variant in variants for s in variant.get("symbols", ()) if s["name"] not in LETTERS}
    lines = "".join(
        f"<dt>{escape(s['name'])} = {s['value']}</dt><dd>{escape(s['origin'])}</dd>" for s in found.values()
    )
    return f'<dl class="symbols">{lines}</dl>\n' if lines else ""


def _kernel_row(variant: str, kernel: dict[str, Any], kind: str) -> list[Cell | str]:
    symbols = kernel.get("symbols") or {}

    def cell(key: str) -> Cell:
        symbol = symbols.get(key)
        shown = f"{kernel[key]:,.0f}"
        small = f"<small>{escape(in_letters(str(symbol)))}</small>" if symbol else ""
        return Cell(shown, kernel[key], markup=f"{shown}{small}")

    moved = kernel["read_bytes"] + kernel["write_bytes"]
    intensity = kernel.get("intensity", kernel["flops"] / moved if moved else None)
    seconds = kernel.get("roofline_seconds")
    name, origin = kernel.get("name", "total"), kernel.get("origin", "").rpartition("-> ")[2]
    what = escape(name) + (f"<small>{escape(origin)}</small>" if origin else "")
    return [variant, Cell(name, markup=what, kind=kind), *(cell(key) for key in ("flops", "read_bytes", "write_bytes")),
            number(intensity), str(kernel.get("bound") or ""), number(seconds, "{:.2f}", 1e6)]  # fmt: skip


def cost(source: Source) -> str:
    """One op and pass: every variant kernel by kernel."""
    data = source.data
    body = []
    for variant in data["variants"]:
        body += [_kernel_row(variant["name"], kernel, "") for kernel in variant["kernels"]]
        body.append(_kernel_row(variant["name"], {**variant["total"], "name": "total"}, "total"))
    sizes = ", ".join(f"{name} {value}" for name, value in data["sizes"].items() if not isinstance(value, bool))
    sizes += f", {data['dtype']}" if "dtype" in data else ""
    columns = ["variant", "kernel", "#FLOP", "#bytes read", "#bytes written", "#FLOP a byte", "bound", "#limit µs"]
    machine = source.machine.get("name")
    limits = f"limits of {machine}" if machine else "no limits, for no machine was measured"
    title = f"{theme.OPS.get(data['op'], data['op'])} {theme.PASS_NAMES[data['pass']]}: {sizes}; {limits}"
    made = table(f"cost-{data['op']}-{data['pass']}".replace("_", "-"), title, columns, body)
    return made and made + _other_symbols(data["variants"])


# ---- a block ----

APART = ("product", "attention")


def _launch_row(variant: dict[str, Any]) -> list[Cell | str]:
    """Launches by type, and the least times: of all, and of what is neither product nor attention."""
    kernels = variant["kernels"]
    others = [k for k in kernels if k.get("type") not in APART]
    counts = [len(kernels), *(sum(k.get("type") == kind for k in kernels) for kind in APART), len(others)]
    known = all(k.get("roofline_seconds") is not None for k in kernels)
    times = [sum(k["roofline_seconds"] for k in found) if known else None for found in (kernels, others)]
    return [variant["name"], *(Cell(str(n), n) for n in counts), *(number(t, "{:.1f}", 1e6) for t in times)]


def _step_row(variant: str, kernel: dict[str, Any]) -> list[Cell | str]:
    moved = kernel["read_bytes"] + kernel["write_bytes"]
    counts = [number(kernel[key], "{:,.1f}", 1e-6) for key in ("flops", "read_bytes", "write_bytes")]
    return [variant, code(kernel["name"]), str(kernel.get("type", "")), *counts,
            number(kernel["flops"] / moved if moved else None), str(kernel.get("bound") or ""),
            number(kernel.get("roofline_seconds"), "{:.2f}", 1e6)]  # fmt: skip


def block(source: Source) -> str:
    """Launches of a block, then its kernels, of every variant."""
    data = source.data
    order = data.get("order", "block")
    sizes = ", ".join(f"{size} {value}" for size, value in data["sizes"].items() if not isinstance(value, bool))
    where = f"{data.get('dtype', '')}; {source.machine.get('name', '')}"
    title = f"{order} {theme.PASS_NAMES[data['pass']]}: {sizes}, {where}"
    heads = ["variant", "#launches", "#products", "#attention", "#others", "#limit µs", "#of it the others’ µs"]
    columns = ["variant", "kernel", "type", "#MFLOP", "#MB loaded", "#MB stored", "#FLOP a byte", "bound", "#limit µs"]
    rows = [_step_row(variant["name"], kernel) for variant in data["variants"] for kernel in variant["kernels"]]
    launches = table(f"block-{order}-launches", title, heads, [_launch_row(v) for v in data["variants"]])
    return launches + table(f"block-{order}-kernels", f"{order}: every kernel", columns, rows)


def corrections(sources: list[Source]) -> str:
    """What analyses of such blocks have counted wrongly, as the program says."""
    found = next((source.data["corrections"] for source in sources if source.data.get("corrections")), [])
    rows: list[list[Cell | str]] = [[entry["wrong"], entry["right"]] for entry in found]
    return table("block-corrections", "Often counted wrongly", ["wrong", "right"], rows)


# ---- support, machines, files ----

SUPPORTED = ("ok", "EK_OK")


def support(sources: list[Source]) -> str:
    """Op and dtype by device and pass, as the library answered."""
    cells: dict[tuple, dict[tuple, str]] = {}
    for source in sources:
        for r in source.data["support"]:
            weight = r.get("weight_dtype") or r["dtype"]
            device = "GPU" if r["device"].startswith("cuda") else "CPU"
            cells.setdefault((r["op"], r["dtype"], weight), {})[device, r["pass"]] = r["status"]
    refused = [pair for pair, row in cells.items() if not any(status in SUPPORTED for status in row.values())]
    for pair in refused:
        del cells[pair]
    heads = sorted({head for row in cells.values() for head in row}, key=lambda h: (h[0], h[1] != "forward", h[1]))
    body = []
    for (op, dtype, weight), row in sorted(cells.items()):
        found: list[Cell | str] = [theme.OPS.get(op, op), dtype, weight]
        for head in heads:
            status = row.get(head)
            if status is None:
                found.append("–")
            else:
                found.append(Cell("✓", kind="good") if status in SUPPORTED else Cell(f"✗ {status}", kind="bad"))
        body.append(found)
    return table("support-table", "What the library runs, asked of the library itself",
                 ["op", "dtype", "weights", *(f"{device}, {p}" for device, p in heads)], body)  # fmt: skip


def _value(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int) and value >= 1024:
        return f"{value / MEBI:g} MB" if value >= MEBI else f"{value / 1024:g} KB"
    return str(value)


def machines(sources: list[Source]) -> str:
    """What each file says of the machine it was made on; files of one machine stand together."""
    seen: dict[str, tuple[Source, list[str]]] = {}
    for source in sources:
        machine = source.machine
        if machine and source.kind != "explain":  # which tells a roofline
            kept = seen.setdefault(repr(sorted(machine.items(), key=str)), (source, []))
            kept[1].append(source.name)
    body: list[list[Cell | str]] = []
    for source, names in seen.values():
        title = source.machine_name
        facts = ", ".join(
            f"{key.replace('_bytes', '').replace('_', ' ')} {_value(key, value)}"
            for key, value in source.machine.items()
            if value not in (None, "", title)
        )
        body.append(
            [
                title,
                Cell(facts, kind="wide"),
                Cell(", ".join(names), markup=", ".join(f"<code>{escape(n)}</code>" for n in names)),
            ]
        )
    return table("machines-table", "Machines", ["machine", "as found", "files"], body)


def peaks(sources: list[Source]) -> str:
    body = []
    for source in sources:
        name = source.machine_name
        if source.data["copy"]:
            copy = largest_copy(source)
            rate = Cell(in_units(copy["bytes_per_second"], "B/s"), copy["bytes_per_second"])
            threads = f", {copy['threads']} threads" if copy.get("threads") else ""
            body.append([name, f"copy of {copy['bytes'] / MEBI:g} MB{threads}", rate])
        for r in source.data["flops"]:
            threads = f", {r['threads']} threads" if r.get("threads") else ""
            rate = Cell(in_units(r["flops_per_second"], "FLOP/s"), r["flops_per_second"])
            body.append([name, f"arithmetic in {r['dtype']}{threads}", rate])
    return table("peaks-table", "Measured limits", ["machine", "what", "#rate"], body)


MAKERS = {
    "bench": "evenkeel bench{device} --json {file}",
    "machine": "evenkeel info --measure {file}{device}",
    "info": "evenkeel info --json {file}",
    "explain": "evenkeel explain {op} --json {file}",
}


def _maker(source: Source) -> str:
    """The command that writes such a file; a comparison says its own, and what is quoted is nobody's run here."""
    if source.kind in ("compare", "quoted"):
        return source.data.get("command") or ""
    if not source.name.endswith(".json"):
        return source.name  # asked of the program
    device = " --device cuda" if source.device == "gpu" else ""
    return MAKERS[source.kind].format(device=device, file=source.name, op=source.data.get("op", ""))


def _origin(source: Source) -> str:
    """Where figures come from that no command here makes."""
    return f"quoted, {source.data['gpu']}: {source.data['method']}" if source.kind == "quoted" else "–"


def files(reading: Reading) -> str:
    body = []
    for source in {source.name: source for source in reading.sources}.values():
        maker = _maker(source)
        body.append([code(source.name), source.kind, source.data.get("evenkeel") or "–", source.data.get("date") or "–",
                     code(maker) if maker else Cell(_origin(source), kind="wide")])  # fmt: skip
    return table("files-table", "Where the figures come from", ["file", "kind", "evenkeel", "date", "command"], body)
