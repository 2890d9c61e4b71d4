"""How arrays are read: DLPack's C exchange API, the buffer protocol, __dlpack__. SPDX-License-Identifier: MIT"""

import array as plain_arrays
import ctypes
import multiprocessing

import numpy as np
import pytest

import evenkeel
from evenkeel import _core
from frameworks import CUDA_HOST, ROCM, BareBuffer, Exporter, NewerTensor, StrangeTensor, Tensor
from reference import DTYPES, array


def forward(x, out=None, weight=None, stats=None):
    return _core.forward(_core.LAYER_NORM, x, 6, weight, None, 1e-5, stats, out, 1, None)


def same(result, expected):
    return np.asarray(result).tobytes() == np.asarray(expected).tobytes()


# ---- the C exchange API ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_x_s_framework_makes_the_results(dtype):
    x, w = array((4, 6), dtype), array((6,), dtype, 1)
    y, stats = forward(Tensor(x), weight=Tensor(w), stats=True)
    assert type(y) is type(stats) is Tensor and not Tensor.live
    expected = evenkeel.layer_norm_forward(x, w, return_mean_lo=True)
    assert same(y.array, expected[0]) and same(stats.array, np.stack(expected[1:]))
    results = _core.backward(1, Tensor(x), Tensor(x), 6, Tensor(w), stats, 0, True, True, True, None, 1, None)
    for result, correct in zip(
        results, evenkeel.layer_norm_backward(x, x, *expected[1:3], w, mean_lo=expected[3]), strict=True
    ):
        assert same(result.array, correct)
    assert not Tensor.live


def test_the_ops_take_such_tensors_too():
    x = array((2, 4, 6))
    y, mean, rstd = evenkeel.layer_norm_forward(Tensor(x.transpose(1, 0, 2)))
    expected = evenkeel.layer_norm_forward(x.transpose(1, 0, 2))
    assert mean.shape == rstd.shape == (4, 2)
    assert all(same(a.array, b) for a, b in zip((y, mean, rstd), expected, strict=True))
    dx, dweight = evenkeel.rms_norm_backward(Tensor(x), Tensor(x), evenkeel.rms_norm_forward(Tensor(x))[1])
    assert type(dx) is type(dweight) is Tensor


def test_tensors_of_several_frameworks_go_together():
    x, w = array((4, 6)), array((6,), seed=1)
    out = np.empty_like(x)
    assert forward(Tensor(x), out=out, weight=Exporter(w)) is out
    assert same(out, evenkeel.layer_norm(x, w))


def test_an_older_version_is_found_behind_a_newer_one():
    x = array((4, 6))
    assert same(forward(NewerTensor(x)).array, evenkeel.layer_norm(x))


def test_an_attribute_of_another_kind_is_left_alone():
    x = array((4, 6))
    out = np.empty_like(x)
    assert same(forward(StrangeTensor(x), out=out), evenkeel.layer_norm(x))


def test_more_types_than_are_remembered():
    x = array((4, 6))
    expected = evenkeel.layer_norm(x)
    types = [type(f"Tensor{i}", (Tensor,), {}) for i in range(40)]
    for kind in types + types:
        assert same(forward(kind(x)).array, expected)


def test_a_framework_without_memory_is_told_apart():
    Tensor.memory_left = False
    try:
        with pytest.raises(MemoryError, match=r"has no memory for out \(96 bytes\)"):
            forward(Tensor(array((4, 6))))
    finally:
        Tensor.memory_left = True


@pytest.mark.parametrize("strange", [np.int32, np.uint8, np.int64])
def test_other_dtypes_are_refused(strange):
    with pytest.raises(TypeError, match=f"x is {strange.__name__}: it must be f32, f16, bf16 or f64"):
        forward(Tensor(np.ones((4, 6), strange)))


def test_a_dtype_without_a_name_is_told_by_its_code():
    tensor = Tensor(array((4, 6)))
    tensor.struct.lanes = 4
    with pytest.raises(TypeError, match="x is of DLPack's type code 2 with 32 bits and 4 lanes: it must be f32"):
        forward(tensor)


