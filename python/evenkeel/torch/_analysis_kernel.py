"""A kernel of an analysis, and what an operation of aten launches.

It reads its inputs and writes its outputs, each byte once; a view is nothing. SPDX-License-Identifier: MIT
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

FORWARD, BACKWARD = "forward", "backward"
Key = tuple[int, int]


@dataclass
class Kernel:
    """A launch. Tensors are known by their storages."""

    name: str
    kind: str  # product, attention, reduction, elementwise, fused or copy
    flops: int
    read_bytes: int
    write_bytes: int
    phase: str = FORWARD
    # Bytes by storage and offset, so that parts of a tensor are told apart.
    inputs: dict["Key", int] = field(default_factory=dict, repr=False)
    outputs: dict["Key", int] = field(default_factory=dict, repr=False)
    is_column_sum: bool = False


# ---- operations of aten ----

# FLOPs of an element; a function of one number counts one, as in docs/cost.md.
_ELEMENT_FLOPS = {
    "silu": 4, "silu_backward": 9, "sigmoid": 3, "sigmoid_backward": 3, "gelu": 5, "gelu_backward": 12, "addcmul": 2,
    "native_layer_norm": 12, "native_layer_norm_backward": 19, "_fused_rms_norm": 4, "_fused_rms_norm_backward": 11,
    "_softmax": 4, "_log_softmax": 4, "var_mean": 4, "clone": 0, "copy_": 0, "_to_copy": 0, "cat": 0, "neg": 0,
    "fill_": 0, "zeros_like": 0, "zero_": 0, "ones_like": 0, "slice_backward": 0, "embedding": 0, "stack": 0,
    "contiguous": 0, "zeros": 0, "new_zeros": 0, "full": 0, "arange": 0, "constant_pad_nd": 0, "relu": 0, "where": 0,
    "threshold_backward": 0, "convert_element_type": 0, "select_backward": 0, "embedding_dense_backward": 1,
}  # fmt: skip
_COPIES = {"clone", "copy_", "_to_copy", "cat", "stack", "contiguous", "slice_backward", "constant_pad_nd"}
_REDUCTIONS = {"sum", "mean", "var_mean", "amax", "native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm",
               "_fused_rms_norm_backward", "_softmax", "_log_softmax", "linalg_vector_norm", "norm"}  # fmt: skip
_NO_KERNEL = {"detach", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view",
              "lift", "_local_scalar_dense", "is_same_size", "lift_fresh"}  # fmt: skip
_ATTENTION = "scaled_dot_product"


def _key(tensor: Tensor) -> Key:
    return int(tensor.untyped_storage()._cdata), int(tensor.storage_offset())


def bytes_of(tensor: Tensor) -> int:
    """Those that are there: an expanded tensor has fewer than elements."""
    shape = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return 0 if tensor.numel() == 0 else math.prod(shape) * tensor.element_size()


def _sizes(tensors: Sequence[Tensor]) -> dict[Key, int]:
    sizes: dict[Key, int] = {}
    for tensor in tensors:
        key = _key(tensor)
        sizes[key] = max(sizes.get(key, 0), bytes_of(tensor))
    return sizes


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _attention_flops(name: str, args: Sequence[Any], is_causal: bool) -> int:
    """Two products of scores, or five backward, of the pairs of tokens."""
    q, k = (args[1:3] if "backward" in name else args[:2])  # fmt: skip
    batch, heads, seq, dim = q.shape
    pairs = seq * (seq + 1) // 2 if is_causal and seq == k.shape[2] else seq * k.shape[2]
    return (5 if "backward" in name else 2) * 2 * int(dim) * int(batch) * int(heads) * int(pairs)


def _flops_of(func: Any, name: str, args: Any, kwargs: Any, result: Any, tensors: Sequence[Tensor]) -> int:
    outputs = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
    if name.startswith(f"_{_ATTENTION}"):
        flags = [a for a in (*args, *kwargs.values()) if isinstance(a, bool)]
        return _attention_flops(name, [a for a in args if isinstance(a, Tensor)], any(flags))
    counted: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
    if counted is not None:
        return int(counted(*args, **kwargs, out_val=result))
    largest = max((t.numel() for t in (*tensors, *outputs)), default=0)
    return _ELEMENT_FLOPS.get(name, 1) * largest


def _kind_of(name: str, func: Any) -> str:
    if name.startswith(f"_{_ATTENTION}"):
        return "attention"
    if func.overloadpacket in flop_registry:
        return "product"
    return "copy" if name in _COPIES else "reduction" if name in _REDUCTIONS else "elementwise"


def _is_column_sum(name: str, args: Any) -> bool:
    """Of the rows, not within them."""
    if name != "sum" or len(args) < 2 or not isinstance(args[1], (list, tuple)):
        return False
    return args[0].dim() - 1 not in [dim % args[0].dim() for dim in args[1]]


def kernel_of(func: Any, args: Any, kwargs: Any, result: Any) -> Kernel | None:
    """None where nothing is launched."""
    name = func._schema.name.removeprefix("aten::")
    if not func._schema.name.startswith("aten::") or name in _NO_KERNEL or _is_view(func):
        return None
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    outputs = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
    inputs, written = _sizes(tensors), _sizes(outputs)
    if name in ("copy_", "fill_", "zero_"):
        inputs.pop(_key(tensors[0]), None)
    flops = _flops_of(func, name, args, kwargs, result, tensors)
    read, write = sum(inputs.values()), sum(written.values())
    if read + write == 0:
        return None
    kernel = Kernel(name, _kind_of(name, func), flops, read, write, inputs=inputs, outputs=written)
    kernel.is_column_sum = _is_column_sum(name, args)
    return kernel
