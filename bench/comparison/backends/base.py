"""What a backend is: one file beside this one for each, listed in __init__.py. worker.py calls them.

A backend imports its library in load() and nowhere else, so that the list of them needs none.
SPDX-License-Identifier: MIT"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from comparison.case import DTYPES, OPS, Case

TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def version_of(package: str) -> str:
    """ "?" where a folder was copied without what pip writes beside it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


class Done(NamedTuple):
    """A forward that was carried out: its result, and what backward needs of it."""

    y: Any
    kept: tuple[Any, ...]


class Backend:
    """A library's norms. Tensors come in through adopt() once, before anything is timed."""

    install: ClassVar[str] = ""  # how it is installed, for those who lack it, where __init__.py does not say
    ops: ClassVar[tuple[str, ...]] = OPS
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
        """Why it cannot do a case; "" where it can."""
        if case.op not in self.ops:
            return f"has no {case.op}"
        if self.needs_bias and case.op == "layer_norm" and not case.bias:
            return "has no layer_norm with a weight and no bias"
        return "" if case.dtype in self.dtypes else f"does not take {case.dtype}"

    def weight_dtype(self, case: Case) -> str:
        return case.dtype

    def adopt(self, tensor: Tensor, differentiable: bool) -> Any:
        """The tensor as this library takes it: the same memory where that can be."""
        return tensor

    def restore(self, result: Any) -> Tensor | None:
        """A result as a tensor of PyTorch."""
        return result

    def forward(self, case: Case, x: Any, weight: Any, bias: Any) -> Done:
        """The forward of training, that keeps what backward needs."""
        raise NotImplementedError

    def backward(self, case: Case, dy: Any, done: Done) -> tuple[Any, Any, Any]:
        """(dx, dweight, dbias); may be called more than once."""
        raise NotImplementedError

    def step(self, case: Case, x: Any, weight: Any, bias: Any, dy: Any) -> Any:
        """Forward and backward, as a training step calls them."""
        done = self.forward(case, x, weight, bias)
        return done.y, self.backward(case, dy, done)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        """(mean, rstd), None for what the library does not show."""
        return None, None


class Autograd(Backend):
    """A library whose norm is a function on PyTorch's tensors, with gradients through autograd."""

    def call(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def adopt(self, tensor: Tensor, differentiable: bool) -> Any:
        return tensor.detach().requires_grad_() if differentiable else tensor

    def forward(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Done:
        return Done(self.call(case, x, weight, bias), (x, weight, bias))

    def _gradients(self, case: Case, dy: Tensor, done: Done, again: bool) -> tuple[Any, Any, Any]:
        inputs = done.kept if case.bias else done.kept[:2]
        gradients = torch.autograd.grad(done.y, inputs, dy, retain_graph=again)
        return (*gradients, None) if len(gradients) == 2 else gradients

    def backward(self, case: Case, dy: Tensor, done: Done) -> tuple[Any, Any, Any]:
        return self._gradients(case, dy, done, True)

    def step(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None, dy: Tensor) -> Any:
        done = self.forward(case, x, weight, bias)
        return done.y, self._gradients(case, dy, done, False)
