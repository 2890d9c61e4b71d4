"""The gated norms of mamba-ssm, in Triton. SPDX-License-Identifier: MIT"""

from torch import Tensor

from comparison.backends.base import Autograd, Operands, version_of
from comparison.case import Case


class Mamba(Autograd):
    ops = ("layer_norm_gated", "rms_norm_gated")
    dtypes = ("f32", "f16", "bf16")

    def load(self, device: str, threads: int) -> str:
        from mamba_ssm.ops.triton.layernorm_gated import layernorm_fn

        self.norm = layernorm_fn
        return version_of("mamba-ssm")

    def call(self, case: Case, given: Operands) -> Tensor:
        is_rms_norm = case.norm == "rms_norm"
        return self.norm(given.x, given.weight, given.bias, given.gate, case.eps, is_rms_norm=is_rms_norm)
