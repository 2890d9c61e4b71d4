"""A training step of one transformer block: evenkeel's, torch.compile's and eager PyTorch's, in one run.

    python bench/block.py                           both orders, two sizes on a GPU, a small one on a CPU
    python bench/block.py --orders reordered --sizes 4x2048x1024x16x4096
    python bench/block.py --modes evenkeel,eager --json block.json
    python bench/block.py --orders pre --kernels    also the kernels between products and attention, by their time

The three are one block with the same parameters (evenkeel.torch.ReorderedNormBlock and PreNormBlock, fused or not, in
bf16 with a bias in every product), forward and backward of a given gradient. Their values are held against float64
before they are timed: `error` is the larger one of the output and of the gradients, relative to their length.

step      milliseconds of a step, the modes by turns: on a GPU a CUDA graph of it, replayed between events
products, attention, rest
          the device's milliseconds by the names of kernels, from profiles of single steps, the modes by turns; rest is
          everything between products and attention, the additions of autograd included. A kernel counts from where the
          ones that began before it have ended: one of a programmatic dependent launch begins early, and waits inside
kernels   that a step launches

SPDX-License-Identifier: MIT
"""

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import evenkeel
import evenkeel.torch as ek
from comparison import timing

ORDERS = {"reordered": ek.ReorderedNormBlock, "pre": ek.PreNormBlock}
MODES = ("evenkeel", "compile", "eager")
TOLERANCE, SMALL = 1.1, 1e-5  # of the eager block's error: what a fused block's may be; in f32 one below 1e-5
PROFILED, PROFILES = 3, 5  # steps of a profile, and profiles of a mode
# Kernels of the vendor's libraries, and what splits a product's sums; cuDNN's fusions belong to attention's backward.
# torch.compile names its own after the operations around them.
PRODUCT = re.compile(r"gemm|nvjet|xmma|cutlass(?!.*fmha)|splitk|cublas", re.IGNORECASE)
ATTENTION = re.compile(r"^(?!triton_(?:poi|red|per)_).*(?:flash|fmha|attention|sdpa|cudnn::fusion)", re.IGNORECASE)


class Size(NamedTuple):
    batch: int
    seq: int
    d_model: int
    heads: int
    ffn: int

    def __str__(self) -> str:
        return "x".join(map(str, self))


SIZES = {
    "cuda": (Size(4, 2048, 1024, 16, 4096), Size(2, 2048, 4096, 32, 11008)),
    "cpu": (Size(2, 256, 512, 8, 1408),),
}


def parse_sizes(text: str) -> tuple[Size, ...]:
    sizes = []
    for part in text.split(","):
        numbers = part.split("x")
        if len(numbers) != len(Size._fields) or not all(n.isascii() and n.isdigit() and int(n) for n in numbers):
            raise argparse.ArgumentTypeError(f"{part!r} is not {'x'.join(map(str.upper, Size._fields))}")
        sizes.append(Size(*map(int, numbers)))
    return tuple(sizes)


def listed(names: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(names)}")
        return tuple(dict.fromkeys(text.split(",")))

    return parse


# ---- the blocks ----


class Step:
    """Forward and backward of a block; calling it returns the output and all gradients."""

    def __init__(self, block: Any, x: Tensor, gradient: Tensor, rope: tuple[Tensor, Tensor]) -> None:
        self.block, self.x, self.gradient, self.rope = block, x, gradient, rope
        self.inputs = [x, *block.parameters()]

    def __call__(self) -> list[Tensor]:
        y = self.block(self.x, rope=self.rope)
        return [y.detach(), *torch.autograd.grad(y, self.inputs, self.gradient)]


