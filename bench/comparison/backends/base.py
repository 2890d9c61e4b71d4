"""What a backend is: one file beside this one for each, listed in __init__.py. worker.py calls them.

A backend imports its library in load() and nowhere else, so that the list of them needs none.
SPDX-License-Identifier: MIT"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from comparison.case import DTYPES, Case
from comparison.ops import PLAIN

TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def version_of(package: str) -> str:
    """ "?" where a folder was copied without what pip writes beside it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


class Operands(NamedTuple):
    """Of an op, or their gradients; None for those that it does not have."""

    x: Any
    weight: Any = None
    bias: Any = None
    residual: Any = None
    gate: Any = None
    x_bias: Any = None
    value: Any = None
    value_bias: Any = None
    k: Any = None
    k_weight: Any = None
    cos: Any = None
    sin: Any = None


class Done(NamedTuple):
    """A forward that was carried out: its results, of which y is the first, and what backward needs of it."""

    outputs: tuple[Any, ...]
    kept: tuple[Any, ...]

    @property
    def y(self) -> Any:
        return self.outputs[0]


class Backend:
    """A library's norms. Tensors come in through adopt() once, before anything is timed."""

    install: ClassVar[str] = ""  # how it is installed, for those who lack it, where __init__.py does not say
    ops: ClassVar[tuple[str, ...]] = PLAIN  # of comparison.ops; no row is written for the others
    dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)
    note: ClassVar[str] = ""  # what a reader of its figures must know
    allocates: ClassVar[bool] = True  # its results? Else its memory is the caller's, and there is nothing to measure
    sums_in_16_bits_on_cpu: ClassVar[bool] = False  # dweight and dbias of 16-bit tensors? Then they may be far off
    needs_bias: ClassVar[bool] = False  # of layer_norm, whose weight alone it does not take
    captured: ClassVar[bool] = True  # may its calls be captured in a CUDA graph?

    def load(self, device: str, threads: int) -> str:
        """Imports the library; its version. What it raises is the reason that readers are given."""
        raise NotImplementedError

    def refuses(self, case: Case) -> str:
        """Why it cannot do a case of an op that it has; "" where it can."""
        if case.spec.has_heads and case.head_dim % 2:
            return f"{case.cols} columns have no heads of an even width"
        if self.needs_bias and case.norm == "layer_norm" and not case.bias:
            return f"has no {case.op} with a weight and no bias"
        return "" if case.dtype in self.dtypes else f"does not take {case.dtype}"

    def weight_dtype(self, case: Case) -> str:
        return case.dtype

    def adopt(self, tensor: Tensor, differentiable: bool) -> Any:
        """The tensor as this library takes it: the same memory where that can be."""
        return tensor

    def restore(self, result: Any) -> Tensor | None:
        """A result as a tensor of PyTorch."""
        return result

    def forward(self, case: Case, given: Operands) -> Done:
        """The forward of training, that keeps what backward needs."""
        raise NotImplementedError

    def backward(self, case: Case, gradients: tuple[Any, ...], done: Done) -> Operands:
        """The gradients of the operands, from those of the outputs; may be called more than once."""
        raise NotImplementedError

    def step(self, case: Case, given: Operands, gradients: tuple[Any, ...]) -> Any:
        """Forward and backward, as a training step calls them."""
        done = self.forward(case, given)
        return done.outputs, self.backward(case, gradients, done)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        """(mean, rstd) of a plain norm, None for what the library does not show."""
        return None, None


class Autograd(Backend):
    """A library whose norms are functions on PyTorch's tensors, with gradients through autograd."""

    def call(self, case: Case, given: Operands) -> Any:
        """y, or (y, h) of an op that has both."""
        raise NotImplementedError

    def adopt(self, tensor: Tensor, differentiable: bool) -> Any:
        return tensor.detach().requires_grad_() if differentiable else tensor

    def forward(self, case: Case, given: Operands) -> Done:
        outputs = self.call(case, given)
        return Done(tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,), given)

    def _gradients(self, case: Case, gradients: tuple[Any, ...], done: Done, again: bool) -> Operands:
        inputs = [getattr(done.kept, name) for name in case.differentiable]
        shaped = [gradient.view(y.shape) for gradient, y in zip(gradients, done.outputs, strict=True)]
        found = torch.autograd.grad(done.outputs, inputs, shaped, retain_graph=again)
        return Operands(**dict(zip(case.differentiable, found, strict=True)))

    def backward(self, case: Case, gradients: tuple[Any, ...], done: Done) -> Operands:
        return self._gradients(case, gradients, done, True)

    def step(self, case: Case, given: Operands, gradients: tuple[Any, ...]) -> Any:
        done = self.forward(case, given)
        return done.outputs, self._gradients(case, gradients, done, False)
