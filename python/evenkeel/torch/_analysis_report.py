"""How evenkeel.torch.analyze shows what it found: text, Markdown and JSON. SPDX-License-Identifier: MIT"""

import json
from dataclasses import dataclass, field
from typing import Any

from evenkeel.torch._analysis_kernel import BACKWARD, FORWARD, Kernel
from evenkeel.torch._analysis_machine import PRODUCTS, Machine
from evenkeel.torch._analysis_measure import Measured


@dataclass
class Variant:
    name: str
    about: str
    kernels: list[Kernel]
    measured: Measured | None = None


@dataclass
class Report:
    subject: str
    step: bool
    sizes: dict[str, Any]
    dtype: str
    bits: int
    machine: Machine
    variants: list[Variant] = field(default_factory=list)
    packed: int = 0  # products of forward that are a part of another: as many launches more, one for each weight

    def one_per_product(self, variant: Variant) -> int:
        """Launches of forward, with q, k and v, and gate and value, as products of their own."""
        return sum(kernel.phase == FORWARD for kernel in variant.kernels) + self.packed

    def seconds(self, kernels: list[Kernel]) -> float:
        return sum(self.machine.seconds(kernel, self.bits) for kernel in kernels)

    @property
    def phases(self) -> list[str]:
        return [FORWARD, BACKWARD] if self.step else [FORWARD]


HEAD = ["kernel", "type", "FLOP", "loads", "stores", "FLOP/byte", "bound by", "at least"]
NOTES = [
    "a kernel reads and writes every byte of a tensor once; an fma counts two FLOP, a function of one number one",
    "evenkeel's kernels are counted by the library's cost model (docs/cost.md), the others by their inputs and outputs",
    "torch.compile is an estimate by the rules of inductor's fusion, not what a version of it launches",
    "launches of split-K and of memset are not counted; measured, they are listed apart",
    "RoPE and gated activations are bound by memory; of the projections only the biases are fused, not the products",
]


def readable(number: float, unit: str = "") -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.95:
            return f"{number:.1f} {prefix}{unit}".rstrip() if prefix else f"{number:.0f} {unit}".rstrip()
        number /= 1000
    return f"{number:.1f} P{unit}"


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def intensity(kernel: Kernel) -> float:
    moved = kernel.read_bytes + kernel.write_bytes
    return kernel.flops / moved if moved else 0.0


def _cells(report: Report, kernel: Kernel) -> list[str]:
    machine, bits = report.machine, report.bits
    return [
        kernel.name,
        kernel.kind,
        readable(kernel.flops),
        readable(kernel.read_bytes, "B"),
        readable(kernel.write_bytes, "B"),
        f"{intensity(kernel):.2f}",
        machine.bound(kernel, bits),
        duration(machine.seconds(kernel, bits)),
    ]


def _classes(report: Report, variant: Variant) -> dict[str, list[Kernel]]:
    classes: dict[str, list[Kernel]] = {"product": [], "attention": [], "other": []}
    for kernel in variant.kernels:
        classes[kernel.kind if kernel.kind in PRODUCTS else "other"].append(kernel)
    return classes


SUMMARY = ["variant", "launches", "products", "attention", "others", "at least", "of it the others' part"]
MEASURED = ["variant", "class", "launches", "predicted", "measured", "share of the roofline"]


def summary_rows(report: Report) -> list[list[str]]:
    rows = []
    for variant in report.variants:
        classes = _classes(report, variant)
        counts = [str(len(classes[name])) for name in ("product", "attention", "other")]
        times = [duration(report.seconds(variant.kernels)), duration(report.seconds(classes["other"]))]
        rows.append([variant.name, str(len(variant.kernels)), *counts, *times])
    return rows


def measured_rows(report: Report) -> list[list[str]]:
    """The predicted time next to the measured one; nothing is predicted of what lies apart."""
    rows = []
    for variant in report.variants:
        if variant.measured is None:
            continue
        predicted = {name: report.seconds(kernels) for name, kernels in _classes(report, variant).items()}
        for name in ("product", "attention", "other", "apart"):
            seconds, launches = variant.measured.seconds.get(name, 0.0), variant.measured.launches.get(name, 0)
            share = f"{predicted[name] / seconds:.2f}" if name in predicted and seconds else "-"
            least = duration(predicted[name]) if name in predicted else "-"
            rows.append([variant.name, name, str(launches), least, duration(seconds), share])
    return rows


