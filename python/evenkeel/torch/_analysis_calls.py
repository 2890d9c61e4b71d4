"""The kernels of evenkeel's calls, and of PyTorch's norms on a GPU, by the library's cost model.

SPDX-License-Identifier: MIT
"""

import math
from typing import Any

import torch
from torch import Tensor

from evenkeel import _core
from evenkeel._glu import Options
from evenkeel.torch._analysis_kernel import Kernel

_WITH = {"residual": 1, "x_bias": 2, "residual_after": 4, "gate": 8, "value": 16, "biases": 32, "positions": 128}
_ABSENT = {"weight": 1, "bias": 2, "statistics": 4, "dgate": 16}
_ACTIVATIONS = {None: 0, "sigmoid": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4, "relu": 5, "relu_squared": 6, "none": 7}
_DTYPES = {torch.float32: _core.F32, torch.float16: _core.F16, torch.bfloat16: _core.BF16, torch.float64: _core.F64}


def _dtype(tensor: Any) -> int:
    return _DTYPES[tensor.dtype] if isinstance(tensor, Tensor) else 0


def _first(*tensors: Any) -> int:
    return next((_dtype(tensor) for tensor in tensors if tensor is not None), 0)


def _norm_args(x: Tensor, cols: int, flavour: Any) -> dict[str, int]:
    get = flavour.get if isinstance(flavour, dict) else lambda name, _=None: getattr(flavour, name)
    return {
        "batch_size": 1,
        "seq_len": x.numel() // cols,
        "hidden_size": cols,
        "dtype": _dtype(x),
        "weight_offset": int(bool(get("weight_offset", 0))),
        "activation": _ACTIVATIONS[get("activation", None)],
        "gate_first": int(bool(get("gate_first", False))),
        "group_cols": int(get("group_cols", None) or 0),
    }


def _mask(bits: dict[str, int], **present: Any) -> int:
    return sum(bits[name] for name, is_there in present.items() if is_there)


def _norm_forward(inputs: Any, call: Any, statistics: bool) -> tuple[str, dict[str, int]]:
    args = _norm_args(inputs.x, math.prod(call.shape), call.flavour)
    other = inputs.residual if inputs.residual is not None else inputs.residual_after
    there = {name: getattr(inputs, name) is not None for name in ("residual", "x_bias", "residual_after", "gate")}
    args |= {
        "norm": call.norm,
        "weight_dtype": _first(inputs.weight, inputs.bias, inputs.x_bias),
        "h_dtype": _dtype(other),
        "y_dtype": _DTYPES[call.flavour.out_dtype] if call.flavour.out_dtype else 0,
        "with": _mask(_WITH, **there),
        "absent": _mask(_ABSENT, weight=inputs.weight is None, bias=inputs.bias is None, statistics=not statistics),
    }
    return "norm", args


def _norm_backward(given: Any, norm: int, shape: Any, weight: Any, _stats: Any, made: Any, *more: Any) -> Any:
    dy, x = given
    dh, _bias, _x_bias, gate, _dtype_, flavour = more
    args = _norm_args(x, math.prod(shape), flavour)
    args |= {
        "norm": norm,
        "weight_dtype": _first(weight, made.dbias, made.dx_bias),
        "h_dtype": _dtype(dh),
        "y_dtype": _dtype(dy),
        "with": _mask(_WITH, residual=dh is not None, x_bias=made.dx_bias is not None, gate=gate is not None),
        "absent": _mask(_ABSENT, weight=made.dweight is None, bias=made.dbias is None),
    }
    return "norm", args


