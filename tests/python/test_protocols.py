"""How arrays are read: DLPack's C exchange API, the buffer protocol, __dlpack__. SPDX-License-Identifier: MIT"""

import array as plain_arrays
import ctypes
import multiprocessing

import numpy as np
import pytest

import evenkeel
from evenkeel import _core
from frameworks import CUDA_HOST, ROCM, BareBuffer, Exporter, NewerTensor, StrangeTensor, Tensor
from reference import DTYPES, OPS, array, every_result, operands


def forward(x, out=None, weight=None):
    return _core.forward(_core.LAYER_NORM, x, 6, weight, None, 1e-5, None, out, 1, None)


def same(result, expected):
    return np.asarray(result).tobytes() == np.asarray(expected).tobytes()


# ---- the C exchange API ----


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_x_s_framework_makes_the_results(op, dtype):
    x, dy, *columns = operands((2, 4, 6), dtype)
    swapped = [a.transpose(1, 0, 2) for a in (x, dy)]
    for given in ((x, dy, *columns), (*swapped, *columns), (x, dy, None, None)):
        results = every_result(op, *(None if a is None else Tensor(a) for a in given))
        for result, expected in zip(results, every_result(op, *given), strict=True):
            assert type(result) is Tensor and result.shape == expected.shape and same(result.array, expected)
    assert not Tensor.live


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


def check_all(results, expected, kind):
    for result, correct in zip(results, expected, strict=True):
        assert isinstance(result, kind) and result.shape == correct.shape and same(result, correct)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_may_be_any_operand(name, op):
    buffer, given, row = BUFFERS[name], operands((4, 6)), operands((6,))
    expected = every_result(op, *given)
    check_all(every_result(op, *given[:2], *map(buffer, given[2:])), expected, np.ndarray)
    check_all(every_result(op, *map(buffer, row)), every_result(op, *row), memoryview)
    if name in MATRICES:
        check_all(every_result(op, *map(buffer, given)), expected, memoryview)
        out = buffer(np.zeros((4, 6), np.float32))
        columns = given[2:] if op == "layer_norm" else given[2:3]
        assert getattr(evenkeel, op)(given[0], *columns, 1e-5, out=out) is out and same(out, expected[0])


@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_may_be_a_statistic(name):
    x, dy, w, _ = operands((4, 6))
    _, mean, rstd = evenkeel.layer_norm_forward(x, w)
    results = evenkeel.layer_norm_backward(dy, x, *map(BUFFERS[name], (mean, rstd)), w)
    check_all(results, evenkeel.layer_norm_backward(dy, x, mean, rstd, w), np.ndarray)


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
