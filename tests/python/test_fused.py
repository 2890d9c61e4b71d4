"""Norms with a residual before or after them, an activation or a gate, and their flavours, on arrays.
SPDX-License-Identifier: MIT"""

import hashlib
import inspect
import re
from functools import partial

import numpy as np
import pytest

import evenkeel
import fused_cases
from fused_cases import ACTS, AFTER, BEFORE, CASES, FORMS, GATES, SHAPES, Case, every_result
from processes import run_python
from reference import ACTIVATIONS, DTYPES, OPS, SLOPES, Norm, array, close, wide

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_op = pytest.mark.parametrize("op", OPS)
either_place = pytest.mark.parametrize("form", [BEFORE, AFTER], ids=str)
every_form = pytest.mark.parametrize("form", FORMS, ids=str)
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
F32 = Case("f32", "f32", "f32", "f32")


def function(op, form):
    """The short one: (x, residual, ...) to (y, h), or to y alone."""
    return getattr(evenkeel, f"{op}_residual" if form == AFTER else f"add_{op}")


def gated_results(op, form, x, gate, weight, bias, dy):
    factor, slope = ACTIVATIONS[form.activation](gate), SLOPES[form.activation](gate)
    is_first = form.gate == "gated x"
    norm = Norm(op, x * factor if is_first else x, weight, bias if op == "layer_norm" else None)
    y, *rest = norm.every_result(dy if is_first else dy * factor)
    stats, (dx, *columns) = rest[: -3 if op == "layer_norm" else -2], rest[-3 if op == "layer_norm" else -2 :]
    if is_first:
        return y, *stats, dx * factor, *columns, dx * x * slope
    return y * factor, *stats, dx, *columns, dy * y * slope


def expected_results(op, case, operands, form):
    """By the formula in float64, from h as it was rounded."""
    x, residual, weight, bias, x_bias, dy, dh = wide(*operands)
    if form.gate:
        return gated_results(op, form, x, residual, weight + case.weight_offset, bias, dy)
    has_h = form.place == "before"
    h = wide((x + x_bias + residual).astype(DTYPES[case.h]))[0] if has_h else x + x_bias
    norm = Norm(op, h, weight + case.weight_offset, bias if op == "layer_norm" else None)
    y, *rest = norm.every_result(dy * SLOPES[form.activation](norm.y) if form.activation else dy)
    y = ACTIVATIONS[form.activation](y) if form.activation else y
    stats, (dx, *columns) = rest[: -3 if op == "layer_norm" else -2], rest[-3 if op == "layer_norm" else -2 :]
    if not has_h:
        y = y + residual if form == AFTER else y
        return y, *stats, dx, *columns, dx.reshape(-1, x.shape[-1]).sum(0)
    return y, h, *stats, dx + dh, *columns, dx + dh, (dx + dh).reshape(-1, x.shape[-1]).sum(0)


@every_case
@every_op
@every_form
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 129)], ids=str)
def test_every_result_is_that_of_the_formula(op, case, shape, form):
    operands = fused_cases.operands(case, shape, form)
    results = every_result(evenkeel, op, case, operands, DTYPES, form)
    for found, expected in zip(results, expected_results(op, case, operands, form), strict=True):
        if expected is not None:
            close(found, expected, case.coarsest)
    assert results[2 if form.place == "before" else 1].shape == shape[:-1]


def digest(op):
    """Of every result of the cases, by the library in use."""
    sum = hashlib.sha256()
    for number, case in enumerate(CASES):
        for shape in SHAPES:
            for form in fused_cases.some_forms(number):
                operands = fused_cases.operands(case, shape, form)
                for result in every_result(evenkeel, op, case, operands, DTYPES, form):
                    sum.update(result.tobytes())
    return sum.hexdigest()


@pytest.mark.parametrize("level", [name for name, usable in evenkeel.info()["levels"].items() if usable])
@every_op
def test_every_level_has_the_same_bits(op, level):
    assert run_python(f"import test_fused; print(test_fused.digest({op!r}))", EVENKEEL_ISA=level) == digest(op)