def packed_lines(report: Report) -> list[str]:
    counts = ", ".join(f"{variant.name} {report.one_per_product(variant)}" for variant in report.variants)
    return [f"forward with q, k and v, and gate and value, as products of their own: {counts}"] if report.packed else []


# ---- text ----


def _aligned(head: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def _title(report: Report) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in report.sizes.items())
    return f"{report.subject}, {'training step' if report.step else 'forward'}: {sizes}, {report.dtype}"


def text(report: Report) -> str:
    lines = [_title(report)]
    for variant in report.variants:
        lines += ["", f"{variant.name}: {variant.about}"]
        rows = []
        for phase in report.phases:
            if report.step:
                rows.append([f"[{phase}]", *[""] * (len(HEAD) - 1)])
            rows += [_cells(report, kernel) for kernel in variant.kernels if kernel.phase == phase]
        lines += _aligned(HEAD, rows)
    lines += ["", f"Launches, and the least time on {report.machine.name}", *_aligned(SUMMARY, summary_rows(report))]
    lines += [f"  {line}" for line in packed_lines(report)]
    if measured_rows(report):
        lines += ["", "Measured by torch.profiler", *_aligned(MEASURED, measured_rows(report))]
    return "\n".join([*lines, "", *(f"  {note}" for note in NOTES)]) + "\n"


# ---- Markdown ----


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def markdown(report: Report) -> str:
    lines = [f"**{_title(report)}**"]
    for variant in report.variants:
        for phase in report.phases:
            rows = [_cells(report, kernel) for kernel in variant.kernels if kernel.phase == phase]
            named = [[f"`{row[0]}`", *row[1:]] for row in rows]
            lines += ["", f"**{variant.name}**, {phase}: {variant.about}", "", *_table(HEAD, named)]
    lines += [
        "",
        f"**launches**, and the least time on {report.machine.name}",
        "",
        *_table(SUMMARY, summary_rows(report)),
    ]
    lines += [line for note in packed_lines(report) for line in ("", note)]
    if measured_rows(report):
        lines += ["", "**measured** by torch.profiler", "", *_table(MEASURED, measured_rows(report))]
    return "\n".join([*lines, "", *(f"- {note}" for note in NOTES)]) + "\n"


# ---- JSON ----


def _numbers(report: Report, kernels: list[Kernel]) -> dict[str, Any]:
    flops, read, write = (sum(getattr(k, name) for k in kernels) for name in ("flops", "read_bytes", "write_bytes"))
    whole = Kernel("total", "total", flops, read, write)
    seconds = report.seconds(kernels)
    computing = sum(
        report.machine.seconds(k, report.bits) for k in kernels if report.machine.bound(k, report.bits) == "compute"
    )
    return {
        "flops": flops,
        "read_bytes": read,
        "write_bytes": write,
        "intensity": intensity(whole),
        "bound": "compute" if 2 * computing > seconds else "memory",
        "roofline_seconds": seconds,
    }


def as_dict(report: Report) -> dict[str, Any]:
    """As `evenkeel explain block --json`, with the phase of each kernel; no formulas."""
    variants = []
    for variant in report.variants:
        kernels = [{"name": k.name, "type": k.kind, "phase": k.phase, **_numbers(report, [k])} for k in variant.kernels]
        counts = {name: len(found) for name, found in _classes(report, variant).items()}
        launches = {
            "all": len(kernels),
            "products": counts["product"],
            "attention": counts["attention"],
            "others": counts["other"],
        }
        entry: dict[str, Any] = {"name": variant.name, "about": variant.about, "launches": launches, "kernels": kernels}
        if report.packed:
            launches["forward_one_per_product"] = report.one_per_product(variant)
        entry["total"] = _numbers(report, variant.kernels)
        if variant.measured is not None:
            entry["measured"] = {"seconds": variant.measured.seconds, "launches": variant.measured.launches}
        variants.append(entry)
    return {
        "op": report.subject,
        "pass": "step" if report.step else "forward",
        "sizes": report.sizes,
        "dtype": report.dtype,
        "machine": report.machine._asdict(),
        "notes": NOTES,
        "variants": variants,
    }


def as_json(report: Report) -> str:
    return json.dumps(as_dict(report), indent=1) + "\n"
