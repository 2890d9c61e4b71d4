"""evenkeel beside PyTorch's own norms, through PyTorch, in one run: host time of a call, device time, CPU time.

    python bench/pytorch.py                 what this machine has: host and cpu, and device where there is a GPU
    python bench/pytorch.py host device
    python bench/pytorch.py cpu --threads 2 --json FILE

host    what the calling thread pays for a call on 8x1024 bf16 (f32 without a GPU), too small for the work to count;
        `engine` is the part that no norm can change, (x * 2).backward(dy) and the gradients' reset; a chain of norms
        shares one backward among many, so that what a norm itself costs shows. Fused functions stand beside evenkeel's
        norm alone: `more` is what they cost above it, the goal is 1 us
device  kernels in CUDA graphs over buffers that do not fit the caches, allocation and statistics included; `of copy`
        is the time of a copy of the same bytes (backward: of one and a half) over the time of the op, 1.00 is the limit
cpu     modules at 2048x4096, forward and forward + backward

Ratios are evenkeel's time over PyTorch's: under 1 is faster. SPDX-License-Identifier: MIT
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F

import evenkeel
import evenkeel.torch as ek
from comparison import timing

Times = dict[str, float]
SHAPES = ((8, 8192), (2048, 2048), (2048, 4096), (1024, 8192), (8192, 1024), (16384, 768), (4096, 8192), (32768, 4096))
MODULES = (ek.LayerNorm, torch.nn.LayerNorm)
CHAIN = 24
GIB = 1 << 30


def by_turns(calls: dict[str, Callable[[], object]], rounds: int, repeats: int) -> Times:
    """Seconds a call, the GPU's work not waited for while the clock runs."""
    return timing.by_turns(calls, rounds, repeats, torch.cuda.synchronize if torch.cuda.is_available() else None)


