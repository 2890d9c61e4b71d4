"""quack's CuTe kernels. Its LayerNorm takes weights in f32 alone. SPDX-License-Identifier: MIT"""

from importlib import import_module
from typing import Any

from torch import Tensor

from comparison.backends.base import Backend, Done, version_of
from comparison.case import Case


class Quack(Backend):
    dtypes = ("f32", "f16", "bf16")
    note = "LayerNorm has no autograd, its weights are f32"

    def load(self, device: str, threads: int) -> str:
        self.library = import_module("quack.rmsnorm")  # the package has a function of this name, too
        return version_of("quack-kernels")

    def weight_dtype(self, case: Case) -> str:
        return "f32" if case.op == "layer_norm" else case.dtype

    def forward(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Done:
        if case.op == "rms_norm":
            y, _, rstd = self.library.rmsnorm_fwd(x, weight, eps=case.eps, store_rstd=True)
            return Done(y, (x, weight, None, rstd))
        y, rstd, mean = self.library.layernorm_fwd(x, weight, bias, case.eps, return_rstd=True, return_mean=True)
        return Done(y, (x, weight, mean, rstd))

    def backward(self, case: Case, dy: Tensor, done: Done) -> tuple[Any, Any, Any]:
        x, weight, mean, rstd = done.kept
        if case.op == "rms_norm":
            return self.library.rmsnorm_bwd(x, weight, dy, rstd)[:3]
        return self.library.layernorm_bwd(x, weight, dy, rstd, mean, has_bias=case.bias)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        return done.kept[2], done.kept[3]
