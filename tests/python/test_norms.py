"""The ops on NumPy's arrays against formulas in float64. SPDX-License-Identifier: MIT"""

import array as plain_arrays

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel
from evenkeel import _core
from reference import DTYPES, OPS, Norm, array, close, every_result, operands

SHAPES = [(1, 1), (3, 5), (7, 64), (2, 3, 100), (1, 2049), (65,), (2, 1, 3, 17)]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_op = pytest.mark.parametrize("op", OPS)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def check(op, operands, dtypes, eps=0.1, dims=1):
    """Every result is that of the formula: y and dx in the first dtype, gradients of columns in the second."""
    x, dy, weight, bias = operands
    results = every_result(op, *operands, eps)
    exact = Norm(op, x, weight, bias if op == "layer_norm" else None, eps, dims).every_result(dy)
    stats = "f64" if dtypes[0] == "f64" else "f32"
    count = len(results) - (4 if op == "layer_norm" else 3)
    expected_dtypes = dtypes[0], *[stats] * count, *dtypes, *dtypes[1:]
    for result, expected, dtype in zip(results, exact, expected_dtypes, strict=False):
        assert result.dtype == DTYPES[dtype]
        if expected is not None:
            close(result, expected, dtype)
    alone = getattr(evenkeel, op)(x, *(weight, bias)[: 2 if op == "layer_norm" else 1], eps)
    assert alone.tobytes() == results[0].tobytes()


@every_dtype
@every_shape
@every_op
def test_every_result_is_that_of_the_formula(op, shape, dtype):
    check(op, operands(shape, dtype, offset=2.0), (dtype, dtype))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@every_op
def test_f32_weights_go_with_16_bit_activations(op, dtype):
    check(op, operands((5, 40), dtype, columns_dtype="f32"), (dtype, "f32"))


@every_dtype
def test_rms_norm_without_eps_takes_that_of_the_computing_type(dtype):
    x = array((3, 8), dtype, scale=1e-3 if dtype != "f64" else 1e-8)
    eps = np.finfo(np.float64 if dtype == "f64" else np.float32).eps
    close(evenkeel.rms_norm(x), Norm("rms_norm", x, eps=eps).y, dtype)


@pytest.mark.parametrize("affine", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["plain", "bias", "weight", "both"])
def test_weight_and_bias_are_each_optional(affine):
    x = array((4, 33))
    w, b = (array((33,), seed=seed) if there else None for seed, there in enumerate(affine, 1))
    close(evenkeel.layer_norm(x, w, b), Norm("layer_norm", x, w, b).y, "f32")


def test_several_dimensions_are_normalized_together():
    x, dy, w, b = array((2, 3, 4, 5)), array((2, 3, 4, 5), seed=3), array((4, 5), seed=1), array((4, 5), seed=2)
    for op in OPS:
        check(op, (x, dy, w, b), ("f32", "f32"), dims=2)
    close(evenkeel.layer_norm(x, normalized_shape=[4, 5]), Norm("layer_norm", x, dims=2).y, "f32")
    close(evenkeel.layer_norm(x, normalized_shape=5), Norm("layer_norm", x).y, "f32")
    _, mean, rstd = evenkeel.layer_norm_forward(x, w, b)
    assert mean.shape == rstd.shape == (2, 3)


def test_mean_lo_is_what_rounding_took_from_the_mean():
    x = array((4, 1000), offset=1e4)
    _, mean, _, mean_lo = evenkeel.layer_norm_forward(x, return_mean_lo=True)
    exact = x.astype(np.float64).mean(1)
    pair = mean.astype(np.float64) + mean_lo
    assert np.abs(pair - exact).max() < np.abs(mean - exact).max() / 10


def test_backward_gives_what_is_needed_and_no_more():
    x, dy = array((4, 8)), array((4, 8), seed=1)
    _, mean, rstd = evenkeel.layer_norm_forward(x)
    for needs in [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)]:
        words = dict(zip(("need_dx", "need_dweight", "need_dbias"), map(bool, needs), strict=True))
        results = evenkeel.layer_norm_backward(dy, x, mean, rstd, **words)
        assert [result is not None for result in results] == list(map(bool, needs))
    with pytest.raises(ValueError, match="dx, dweight"):
        evenkeel.rms_norm_backward(dy, x, rstd, need_dx=False, need_dweight=False)


def test_backward_takes_any_statistics_in_any_shape():
    x, dy = array((2, 3, 8)), array((2, 3, 8), seed=1)
    mean, rstd = np.full((2, 3, 1), 0.5, np.float32), np.full(6, 2.0, np.float32)
    dx, dweight, dbias = evenkeel.layer_norm_backward(dy, x, mean, rstd)
    xhat = (x.astype(np.float64) - 0.5) * 2
    close(dweight, (dy * xhat).sum((0, 1)), "f32")
    close(dx, (dy - dy.mean(-1, keepdims=True) - xhat * (dy * xhat).mean(-1, keepdims=True)) * 2, "f32")


