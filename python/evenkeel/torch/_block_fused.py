"""The parts of a transformer block by evenkeel's kernels; _block_plain.py says what each function is.

A bias of a product goes to the kernel after it, where that takes the whole of it. SPDX-License-Identifier: MIT
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _is_any_autocast_enabled
from torch._compile import _disable_dynamo
from torch.compiler import is_compiling
from torch.nn import Linear, Module

from evenkeel.torch._autograd import APPLY, Refused, forward
from evenkeel.torch._block_bias import added
from evenkeel.torch._block_fork import fork
from evenkeel.torch._block_heads import packed_heads
from evenkeel.torch._block_options import Feedforward, Heads, Rotation
from evenkeel.torch._call import ADD_NORM, LAYER_NORM, RMS_NORM, Call, Flavour, Inputs
from evenkeel.torch._functional import (
    add_layer_norm,
    add_rms_norm,
    layer_norm,
    layer_norm_residual,
    rms_norm,
    rms_norm_residual,
)
from evenkeel.torch._glu import bias_act, glu
from evenkeel.torch._ledger import is_estimated
from evenkeel.torch._recompute import is_ours

_packed_heads_outside = _disable_dynamo(lambda *given: packed_heads(*given))  # torch.compile breaks its graph here


def _is_bare(linear: Module) -> bool:
    """Whether a module is a product of its weight and nothing else: no wrapper, no hook."""
    hooks = linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks
    return type(linear) is Linear and not any(hooks) and "forward" not in vars(linear)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, forks: bool) -> tuple[Tensor, Tensor]:
    """The product, and x past it: with forks backward adds up the gradients of both ways in the product."""
    watched = is_compiling() or _is_any_autocast_enabled() or not is_ours(x, weight, bias)
    if forks and not watched and torch.is_grad_enabled() and x.requires_grad:
        return fork(x, weight, bias)
    return F.linear(x, weight, bias), x


def product(x: Tensor, linear: Linear, forks: bool = False) -> tuple[Tensor, Tensor | None, Tensor]:
    if not _is_bare(linear):
        return linear(x), None, x
    y, past = _multiply(x, linear.weight, None, forks)
    return y, linear.bias, past


def product_and_bias(x: Tensor, linear: Linear) -> Tensor:
    """The product adds the bias, whose gradient is summed by a kernel."""
    bias = linear.bias if _is_bare(linear) else None
    if bias is None or not bias.requires_grad or is_compiling() or _is_any_autocast_enabled():
        return linear(x)  # type: ignore[no-any-return]
    return added(F.linear(x, linear.weight, bias.detach()), bias)


def _is_layer_norm(module: Any) -> bool:
    return isinstance(module, torch.nn.LayerNorm)


def _columns(module: Any) -> tuple[Tensor | None, ...]:
    """The arguments of a norm's function: weight, for LayerNorm also bias."""
    return (module.weight, module.bias) if _is_layer_norm(module) else (module.weight,)


def norm(x: Tensor, module: Any) -> Tensor:
    function: Any = layer_norm if _is_layer_norm(module) else rms_norm
    offset = module.weight_offset
    result: Tensor = function(x, module.normalized_shape, *_columns(module), module.eps, weight_offset=offset)
    return result


def norm_and_residual(x: Tensor, module: Any) -> tuple[Tensor, Tensor]:
    """Backward adds the gradients of both in the kernel of the norm, as that of add_layer_norm does."""
    weight, bias = module.weight, getattr(module, "bias", None)
    watched = is_compiling() or _is_any_autocast_enabled() or not is_ours(x, weight, bias)
    if watched or not torch.is_grad_enabled() or not x.requires_grad:
        return norm(x, module), x
    kind = LAYER_NORM if _is_layer_norm(module) else RMS_NORM
    flavour = Flavour(weight_offset=module.weight_offset)
    call = Call(kind, Inputs(x, weight, bias), module.normalized_shape, module.eps, flavour)
    try:
        y, stats, options = forward(call, is_estimated())
    except Refused:
        return norm(x, module), x
    results: tuple[Tensor, Tensor] = APPLY[ADD_NORM](x, None, weight, bias, None, (y, x, stats, options))
    return results


def add_norm(x: Tensor, bias: Tensor | None, residual: Tensor, module: Any) -> tuple[Tensor, Tensor]:
    function: Any = add_layer_norm if _is_layer_norm(module) else add_rms_norm
    options = {"x_bias": bias, "weight_offset": module.weight_offset}
    result: tuple[Tensor, Tensor] = function(
        x, residual, module.normalized_shape, *_columns(module), module.eps, **options
    )
    return result


def norm_add(x: Tensor, bias: Tensor | None, residual: Tensor, module: Any) -> Tensor:
    function: Any = layer_norm_residual if _is_layer_norm(module) else rms_norm_residual
    options = {"x_bias": bias, "weight_offset": module.weight_offset}
    result: Tensor = function(x, residual, module.normalized_shape, *_columns(module), module.eps, **options)
    return result


def activate(x: Tensor, bias: Tensor | None, kind: Feedforward) -> Tensor:
    """The bias goes along with the packed gate and value, and gets one gradient, as they do."""
    if kind.is_gated:
        return glu(x, None, bias, activation=kind.activation)
    return bias_act(x, bias, kind.activation)


def heads(
    x: Tensor,
    linear: Linear,
    cut: Heads,
    norms: tuple[Any, Any],
    rotation: Rotation | None,
    tables: tuple[Tensor, Tensor] | None,
    forks: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The product adds the bias, that of v too; its gradient is summed by the kernel that makes those of q and k."""
    if rotation is None or tables is None:
        return *_heads_without_rope(x, linear, cut, norms), x
    bias, past = None, x
    if _is_bare(linear):
        bias = linear.bias
        qkv, past = _multiply(x, linear.weight, None if bias is None else bias.detach(), forks)
    else:
        qkv = linear(x)
    run = _packed_heads_outside if is_compiling() else packed_heads
    made: tuple[Tensor, Tensor, Tensor] = run(qkv, bias, cut, norms, rotation, tables)
    return *made, past


def _heads_without_rope(x: Tensor, linear: Linear, cut: Heads, norms: tuple[Any, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Norms of views; their gradients are concatenated."""
    made = []
    parts = torch.split(linear(x), cut.columns, -1)
    for part, module in zip(parts, (*norms, None), strict=True):
        is_full = module is not None and module.normalized_shape != (cut.head_dim,)
        part = cut.of(norm(part, module) if is_full else part)
        made.append(part if module is None or is_full else norm(part, module))
    q, k, v = (part.transpose(1, 2) for part in made)
    return q, k, v
