"""Gated activations on arrays: values, layouts of gate and value, levels, mistakes. SPDX-License-Identifier: MIT"""

import hashlib
import re
from itertools import product

import numpy as np
import pytest

import evenkeel
from processes import run_python
from reference import ACTIVATIONS, DTYPES, GLU_ALONE, GLU_ALONE_SLOPES, SLOPES, array, close, wide

VALUES, SLOPES = ACTIVATIONS | GLU_ALONE, SLOPES | GLU_ALONE_SLOPES
SHAPES = (1, 1), (7, 33), (2, 3, 129), (70, 16)
LIMITED = {"limit": 0.7, "value_offset": 1.0}
OPTIONS = [{"activation": name} for name in VALUES] + [{"activation": name, **LIMITED} for name in VALUES]
OPTIONS += [{"alpha": 1.702, **LIMITED}]
BIAS_DTYPES = [
    (dtype, columns) for dtype in DTYPES for columns in dict.fromkeys((dtype, "f64" if dtype == "f64" else "f32"))
]

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))


def operands(shape, dtype="f32", columns=None):
    """dy, gate, value, gate_bias, value_bias."""
    matrices = [array(shape, dtype, seed) for seed in range(3)]
    return [*matrices, *(array(shape[-1:], columns or dtype, seed) for seed in (3, 4))]


def formula(dy, gate, value, gate_bias, value_bias, activation="silu", limit=np.inf, alpha=1.0, value_offset=0.0):
    """y, dgate, dvalue, dgate_bias, dvalue_bias in float64."""
    dy, gate, value, gate_bias, value_bias = wide(dy, gate, value, gate_bias, value_bias)
    t, v = gate + gate_bias, value + value_bias
    inside, beyond = t <= limit, np.abs(v) > limit
    t, v = np.minimum(t, limit), np.clip(v, -limit, limit) + value_offset
    value, slope = VALUES[activation](alpha * t) / alpha, SLOPES[activation](alpha * t)
    dgate, dvalue = dy * v * slope * inside, np.where(beyond, 0, dy * value)
    return value * v, dgate, dvalue, *(d.reshape(-1, d.shape[-1]).sum(0) for d in (dgate, dvalue))


def results(dy, gate, value, gate_bias, value_bias, **options):
    """The same by the library."""
    inputs = gate, value, gate_bias, value_bias
    return evenkeel.glu(*inputs, **options), *evenkeel.glu_backward(dy, *inputs, **options)


def packed(one, other, interleaved=False):
    """Both in one array, and back."""
    return (
        np.concatenate([one, other], -1) if not interleaved else np.stack([one, other], -1).reshape(*one.shape[:-1], -1)
    )


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---- values ----


@every_option
@pytest.mark.parametrize("dtypes", BIAS_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 129)], ids=str)
def test_every_result_is_that_of_the_formula(options, dtypes, shape):
    dtype, columns = dtypes
    given = operands(shape, dtype, columns)
    for found, expected in zip(results(*given, **options), formula(*given, **options), strict=True):
        close(found, expected, dtype)
    dtypes = [a.dtype for a in (given[0], *given[1:])]
    assert [r.dtype for r in results(*given, **options)] == dtypes


def digest():
    """Of every result of the cases, by the library in use."""
    sum = hashlib.sha256()
    for number, ((dtype, columns), options) in enumerate(product(BIAS_DTYPES, OPTIONS)):
        for result in results(*operands(SHAPES[number % len(SHAPES)], dtype, columns), **options):
            sum.update(result.tobytes())
    return sum.hexdigest()


@pytest.mark.parametrize("level", [name for name, usable in evenkeel.info()["levels"].items() if usable])
def test_every_level_has_the_same_bits(level):
    assert run_python("import test_glu; print(test_glu.digest())", EVENKEEL_ISA=level) == digest()


