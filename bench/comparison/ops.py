"""The ops that are compared: a row each. case.py, accuracy.py and the backends read them. SPDX-License-Identifier: MIT

Tensors of rows x cols are x, a residual and a gate; vectors of cols are weight, bias and x_bias. What an op computes of
them is written once, in composition.py.
"""

from typing import NamedTuple

PASSES = ("forward", "backward", "both")


class Op(NamedTuple):
    norm: str  # layer_norm, which has a bias, or rms_norm
    form: str = (
        "norm"  # norm; add: of x + residual; residual: added to the result; gated: by silu(gate); act: activation
    )
    tensors: tuple[int, int] = (2, 3)  # of rows x cols that forward and backward must read and write
    second: str = ""  # the other tensor of rows x cols beside x
    outputs: tuple[str, ...] = ("out",)
    x_bias: bool = False
    activation: str = ""  # of the result, or of the gate

    def moved(self, what: str) -> int:
        """The tensors that a pass reads and writes."""
        return dict(zip(PASSES, (*self.tensors, sum(self.tensors)), strict=True))[what]


_ADD = {"form": "add", "tensors": (4, 4), "second": "residual", "outputs": ("out", "h")}
_RESIDUAL = {"form": "residual", "tensors": (3, 3), "second": "residual", "x_bias": True}  # dresidual is dout itself
_GATED = {"form": "gated", "tensors": (3, 5), "second": "gate", "activation": "silu"}

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
}
PLAIN = tuple(name for name, op in OPS.items() if op.form == "norm")
FUSED = tuple(name for name, op in OPS.items() if op.form != "norm")
EPS = {"layer_norm": 1e-5, "rms_norm": 1e-6}
