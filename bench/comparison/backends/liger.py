"""Liger's Triton kernels. SPDX-License-Identifier: MIT"""

from typing import Any

from comparison.backends.base import Autograd, Done, Operands, version_of
from comparison.case import Case
from comparison.composition import from_heads, to_heads


class Liger(Autograd):
    ops = ("layer_norm", "rms_norm", "add_rms_norm", "swiglu", "rope")
    dtypes = ("f32", "f16", "bf16")
    needs_bias = True

    def load(self, device: str, threads: int) -> str:
        from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
        from liger_kernel.ops.layer_norm import LigerLayerNormFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.rope import LigerRopeFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction

        self.layer_norm, self.rms_norm = LigerLayerNormFunction.apply, LigerRMSNormFunction.apply
        self.add_rms_norm = LigerFusedAddRMSNormFunction.apply
        self.swiglu, self.rope = LigerSiLUMulFunction.apply, LigerRopeFunction.apply
        return version_of("liger-kernel")

    def call(self, case: Case, given: Operands) -> Any:
        x, weight, bias, residual, *_ = given
        if case.op == "swiglu":
            return self.swiglu(x, given.value)
        if case.op == "rope":  # in place: the forwards that are timed turn the same heads on and on
            heads = (to_heads(tensor, case.head_dim) for tensor in (x, given.k))
            q_out, k_out = self.rope(*heads, given.cos[None], given.sin[None])
            return from_heads(q_out), from_heads(k_out)
        if case.op == "add_rms_norm":  # as its module calls it: dx has memory of its own
            return self.add_rms_norm(x, residual, weight, case.eps, 0.0, "llama", False)
        if case.op == "rms_norm":  # as its module calls it: dx goes into the memory of dy
            return self.rms_norm(x, weight, case.eps, 0.0, "llama", True, None)
        return self.layer_norm(x, weight, bias, case.eps)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        saved = done.y.grad_fn.saved_tensors
        return (None, saved[-1]) if case.op == "rms_norm" else saved[-2:]