def test_other_devices_are_refused():
    with pytest.raises(NotImplementedError, match=f"x is on a device of DLPack's type {ROCM}"):
        forward(Tensor(array((4, 6)), (ROCM, 0)))
    with pytest.raises(NotImplementedError, match="weight is on"):
        forward(Tensor(array((4, 6))), weight=Tensor(array((6,)), (ROCM, 0)))


def test_pinned_memory_is_the_cpu_s():
    x = array((4, 6))
    assert same(forward(Tensor(x, (CUDA_HOST, 0))).array, evenkeel.layer_norm(x))


def test_more_dimensions_than_are_known():
    tensor = Tensor(array((1,)))
    tensor.struct.ndim = 65
    with pytest.raises(ValueError, match="x has 65 dimensions: it must have at most 64, reshape it"):
        forward(tensor)


# ---- the buffer protocol ----


def ctypes_array(values):
    """Its buffer has a shape and no strides."""
    kind = ctypes.c_float
    for size in reversed(values.shape):
        kind = kind * size
    return kind.from_buffer_copy(values)


def raw_array(values):
    """multiprocessing's shared memory, flat."""
    return multiprocessing.RawArray("f", values.ravel().tolist())


def cast_memoryview(values):
    return memoryview(plain_arrays.array("f", values.ravel().tolist())).cast("B").cast("f", values.shape)


BUFFERS = {
    "ctypes": ctypes_array,
    "RawArray": raw_array,
    "array.array": lambda values: plain_arrays.array("f", values.ravel().tolist()),
    "memoryview": cast_memoryview,
    "bytes": lambda values: memoryview(values.tobytes()).cast("f", values.shape),
    "no strides": lambda values: BareBuffer(values.copy(), shape=True),
    "no shape": lambda values: BareBuffer(values.ravel(), shape=False),
}
MATRICES = ["ctypes", "memoryview", "no strides"]


@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_may_be_a_weight_a_bias_or_a_statistic(name):
    x, w, b = array((4, 6)), array((6,), seed=1), array((6,), seed=2)
    buffer = BUFFERS[name]
    y, mean, rstd = evenkeel.layer_norm_forward(x, w, b)
    assert same(evenkeel.layer_norm(x, buffer(w), buffer(b)), y)
    results = evenkeel.layer_norm_backward(x, x, buffer(mean), buffer(rstd), buffer(w))
    for result, expected in zip(results, evenkeel.layer_norm_backward(x, x, mean, rstd, w), strict=True):
        assert type(result) is np.ndarray and same(result, expected)


@pytest.mark.parametrize("name", MATRICES)
def test_a_buffer_may_be_x_dy_or_out(name):
    x, dy, w = array((4, 6)), array((4, 6), seed=1), array((6,), seed=2)
    buffer, (y, rstd) = BUFFERS[name], evenkeel.rms_norm_forward(x, w)
    out = buffer(np.zeros_like(x))
    assert evenkeel.rms_norm(x, w, out=out) is out and same(out, y)
    assert same(evenkeel.rms_norm(buffer(x), w), y)
    assert same(evenkeel.rms_norm_forward(buffer(x), w)[1], rstd)
    for result, expected in zip(
        evenkeel.rms_norm_backward(buffer(dy), buffer(x), rstd, w),
        evenkeel.rms_norm_backward(dy, x, rstd, w),
        strict=True,
    ):
        assert isinstance(result, memoryview) and same(result, expected)


@pytest.mark.parametrize("name", BUFFERS)
def test_a_flat_buffer_is_one_row(name):
    x = array((6,))
    y, mean, rstd = evenkeel.layer_norm_forward(BUFFERS[name](x))
    expected = evenkeel.layer_norm_forward(x)
    assert y.shape == (6,) and mean.shape == rstd.shape == ()
    assert all(same(result, correct) for result, correct in zip((y, mean, rstd), expected, strict=True))


