"""A call of a norm and its results, as the parts of this package pass them on. SPDX-License-Identifier: MIT"""

import math
import operator
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evenkeel import _core

LAYER_NORM = _core.LAYER_NORM
RMS_NORM = _core.RMS_NORM

# Those that the kernels have, by their numbers in the extension, which start with 1.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

NARROW = torch.float16, torch.bfloat16

Shape = tuple[int, ...]


def groups_of(shape: Shape, group_cols: int | None) -> int:
    """Groups of a row."""
    return 1 if group_cols is None else math.prod(shape) // group_cols


def check_groups(shape: Shape, group_cols: Any) -> int | None:
    """As an integer; None where one group is the whole row."""
    if group_cols is None:
        return None
    cols = math.prod(shape)
    try:
        number = operator.index(group_cols)
    except TypeError:
        given = type(group_cols).__name__
        raise TypeError(f"group_cols is of type {given}; expected an integer, or None") from None
    if number <= 0 or cols % number:
        raise ValueError(f"group_cols ({number}) does not divide {cols}, the elements that are normalized")
    return None if number == cols else number


def number_of(dtype: torch.dtype) -> int:
    """0 for a dtype that the kernels do not have."""
    return DTYPES.index(dtype) + 1 if dtype in DTYPES else 0


class Inputs(NamedTuple):
    """The operands of forward. A residual is added before the norm, h = (x + x_bias) + residual, or after it."""

    x: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    x_bias: Tensor | None = None
    residual_after: Tensor | None = None
    gate: Tensor | None = None  # activation(gate) multiplies y, or x where gate_first is true


class Flavour(NamedTuple):
    """What may differ from PyTorch's norms; the defaults are theirs."""

    weight_offset: float = 0.0
    rounding: str = "once"
    out_dtype: torch.dtype | None = None
    activation: str | None = None  # of y, or of the gate, by its name in the extension
    gate_first: bool = False
    group_cols: int | None = None  # elements that share statistics, a divisor of those that are normalized


PLAIN = Flavour()


# What the arguments of the functions are: the fields of a call, one after another.
FIELDS = *Inputs._fields, "shape", "eps", *Flavour._fields, "residual_dtype"


class Op:
    """What a pair of functions computes, of LayerNorm and of RMSNorm; python/core/norm.c says the same in C."""

    def __init__(
        self,
        name: str,
        arguments: tuple[str, ...],
        outputs: tuple[str, ...] = ("y",),
        saved: tuple[str, ...] = ("x", "weight"),
        added: str | None = None,
    ) -> None:
        self.name = name  # of its functions; {} is the norm's
        self.inputs = tuple(argument for argument in arguments if argument in Inputs._fields)
        self.outputs = outputs  # fields of Outputs
        self.saved = saved  # what backward reads beside the statistics: inputs, and h where that is its x
        self.added = added  # the input that is added to y last: its gradient is dy
        # From the arguments of its LayerNorm function, and a None behind them, to FIELDS; and back.
        places = [arguments.index(field) if field in arguments else len(arguments) for field in FIELDS]
        self.fields_of, self.arguments_of = itemgetter(*places), itemgetter(*map(FIELDS.index, arguments))


_NORM, _FLAVOUR = ("shape", "weight", "bias", "eps"), ("weight_offset", "rounding", "out_dtype")
NORM = Op("{}", ("x", *_NORM, *_FLAVOUR, "group_cols"))
ADD_NORM = Op(
    "add_{}",
    ("x", "residual", *_NORM, "x_bias", *_FLAVOUR, "residual_dtype", "group_cols"),
    outputs=("y", "h"),
    saved=("h", "weight"),
)
NORM_RESIDUAL = Op(
    "{}_residual",
    ("x", "residual_after", *_NORM, "x_bias", *_FLAVOUR, "group_cols"),
    saved=("x", "weight", "x_bias"),
    added="residual_after",
)
NORM_ACT = Op(
    "{}_act",
    ("x", *_NORM, "activation", "x_bias", *_FLAVOUR, "group_cols"),
    saved=("x", "weight", "bias", "x_bias"),
)
NORM_GATED = Op(
    "{}_gated",
    ("x", "gate", *_NORM, "activation", "gate_first", "group_cols", *_FLAVOUR),
    saved=("x", "gate", "weight", "bias"),  # with gate_first, backward does not read bias: it is not saved
)
OPS = NORM, ADD_NORM, NORM_RESIDUAL, NORM_ACT, NORM_GATED  # by their numbers in the extension


def function_name(op: Op, norm: int) -> str:
    return op.name.format("layer_norm" if norm == LAYER_NORM else "rms_norm")


class Call(NamedTuple):
    norm: int
    inputs: Inputs
    shape: Shape
    eps: float | None
    flavour: Flavour = PLAIN
    op: Op = NORM

    @property
    def name(self) -> str:
        """Of the function that was called."""
        return function_name(self.op, self.norm)

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch has a function for it."""
        _, _, _, *others = self.inputs
        return self.flavour == PLAIN and all(tensor is None for tensor in others)

    @property
    def out_dtype(self) -> torch.dtype:
        """Of y: by default that of x, or of the residual that is added last."""
        x, after = self.inputs.x, self.inputs.residual_after
        return self.flavour.out_dtype or (x if after is None else after).dtype


class Outputs(NamedTuple):
    y: Tensor
    h: Tensor | None  # None without a residual
    # [3, rows]: mean, rstd, mean_lo; RMSNorm [1, rows]: rstd; None where they are not wanted. A group counts as a row.
    stats: Tensor | None

    @property
    def results(self) -> Any:
        """What the public functions return."""
        return self.y if self.h is None else (self.y, self.h)


class Options(NamedTuple):
    """What a node of autograd remembers beside tensors. The extension makes it too (enum option in eager.h)."""

    norm: int
    shape: Shape
    eps: float | None
    estimate: bool  # whether only memory is estimated
    columns_dtype: torch.dtype | None  # of bias and x_bias that come without a weight; None: of what is saved
    dtype: int  # of x
    group_cols: int | None
    weight_offset: float
    rounding: str
    activation: str | None = None
    gate_first: bool = False


def options_of(call: Call, estimate: bool = False) -> Options:
    x, weight, bias, _, x_bias, _, _ = call.inputs
    columns = next((t.dtype for t in (weight, bias, x_bias) if t is not None), None)
    return Options(
        call.norm,
        call.shape,
        call.eps,
        estimate,
        columns if weight is None else None,
        number_of(x.dtype),
        call.flavour.group_cols,
        call.flavour.weight_offset,
        call.flavour.rounding,
        call.flavour.activation,
        call.flavour.gate_first,
    )


class Known(NamedTuple):
    """What backward computes from, beside the statistics: the gradients that have come, and what forward saved."""

    dy: Any
    dh: Any
    x: Tensor  # h, where forward had a residual before the norm
    weight: Tensor | None
    bias: Tensor | None  # where it had one, and an activation of y or a gate of y
    x_bias: Tensor | None  # where it had one, and no residual before the norm
    gate: Tensor | None


class Gradients(NamedTuple):
    """The results of backward; None for what is not needed."""

    dx: Any = None
    dweight: Any = None
    dbias: Any = None
    dresidual: Any = None  # dx itself, where both have one dtype
    dx_bias: Any = None
    dgate: Any = None
