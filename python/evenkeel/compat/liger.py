"""LayerNorm, RMSNorm, the fused add, RoPE and gated feed-forward layers of liger_kernel.transformers, with Liger's
arguments and defaults: eps is 1e-6 in a module, and has no default in a function.

casting_mode "llama" rounds the normalized values to the dtype of x before the weight multiplies them; "gemma" rounds
once, at the end. "none" computes in the dtype of x in Liger's kernels; here it is what "gemma" is. in_place, row_mode,
impl, mode and backend choose among Liger's kernels: they are accepted and change nothing. Results have the dtype of x,
under autocast too. SPDX-License-Identifier: MIT
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from evenkeel.compat._liger_parts import (
    LigerGEGLUMLP,
    LigerGELUMulFunction,
    LigerPhi3SwiGLUMLP,
    LigerRopeFunction,
    LigerSiLUMulFunction,
    LigerSwiGLUMLP,
    liger_geglu,
    liger_rope,
    liger_rotary_pos_emb,
    liger_swiglu,
)
from evenkeel.compat._norms import add_rms_norm_of_any_dtype, norm_of_any_dtype
from evenkeel.torch._call import LAYER_NORM, RMS_NORM

__all__ = [
    "LigerFusedAddRMSNorm",
    "LigerGEGLUMLP",
    "LigerGELUMulFunction",
    "LigerLayerNorm",
    "LigerPhi3SwiGLUMLP",
    "LigerRMSNorm",
    "LigerRMSNormForGemma",
    "LigerRMSNormForGemma2",
    "LigerRMSNormForGemma3",
    "LigerRMSNormForGemma4",
    "LigerRMSNormForGlm4",
    "LigerRMSNormForMuseGlimmer",
    "LigerRMSNormForMuseGlimmerTextCentered",
    "LigerRMSNormForOlmo2",
    "LigerRMSNormForQwen3Next",
    "LigerRopeFunction",
    "LigerSiLUMulFunction",
    "LigerSwiGLUMLP",
    "liger_fused_add_rms_norm",
    "liger_geglu",
    "liger_layer_norm",
    "liger_rms_norm",
    "liger_rope",
    "liger_rotary_pos_emb",
    "liger_swiglu",
]

_Class = TypeVar("_Class", bound=Module)

# By name and by Liger's number.
_ROUNDINGS = {"llama": "each", "gemma": "once", "none": "once", 0: "each", 1: "once", -1: "once"}
_INITIAL = {"ones": torch.ones, "zeros": torch.zeros}


def _rounding(call: str, casting_mode: str | int) -> str:
    if casting_mode not in _ROUNDINGS:
        raise ValueError(f"{call}: casting_mode is {casting_mode!r}; expected 'llama', 'gemma' or 'none'")
    return _ROUNDINGS[casting_mode]


def _initial(module: Module, init_fn: str, hidden_size: int) -> Parameter:
    if init_fn not in _INITIAL:
        raise ValueError(f"{type(module).__name__}: init_fn is {init_fn!r}; expected 'ones' or 'zeros'")
    return Parameter(_INITIAL[init_fn](hidden_size))


# ---- functions ----


def liger_layer_norm(X: Tensor, W: Tensor, B: Tensor, eps: float) -> Tensor:
    """LayerNorm over the last dimension."""
    return norm_of_any_dtype(LAYER_NORM, X, X.shape[-1:], W, B, eps)


def liger_rms_norm(
    X: Tensor,
    W: Tensor | None,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = True,
) -> Tensor:
    """RMSNorm over the last dimension, times W + offset."""
    rounding = _rounding("liger_rms_norm", casting_mode)
    return norm_of_any_dtype(RMS_NORM, X, X.shape[-1:], W, None, eps, weight_offset=offset, rounding=rounding)


def liger_fused_add_rms_norm(
    X: Tensor,
    R: Tensor,
    W: Tensor,
    eps: float,
    offset: float = 0.0,
    casting_mode: str | int = "llama",
    in_place: bool = True,
) -> tuple[Tensor, Tensor]:
    """(Y, S) with S = X + R in the dtype of X, and Y = liger_rms_norm(S, …)."""
    rounding = _rounding("liger_fused_add_rms_norm", casting_mode)
    options = {"weight_offset": offset, "rounding": rounding}
    return add_rms_norm_of_any_dtype(X, R, W, None, eps, residual_dtype=X.dtype, **options)  # type: ignore[arg-type]


# ---- modules ----


class LigerLayerNorm(Module):
    """liger_kernel.transformers.LigerLayerNorm. It always has a bias: zeros, with bias=True random values."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        bias: bool = False,
        init_fn: str = "ones",
        impl: str | None = None,
        mode: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        self.impl, self.mode = backend if impl is None else impl, mode
        self.hidden_size, self.eps, self.variance_epsilon = hidden_size, eps, eps
        self.weight = _initial(self, init_fn, hidden_size)
        self.bias = Parameter(torch.randn(hidden_size) if bias else torch.zeros(hidden_size))

    @property
    def backend(self) -> str | None:
        """Another name of impl."""
        return self.impl

    @backend.setter
    def backend(self, value: str | None) -> None:
        self.impl = value

    def forward(self, hidden_states: Tensor) -> Tensor:
        return liger_layer_norm(hidden_states, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}, impl={self.impl!r}, mode={self.mode!r}"


