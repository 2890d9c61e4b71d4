"""PyTorch's own norms, eager and compiled. SPDX-License-Identifier: MIT"""

from typing import Any

import torch
from torch import Tensor

from comparison.backends.base import Autograd, Done, Operands
from comparison.case import Case
from comparison.composition import compose
from comparison.ops import OPS


class PyTorch(Autograd):
    ops = tuple(OPS)
    sums_in_16_bits_on_cpu = True

    def load(self, device: str, threads: int) -> str:
        return torch.__version__

    def call(self, case: Case, given: Operands) -> Any:
        return compose(case.spec, case.eps, case.head_dim, *given)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        if case.norm == "rms_norm":
            return None, None
        x, weight, bias = (None if tensor is None else tensor.detach() for tensor in done.kept[:3])
        return torch.native_layer_norm(x, (case.cols,), weight, bias, case.eps)[1:]


class Compiled(PyTorch):
    """torch.compile of the eager composition, compiled for each shape: code for dynamic shapes is slower."""

    mode: str | None = None

    def load(self, device: str, threads: int) -> str:
        import torch._functorch.config as functorch

        functorch.donated_buffer = False  # else backward may be called once only
        self.made: tuple[Any, Any] = (None, None)
        return torch.__version__

    def call(self, case: Case, given: Operands) -> Any:
        key = case.op, case.dtype, case.rows, case.cols, case.bias
        if self.made[0] != key:
            torch._dynamo.reset()  # else the ninth case runs eagerly, and each call checks the guards of all
            self.made = key, self._compile(case)
        return self.made[1](*given)

    def _compile(self, case: Case) -> Any:
        spec, eps, head_dim = case.spec, case.eps, case.head_dim

        def composed(*given: Tensor | None) -> tuple[Tensor, ...]:
            return compose(spec, eps, head_dim, *given)

        return torch.compile(composed, dynamic=False, fullgraph=True, mode=self.mode)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        return None, None


class CompiledMost(Compiled):
    mode = "max-autotune-no-cudagraphs"  # the timing has graphs of its own, and those of a graph cannot be captured
    note = "max-autotune; its graphs are those of the timing"