def operands(rows: int, cols: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x = torch.randn(rows, cols, device=device).to(dtype)
    return x, torch.rand(cols, device=device).to(dtype), torch.rand(cols, device=device).to(dtype), torch.randn_like(x)


def show(title: str, times: Times, unit: float = 1e6) -> dict:
    ours, theirs = times["evenkeel"], times["pytorch"]
    rest = "".join(
        f", {name} {seconds * unit:.2f}" for name, seconds in times.items() if name not in ("evenkeel", "pytorch")
    )
    print(
        f"  {title:<34} evenkeel {ours * unit:9.2f} us, pytorch {theirs * unit:9.2f}{rest}, ratio {ours / theirs:.2f}"
    )
    return {"case": title, "seconds": times, "ratio": ours / theirs}


# ---- host ----


def trained(function: Callable[..., torch.Tensor], x: torch.Tensor, parameters: list[torch.Tensor], dy: torch.Tensor):
    """One forward and backward."""

    def step() -> None:
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        function().backward(dy)

    return step


def in_chain(norm: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """CHAIN norms, one after another."""
    for _ in range(CHAIN):
        x = norm(x)
    return x


def host_without_gradient(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[dict]:
    shape, modules = (x.shape[-1],), [m(x.shape[-1], device=x.device, dtype=x.dtype) for m in MODULES]
    cases = {
        "layer_norm, no gradient": {
            "evenkeel": lambda: ek.layer_norm(x, shape, w, b),
            "pytorch": lambda: F.layer_norm(x, shape, w, b),
            "empty_like": lambda: torch.empty_like(x),
        },
        "rms_norm, no gradient": {
            "evenkeel": lambda: ek.rms_norm(x, shape, w),
            "pytorch": lambda: F.rms_norm(x, shape, w),
        },
        "LayerNorm, no gradient": {"evenkeel": lambda: modules[0](x), "pytorch": lambda: modules[1](x)},
    }
    with torch.no_grad():
        return [show(title, by_turns(calls, 15, 500)) for title, calls in cases.items()]


def host_with_gradient(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, dy: torch.Tensor) -> list[dict]:
    shape = (x.shape[-1],)
    libraries = {"evenkeel": ek, "pytorch": F}
    layer = {name: lambda y, f=library.layer_norm: f(y, shape, w, b) for name, library in libraries.items()}
    rms = {name: lambda y, f=library.rms_norm: f(y, shape, w) for name, library in libraries.items()}

    def steps(norms: dict[str, Callable]) -> dict[str, Callable[[], None]]:
        return {name: trained(lambda f=f: f(x), x, [w, b], dy) for name, f in norms.items()}

    chains = {name: lambda y, f=f: in_chain(f, y) for name, f in layer.items()}
    engine = {"engine": trained(lambda: x * 2, x, [w, b], dy)}
    per_norm = {name: seconds / CHAIN for name, seconds in by_turns(steps(chains), 15, 20).items()}
    return [
        show("layer_norm, with gradient", by_turns({n: lambda f=f: f(x) for n, f in layer.items()}, 15, 300)),
        show("layer_norm, forward + backward", by_turns({**steps(layer), **engine}, 15, 200)),
        show("rms_norm, forward + backward", by_turns({**steps(rms), **engine}, 15, 200)),
        show(f"layer_norm, a {CHAIN}th of a chain", per_norm),
    ]


def fused_calls(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> dict[str, dict[str, Callable]]:
    """By the function: it, and its norm alone. r is a residual or a gate."""
    shape = (x.shape[-1],)
    calls = {
        "add_layer_norm": lambda: ek.add_layer_norm(x, r, shape, w, b),
        "add_rms_norm": lambda: ek.add_rms_norm(x, r, shape, w),
        "layer_norm_residual": lambda: ek.layer_norm_residual(x, r, shape, w, b),
        "layer_norm_residual, x_bias": lambda: ek.layer_norm_residual(x, r, shape, w, b, x_bias=b),
        "rms_norm_residual": lambda: ek.rms_norm_residual(x, r, shape, w),
        "layer_norm_act": lambda: ek.layer_norm_act(x, shape, w, b),
        "rms_norm_act": lambda: ek.rms_norm_act(x, shape, w),
        "layer_norm_gelu": lambda: ek.layer_norm_gelu(x, shape, w, b),
        "layer_norm_gated": lambda: ek.layer_norm_gated(x, r, shape, w, b),
        "rms_norm_gated": lambda: ek.rms_norm_gated(x, r, shape, w),
    }
    alone = {"layer_norm": lambda: ek.layer_norm(x, shape, w, b), "rms_norm": lambda: ek.rms_norm(x, shape, w)}
    norm_of = {name: "rms_norm" if "rms_norm" in name else "layer_norm" for name in calls}
    return {name: {"fused": call, "norm": alone[norm_of[name]]} for name, call in calls.items()}


def show_fused(title: str, times: Times) -> dict:
    more = times["fused"] - times["norm"]
    print(
        f"  {title:<42} fused {times['fused'] * 1e6:9.2f} us, norm alone {times['norm'] * 1e6:9.2f}, "
        f"more {more * 1e6:6.2f}"
    )
    return {"case": title, "seconds": times, "more": more}


def host_fused(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[dict]:
    """Calls without a gradient and with one, by turns with the norm alone."""
    results = []
    for name, calls in fused_calls(x, r, w, b).items():
        with torch.no_grad():
            results.append(show_fused(f"{name}, no gradient", by_turns(calls, 15, 500)))
        results.append(show_fused(f"{name}, with gradient", by_turns(calls, 15, 300)))
    return results


def host(options: argparse.Namespace) -> list[dict]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x, w, b, dy = operands(8, 1024, dtype, device)
    print(f"host time of a call, 8x1024 {str(dtype)[6:]}, {device}")
    results = host_without_gradient(x, w, b)
    r = dy.clone()
    x, w, b, r = (t.requires_grad_() for t in (x, w, b, r))
    return results + host_with_gradient(x, w, b, dy) + host_fused(x, r, w, b)


# ---- device ----


def in_graph(calls: list[Callable[[], object]], side: torch.cuda.Stream) -> float:
    """Seconds a call, of calls captured one after another on the stream where their inputs were made."""
    return timing.graph_seconds({"": timing.Graph(calls, side)}, 7)[""]


def device_case(rows: int, cols: int, dtype: torch.dtype) -> list[dict]:
    side = torch.cuda.Stream()
    x, w, b, dy = operands(rows, cols, dtype, "cuda")
    sets = max(2, min(64, int(1.5 * GIB) // (x.numel() * x.element_size())))
    xs = [x.clone().requires_grad_() for _ in range(sets)]
    ys = [torch.empty_like(x) for _ in range(sets)]
    dys = [dy.clone() for _ in range(sets)]
    w, b = w.requires_grad_(), b.requires_grad_()
    torch.cuda.synchronize()
    with torch.no_grad():
        copy = in_graph([lambda i=i: ys[i].copy_(xs[i]) for i in range(sets)], side)
    forward, backward = {}, {}
    for name, function in (("evenkeel", ek.layer_norm), ("pytorch", F.layer_norm)):
        calls = [lambda i=i, f=function: f(xs[i], (cols,), w, b) for i in range(sets)]
        forward[name] = in_graph(calls, side)
        with torch.cuda.stream(side):
            outputs = [call() for call in calls]
        gradients = [
            lambda i=i, y=y: torch.autograd.grad(y, (xs[i], w, b), dys[i], retain_graph=True)
            for i, y in enumerate(outputs)
        ]
        backward[name] = in_graph(gradients, side)
    results = []
    for what, times, limit in (("forward", forward, copy), ("backward", backward, 1.5 * copy)):
        results.append(show(f"{rows}x{cols} {str(dtype)[6:]} {what}", {**times, "copy": limit}))
        results[-1]["of_copy"] = {name: limit / seconds for name, seconds in times.items()}
        print(f"  {'':<34} of copy: evenkeel {limit / times['evenkeel']:.2f}, pytorch {limit / times['pytorch']:.2f}")
    return results


def device(options: argparse.Namespace) -> list[dict]:
    print(f"device time, {torch.cuda.get_device_name()}, statistics and allocation included")
    results = []
    for rows, cols in SHAPES[:3] if options.quick else SHAPES:
        results += device_case(rows, cols, torch.bfloat16)
    return results


# ---- cpu ----


def cpu_cases(library: str, threads: int, repeats: int) -> Times:
    """Seconds a call of one library's modules, in a process of its own: what one leaves of its memory, in large pages
    or small ones, would change the other's times."""
    torch.set_num_threads(threads)
    module = ek.LayerNorm if library == "evenkeel" else torch.nn.LayerNorm
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, _, _, dy = operands(2048, 4096, dtype, "cpu")
        norm, title = module(4096, dtype=dtype), f"2048x4096 {str(dtype)[6:]}"
        with torch.no_grad():
            found[f"{title} forward"] = by_turns({"": lambda m=norm, x=x: m(x)}, repeats, 3)[""]
        x.requires_grad_()
        step = trained(lambda m=norm, x=x: m(x), x, list(norm.parameters()), dy)
        found[f"{title} forward + backward"] = by_turns({"": step}, repeats, 3)[""]
    return found


def cpu(options: argparse.Namespace) -> list[dict]:
    print(f"modules on the CPU, {options.threads} threads, each library in processes of its own by turns")
    runs: dict[str, list[Times]] = {"evenkeel": [], "pytorch": []}
    for _ in range(1 if options.quick else 3):
        for library in runs:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                runs[library].append(pool.submit(cpu_cases, library, options.threads, 7).result())
    cases = runs["evenkeel"][0]
    return [
        show(case, {library: statistics.median(run[case] for run in found) for library, found in runs.items()})
        for case in cases
    ]


PARTS = {"host": host, "device": device, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="host, device, cpu")
    parser.add_argument("--threads", type=int, default=2, help="of the part cpu (2)")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also writes the figures")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]!r}: a part is one of {', '.join(PARTS)}")
    parts = options.parts or [part for part in PARTS if part != "device" or torch.cuda.is_available()]
    if "device" in parts and not torch.cuda.is_available():
        sys.exit("bench/pytorch.py: device needs an NVIDIA GPU that PyTorch can use")
    results = {part: PARTS[part](options) for part in parts}
    if options.json:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        machine = {"torch": torch.__version__, "evenkeel": evenkeel.__version__, "gpu": gpu}
        options.json.write_text(json.dumps({"machine": machine, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
