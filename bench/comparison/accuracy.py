"""How far a backend is from float64: the check before anything is timed, and the errors far from zero.
SPDX-License-Identifier: MIT"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from comparison.backends.base import TORCH_DTYPES, Backend
from comparison.case import PARTS, Case

# Of the largest value, at least of 1. More than any order of additions takes, less than any mistake.
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 2e-2, "f64": 1e-10}
# On a CPU PyTorch adds up dweight and dbias of 16-bit tensors in 16 bits: 19 % off at 16384 rows. The table of accuracy
# shows that; it is no reason to leave out the times that its users see. Others are held to TOLERANCE there, too.
COLUMN_SUMS_ON_CPU = {"f16": 0.5, "bf16": 0.5}
CHUNK = 1 << 22  # elements that are taken to float64 at a time

OFFSETS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
OFFSET_ROWS, OFFSET_COLS = 64, 4096


class Operands(NamedTuple):
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    dy: Tensor


def operands(case: Case, device: str, weight_dtype: str, seed: int = 0) -> Operands:
    """Normal numbers, the same for every backend."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, dtype: str) -> Tensor:
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(TORCH_DTYPES[dtype])

    x, dy = (normal(case.rows, case.cols, dtype=case.dtype) for _ in range(2))
    # Rounded to the activations' dtype, so that a library whose weights are f32 has the same ones.
    weight, bias = (normal(case.cols, dtype=case.dtype).to(TORCH_DTYPES[weight_dtype]) for _ in range(2))
    return Operands(x, weight, bias if case.bias else None, dy)


class Reference(NamedTuple):
    """What float64 says about some rows."""

    y: Tensor
    mean: Tensor
    rstd: Tensor
    dx: Tensor
    dweight: Tensor
    dbias: Tensor


def reference(case: Case, x: Tensor, weight: Tensor, bias: Tensor | None, dy: Tensor) -> Reference:
    x, weight, dy = x.double(), weight.double(), dy.double()
    mean = x.mean(1, keepdim=True) if case.op == "layer_norm" else torch.zeros_like(x[:, :1])
    rstd = torch.rsqrt((x - mean).square().mean(1, keepdim=True) + case.eps)
    xhat = (x - mean) * rstd
    y = xhat * weight + (0.0 if bias is None else bias.double())
    g = dy * weight
    center = g.mean(1, keepdim=True) if case.op == "layer_norm" else 0.0
    dx = rstd * (g - center - xhat * (g * xhat).mean(1, keepdim=True))
    return Reference(y, mean[:, 0], rstd[:, 0], dx, (dy * xhat).sum(0), dy.sum(0))


def _chunks(case: Case) -> Iterator[slice]:
    step = max(1, CHUNK // case.cols)
    return (slice(row, row + step) for row in range(0, case.rows, step))


class Distance:
    """The largest difference of one part, and the largest value it was held against."""

    def __init__(self) -> None:
        self.difference, self.largest = 0.0, 1.0

    def add(self, result: Tensor, expected: Tensor) -> None:
        if result.numel() != expected.numel():
            self.difference = float("inf")
            return
        apart = (result.reshape(expected.shape).double() - expected).abs().max().item()
        # A NaN is the largest difference there is.
        self.difference = max(self.difference, apart) if apart == apart else float("inf")
        self.largest = max(self.largest, expected.abs().max().item())


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _required(case: Case) -> tuple[str, ...]:
    """What a backend must return: without it, what is timed is not the op."""
    if case.passes == ("forward",):
        return ("out",)
    return ("out", "dx", "dweight", "dbias") if case.bias else ("out", "dx", "dweight")


def _complaint(backend: Backend, case: Case, device: str, found: dict[str, Distance]) -> str:
    for name in _required(case):
        if name not in found:
            return f"{name} is not returned"
    sums = COLUMN_SUMS_ON_CPU if device == "cpu" and backend.sums_in_16_bits_on_cpu else {}
    for name, distance in found.items():
        looser = sums if name in ("dweight", "dbias") else {}
        allowed = looser.get(case.dtype, TOLERANCE[case.dtype]) * distance.largest
        if distance.difference > allowed:
            return f"{name} is {distance.difference:.3g} from float64, more than {allowed:.3g}"
    return ""


def check(backend: Backend, case: Case, given: Operands) -> tuple[dict[str, float | None], str]:
    """The largest |difference| from float64 of everything the backend gives for this case, None for what it does not;
    and what is wrong with it, "" where nothing is beyond the tolerance."""
    x, weight, bias = (None if t is None else backend.adopt(t, True) for t in given[:3])
    done = backend.forward(case, x, weight, bias)
    results = dict(zip(("mean", "rstd"), map(backend.restore, backend.statistics(case, done)), strict=True))
    results["out"] = backend.restore(done.y)
    if case.passes != ("forward",):  # on a copy of dy: a library may write dx into its memory
        gradients = backend.backward(case, backend.adopt(given.dy.clone(), False), done)
        results.update(zip(("dx", "dweight", "dbias"), map(backend.restore, gradients), strict=True))
    found = _distances(case, given, {name: None if t is None else t.detach() for name, t in results.items()})
    differences = {name: finite(found[name].difference) if name in found else None for name in PARTS}
    return differences, _complaint(backend, case, given.x.device.type, found)


def _distances(case: Case, given: Operands, results: dict[str, Tensor | None]) -> dict[str, Distance]:
    found = {name: Distance() for name, result in results.items() if result is not None}
    sums = [torch.zeros(case.cols, dtype=torch.float64, device=given.x.device) for _ in range(2)]
    for rows in _chunks(case):
        wide = reference(case, given.x[rows], given.weight, given.bias, given.dy[rows])
        for name, expected in (("out", wide.y), ("mean", wide.mean), ("rstd", wide.rstd), ("dx", wide.dx)):
            if name in found:
                found[name].add(results[name][rows], expected)
        sums[0] += wide.dweight
        sums[1] += wide.dbias
    for name, expected in zip(("dweight", "dbias"), sums, strict=True):
        if name in found:
            found[name].add(results[name], expected)
    return found


def offset_error(backend: Backend, op: str, dtype: str, offset: float, device: str) -> float | None:
    """The largest error of y where the mean is `offset` times the deviation, None where y is not finite."""
    case = Case(op, dtype, OFFSET_ROWS, OFFSET_COLS, op == "layer_norm", ("forward",), "models")
    generator = torch.Generator(device).manual_seed(1)
    shape, wide = (OFFSET_ROWS, OFFSET_COLS), {"dtype": torch.float64, "device": device}
    x = (torch.randn(shape, generator=generator, **wide) + offset).to(TORCH_DTYPES[dtype])
    columns = {"dtype": TORCH_DTYPES[backend.weight_dtype(case)], "device": device}
    weight, bias = torch.ones(OFFSET_COLS, **columns), torch.zeros(OFFSET_COLS, **columns) if case.bias else None
    adopted = [None if t is None else backend.adopt(t, True) for t in (x, weight, bias)]
    y = backend.restore(backend.forward(case, *adopted).y)
    expected = reference(case, x, weight, bias, x).y
    return finite((y.detach().double() - expected).abs().max().item())