@every_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_array_of_both_has_the_bits_of_two(dtype, shape):
    dy, *inputs = operands(shape, dtype)
    y, *gradients = results(dy, *inputs, **LIMITED)
    for interleaved in (False, True):
        gate, bias = packed(*inputs[:2], interleaved), packed(*inputs[2:], interleaved)
        found = results(dy, gate, None, bias, None, interleaved=interleaved, **LIMITED)
        expected = packed(*gradients[:2], interleaved), packed(*gradients[2:], interleaved)
        assert found[2] is None and found[4] is None
        same((found[0], found[1], found[3]), (y, *expected))


@every_dtype
def test_the_short_functions_are_glu_with_an_activation(dtype):
    _, *inputs = operands((5, 40), dtype)
    same([evenkeel.swiglu(*inputs)], [evenkeel.glu(*inputs)])
    same([evenkeel.geglu(*inputs)], [evenkeel.glu(*inputs, "gelu")])
    same([evenkeel.geglu(*inputs, approximate="tanh")], [evenkeel.glu(*inputs, "gelu_tanh")])
    same([evenkeel.swiglu(packed(*inputs[:2]))], [evenkeel.glu(*inputs[:2])])


@pytest.mark.parametrize("activation", VALUES)
@every_dtype
def test_an_activation_alone_is_a_gate_times_one(activation, dtype):
    dy, x, _, bias, _ = operands((70, 40), dtype)
    one = np.ones_like(x)
    dgate, _, dgate_bias, _ = evenkeel.glu_backward(dy, x, one, bias, None, activation)
    same([evenkeel.bias_act(x, bias, activation)], [evenkeel.glu(x, one, bias, None, activation)])
    same(evenkeel.bias_act_backward(dy, x, bias, activation), (dgate, dgate_bias))
    assert evenkeel.bias_act_backward(dy, x, activation=activation)[1] is None


def test_the_activation_of_bias_act_is_gelu_unless_another_is_asked_for():
    x = array((3, 8))
    same([evenkeel.bias_act(x)], [evenkeel.bias_act(x, None, "gelu")])


def test_a_gradient_that_is_not_needed_is_not_there():
    dy, *inputs = operands((5, 40))
    everything = evenkeel.glu_backward(dy, *inputs)
    names = "need_dgate", "need_dvalue", "need_dgate_bias", "need_dvalue_bias"
    for name, expected in zip(names, everything, strict=True):
        found = evenkeel.glu_backward(dy, *inputs, **{n: n == name for n in names})
        assert sum(f is not None for f in found) == 1
        same([f for f in found if f is not None], [expected])
    wide = evenkeel.glu_backward(*operands((5, 40), "bf16"), gradient_dtype="float32")
    assert [g.dtype.name for g in wide] == ["bfloat16", "bfloat16", "float32", "float32"]
    assert evenkeel.glu_backward(dy, *inputs[:2], need_dgate_bias=True)[2].shape == (40,)


# ---- layouts ----


def test_slices_of_one_array_are_read_where_they_lie():
    dy, *inputs = operands((6, 40))
    whole = array((6, 3, 80), seed=9)
    gate, value = whole[:, 1, :40], whole[:, 1, 40:]
    assert not gate.flags.c_contiguous
    same(results(dy, gate, value, *inputs[2:]), results(dy, gate.copy(), value.copy(), *inputs[2:]))
    both = whole[:, 1]
    same([evenkeel.swiglu(both)], [evenkeel.swiglu(gate, value)])
    out = np.full((6, 50), 7, np.float32)
    evenkeel.swiglu(both, out=out[:, :40])
    same([out[:, :40].copy()], [evenkeel.swiglu(gate, value)])
    assert (out[:, 40:] == 7).all()


@pytest.mark.parametrize(
    "view", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::2]], ids=["T", "reversed", "steps"]
)
def test_other_layouts_are_copied(view):
    gate, value = view(array((40, 40))), view(array((40, 40), seed=1))
    same([evenkeel.swiglu(gate, value)], [evenkeel.swiglu(gate.copy(), value.copy())])


def test_the_result_may_take_the_place_of_gate_or_value():
    _, *inputs = operands((6, 40))
    expected = evenkeel.glu(*inputs)
    for place in (0, 1):
        given = [a.copy() for a in inputs]
        assert evenkeel.glu(*given, out=given[place]) is given[place]
        same([given[place]], [expected])