def _glu(tensors: Any, others: Any, is_backward: bool) -> tuple[str, dict[str, int]]:
    gate, value, bias, value_bias = tensors[is_backward:]
    y: Tensor = tensors[0] if is_backward else next(t for t in others if isinstance(t, Tensor))
    activation = next(o for o in others if isinstance(o, str))
    cols = y.shape[-1]
    is_pair = gate.shape[-1] == 2 * cols
    dgate, _, *sums = others[len(Options._fields) :][:4] if is_backward else (y, None)
    biases = any(tensor is not None for tensor in (bias, value_bias, *sums))
    return "glu", {
        "batch_size": 1,
        "seq_len": y.numel() // cols,
        "ffn_size": cols,
        "dtype": _dtype(gate),
        "weight_dtype": _first(bias, value_bias),
        "activation": _ACTIVATIONS[activation],
        "with": _mask(_WITH, value=value is not None or is_pair, biases=biases),
        "absent": _mask(_ABSENT, dgate=dgate is None),
    }


def _rope(tensors: Any, others: Any, is_backward: bool) -> tuple[str, dict[str, int]]:
    dq, dk, q, k, cos, _sin, positions, q_bias, k_bias, q_weight, k_weight = (
        tensors if is_backward else (None, None, *tensors)
    )
    q, k = (q if q is not None else dq), (k if k is not None else dk)
    names = [o for o in others if isinstance(o, str)]
    sums = [o for o in others if isinstance(o, Tensor) and o.dim() < 4 and o.dtype is not torch.uint8]
    weights = q_weight is not None or k_weight is not None
    batch, seq, heads, head_dim = q.shape
    return "rope", {
        "norm": {"layer": 1, "rms": 2}.get(names[0], 0) if names else 0,
        "batch_size": batch,
        "seq_len": seq,
        "heads": heads,
        "k_heads": 0 if k is None else k.shape[2],
        "head_dim": head_dim,
        "rotary_dim": min(2 * cos.shape[-1], head_dim),
        "dtype": _dtype(q),
        "table_dtype": _dtype(cos),
        "weight_dtype": _first(q_weight, k_weight, q_bias, k_bias),
        "with": _mask(_WITH, biases=q_bias is not None or len(sums) > 2 * weights, positions=positions is not None),
        "absent": _mask(_ABSENT, weight=not weights),
    }


_PYTORCH_NORMS = {"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"}


def _counted(name: str, op: str, args: dict[str, int]) -> list[Kernel]:
    return [
        Kernel(f"{name}/{kernel}", kind, flops, read, written)
        for kernel, kind, flops, read, written in _core.cost(op, args)
    ]


def launches_of_norm(name: str, args: Any) -> list[Kernel]:
    """What a norm of PyTorch's launches on a GPU; of another operation nothing."""
    if name not in _PYTORCH_NORMS or args[0].dtype not in _DTYPES:
        return []
    is_backward, rms = name.endswith("_backward"), "rms" in name
    x, shape = args[is_backward], args[1 + is_backward]
    weight = args[(5 - 2 * rms if is_backward else 2)]
    cols = math.prod(shape)
    fields = {"norm": 2 if rms else 1, "batch_size": 1, "seq_len": x.numel() // cols, "hidden_size": cols}
    fields |= {"dtype": _dtype(x), "weight_dtype": _dtype(weight), "pass": 2 if is_backward else 1}
    fields |= {"variant": 2, "device": 1, "absent": _mask(_ABSENT, weight=weight is None, bias=rms or weight is None)}
    return _counted(name, "norm", fields)


def cost_of_call(function: str, tensors: Any, others: Any) -> list[Kernel]:
    """On a GPU, by the library's cost model."""
    is_backward = function.endswith("_backward")
    if function == "norm_forward":
        op, args = _norm_forward(tensors, *others)
    elif function == "norm_backward":
        op, args = _norm_backward(tensors, *others)
    else:
        describe = {"glu": _glu, "rope": _rope}[function.rpartition("_")[0]]
        op, args = describe(tensors, others, is_backward)
    args |= {"pass": 2 if is_backward else 1, "variant": 3, "device": 1}
    return _counted("evenkeel." + function.rpartition("_")[0], op, args)
