"""The Triton norms of flash-attn. SPDX-License-Identifier: MIT"""

from typing import Any

from comparison.backends.base import Autograd, Operands, version_of
from comparison.case import Case


class FlashAttn(Autograd):
    ops = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")
    dtypes = ("f32", "f16", "bf16")

    def load(self, device: str, threads: int) -> str:
        from flash_attn.ops.triton.layer_norm import layer_norm_fn

        self.norm = layer_norm_fn
        return version_of("flash-attn")

    def call(self, case: Case, given: Operands) -> Any:
        options = {"eps": case.eps, "is_rms_norm": case.norm == "rms_norm", "prenorm": case.spec.form == "add"}
        return self.norm(given.x, given.weight, given.bias, residual=given.residual, **options)
