"""Apex's CUDA kernels. SPDX-License-Identifier: MIT"""

from torch import Tensor

from comparison.backends.base import Autograd, Operands, version_of
from comparison.case import Case


class Apex(Autograd):
    dtypes = ("f32", "f16", "bf16")
    needs_bias = True

    def load(self, device: str, threads: int) -> str:
        import fused_layer_norm_cuda  # noqa: F401  the extension, which a plain `pip install` leaves out
        from apex.normalization.fused_layer_norm import fused_layer_norm_affine, fused_rms_norm_affine

        self.layer_norm, self.rms_norm = fused_layer_norm_affine, fused_rms_norm_affine
        return version_of("apex")

    def call(self, case: Case, given: Operands) -> Tensor:
        if case.op == "rms_norm":
            return self.rms_norm(given.x, given.weight, (case.cols,), case.eps)
        return self.layer_norm(given.x, given.weight, given.bias, (case.cols,), case.eps)
