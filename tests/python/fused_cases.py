"""Norms with a residual before or after them, an activation or a gate, and in flavours: cases, operands and every
result, from arrays or tensors. SPDX-License-Identifier: MIT"""

from typing import NamedTuple

from reference import ACTIVATIONS, array

SHAPES = [(1, 1), (7, 33), (70, 129), (3, 4097)]


class Case(NamedTuple):
    """The dtypes of a call and its flavour."""

    x: str
    weight: str
    h: str
    y: str
    weight_offset: float = 0.0
    rounding: str = "once"

    def __str__(self):
        flavour = [word for word, used in (("offset", self.weight_offset), ("each", self.rounding == "each")) if used]
        return " ".join([f"x {self.x} weight {self.weight} h {self.h} y {self.y}", *flavour])

    @property
    def coarsest(self):
        """The dtype with the lowest precision of those that a result went through."""
        return max((self.x, self.weight, self.h, self.y), key=["f64", "f32", "f16", "bf16"].index)

    @property
    def flavour(self):
        return {"weight_offset": self.weight_offset, "rounding": self.rounding}


ALIKE = [Case(*[dtype] * 4) for dtype in ("f32", "f16", "bf16", "f64")]
MIXED = [
    Case("bf16", "f32", "bf16", "bf16"),
    Case("bf16", "bf16", "f32", "bf16"),
    Case("bf16", "bf16", "bf16", "f32"),
    Case("f32", "f32", "f32", "bf16"),
    Case("f16", "f32", "f32", "f32"),
    Case("f32", "f32", "f32", "f16"),
]
FLAVOURED = [case._replace(weight_offset=1.0) for case in (*ALIKE, MIXED[0])]
FLAVOURED += [case._replace(rounding="each") for case in (*ALIKE, MIXED[1], MIXED[2])]
FLAVOURED += [Case("bf16", "f32", "bf16", "bf16", 1.0, "each")]
CASES = ALIKE + MIXED + FLAVOURED


class Form(NamedTuple):
    """What a call has beside a norm: the place of its residual, "before" or "after" it, its activation, and what the
    activation of a gate multiplies, "gated result" or "gated x"."""

    place: str | None = None
    activation: str | None = None
    gate: str | None = None

    def __str__(self):
        return " ".join(filter(None, self))


BEFORE, AFTER = Form("before"), Form("after")
ACTS = [Form(None, activation) for activation in ACTIVATIONS]
GATES = [Form(None, activation, gate) for gate in ("gated result", "gated x") for activation in ACTIVATIONS]
FORMS = [BEFORE, AFTER, *ACTS, *GATES, Form("before", "gelu")]


def some_forms(number):
    """Of a case: both places of a residual, a gate, and one of the forms with an activation."""
    others = [*ACTS, FORMS[-1]]
    return *FORMS[:2], GATES[3 * number % len(GATES)], others[number % len(others)]


def operands(case, shape, form=BEFORE):
    """x, residual, weight, bias, x_bias, dy and dh as NumPy arrays; a gate, which has the dtype of x, is in the place
    of the residual."""
    columns = [array(shape[-1:], case.weight, seed) for seed in (3, 4, 5)]
    rows = [
        array(shape, dtype, seed)
        for dtype, seed in ((case.x, 1), (case.x if form.gate else case.h, 2), (case.y, 6), (case.h, 7))
    ]
    return *rows[:2], *columns, *rows[2:]


def every_result(library, op, case, operands, dtypes, form=BEFORE):
    """y, h, the statistics, dx, dweight, dbias, dresidual and dx_bias; RMSNorm has fewer, and h and dresidual are there
    where a residual comes before the norm. With a gate, dgate is last and there is no x_bias."""
    x, residual, weight, bias, x_bias, dy, dh = operands
    forward, backward = getattr(library, f"{op}_forward"), getattr(library, f"{op}_backward")
    is_layer, has_h, flavour = (
        op == "layer_norm",
        form.place == "before",
        {**case.flavour, "activation": form.activation},
    )
    affine, options = (weight, bias) if is_layer else (weight,), {"return_mean_lo": True} if is_layer else {}
    if form.place:
        options["residual_after" if form.place == "after" else "residual"] = residual
    others = {"gate": residual, "gate_first": form.gate == "gated x"} if form.gate else {"x_bias": x_bias}
    y, *stats = forward(x, *affine, eps=1e-5, **others, out_dtype=dtypes[case.y], **options, **flavour)
    h = [stats.pop()] if has_h else []
    needs = {"need_dgate" if form.gate else "need_dx_bias": True, **flavour}
    needs |= {"mean_lo": stats[2]} if is_layer else {}
    if is_layer and form.activation and form.gate != "gated x":
        needs["bias"] = bias
    if not has_h:
        return y, *stats, *backward(dy, x, *stats[:2], weight, **others, **needs)
    needs |= {"need_dresidual": True, "dh": dh, "x_dtype": dtypes[case.x]}
    return y, *h, *stats, *backward(dy, *h, *stats[:2], weight, **needs)
