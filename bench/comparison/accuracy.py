"""How far a backend is from float64: the check before anything is timed, and the errors far from zero.
SPDX-License-Identifier: MIT"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from comparison.backends.base import TORCH_DTYPES, Backend, Operands
from comparison.case import PARTS, Case
from comparison.composition import compose
from comparison.ops import PLAIN, TABLES

# Of the largest value, at least of 1. More than any order of additions takes, less than any mistake.
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 2e-2, "f64": 1e-10}
# On a CPU PyTorch adds up dweight and dbias of 16-bit tensors in 16 bits: 19 % off at 16384 rows. The table of accuracy
# shows that; it is no reason to leave out the times that its users see. Others are held to TOLERANCE there, too.
COLUMN_SUMS_ON_CPU = {"f16": 0.5, "bf16": 0.5}
COLUMN_SUMS = ("dweight", "dbias", "dx_bias", "dvalue_bias", "dk_weight")
CHUNK = 1 << 22  # elements that are taken to float64 at a time

OFFSETS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
OFFSET_ROWS, OFFSET_COLS = 64, 4096


class Given(NamedTuple):
    """The operands of a case, and the gradients of its outputs."""

    operands: Operands
    gradients: tuple[Tensor, ...]

    def take(self, rows: slice) -> "Given":
        """Some of the rows, in float64."""
        taken = (None if t is None else (t[rows] if t.dim() == 2 else t).double() for t in self.operands)
        return Given(Operands(*taken), tuple(t[rows].double() for t in self.gradients))


def make(case: Case, device: str, weight_dtype: str, seed: int = 0) -> Given:
    """Normal numbers, the same for every backend."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
        return numbers.to(TORCH_DTYPES[case.dtype])

    def operand(name: str) -> Tensor:
        if name in TABLES:  # of D columns, both halves the same, in the activations' dtype, as in models
            speeds = torch.logspace(0, -4, case.head_dim // 2, device=device)
            angles = torch.arange(case.rows, device=device).outer(speeds)
            table = angles.cos() if name == "cos" else angles.sin()
            return torch.cat((table, table), 1).to(TORCH_DTYPES[case.dtype])
        if name in case.columns:
            # Rounded to the activations' dtype, so that a library whose weights are f32 has the same ones.
            return normal(case.head_dim if case.spec.has_heads else case.cols).to(TORCH_DTYPES[weight_dtype])
        return normal(case.rows, case.cols)

    made = Operands(**{name: operand(name) for name in case.operands})
    return Given(made, tuple(normal(case.rows, case.cols) for _ in case.spec.outputs))


def exact_norm(name: str, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    centered = x - x.mean(-1, keepdim=True) if name == "layer_norm" else x
    y = centered * torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps) * weight
    return y if bias is None else y + bias


def _statistics(case: Case, x: Tensor) -> dict[str, Tensor]:
    mean = x.mean(1) if case.norm == "layer_norm" else torch.zeros_like(x[:, 0])
    return {"mean": mean, "rstd": torch.rsqrt((x - mean[:, None]).square().mean(1) + case.eps)}


def reference(case: Case, given: Given) -> dict[str, Tensor]:
    """What float64 says about some rows, by the names of the parts; sums of columns are those of these rows."""
    there = {name: getattr(given.operands, name).detach() for name in case.operands}
    differentiable = [there[name].requires_grad_() for name in case.differentiable]
    operands = Operands(**there)
    outputs = compose(case.spec, case.eps, case.head_dim, *operands, norm=exact_norm)
    found = dict(zip(case.spec.outputs, outputs, strict=True))
    found |= _statistics(case, operands.x) if case.op in PLAIN else {}
    if case.passes != ("forward",):
        shaped = [gradient.view(y.shape) for gradient, y in zip(given.gradients, outputs, strict=True)]
        gradients = torch.autograd.grad(outputs, differentiable, shaped)
        found |= {f"d{name}": gradient for name, gradient in zip(case.differentiable, gradients, strict=True)}
    return {name: tensor.detach() for name, tensor in found.items()}


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
    gradients = () if case.passes == ("forward",) else tuple(f"d{name}" for name in case.differentiable)
    return case.spec.outputs + gradients


def _complaint(backend: Backend, case: Case, device: str, found: dict[str, Distance]) -> str:
    for name in _required(case):
        if name not in found:
            return f"{name} is not returned"
    sums = COLUMN_SUMS_ON_CPU if device == "cpu" and backend.sums_in_16_bits_on_cpu else {}
    for name, distance in found.items():
        looser = sums if name in COLUMN_SUMS else {}
        allowed = looser.get(case.dtype, TOLERANCE[case.dtype]) * distance.largest
        if distance.difference > allowed:
            return f"{name} is {distance.difference:.3g} from float64, more than {allowed:.3g}"
    return ""


def check(backend: Backend, case: Case, given: Given) -> tuple[dict[str, float | None], str]:
    """The largest |difference| from float64 of everything the backend gives for this case, None for what it does not;
    and what is wrong with it, "" where nothing is beyond the tolerance."""
    copies = (None if tensor is None else tensor.clone() for tensor in given.operands)  # a library may write into them
    done = backend.forward(case, adopt(backend, case, Operands(*copies)))
    results = dict(zip(case.spec.outputs, done.outputs, strict=True))
    if case.op in PLAIN:
        results |= zip(("mean", "rstd"), backend.statistics(case, done), strict=True)
    if case.passes != ("forward",):  # on copies, for the same reason
        gradients = tuple(backend.adopt(gradient.clone(), False) for gradient in given.gradients)
        found = backend.backward(case, gradients, done)
        results |= {f"d{name}": getattr(found, name) for name in case.differentiable}
    restored = {name: backend.restore(result) for name, result in results.items() if result is not None}
    distances = _distances(case, given, {name: t.detach() for name, t in restored.items() if t is not None})
    differences = {name: finite(distances[name].difference) if name in distances else None for name in PARTS}
    return differences, _complaint(backend, case, given.operands.x.device.type, distances)


def adopt(backend: Backend, case: Case, operands: Operands) -> Operands:
    there = {name: getattr(operands, name) for name in case.operands}
    return Operands(**{name: backend.adopt(tensor, name in case.differentiable) for name, tensor in there.items()})


def _distances(case: Case, given: Given, results: dict[str, Tensor]) -> dict[str, Distance]:
    found = {name: Distance() for name in results}
    sums: dict[str, Tensor] = {}
    for rows in _chunks(case):
        for name, expected in reference(case, given.take(rows)).items():
            if name in COLUMN_SUMS:
                sums[name] = sums[name] + expected if name in sums else expected
            elif name in found:
                found[name].add(results[name][rows], expected)
    for name, expected in sums.items():
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
    given = Given(Operands(x, weight, bias), ())
    y = backend.restore(backend.forward(case, adopt(backend, case, given.operands)).y)
    assert y is not None
    expected = reference(case, given.take(slice(None)))["out"]
    return finite((y.detach().double() - expected).abs().max().item())