def test_backward_takes_statistics_as_one_array_or_computes_them():
    x, dy = array((4, 8), offset=3.0), array((4, 8), seed=1)
    out = np.empty_like(x)

    def backward(norm, stats):
        _core.backward(norm, dy, x, 8, None, stats, 1e-5, out, None, None, None, 1, None)
        return out.tobytes()

    for norm, count in ((_core.LAYER_NORM, 3), (_core.RMS_NORM, 1)):
        stats = np.empty((count, 4), np.float32)
        _core.forward(norm, x, 8, None, None, 1e-5, stats, np.empty_like(x), 1, None)
        expected = backward(norm, stats)
        assert backward(norm, tuple(stats)) == backward(norm, None) == expected
        if count == 3:
            assert backward(norm, stats[:2]) == backward(norm, tuple(stats[:2])) != expected


def test_gradients_of_weights_say_what_a_missing_weight_would_be():
    x, dbias, dweight = array((4, 8), "bf16"), np.empty(8, np.float32), np.empty(8, np.float32)
    for sums in ((None, dbias), (dweight, None), (dweight, dbias)):
        results = _core.backward(_core.LAYER_NORM, x, x, 8, None, None, 1e-5, None, *sums, None, 1, None)
        assert results[0] is None and results[1] is sums[0] and results[2] is sums[1]
    close(dbias, x.astype(np.float64).sum(0), "f32")
    with pytest.raises(TypeError, match="dbias is f64: it must be f32"):
        _core.backward(_core.LAYER_NORM, x, x, 8, None, None, 0, None, dweight, np.empty(8), None, 1, None)
    with pytest.raises(TypeError, match="weight or bias of f64 does not go with dtype bf16"):
        _core.backward_workspace(_core.LAYER_NORM, x, 8, np.empty(8), True, True, 1)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (0,)], ids=str)
def test_nothing_in_nothing_out(shape):
    x = array(shape)
    if shape[-1] == 0:
        with pytest.raises(ValueError, match="cols"):
            evenkeel.layer_norm(x)
        return
    y, mean, rstd = evenkeel.layer_norm_forward(x)
    assert y.shape == shape and mean.shape == rstd.shape == shape[:-1]
    dx, dweight, dbias = evenkeel.layer_norm_backward(x, x, mean, rstd)
    assert dx.shape == shape and not dweight.any() and not dbias.any()
    assert evenkeel.layer_norm_backward(x, x, mean, rstd, need_dweight=False, need_dbias=False)[0].shape == shape


def test_plain_buffers_need_no_array_library():
    matrix = memoryview(plain_arrays.array("d", range(6))).cast("B").cast("d", (2, 3))
    for result, expected in zip(
        every_result("layer_norm", matrix, matrix, None, None),
        Norm("layer_norm", matrix).every_result(matrix),
        strict=True,
    ):
        assert isinstance(result, memoryview) and (expected is None or close(result, expected, "f64") is None)
    every_other = memoryview(plain_arrays.array("f", range(8)))[::2]
    close(evenkeel.rms_norm(every_other, eps=1e-5), Norm("rms_norm", np.arange(0, 8, 2)).y, "f32")
    for x in (np.ones(3, np.float16), np.ones((0, 3), np.float32)):
        with pytest.raises(TypeError, match="out must be given, or x must be an array of NumPy, CuPy or PyTorch"):
            evenkeel.layer_norm(memoryview(x))
        assert evenkeel.layer_norm(memoryview(x), out=(out := np.empty_like(x))) is out


class Celsius(np.ndarray):
    """A user's subclass of ndarray."""


def memory_mapped(values, folder):
    mapped = np.memmap(folder / "values", values.dtype, "w+", shape=values.shape)
    mapped[:] = values
    return mapped


SUBCLASSES = {
    "a user's subclass": lambda values, folder: values.view(Celsius),
    "numpy.matrix": lambda values, folder: values.view(np.matrix),
    "numpy.memmap": memory_mapped,
    "numpy.recarray": lambda values, folder: values.view(np.recarray),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", SUBCLASSES)
def test_results_of_a_subclass_of_ndarray_are_plain_arrays(name, dtype, tmp_path):
    x, dy, w, b = operands((4, 6), dtype)
    special = SUBCLASSES[name](x, tmp_path)
    assert type(special) is not np.ndarray
    for op in OPS:
        for result, correct in zip(every_result(op, special, dy, w, b), every_result(op, x, dy, w, b), strict=True):
            assert type(result) is np.ndarray and result.tobytes() == correct.tobytes()
    assert (evenkeel.layer_norm(special.T, normalized_shape=4) == evenkeel.layer_norm(x.T)).all()


def test_a_subclass_of_ndarray_may_be_a_weight_or_out():
    x, w = array((4, 6)), array((6,), seed=1)
    out = np.empty_like(x).view(Celsius)
    assert evenkeel.layer_norm(x, w.view(Celsius), out=out) is out
    assert (out == evenkeel.layer_norm(x, w)).all()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_shape_dtype_and_operands(data):
    dtype = data.draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dims = data.draw(st.integers(1, len(shape)))
    op = data.draw(st.sampled_from(OPS))
    eps = data.draw(st.sampled_from([1e-5, 0.1]))
    x, w = array(shape, dtype, 5), array(shape[len(shape) - dims :], dtype, 6)
    if data.draw(st.booleans()):
        x = np.asfortranarray(x)
    columns = (w, w) if op == "layer_norm" else (w,)
    result = getattr(evenkeel, op)(x, *columns, eps, normalized_shape=w.shape)
    close(result, Norm(op, x, *columns, eps=eps, dims=dims).y, dtype)