def test_a_buffer_goes_with_an_array_that_is_copied_first():
    x, w = array((6, 4)).T, array((6,), seed=1)
    for name in BUFFERS:
        assert same(evenkeel.layer_norm(x, BUFFERS[name](w)), evenkeel.layer_norm(x, w))
    assert same(evenkeel.layer_norm(x, Exporter(w), normalized_shape=6), evenkeel.layer_norm(x, w))
    every_other = memoryview(plain_arrays.array("f", range(12)))[::2]
    assert same(evenkeel.layer_norm(x, every_other), evenkeel.layer_norm(x, np.asarray(every_other)))


def test_a_buffer_without_dimensions_has_no_row():
    with pytest.raises(ValueError, match=r"x has shape \(\): it must end in the normalized shape \(6,\)"):
        evenkeel.rms_norm(ctypes.c_float(3), normalized_shape=6)
    with pytest.raises(ValueError, match=r"weight has shape \(\): it must have \(6,\)"):
        evenkeel.rms_norm(array((4, 6)), ctypes.c_float(3), normalized_shape=6)


def test_a_buffer_of_more_dimensions_than_are_known_is_refused():
    deep = BareBuffer(array((6,)), shape=True, ndim=65)
    with pytest.raises(ValueError, match="weight has 65 dimensions: it must have at most 64, reshape it"):
        forward(array((4, 6)), out=np.empty((4, 6), np.float32), weight=deep)


def test_a_buffer_of_several_dimensions_without_a_shape_is_refused():
    shapeless = BareBuffer(array((2, 3)), shape=False)
    with pytest.raises(TypeError, match="weight has a buffer of 2 dimensions without a shape"):
        forward(array((4, 6)), out=np.empty((4, 6), np.float32), weight=shapeless)


# ---- __dlpack__ ----


@pytest.mark.parametrize("version", [(1, 0), None], ids=["versioned", "old"])
@pytest.mark.parametrize("strides", [True, False], ids=["strides", "none"])
def test_capsules_of_both_forms(version, strides):
    x = array((4, 6))
    tensor = Exporter(x, version=version, strides=strides)
    assert same(forward(tensor, out=Exporter(out := np.empty_like(x))).array, out)
    assert same(out, evenkeel.layer_norm(x))
    assert tensor.asked[-1] == ({"max_version": (1, 0)} if version else {})  # and no stream on the CPU


def test_a_capsule_may_be_read_only():
    frozen = Exporter(array((4, 6)), flags=1)
    assert forward(frozen, out=np.empty((4, 6), np.float32)) is not None
    with pytest.raises(ValueError, match="out is read-only: give a writable one"):
        forward(array((4, 6)), out=frozen)


def test_what_goes_wrong_in_a_framework_is_the_cause_of_a_refusal():
    class Broken(Exporter):
        error = BufferError("on fire\nwith details")

        def __dlpack__(self, **words):
            raise self.error

    class Nowhere(Exporter):
        def __dlpack_device__(self):
            raise RuntimeError("nowhere")

    out = np.empty((4, 6), np.float32)
    for tensor, cause, words in [(Broken(out), BufferError, "on fire"), (Nowhere(out), RuntimeError, "nowhere")]:
        with pytest.raises(TypeError, match=f"^x cannot be read: {words}$") as refusal:
            forward(tensor, out=out)
        assert type(refusal.value.__cause__) is cause
    with pytest.raises(ValueError, match="incorrect name"):
        forward(Exporter(out, name=b"used_dltensor"), out=out)
    for passed_on in (KeyboardInterrupt, MemoryError):
        Broken.error = passed_on()
        with pytest.raises(passed_on):
            forward(Broken(out), out=out)
    silent = Tensor(out)
    silent.readable = False
    with pytest.raises(TypeError, match="^x cannot be read: its framework does not say why$"):
        forward(silent, out=Tensor(out))
    Broken.error = AssertionError()
    with pytest.raises(TypeError, match="^x cannot be read: $"):
        forward(Broken(out), out=out)