@every_op
@pytest.mark.parametrize("form", FORMS[:-1], ids=str)
def test_the_short_functions_give_what_the_explicit_ones_do(op, form):
    for case in CASES:
        x, residual, weight, bias, x_bias, *_ = operands = fused_cases.operands(case, (4, 40), form)
        affine = (weight, bias) if op == "layer_norm" else (weight,)
        options = {"out_dtype": DTYPES[case.y], **case.flavour} | ({} if form.gate else {"x_bias": x_bias})
        if form.gate:
            gated, choices = getattr(evenkeel, f"{op}_gated"), (form.activation, form.gate == "gated x")
            found = gated(x, residual, *affine, 1e-5, *choices, **options)
        elif form in ACTS:
            found = getattr(evenkeel, f"{op}_act")(x, *affine, 1e-5, form.activation, **options)
        else:
            found = function(op, form)(x, residual, *affine, 1e-5, **options)
        found = found if form == BEFORE else (found,)
        for a, b in zip(found, every_result(evenkeel, op, case, operands, DTYPES, form), strict=False):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@every_op
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_x_bias_it_is_an_addition_and_a_norm(op, dtype):
    x, residual, weight = array((5, 300), dtype), array((5, 300), dtype, 1), array((300,), dtype, 2)
    y, h = getattr(evenkeel, f"add_{op}")(x, residual, weight)
    total = (x.astype(np.float64 if dtype == "f64" else np.float32) + residual).astype(x.dtype)
    assert h.tobytes() == total.tobytes()
    assert y.tobytes() == getattr(evenkeel, op)(total, weight).tobytes()


@every_op
def test_an_offset_of_one_is_added_in_float32(op):
    x, weight = array((5, 300), "bf16"), array((300,), "bf16", 2)
    norm = getattr(evenkeel, op)
    expected = norm(x, weight.astype(np.float32) + np.float32(1))
    assert norm(x, weight, weight_offset=1.0).tobytes() == expected.tobytes()
    assert norm(x, weight, weight_offset=1).tobytes() == expected.tobytes()
    assert norm(x, weight_offset=1.0).tobytes() == norm(x).tobytes()


@every_op
def test_rounding_each_rounds_before_the_weight(op):
    x, weight = array((5, 300), "bf16"), array((300,), "bf16", 2)
    norm = getattr(evenkeel, op)
    expected = norm(x).astype(np.float32) * weight.astype(np.float32)
    assert norm(x, weight, rounding="each").tobytes() == expected.astype(x.dtype).tobytes()
    assert norm(x, weight).tobytes() != expected.astype(x.dtype).tobytes()