def steps_of(order: str, size: Size, device: str, dtype: torch.dtype, modes: Iterable[str]) -> dict[str, Step]:
    """The modes' steps, and that of float64, on the same numbers."""
    torch.manual_seed(0)
    made = ORDERS[order](size.d_model, size.heads, size.ffn, fused=False, device=device, dtype=dtype)
    shape = (size.batch, size.seq, size.d_model)
    tables = [
        torch.from_numpy(table).to(device) for table in evenkeel.rope_tables(size.seq, size.d_model // size.heads)
    ]
    x, gradient = (torch.randn(shape, device=device).to(dtype) for _ in range(2))

    def step(mode: str) -> Step:
        of = torch.float64 if mode == "float64" else dtype
        fused = mode == "evenkeel"
        block = ORDERS[order](size.d_model, size.heads, size.ffn, fused=fused, device=device, dtype=of)
        block.load_state_dict(made.state_dict())
        called: Any = torch.compile(block, dynamic=False, fullgraph=True) if mode == "compile" else block
        cos, sin = (table.double() if of is torch.float64 else table for table in tables)
        return Step(called, x.to(of).requires_grad_(), gradient.to(of), (cos, sin))

    return {mode: step(mode) for mode in ("float64", *modes)}


def error_of(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest distance of a tensor, relative to its length."""
    pairs = zip(found, exact, strict=True)
    return max(((a.double() - b).norm() / b.norm().clamp_min(1e-300)).item() for a, b in pairs)


def errors(steps: dict[str, Step]) -> dict[str, float]:
    """Of each mode, from float64, whose step is removed: its tensors are large."""
    exact = steps.pop("float64")()
    return {mode: error_of(step(), exact) for mode, step in steps.items()}


# ---- times ----


def times_of(steps: dict[str, Step], device: str, rounds: int) -> dict[str, float]:
    """Seconds a step, by turns."""
    if device == "cpu":
        return timing.by_turns(dict(steps), rounds)
    side = torch.cuda.Stream()
    return timing.graph_seconds({mode: timing.Graph([step], side) for mode, step in steps.items()}, rounds)


def kind_of(kernel: str) -> str:
    return "attention" if ATTENTION.search(kernel) else "products" if PRODUCT.search(kernel) else "rest"


class Kernel(NamedTuple):
    """A kernel, memset or copy of a GPU, in microseconds."""

    name: str
    begin: float
    end: float


def own_times(kernels: Iterable[Kernel]) -> list[tuple[str, float]]:
    """What each adds to the time in which the GPU works, in the order in which they begin: (name, microseconds)."""
    ordered = sorted(kernels, key=lambda kernel: (kernel.begin, kernel.end))
    added = timing.additions((kernel.begin, kernel.end) for kernel in ordered)
    return [(kernel.name, microseconds) for kernel, microseconds in zip(ordered, added, strict=True)]


def parts_of(kernels: Iterable[tuple[str, float]], steps: int) -> dict[str, float]:
    """Milliseconds a step of each kind, and how many kernels it launches, from own_times."""
    parts = dict.fromkeys(("products", "attention", "rest", "kernels"), 0.0)
    for name, microseconds in kernels:
        parts[kind_of(name)] += microseconds / 1e3 / steps
        parts["kernels"] += 1 / steps
    return parts


def medians(profiles: list[dict[str, float]]) -> dict[str, float]:
    """Of each number; 0 where a profile does not have it."""
    names = dict.fromkeys(name for profile in profiles for name in profile)
    return {name: statistics.median(profile.get(name, 0.0) for profile in profiles) for name in names}


def between(profiles: list[list[tuple[str, float]]], steps: int) -> list[list]:
    """Those of the rest: [microseconds a step that it adds, launches a step, name], the longest first; medians."""
    added: list[dict[str, float]] = [defaultdict(float) for _ in profiles]
    launches: list[dict[str, float]] = [defaultdict(float) for _ in profiles]
    for i, kernels in enumerate(profiles):
        for name, microseconds in kernels:
            if kind_of(name) == "rest":
                added[i][name] += microseconds / steps
                launches[i][name] += 1 / steps
    count = medians(launches)
    return sorted(([microseconds, count[name], name] for name, microseconds in medians(added).items()), reverse=True)


def profiled(step: Step) -> list[tuple[str, float]]:
    """The own times of PROFILED steps on a GPU; the one before them is not counted."""
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.device_type == DeviceType.CUDA and not e.is_user_annotation]
    return own_times(Kernel(e.name, e.time_range.start, e.time_range.end) for e in events)


def profiles_of(steps: dict[str, Step]) -> dict[str, list[list[tuple[str, float]]]]:
    """Of each mode, by turns: the clock of a GPU drifts."""
    found: dict[str, list] = {mode: [] for mode in steps}
    for _ in range(PROFILES):
        for mode, step in steps.items():
            found[mode].append(profiled(step))
    return found


# ---- the run ----


def measure(order: str, size: Size, modes: tuple[str, ...], device: str, dtype: torch.dtype, rounds: int) -> list[dict]:
    steps = steps_of(order, size, device, dtype, modes)
    error = errors(steps)
    seconds = times_of(steps, device, rounds)
    profiles = profiles_of(steps) if device == "cuda" else {}
    rows = []
    for mode in steps:
        row = {"order": order, "size": str(size), "dtype": str(dtype).removeprefix("torch."), "mode": mode}
        row |= {"seconds": seconds[mode], "error": error[mode]}
        if mode in profiles:
            row |= medians([parts_of(kernels, PROFILED) for kernels in profiles[mode]])
            row["between"] = between(profiles[mode], PROFILED)
        rows.append(row)
    return rows


def show(rows: list[dict], kernels: bool) -> None:
    print(f"\n{rows[0]['order']} {rows[0]['size']} {rows[0]['dtype']}")
    names = ("products", "attention", "rest", "kernels")
    print(f"  {'':<10}{'step ms':>10}" + "".join(f"{name:>11}" for name in names) + f"{'error':>11}")
    for row in rows:
        figures = "".join(f"{row[name]:>11.3f}" if name in row else f"{'–':>11}" for name in names)
        print(f"  {row['mode']:<10}{row['seconds'] * 1e3:>10.3f}{figures}{row['error']:>11.2e}")
    for row in rows if kernels else []:
        print(f"  between products and attention, {row['mode']}: us a step that it adds, launches, kernel")
        for microseconds, launches, name in row.get("between", []):
            print(f"  {microseconds:>10.1f}{launches:>6.0f}  {name[:110]}")


def is_close(rows: list[dict]) -> bool:
    """Whether evenkeel's error is that of eager PyTorch, or not known."""
    error = {row["mode"]: row["error"] for row in rows}
    return error.get("evenkeel", 0.0) <= max(SMALL, TOLERANCE * error.get("eager", float("inf")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="the GPU where there is one, else the CPU")
    parser.add_argument("--orders", type=listed(ORDERS), default=tuple(ORDERS), metavar="O,O", help=", ".join(ORDERS))
    parser.add_argument("--modes", type=listed(MODES), default=MODES, metavar="M,M", help=", ".join(MODES))
    parser.add_argument("--sizes", type=parse_sizes, metavar="S,S", help="BATCHxSEQxD_MODELxHEADSxFFN")
    parser.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each mode; medians (9)")
    parser.add_argument("--kernels", action="store_true", help="list the kernels of rest, on a GPU")
    parser.add_argument("--json", metavar="FILE", help="what was found")
    options = parser.parse_args()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[options.dtype]
    where = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"evenkeel {evenkeel.__version__}, torch {torch.__version__}, {where}")
    results: list[dict] = []
    close = True
    for size in options.sizes or SIZES[device]:
        for order in options.orders:
            rows = measure(order, size, options.modes, device, dtype, options.rounds)
            show(rows, options.kernels)
            close = close and is_close(rows)
            results += rows
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"evenkeel": evenkeel.__version__, "torch": torch.__version__, "device": where,
                       "results": results}, file, indent=1)  # fmt: skip
    if not close:
        print(f"evenkeel's error is more than {TOLERANCE} of eager PyTorch's")
    return not close


if __name__ == "__main__":
    raise SystemExit(main())
