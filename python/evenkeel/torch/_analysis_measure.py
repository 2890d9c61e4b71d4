"""What the profiler sees of a module on a GPU, next to what the model predicts. evenkeel.torch.analyze calls it.

SPDX-License-Identifier: MIT
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

# Launches that depend on a library's choice for a shape, and are no kernels of the analysis.
_APART = re.compile(r"split_?k|memset|memcpy|reduce_?scatter_?workspace", re.IGNORECASE)
_ATTENTION = re.compile(r"flash|fmha|attention|sdpa|cudnn_generated_fort_native_sdpa", re.IGNORECASE)
_PRODUCT = re.compile(r"gemm|cutlass|nvjet|cublas|xmma|matmul|\bmm_", re.IGNORECASE)


class Launch(NamedTuple):
    name: str
    seconds: float


class Measured(NamedTuple):
    """Seconds and launches of a pass, by class."""

    seconds: dict[str, float]
    launches: dict[str, int]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def class_of(name: str) -> str:
    """product, attention, apart or other."""
    if _APART.search(name):
        return "apart"
    if _ATTENTION.search(name):
        return "attention"
    return "product" if _PRODUCT.search(name) else "other"


def launches_of(events: Iterable[Any]) -> list[Launch]:
    """Those of a profile's events() that ran on a GPU; their times are in microseconds."""
    launches = []
    for event in events:
        if str(getattr(event, "device_type", "")).rpartition(".")[2] != "CUDA":
            continue
        elapsed = getattr(event, "self_device_time_total", None)
        elapsed = event.time_range.elapsed_us() if elapsed is None else elapsed
        if elapsed > 0:
            launches.append(Launch(event.name, elapsed * 1e-6))
    return launches


def summed(launches: Sequence[Launch], repeats: int) -> Measured:
    """A pass of `repeats` that were profiled together."""
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for launch in launches:
        kind = class_of(launch.name)
        seconds[kind] = seconds.get(kind, 0.0) + launch.seconds / repeats
        counts[kind] = counts.get(kind, 0) + 1
    return Measured(seconds, {kind: round(count / repeats) for kind, count in counts.items()})


def _runner(module: Callable[..., Any], inputs: Sequence[Tensor], step: bool) -> Callable[[], None]:
    def run() -> None:
        with torch.set_grad_enabled(step):
            result = module(*inputs)
        if step:
            result = result if isinstance(result, Tensor) else next(t for t in result if isinstance(t, Tensor))
            result.backward(torch.ones_like(result))  # type: ignore[no-untyped-call]

    return run


def measure(module: Module, inputs: Sequence[Tensor], step: bool, repeats: int = 10) -> Measured:
    """By torch.profiler, after warming up."""
    from torch.profiler import ProfilerActivity, profile

    run = _runner(module, inputs, step)
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
    return summed(launches_of(profiled.events()), repeats)