def test_without_rows_gradients_of_biases_are_zero():
    bias = array((40,))
    y, dgate, _, dgate_bias, _ = results(np.empty((0, 40), "f4"), *[np.empty((0, 40), "f4")] * 2, bias, bias, **LIMITED)
    assert y.shape == dgate.shape == (0, 40) and (dgate_bias == 0).all()


def test_arrays_of_the_buffer_protocol_alone():
    gate = array((3, 8))
    found = evenkeel.swiglu(memoryview(gate))
    assert isinstance(found, memoryview) and found.tobytes() == evenkeel.swiglu(gate).tobytes()


# ---- mistakes ----

X = array((4, 8))
ACTIVATION = "expected 'sigmoid', 'silu', 'gelu', 'gelu_tanh', 'relu', 'relu_squared' or 'none'"
MISTAKES = {
    "gate has shape (4, 7): its last dimension must be even": (ValueError, lambda: evenkeel.glu(X[:, :7])),
    "gate has shape (): it must have 1 dimension or more": (ValueError, lambda: evenkeel.glu(np.float32(1))),
    "value has shape (4, 7): it must have (4, 8)": (ValueError, lambda: evenkeel.glu(X, X[:, :7])),
    "gate_bias has shape (4,): it must have (8,)": (ValueError, lambda: evenkeel.glu(X, X, X[0, :4])),
    "gate_bias has shape (4,): it must have (8,) ": (ValueError, lambda: evenkeel.glu(X, None, X[0, :4])),
    "dy has shape (4, 8): it must have (4, 4)": (ValueError, lambda: evenkeel.glu_backward(X, X)),
    "value is f64: it must be f32, as gate": (TypeError, lambda: evenkeel.glu(X, X.astype("f8"))),
    "gate is of type int; expected an array": (TypeError, lambda: evenkeel.glu(1)),
    "value_bias is given, and value is None; expected gate_bias to have both": (
        ValueError,
        lambda: evenkeel.glu(X, None, None, X[0]),
    ),
    "interleaved is True, and value is given; expected one": (ValueError, lambda: evenkeel.glu(X, X, interleaved=True)),
    "interleaved is 2; expected 0 or 1": (ValueError, lambda: evenkeel.glu(X, interleaved=2)),
    f"activation is 'tanh'; {ACTIVATION}": (ValueError, lambda: evenkeel.glu(X, activation="tanh")),
    f"activation is None; {ACTIVATION}": (ValueError, lambda: evenkeel.bias_act(X, None, None)),
    "approximate is 'erf'; expected 'none' or 'tanh'": (ValueError, lambda: evenkeel.geglu(X, approximate="erf")),
    "limit is -1; expected a positive number, or None": (ValueError, lambda: evenkeel.glu(X, limit=-1)),
    "limit is 0.0; expected a positive number, or None": (ValueError, lambda: evenkeel.glu(X, limit=0.0)),
    "limit is 'one'; expected a number": (TypeError, lambda: evenkeel.glu(X, limit="one")),
    "alpha is 0.0; expected a positive number": (ValueError, lambda: evenkeel.glu(X, alpha=0.0)),
    "alpha (2.0) goes with activation 'silu', and it is 'gelu'; expected 1.0": (
        ValueError,
        lambda: evenkeel.glu(X, activation="gelu", alpha=2.0),
    ),
    "value_offset (1e+300) must be in": (ValueError, lambda: evenkeel.glu(X, value_offset=1e300)),
    "bias has shape (4,): it must have (8,)": (ValueError, lambda: evenkeel.bias_act(X, X[0, :4])),
    "dy is f32: it must be f64, as x": (TypeError, lambda: evenkeel.bias_act_backward(X, X.astype("f8"))),
    "gate is a masked array": (TypeError, lambda: evenkeel.glu(np.ma.masked_array(X))),
    "out has shape (4, 8): it must have (4, 4)": (ValueError, lambda: evenkeel.glu(X, out=X.copy())),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_names_the_argument(words):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words.strip())):
        call()
