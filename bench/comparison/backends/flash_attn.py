"""The Triton norms of flash-attn. SPDX-License-Identifier: MIT"""

from torch import Tensor

from comparison.backends.base import Autograd, version_of
from comparison.case import Case


class FlashAttn(Autograd):
    dtypes = ("f32", "f16", "bf16")

    def load(self, device: str, threads: int) -> str:
        from flash_attn.ops.triton.layer_norm import layer_norm_fn

        self.norm = layer_norm_fn
        return version_of("flash-attn")

    def call(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.norm(x, weight, bias, eps=case.eps, is_rms_norm=case.op == "rms_norm")
