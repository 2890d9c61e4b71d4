"""The ops that are compared: a row each. case.py, accuracy.py and the backends read them. SPDX-License-Identifier: MIT

What an op computes of its operands is written once, in composition.py.
"""

from typing import NamedTuple

PASSES = ("forward", "backward", "both")
TABLES = ("cos", "sin")  # of rows x head_dim; they have no gradients
# In the order of backends.base.Operands.
OPERANDS = ("x", "weight", "bias", "residual", "gate", "x_bias", "value", "value_bias", "k", "k_weight", *TABLES)


class Op(NamedTuple):
    norm: str  # layer_norm, which has a bias, or rms_norm; empty: none
    # norm; add: of x + residual; residual: added to the result; gated: by silu(gate); act: activation of the norm;
    # glu: activation(x) * value; rope: the heads of x and k turned
    form: str = "norm"
    tensors: tuple[int, int] = (2, 3)  # of rows x cols that forward and backward must read and write
    beside: tuple[str, ...] = ()  # the other tensors of rows x cols
    outputs: tuple[str, ...] = ("out",)
    columns: tuple[str, ...] = ("weight",)  # vectors of cols, with rope of head_dim; with a LayerNorm also bias
    activation: str = ""  # of the result, or of the gate

    def moved(self, what: str) -> int:
        """The tensors that a pass reads and writes."""
        return dict(zip(PASSES, (*self.tensors, sum(self.tensors)), strict=True))[what]

    @property
    def has_heads(self) -> bool:
        return self.form == "rope"


_ADD = {"form": "add", "tensors": (4, 4), "beside": ("residual",), "outputs": ("out", "h")}
# dresidual is dout itself
_RESIDUAL = {"form": "residual", "tensors": (3, 3), "beside": ("residual",), "columns": ("weight", "x_bias")}
_GATED = {"form": "gated", "tensors": (3, 5), "beside": ("gate",), "activation": "silu"}
_GLU = {"form": "glu", "tensors": (3, 5), "beside": ("value",), "activation": "silu"}
_ROPE = {"form": "rope", "beside": ("k",), "outputs": ("out", "out_k")}

OPS = {
    "layer_norm": Op("layer_norm"),
    "rms_norm": Op("rms_norm"),
    "add_layer_norm": Op("layer_norm", **_ADD),
    "add_rms_norm": Op("rms_norm", **_ADD),
    "layer_norm_residual": Op("layer_norm", **_RESIDUAL),
    "rms_norm_residual": Op("rms_norm", **_RESIDUAL),
    "layer_norm_gated": Op("layer_norm", **_GATED),
    "rms_norm_gated": Op("rms_norm", **_GATED),
    "layer_norm_gelu": Op("layer_norm", "act", activation="gelu"),
    "layer_norm_gelu_tanh": Op("layer_norm", "act", activation="gelu_tanh"),
    "swiglu": Op("", columns=(), **_GLU),
    "bias_swiglu": Op("", columns=("x_bias", "value_bias"), **_GLU),
    "rope": Op("", tensors=(4, 4), columns=(), **_ROPE),
    "qk_norm_rope": Op("rms_norm", tensors=(4, 6), columns=("weight", "k_weight"), **_ROPE),
}
PLAIN = tuple(name for name, op in OPS.items() if op.form == "norm")
BLOCK = tuple(name for name, op in OPS.items() if op.form in ("glu", "rope"))  # what else a transformer block has
FUSED = tuple(name for name in OPS if name not in (*PLAIN, *BLOCK))
EPS = {"layer_norm": 1e-5, "rms_norm": 1e-6, "": 0.0}
