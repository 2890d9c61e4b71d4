"""quack's CuTe kernels. Its LayerNorm takes weights in f32 alone. SPDX-License-Identifier: MIT"""

from importlib import import_module
from typing import Any

from comparison.backends.base import Backend, Done, Operands, version_of
from comparison.case import Case


class Quack(Backend):
    ops = ("layer_norm", "rms_norm", "add_rms_norm")
    dtypes = ("f32", "f16", "bf16")
    note = "LayerNorm has no autograd, its weights are f32"

    def load(self, device: str, threads: int) -> str:
        self.library = import_module("quack.rmsnorm")  # the package has a function of this name, too
        return version_of("quack-kernels")

    def weight_dtype(self, case: Case) -> str:
        return "f32" if case.norm == "layer_norm" else case.dtype

    def forward(self, case: Case, given: Operands) -> Done:
        x, weight, bias, residual, *_ = given
        if case.norm == "rms_norm":
            y, h, rstd = self.library.rmsnorm_fwd(x, weight, residual=residual, eps=case.eps, store_rstd=True)
            return Done((y, h)[: len(case.spec.outputs)], (h, weight, None, rstd))
        y, rstd, mean = self.library.layernorm_fwd(x, weight, bias, case.eps, return_rstd=True, return_mean=True)
        return Done((y,), (x, weight, mean, rstd))

    def backward(self, case: Case, gradients: tuple[Any, ...], done: Done) -> Operands:
        x, weight, mean, rstd = done.kept
        if case.op == "add_rms_norm":
            dy, dh = gradients
            dx, dweight, _, dresidual = self.library.rmsnorm_bwd(x, weight, dy, rstd, dh, has_residual=True)
            return Operands(dx, dweight, residual=dresidual)
        if case.op == "rms_norm":
            return Operands(*self.library.rmsnorm_bwd(x, weight, *gradients, rstd)[:3])
        return Operands(*self.library.layernorm_bwd(x, weight, *gradients, rstd, mean, has_bias=case.bias))

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        return done.kept[2], done.kept[3]
