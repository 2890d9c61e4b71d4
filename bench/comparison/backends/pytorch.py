"""PyTorch's own norms, eager and compiled. SPDX-License-Identifier: MIT"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from comparison.backends.base import Autograd, Done
from comparison.case import Case


def norm(op: str, x: Tensor, shape: tuple[int], weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    return F.layer_norm(x, shape, weight, bias, eps) if op == "layer_norm" else F.rms_norm(x, shape, weight, eps)


class PyTorch(Autograd):
    sums_in_16_bits_on_cpu = True

    def load(self, device: str, threads: int) -> str:
        return torch.__version__

    def call(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return norm(case.op, x, (case.cols,), weight, bias, case.eps)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        if case.op == "rms_norm":
            return None, None
        x, weight, bias = (None if tensor is None else tensor.detach() for tensor in done.kept)
        return torch.native_layer_norm(x, (case.cols,), weight, bias, case.eps)[1:]


class Compiled(PyTorch):
    """torch.compile of the eager norm, for each shape anew: for any shape, its code would be slower."""

    mode: str | None = None

    def load(self, device: str, threads: int) -> str:
        import torch._dynamo.config as dynamo
        import torch._functorch.config as functorch

        functorch.donated_buffer = False  # else backward may be called once only
        dynamo.cache_size_limit = dynamo.accumulated_cache_size_limit = 1 << 16  # else the ninth shape runs eagerly
        self.norm = torch.compile(norm, dynamic=False, mode=self.mode)
        return torch.__version__

    def call(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.norm(case.op, x, (case.cols,), weight, bias, case.eps)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        return None, None


class CompiledMost(Compiled):
    mode = "max-autotune-no-cudagraphs"  # the timing has graphs of its own, and those of a graph cannot be captured
    note = "max-autotune; its graphs are those of the timing"