@every_op
@pytest.mark.parametrize(("dtype", "other"), [("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "f16")])
def test_a_result_of_another_dtype_is_rounded_once(op, dtype, other):
    x, weight = array((5, 300), dtype), array((300,), dtype, 2)
    norm = getattr(evenkeel, op)
    expected = norm(x.astype(np.float32), weight.astype(np.float32)).astype(DTYPES[other])
    for out_dtype in (DTYPES[other], np.dtype(DTYPES[other]), np.dtype(DTYPES[other]).name):
        found = norm(x, weight, out_dtype=out_dtype)
        assert found.dtype == DTYPES[other] and found.tobytes() == expected.tobytes()
    out = np.empty(x.shape, DTYPES[other])
    assert norm(x, weight, out=out, out_dtype=DTYPES[other]) is out and out.tobytes() == expected.tobytes()


@every_op
def test_a_residual_of_another_dtype_is_converted_first(op):
    add = getattr(evenkeel, f"add_{op}")
    x, residual = array((5, 300), "bf16"), array((5, 300), "f32", 1)
    y, h = add(x, residual, residual_dtype=DTYPES["bf16"])
    expected = add(x, residual.astype(DTYPES["bf16"]))
    assert h.dtype == DTYPES["bf16"] and [y.tobytes(), h.tobytes()] == [a.tobytes() for a in expected]
    assert add(x, residual)[1].dtype == np.float32 == add(x, x, residual_dtype="float32")[1].dtype


@every_op
def test_either_gradient_may_be_absent(op):
    x, residual, weight, bias, x_bias, dy, dh = fused_cases.operands(F32, (6, 40))

    def backward(dy, dh):
        return every_result(evenkeel, op, F32, (x, residual, weight, bias, x_bias, dy, dh), DTYPES)[-5:]

    zeros = np.zeros_like(dy)
    for given, other in ((dy, None), (None, dh)):
        found = backward(given, other) if given is not None else backward(None, other)
        expected = backward(zeros if given is None else given, zeros if other is None else other)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_of_16_bit_weights_may_be_float32():
    case = Case(*["bf16"] * 4)
    x, residual, weight, bias, x_bias, dy, dh = fused_cases.operands(case, (6, 40))
    _, mean, rstd, h = evenkeel.layer_norm_forward(x, weight, bias, residual=residual, x_bias=x_bias)
    needs = {"dh": dh, "need_dx_bias": True}
    wide = evenkeel.layer_norm_backward(dy, h, mean, rstd, weight, gradient_dtype=np.float32, **needs)
    narrow = evenkeel.layer_norm_backward(dy, h, mean, rstd, weight, **needs)
    for a, b in zip(wide[1:], narrow[1:], strict=True):
        assert a.dtype == np.float32 and a.astype(weight.dtype).tobytes() == b.tobytes()


def test_dresidual_is_dx_where_both_have_one_dtype():
    x, dh = array((6, 40)), array((6, 40), seed=1)
    _, rstd, h = evenkeel.rms_norm_forward(x, residual=x)
    dx, _, dresidual = evenkeel.rms_norm_backward(x, h, rstd, dh=dh, need_dresidual=True)
    assert dresidual is dx
    narrow, _, dresidual = evenkeel.rms_norm_backward(
        x.astype(np.float16), h, rstd, dh=dh, need_dresidual=True, x_dtype=np.float16
    )
    assert narrow.dtype == np.float16 and dresidual.tobytes() != dx.tobytes()
    assert dresidual.astype(np.float16).tobytes() == narrow.tobytes()


def test_an_x_bias_alone_is_not_rounded():
    x, x_bias = array((6, 40), "bf16"), array((40,), "bf16", 1)
    y, rstd = evenkeel.rms_norm_forward(x, x_bias=x_bias)
    wide = x.astype(np.float32) + x_bias.astype(np.float32)
    assert y.tobytes() == evenkeel.rms_norm(wide, out_dtype=x.dtype).tobytes()
    found = evenkeel.rms_norm_backward(x, x, rstd, x_bias=x_bias, need_dx_bias=True, gradient_dtype=np.float32)
    expected = evenkeel.rms_norm_backward(x, wide, rstd, need_dx_bias=True)
    assert found[0].tobytes() == expected[0].astype(x.dtype).tobytes()
    assert [a.tobytes() for a in found[1:]] == [a.tobytes() for a in expected[1:]]


@every_form
def test_rows_may_be_apart_and_arrays_of_any_layout(form):
    x, residual, weight, bias, x_bias, dy, dh = fused_cases.operands(F32, (6, 40), form)
    expected = every_result(evenkeel, "layer_norm", F32, (x, residual, weight, bias, x_bias, dy, dh), DTYPES, form)
    spread = [np.repeat(a, 3, axis=0)[::3] for a in (x, residual)]
    scattered = [np.asfortranarray(a) for a in (dy, dh)]
    columns = [np.repeat(a, 2)[::2] for a in (weight, bias, x_bias)]
    found = every_result(evenkeel, "layer_norm", F32, (*spread, *columns, *scattered), DTYPES, form)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@either_place
def test_one_of_x_and_residual_may_be_of_any_layout(form):
    x, residual = array((6, 40)), array((6, 40), seed=1)
    scattered = np.asfortranarray(residual)
    for a, b in ((x, scattered), (np.asfortranarray(x), residual)):
        np.testing.assert_array_equal(function("rms_norm", form)(a, b), function("rms_norm", form)(x, residual))


# ---- a residual after the norm ----


@every_op
@pytest.mark.parametrize(
    ("dtype", "other", "expected"),
    [("bf16", "bf16", "bf16"), ("bf16", "f32", "f32"), ("f16", "f32", "f32"), ("f32", "f32", "f32"), ("f64",) * 3],
)
def test_the_result_has_the_dtype_of_the_wider_and_rounds_once(op, dtype, other, expected):
    x, residual, weight = array((5, 300), dtype), array((5, 300), other, 1), array((300,), dtype, 2)
    y = function(op, AFTER)(x, residual, weight)
    wide = np.float64 if dtype == "f64" else np.float32
    total = getattr(evenkeel, op)(x.astype(wide), weight.astype(wide)) + residual.astype(wide)
    assert y.dtype == DTYPES[expected] and y.tobytes() == total.astype(y.dtype).tobytes()
    narrow = function(op, AFTER)(x, residual, weight, out_dtype=x.dtype)
    assert narrow.dtype == x.dtype and narrow.tobytes() == total.astype(x.dtype).tobytes()


@every_op
def test_rounding_each_rounds_before_the_residual_is_added(op):
    x, residual, weight = (array(shape, "bf16", seed) for seed, shape in enumerate([(5, 300), (5, 300), (300,)]))
    norm = getattr(evenkeel, op)(x, weight, rounding="each").astype(np.float32)
    expected = (norm + residual.astype(np.float32)).astype(x.dtype)
    y = function(op, AFTER)(x, residual, weight, rounding="each")
    assert y.tobytes() == expected.tobytes() != function(op, AFTER)(x, residual, weight).tobytes()


@every_op
def test_the_result_may_lie_where_x_or_the_residual_does(op):
    x, residual, weight = array((5, 300)), array((5, 300), seed=1), array((300,), seed=2)
    expected = function(op, AFTER)(x, residual, weight)
    for given in ([x.copy(), residual], [x, residual.copy()]):
        out = given[0] if given[1] is residual else given[1]
        assert function(op, AFTER)(*given, weight, out=out) is out and out.tobytes() == expected.tobytes()
    stream = np.concatenate([residual, residual])
    with pytest.raises(ValueError, match="^out overlaps residual:"):
        function(op, AFTER)(x, stream[:5], weight, out=stream[1:6])
    assert stream.tobytes() == np.concatenate([residual, residual]).tobytes()


def test_a_result_in_another_dtype_than_that_of_the_residual_is_refused():
    x, residual = array((2, 8), "bf16"), array((2, 8))
    with pytest.raises(TypeError, match="^out is bf16: it must be f32$"):
        evenkeel.rms_norm_residual(x, residual, out=np.empty_like(x))
    out = np.empty_like(x)
    assert evenkeel.rms_norm_residual(x, residual, out=out, out_dtype=x.dtype) is out
    wide = residual.astype(np.float64)
    for out in (None, np.empty_like(wide)):
        with pytest.raises(TypeError, match="^residual of f32 does not go with dtype f64 "):
            evenkeel.rms_norm_residual(wide, residual, out=out)


@every_op
@either_place
def test_a_residual_must_be_there(op, form):
    with pytest.raises(TypeError, match="^residual is of type NoneType; expected an array with DLPack"):
        function(op, form)(array((2, 8)), None)


def test_a_call_has_one_residual():
    x = array((2, 8))
    with pytest.raises(ValueError, match="^residual_after does not go with residual: one of them must be None$"):
        evenkeel.layer_norm_forward(x, residual=x, residual_after=x)


@every_op
@pytest.mark.parametrize("after", [False, True])
def test_residual_dtype_needs_a_residual(op, after):
    x = array((2, 8))
    with pytest.raises(ValueError, match=r"^residual_dtype \(float32\) is the dtype of h, and residual is None"):
        getattr(evenkeel, f"{op}_forward")(x, residual_dtype="float32", residual_after=x if after else None)


# ---- an activation of the result ----


@every_op
@every_activation
@pytest.mark.parametrize(("dtype", "other"), [("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "f16")])
def test_the_activation_is_applied_before_the_one_rounding(op, activation, dtype, other):
    x, weight = array((5, 300), dtype), array((300,), dtype, 2)
    act = getattr(evenkeel, f"{op}_act")
    wide = act(x.astype(np.float32), weight.astype(np.float32), activation=activation)
    for out_dtype in (dtype, other):
        found = act(x, weight, activation=activation, out_dtype=DTYPES[out_dtype])
        assert found.dtype == DTYPES[out_dtype] and found.tobytes() == wide.astype(DTYPES[out_dtype]).tobytes()


@every_op
@every_activation
def test_rounding_each_rounds_before_the_activation(op, activation):
    x, weight = array((50, 300), "bf16"), array((300,), "bf16", 2)
    act = getattr(evenkeel, f"{op}_act")
    rounded = getattr(evenkeel, op)(x, weight, rounding="each").astype(np.float64)
    expected = ACTIVATIONS[activation](rounded).astype(x.dtype)
    assert (act(x, weight, activation=activation, rounding="each") != expected).mean() < 1e-3
    assert (act(x, weight, activation=activation) != expected).mean() > 0.05


def test_gelu_is_the_default_and_has_two_forms():
    x, weight, bias = array((5, 300)), array((300,), seed=1), array((300,), seed=2)
    gelu, tanh = (evenkeel.layer_norm_act(x, weight, bias, activation=name) for name in ("gelu", "gelu_tanh"))
    assert gelu.tobytes() == evenkeel.layer_norm_act(x, weight, bias).tobytes() != tanh.tobytes()
    assert gelu.tobytes() == evenkeel.layer_norm_gelu(x, weight, bias).tobytes()
    assert tanh.tobytes() == evenkeel.layer_norm_gelu(x, weight, bias, approximate="tanh").tobytes()
    assert evenkeel.rms_norm_act(x).tobytes() == evenkeel.rms_norm_act(x, activation="gelu").tobytes()
    apart = evenkeel.layer_norm_gelu(x, weight, bias, 10.0)
    assert apart.tobytes() == evenkeel.layer_norm_act(x, weight, bias, 10.0).tobytes() != gelu.tobytes()


def test_layer_norm_gelu_has_the_keywords_of_layer_norm_act():
    x, weight, x_bias = array((5, 300), "bf16"), array((300,), "bf16", 1), array((300,), "bf16", 2)
    act, gelu = (inspect.signature(f).parameters for f in (evenkeel.layer_norm_act, evenkeel.layer_norm_gelu))
    keywords = {name for name, p in act.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords == {name for name, p in gelu.items() if p.kind is p.KEYWORD_ONLY}
    options = {"x_bias": x_bias, "weight_offset": 1.0, "rounding": "each", "out_dtype": "float32", "group_cols": 60}
    whole = evenkeel.layer_norm_act(x, weight, **options)
    assert evenkeel.layer_norm_gelu(x, weight, **options).tobytes() == whole.tobytes()
    for name in options:
        less = {n: value for n, value in options.items() if n != name}
        found = evenkeel.layer_norm_gelu(x, weight, **less)
        assert found.tobytes() == evenkeel.layer_norm_act(x, weight, **less).tobytes() != whole.tobytes()


@every_op
def test_the_result_of_an_activation_may_lie_where_x_does(op):
    x, act = array((5, 300)), getattr(evenkeel, f"{op}_act")
    expected = act(x, activation="silu")
    assert act(x, activation="silu", out=x) is x and x.tobytes() == expected.tobytes()
    x = array((5, 4, 10))
    out, expected = np.empty_like(x), evenkeel.layer_norm_act(x, normalized_shape=(4, 10))
    assert evenkeel.layer_norm_gelu(x, normalized_shape=(4, 10), out=out, threads=1) is out
    assert out.tobytes() == expected.tobytes() != evenkeel.layer_norm_act(x).tobytes()


@pytest.mark.parametrize("absent", ["weight", "bias", "both"])
def test_columns_may_be_absent_in_backward(absent):
    x, _, weight, bias, _, dy, _ = fused_cases.operands(F32._replace(x="bf16", y="bf16"), (6, 40))
    weight, bias = None if absent in ("weight", "both") else weight, None if absent in ("bias", "both") else bias
    y, mean, rstd = evenkeel.layer_norm_forward(x, weight, bias, activation="gelu")
    found = evenkeel.layer_norm_backward(dy, x, mean, rstd, weight, bias=bias, activation="gelu")
    norm = Norm("layer_norm", x, weight, bias)
    close(y, ACTIVATIONS["gelu"](norm.y), "bf16")
    for a, b in zip(found, norm.backward(wide(dy)[0] * SLOPES["gelu"](norm.y)), strict=True):
        close(a, b, "bf16")
    assert found[2].dtype == (x.dtype if absent == "both" else np.float32)


def test_backward_reads_the_bias_of_forward():
    """And takes none without an activation."""
    x, bias = array((6, 40)), array((40,), seed=1)
    _, mean, rstd = evenkeel.layer_norm_forward(x, None, bias, activation="silu")
    with_bias = evenkeel.layer_norm_backward(x, x, mean, rstd, bias=bias, activation="silu")
    without = evenkeel.layer_norm_backward(x, x, mean, rstd, activation="silu")
    assert all(a.tobytes() != b.tobytes() for a, b in zip(with_bias, without, strict=True))
    with pytest.raises(ValueError, match="^bias goes with an activation alone, and activation is None; expected None$"):
        evenkeel.layer_norm_backward(x, x, mean, rstd, bias=bias)


def test_an_activation_does_not_go_with_a_residual_after_the_norm():
    x = array((2, 8))
    with pytest.raises(
        ValueError, match=r"^residual_after does not go with activation \('gelu'\); expected None, or activation None$"
    ):
        evenkeel.layer_norm_forward(x, residual_after=x, activation="gelu")


EXPECTED = "expected 'sigmoid', 'silu', 'gelu' or 'gelu_tanh'"


@pytest.mark.parametrize("wrong", ["relu", "GELU", "gelu ", "", 3, True, None], ids=repr)
@every_op
def test_activations_that_do_not_exist_are_refused(op, wrong):
    x = array((2, 8))
    statistics = getattr(evenkeel, f"{op}_forward")(x)[1:]
    calls = [
        lambda: getattr(evenkeel, f"{op}_act")(x, activation=wrong),
        lambda: getattr(evenkeel, f"{op}_forward")(x, activation=wrong),
        lambda: getattr(evenkeel, f"{op}_backward")(x, x, *statistics, activation=wrong),
    ]
    for call in calls[: 1 if wrong is None else 3]:  # the explicit ones need none
        with pytest.raises(ValueError) as raised:
            call()
        assert str(raised.value) == f"activation is {wrong!r}; {EXPECTED}"


@pytest.mark.parametrize("wrong", ["Tanh", "gelu", None, True, ["none"]], ids=repr)
def test_so_are_forms_of_gelu(wrong):
    with pytest.raises(ValueError) as raised:
        evenkeel.layer_norm_gelu(array((2, 8)), approximate=wrong)
    assert str(raised.value) == f"approximate is {wrong!r}; expected 'none' or 'tanh'"


def test_a_name_of_an_activation_need_not_be_interned():
    x = array((2, 8))
    name = "".join(["si", "lu"])
    assert evenkeel.rms_norm_act(x, activation=name).tobytes() == evenkeel.rms_norm_act(x, activation="silu").tobytes()


# ---- a gate ----

every_gate = pytest.mark.parametrize("form", GATES, ids=str)
either_gate = pytest.mark.parametrize("first", [False, True], ids=["gated result", "gated x"])


def gated(op, first, **others):
    return partial(getattr(evenkeel, f"{op}_gated"), gate_first=first, **others)


@every_op
@every_gate
@pytest.mark.parametrize(("dtype", "other"), [("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "f16")])
def test_the_gate_multiplies_before_the_one_rounding(op, form, dtype, other):
    x, gate, weight = array((5, 300), dtype), array((5, 300), dtype, 1), array((300,), dtype, 2)
    call = gated(op, form.gate == "gated x", activation=form.activation)
    wide = call(*(a.astype(np.float32) for a in (x, gate, weight)))
    for out_dtype in (dtype, other):
        found = call(x, gate, weight, out_dtype=DTYPES[out_dtype])
        assert found.dtype == DTYPES[out_dtype] and found.tobytes() == wide.astype(DTYPES[out_dtype]).tobytes()


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_columns_beside_a_wider_gate_are_checked_as_beside_any_other(name):
    x, gate = array((2, 8), "bf16"), array((2, 8))
    wrong = {
        "weight or bias of f64 ": np.ones(8),
        f"{name} has elements of the format ": np.ones(8, int),
        f"{name} is of type list": [1.0] * 8,
    }
    for words, column in wrong.items():
        with pytest.raises(TypeError, match=f"^{words}"):
            evenkeel.layer_norm_gated(x, gate, normalized_shape=8, **{name: column})
    column = memoryview(np.full(8, name == "weight", "f4"))
    found = evenkeel.layer_norm_gated(x, gate, normalized_shape=8, **{name: column})
    np.testing.assert_array_equal(found, evenkeel.layer_norm_gated(x, gate))


@every_op
def test_rounding_each_rounds_before_the_gate_multiplies(op):
    x, gate, weight = array((50, 300), "bf16"), array((50, 300), "bf16", 1), array((300,), "bf16", 2)
    rounded = getattr(evenkeel, op)(x, weight, rounding="each").astype(np.float64)
    expected = (rounded * ACTIVATIONS["silu"](gate.astype(np.float64))).astype(x.dtype)
    assert (gated(op, False)(x, gate, weight, rounding="each") != expected).mean() < 1e-3
    assert (gated(op, False)(x, gate, weight) != expected).mean() > 0.05


@every_op
def test_silu_of_the_gate_multiplies_the_result_by_default(op):
    x, gate = array((5, 300)), array((5, 300), seed=1)
    default = getattr(evenkeel, f"{op}_gated")(x, gate)
    eps = {"layer_norm": 1e-5, "rms_norm": float(np.finfo(np.float32).eps)}[op]
    assert default.tobytes() == gated(op, False, eps=eps, activation="silu")(x, gate).tobytes()
    others = gated(op, True)(x, gate), gated(op, False, activation="sigmoid")(x, gate)
    assert all(default.tobytes() != other.tobytes() for other in others)


@every_op
@either_gate
def test_the_result_may_lie_where_x_or_the_gate_does(op, first):
    x, gate = array((5, 300)), array((5, 300), seed=1)
    expected = gated(op, first)(x, gate)
    for given in ([x.copy(), gate], [x, gate.copy()]):
        out = given[0] if given[1] is gate else given[1]
        assert gated(op, first)(*given, out=out) is out and out.tobytes() == expected.tobytes()


@either_gate
def test_one_of_x_and_the_gate_may_be_of_any_layout(first):
    x, gate, call = array((6, 40)), array((6, 40), seed=1), gated("rms_norm", first)
    for a, b in ((x, np.asfortranarray(gate)), (np.asfortranarray(x), gate)):
        np.testing.assert_array_equal(call(a, b), call(x, gate))
    x, gate = array((5, 4, 10)), array((5, 4, 10), seed=1)
    whole = call(x, gate, normalized_shape=(4, 10))
    assert whole.tobytes() == call(x.reshape(5, 40), gate.reshape(5, 40)).tobytes()


@either_gate
def test_which_gradients_are_wanted_does_not_change_the_others(first):
    x, gate, weight, dy = array((6, 40)), array((6, 40), seed=1), array((40,), seed=2), array((6, 40), seed=3)
    options = {"gate": gate, "activation": "silu", "gate_first": first}
    _, rstd = evenkeel.rms_norm_forward(x, weight, **options)
    everything = evenkeel.rms_norm_backward(dy, x, rstd, weight, need_dgate=True, **options)
    assert len(evenkeel.rms_norm_backward(dy, x, rstd, weight, **options)) == 2
    needs = {"need_dx": False, "need_dweight": False, "need_dgate": True}
    nothing, none, dgate = evenkeel.rms_norm_backward(dy, x, rstd, weight, **needs, **options)
    assert nothing is none is None and dgate.tobytes() == everything[2].tobytes()
    dx, dweight = evenkeel.rms_norm_backward(dy, x, rstd, weight, **options)
    assert [dx.tobytes(), dweight.tobytes()] == [a.tobytes() for a in everything[:2]]


def test_the_workspace_of_a_gate_is_known():
    """As evenkeel asks for it where the framework has no exchange API, on a GPU."""
    x, gate = array((600, 40)), array((600, 40), seed=1)
    ask = partial(evenkeel._core.backward_workspace, evenkeel._core.RMS_NORM, x, 40, None, False, False, 1)
    assert ask(dx=True, dgate=True, gate=gate, activation="silu", gate_first=True) >= 0
    with pytest.raises(ValueError, match="^gate_first .1. must be 0: gate is None$"):
        ask(dx=True, activation="silu", gate_first=True)


def other_gates(x, **options):
    """A call of the short function and the explicit ones, each with these options."""
    _, rstd = evenkeel.rms_norm_forward(x)
    options = {"activation": "silu", **options}
    yield lambda: evenkeel.rms_norm_gated(x, **options)
    yield lambda: evenkeel.rms_norm_forward(x, **options)
    yield lambda: evenkeel.rms_norm_backward(x, x, rstd, **options)


REFUSED_GATES = {
    "gate has shape (2, 7): it must have (2, 8)": (ValueError, {"gate": array((2, 7))}),
    "gate has shape (8,): it must have (2, 8)": (ValueError, {"gate": array((8,))}),
    "gate is of type list; expected an array with DLPack": (TypeError, {"gate": [1.0]}),
    "gate_first is 2; expected 0 or 1": (ValueError, {"gate": array((2, 8)), "gate_first": 2}),
    "gate_first is 'yes'; expected 0 or 1": (TypeError, {"gate": array((2, 8)), "gate_first": "yes"}),
    "activation is 'relu'; expected 'sigmoid', ": (ValueError, {"gate": array((2, 8)), "activation": "relu"}),
}


@pytest.mark.parametrize("words", REFUSED_GATES)
def test_gates_that_do_not_fit_are_refused(words):
    exception, options = REFUSED_GATES[words]
    for call in other_gates(array((2, 8)), **options):
        with pytest.raises(exception, match="^" + re.escape(words)):
            call()


@every_op
@either_gate
@pytest.mark.parametrize(("dtype", "other"), [("bf16", "f32"), ("f16", "bf16"), ("f32", "bf16"), ("f32", "f64")])
def test_a_gate_of_another_dtype_is_converted(op, first, dtype, other):
    """To the dtype of x, or where that has 16 bits, as x, to float32."""
    x, gate, weight = array((5, 300), dtype), array((5, 300), other, 1), array((300,), dtype, 2)
    bias = (array((300,), dtype, 3),) if op == "layer_norm" else ()
    call = gated(op, first)
    wide = call(*(a.astype(np.float32) for a in (x, gate, weight, *bias)))
    found = call(x, gate, weight, *bias)
    assert found.dtype == x.dtype and found.tobytes() == wide.astype(x.dtype).tobytes()
    assert call(x, gate, weight, *bias, out_dtype="float32").tobytes() == wide.tobytes()
    out = np.empty_like(x)
    assert call(x, gate, weight, *bias, out=out) is out and out.tobytes() == found.tobytes()
    with pytest.raises(TypeError, match="^gate is a masked array"):
        call(x, np.ma.masked_array(gate), weight)


def test_a_wider_gate_does_not_go_with_rounding_each():
    x, gate = array((2, 8), "bf16"), array((2, 8))
    with pytest.raises(TypeError, match="^gate is f32: it must be bf16, as x$"):
        evenkeel.rms_norm_gated(x, gate, rounding="each")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_explicit_calls_have_a_gate_of_the_dtype_of_x(dtype):
    _, *explicit = other_gates(array((2, 8)), gate=array((2, 8), dtype))
    for call in explicit:
        with pytest.raises(TypeError, match=f"^gate is {dtype}: it must be f32, as x$"):
            call()


@every_op
def test_a_gate_must_be_there(op):
    with pytest.raises(TypeError, match="^gate is of type NoneType; expected an array with DLPack"):
        getattr(evenkeel, f"{op}_gated")(array((2, 8)), None)
    with pytest.raises(ValueError, match=r"^gate_first \(1\) must be 0: gate is None$"):
        getattr(evenkeel, f"{op}_forward")(array((2, 8)), activation="silu", gate_first=True)
    with pytest.raises(ValueError, match=r"^activation is None; expected 'sigmoid'"):
        getattr(evenkeel, f"{op}_gated")(array((2, 8)), array((2, 8)), activation=None)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8)], ids=str)
@every_gate
def test_no_rows_have_no_results(form, shape):
    """An array without elements has no address."""
    results = every_result(evenkeel, "layer_norm", F32, fused_cases.operands(F32, shape, form), DTYPES, form)
    assert [a.shape for a in results] == [shape, *[shape[:-1]] * 3, shape, (8,), (8,), shape]
    assert not results[5].any() and not results[6].any()


def test_dx_in_another_dtype_does_not_go_with_a_gate():
    x, gate = array((2, 8)), array((2, 8), seed=1)
    options = {"gate": gate, "activation": "silu"}
    _, rstd = evenkeel.rms_norm_forward(x, **options)
    with pytest.raises(TypeError, match="^gate is f32: it must be bf16$"):
        evenkeel.rms_norm_backward(x, x, rstd, x_dtype=DTYPES["bf16"], **options)


@pytest.mark.parametrize("name", ["x_bias", "dh", "need_dx_bias", "need_dresidual"])
def test_what_does_not_go_with_a_gate_in_backward_is_refused(name):
    x = array((2, 8))
    _, rstd = evenkeel.rms_norm_forward(x)
    given = {"x_bias": array((8,)), "dh": x}.get(name, True)
    with pytest.raises(ValueError, match=f"^gate does not go with {name}: one of them must be None$"):
        evenkeel.rms_norm_backward(x, x, rstd, gate=x, activation="silu", x_dtype="float32", **{name: given})
    with pytest.raises(ValueError, match="^need_dgate is given but gate is None; need_dgate needs gate$"):
        evenkeel.rms_norm_backward(x, x, rstd, need_dgate=True)


def test_what_does_not_go_with_a_gate_is_refused():
    x, bias = array((2, 8)), array((8,))
    refused = {"x_bias": bias, "residual": x, "residual_after": x}
    for name, other in refused.items():
        words = "residual_after does not go with activation" if name == "residual_after" else f"gate .* with {name}:"
        with pytest.raises(ValueError, match=f"^{words} "):
            evenkeel.layer_norm_forward(x, gate=x, activation="silu", **{name: other})
    with pytest.raises(ValueError, match="^gate goes with an activation alone, and activation is None; expected None$"):
        evenkeel.layer_norm_forward(x, gate=x)
    _, mean, rstd = evenkeel.layer_norm_forward(x, None, bias, gate=x, activation="silu", gate_first=True)
    with pytest.raises(ValueError, match=r"^bias does not go with gate_first \(1\); expected None, or gate_first 0$"):
        evenkeel.layer_norm_backward(x, x, mean, rstd, gate=x, activation="silu", gate_first=True, bias=bias)


# ---- mistakes ----


REFUSED = {
    "weight_offset is 0.5; expected 0 or 1": (ValueError, {"weight_offset": 0.5}),
    "weight_offset is 'one'; expected 0 or 1": (TypeError, {"weight_offset": "one"}),
    "rounding is 'twice'; expected 'once' or 'each'": (ValueError, {"rounding": "twice"}),
    "rounding is 1; expected 'once' or 'each'": (ValueError, {"rounding": 1}),
    "out_dtype is <class 'int'>; expected float32, float16, bfloat16 or float64": (TypeError, {"out_dtype": int}),
    "residual_dtype is int8; expected float32, float16, bfloat16 or float64": (TypeError, {"residual_dtype": "int8"}),
    "y or dy of f64 does not go with dtype f32 (allowed: f32, f16, bf16)": (TypeError, {"out_dtype": np.float64}),
    "residual of f16 does not go with dtype f32 (allowed: f32)": (TypeError, {"residual_dtype": np.float16}),
}


@pytest.mark.parametrize("words", REFUSED)
@every_op
def test_flavours_that_do_not_exist_are_refused(op, words):
    exception, flavour = REFUSED[words]
    with pytest.raises(exception) as raised:
        getattr(evenkeel, f"add_{op}")(array((2, 8)), array((2, 8)), **flavour)
    assert str(raised.value) == words


def test_arrays_that_cannot_be_converted_are_refused():
    x = memoryview(bytearray(64)).cast("f", (2, 8))
    with pytest.raises(TypeError, match="^residual cannot be converted to float16 here; expected an array of NumPy"):
        evenkeel.add_rms_norm(x, x, residual_dtype="float16")
    y, h = evenkeel.add_rms_norm(x, x, residual_dtype="float32")
    assert y.shape == h.shape == (2, 8)


def test_functions_of_the_extension_refuse_other_keywords():
    with pytest.raises(TypeError, match=r"^forward\(\) got an unexpected keyword argument 'gates'$"):
        evenkeel._core.forward(1, array((2, 8)), 8, None, None, 1e-5, None, None, 1, None, gates=None)