class LigerRMSNorm(Module):
    """liger_kernel.transformers.LigerRMSNorm."""

    weight: Parameter | None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str | int = "llama",
        init_fn: str = "ones",
        in_place: bool = True,
        row_mode: bool | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        _rounding(type(self).__name__, casting_mode)
        weight = _initial(self, init_fn, hidden_size if elementwise_affine else 0)
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.elementwise_affine, self.variance_epsilon, self.offset = elementwise_affine, eps, offset
        self.casting_mode, self.in_place, self.row_mode = casting_mode, in_place, row_mode

    def forward(self, hidden_states: Tensor) -> Tensor:
        return liger_rms_norm(hidden_states, self.weight, self.variance_epsilon, self.offset, self.casting_mode)

    def extra_repr(self) -> str:
        shape = None if self.weight is None else tuple(self.weight.shape)
        options = f"offset={self.offset}, in_place={self.in_place}, row_mode={self.row_mode}"
        return f"weight_shape={shape}, eps={self.variance_epsilon}, {options}"


class LigerFusedAddRMSNorm(Module):
    """liger_kernel.transformers.LigerFusedAddRMSNorm: (norm of the sum, sum) of hidden states and a residual."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str | int = "llama",
        init_fn: str = "ones",
        in_place: bool = False,
    ) -> None:
        super().__init__()
        _rounding(type(self).__name__, casting_mode)
        self.weight = _initial(self, init_fn, hidden_size)
        self.variance_epsilon, self.offset, self.casting_mode, self.in_place = eps, offset, casting_mode, in_place

    def forward(self, hidden_states: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        options = self.variance_epsilon, self.offset, self.casting_mode
        return liger_fused_add_rms_norm(hidden_states, residual, self.weight, *options)

    def extra_repr(self) -> str:
        shape, options = tuple(self.weight.shape), f"offset={self.offset}, in_place={self.in_place}"
        return f"{shape}, eps={self.variance_epsilon}, {options}"


# ---- modules for models ----


def _with_defaults(**defaults: Any) -> Callable[[type[_Class]], type[_Class]]:
    """LigerRMSNorm with these arguments after hidden_size: their order and defaults are the model's."""
    this, size, *others = inspect.signature(LigerRMSNorm.__init__).parameters.values()
    chosen = [p.replace(default=defaults[p.name]) for p in others if p.name in defaults]
    signature = inspect.Signature([this, size, *chosen])

    def initialize(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        LigerRMSNorm.__init__(**bound.arguments)

    def decorate(cls: type[_Class]) -> type[_Class]:
        cls.__init__ = initialize  # type: ignore[method-assign]
        initialize.__signature__ = signature  # type: ignore[attr-defined]
        return cls

    return decorate


@_with_defaults(eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=True, row_mode=None)
class LigerRMSNormForGemma(LigerRMSNorm):
    """1 + weight, in float32."""


@_with_defaults(eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False, row_mode=None)
class LigerRMSNormForGemma2(LigerRMSNorm):
    """As for Gemma."""


@_with_defaults(eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False, row_mode=None)
class LigerRMSNormForQwen3Next(LigerRMSNorm):
    """As for Gemma."""


@_with_defaults(eps=1e-6, offset=1.0, casting_mode="gemma", init_fn="zeros", in_place=False, row_mode=None)
class LigerRMSNormForMuseGlimmerTextCentered(LigerRMSNorm):
    """As for Gemma."""


@_with_defaults(eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False, row_mode=None)
class LigerRMSNormForOlmo2(LigerRMSNorm):
    """As LigerRMSNorm."""


@_with_defaults(eps=1e-6, offset=0.0, casting_mode="llama", init_fn="ones", in_place=False, row_mode=None)
class LigerRMSNormForGlm4(LigerRMSNorm):
    """As LigerRMSNorm."""


class LigerRMSNormForGemma3(LigerRMSNorm):
    """LigerRMSNorm with the defaults of Gemma 3: 1 + weight. The size is called dim."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-6,
        offset: float = 1.0,
        casting_mode: str | int = "gemma",
        init_fn: str = "zeros",
        in_place: bool = False,
    ) -> None:
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place)


class LigerRMSNormForGemma4(LigerRMSNorm):
    """LigerRMSNorm with the defaults of Gemma 4: the weight alone, or none with with_scale=False."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str | int = "gemma",
        init_fn: str = "ones",
        in_place: bool = False,
        with_scale: bool = True,
    ) -> None:
        super().__init__(dim, eps, offset, casting_mode, init_fn, in_place, elementwise_affine=with_scale)
        self.with_scale = with_scale


class LigerRMSNormForMuseGlimmer(LigerRMSNorm):
    """As for Gemma 4. Without a weight it needs no size."""

    def __init__(
        self,
        dim: int | None = None,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str | int = "gemma",
        init_fn: str = "ones",
        in_place: bool = False,
        with_scale: bool = True,
    ) -> None:
        if dim is None and with_scale:
            raise TypeError(f"{type(self).__name__}: dim is None; expected an integer, or with_scale=False")
        super().__init__(dim or 0, eps, offset, casting_mode, init_fn, in_place, elementwise_affine=with_scale)
        self.with_scale = with_scale
