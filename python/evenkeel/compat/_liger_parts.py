"""RoPE and the gated feed-forward layers of liger_kernel.transformers, with Liger's arguments; liger.py exports them.

What are functions of autograd in Liger have its `apply`. q, k and the products are left as they are: Liger's kernels
overwrite some. position_ids and unsqueeze_dim change nothing in Liger, either. SPDX-License-Identifier: MIT
"""

from typing import Any

from torch import Tensor
from torch.nn import Linear, Module

import evenkeel.torch
from evenkeel.torch._autocast import without_autocast

# ---- functions ----


def liger_rotary_pos_emb(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """q and k, [batch, heads, seq, head_dim], turned by halves: results of their shapes and dtypes.

    cos and sin: [1, seq, head_dim] or [batch, seq, head_dim], of which the first half of the columns is read.
    """
    with without_autocast(q):
        return evenkeel.torch.rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin, rotary_dim=q.shape[-1])


class LigerRopeFunction:
    """liger_kernel.ops.LigerRopeFunction."""

    apply = staticmethod(liger_rotary_pos_emb)


def liger_rope(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """Another name of liger_rotary_pos_emb."""
    return liger_rotary_pos_emb(q, k, cos, sin, position_ids, unsqueeze_dim)


def _silu_mul(a: Tensor, b: Tensor, gate_multiplier: float = 1.0, down_multiplier: float = 1.0) -> Tensor:
    with without_autocast(a):
        c = evenkeel.torch.swiglu(a if gate_multiplier == 1.0 else a * gate_multiplier, b)
        return c if down_multiplier == 1.0 else c * down_multiplier


class LigerSiLUMulFunction:
    """liger_kernel.ops.LigerSiLUMulFunction: silu(a * gate_multiplier) * b * down_multiplier."""

    apply = staticmethod(_silu_mul)


def liger_swiglu(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b."""
    return _silu_mul(a, b)


def liger_geglu(a: Tensor, b: Tensor) -> Tensor:
    """gelu(a, approximate="tanh") * b."""
    with without_autocast(a):
        return evenkeel.torch.geglu(a, b, approximate="tanh")


class LigerGELUMulFunction:
    """liger_kernel.ops.LigerGELUMulFunction."""

    apply = staticmethod(liger_geglu)


# ---- modules ----


class _GatedMLP(Module):
    """Three products without biases, of a config's sizes."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_proj = Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.up_proj = Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.down_proj = Linear(self.intermediate_size, self.hidden_size, bias=False)


def _require_silu(module: Module, config: Any) -> None:
    if config.hidden_act not in ("silu", "swish"):
        name = type(module).__name__
        raise ValueError(f"{name}: config.hidden_act is {config.hidden_act!r}; expected 'silu' or 'swish'")


class LigerSwiGLUMLP(_GatedMLP):
    """liger_kernel.transformers.LigerSwiGLUMLP: down_proj(silu(gate_proj(x)) * up_proj(x))."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        _require_silu(self, config)

    def forward(self, x: Tensor) -> Any:
        return self.down_proj(liger_swiglu(self.gate_proj(x), self.up_proj(x)))


class LigerGEGLUMLP(_GatedMLP):
    """liger_kernel.transformers.LigerGEGLUMLP: GELU by its form with tanh, whatever config.hidden_act is."""

    def forward(self, x: Tensor) -> Any:
        return self.down_proj(liger_geglu(self.gate_proj(x), self.up_proj(x)))


class LigerPhi3SwiGLUMLP(Module):
    """liger_kernel.transformers.LigerPhi3SwiGLUMLP: gate and value are one product."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        _require_silu(self, config)
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_up_proj = Linear(self.hidden_size, 2 * self.intermediate_size, bias=False)
        self.down_proj = Linear(self.intermediate_size, self.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Any:
        packed = self.gate_up_proj(x)
        with without_autocast(packed):
            return self.down_proj(evenkeel.torch.glu(packed, None))
