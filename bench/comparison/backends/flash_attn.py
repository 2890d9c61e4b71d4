"""The Triton norms and rotary embedding of flash-attn. SPDX-License-Identifier: MIT"""

from typing import Any

from comparison.backends.base import Autograd, Operands, version_of
from comparison.case import Case


class FlashAttn(Autograd):
    ops = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "rope")
    dtypes = ("f32", "f16", "bf16")

    def load(self, device: str, threads: int) -> str:
        from flash_attn.layers.rotary import apply_rotary_emb
        from flash_attn.ops.triton.layer_norm import layer_norm_fn

        self.norm, self.turn = layer_norm_fn, apply_rotary_emb
        return version_of("flash-attn")

    def call(self, case: Case, given: Operands) -> Any:
        if case.op == "rope":
            cos, sin = (table[:, : case.head_dim // 2].contiguous() for table in (given.cos, given.sin))
            tensors = (tensor.view(1, case.rows, -1, case.head_dim) for tensor in (given.x, given.k))
            return tuple(self.turn(tensor, cos, sin).squeeze(0) for tensor in tensors)
        options = {"eps": case.eps, "is_rms_norm": case.norm == "rms_norm", "prenorm": case.spec.form == "add"}
        return self.norm(given.x, given.weight, given.bias, residual=given.residual, **options)
