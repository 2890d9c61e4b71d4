"""Where tensors lie in memory: strides, alignments, overlaps, in place. SPDX-License-Identifier: MIT"""

from types import SimpleNamespace

import numpy as np
import pytest

import evenkeel
from evenkeel import _arrays, _core
from reference import Norm, array, close


def forward(x, out=None, weight=None):
    """The extension itself: None where a copy is needed."""
    out = np.empty(x.shape, x.dtype) if out is None else out
    return _core.forward(_core.LAYER_NORM, x, x.shape[-1], weight, None, 1e-5, None, out, 1, None)


ROWS = {
    "contiguous": lambda: array((4, 6)),
    "rows apart": lambda: array((4, 9))[:, 2:8],
    "every other row": lambda: array((8, 6))[::2],
    "two leading dimensions in one step": lambda: array((2, 3, 9))[..., 1:7],
    "a dimension of one with an odd stride": lambda: array((3, 5, 6))[:, 2:3],
    "one row of a transposed matrix's slice": lambda: array((6, 1)).T,
    "one element": lambda: array((5, 5))[::9, ::9],
}
SCATTERED = {
    "transposed": lambda: array((6, 4)).T,
    "every other column": lambda: array((4, 12))[:, ::2],
    "leading dimensions swapped": lambda: array((2, 3, 6)).transpose(1, 0, 2),
    "rows repeated": lambda: np.broadcast_to(array((6,)), (4, 6)),
    "rows backwards": lambda: array((4, 6))[::-1],
    "windows that overlap": lambda: np.lib.stride_tricks.sliding_window_view(array((9,)), 6),
    "fields of records": lambda: np.zeros((3, 4), [("a", "f4"), ("b", "u1")])["a"],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_at_one_distance_are_read_where_they_lie(name):
    x = ROWS[name]()
    close(forward(x), Norm("layer_norm", x).y, "f32")


@pytest.mark.parametrize("name", SCATTERED)
def test_other_layouts_are_copied_first(name):
    x = SCATTERED[name]()
    assert forward(x) is None
    close(evenkeel.layer_norm(x), Norm("layer_norm", x).y, "f32")
    _, mean, rstd = evenkeel.layer_norm_forward(x)
    dx = evenkeel.layer_norm_backward(x, x, mean, rstd)[0]
    close(dx, Norm("layer_norm", x).backward(x)[0], "f32")


def test_scattered_weights_and_statistics_are_copied_first():
    x, w = array((4, 6)), array((12,))[::2]
    assert forward(x, weight=w) is None
    close(evenkeel.layer_norm(x, w, w), Norm("layer_norm", x, w, w).y, "f32")
    stats = np.stack(evenkeel.layer_norm_forward(x)[1:], axis=1)
    dx = evenkeel.layer_norm_backward(x, x, stats[:, 0], stats[:, 1], w)[0]
    close(dx, Norm("layer_norm", x, w).backward(x)[0], "f32")


@pytest.mark.parametrize("offset", [1, 2, 3, 5, 7])
def test_any_byte_may_be_the_first(offset):
    raw = np.zeros(4 * 6 * 4 + 8, np.uint8)
    x = raw[offset : offset + 96].view(np.float32).reshape(4, 6)
    x[:] = array((4, 6))
    assert (forward(x) == forward(x.copy())).all()
    assert forward(x, out=x) is x
    assert (x == forward(array((4, 6)))).all()


def test_the_result_may_lie_in_rows_of_a_larger_array():
    whole = np.zeros((4, 10), np.float32)
    x = array((4, 6))
    evenkeel.layer_norm(x, out=whole[:, 3:9])
    assert (whole[:, 3:9] == evenkeel.layer_norm(x)).all()
    assert not whole[:, :3].any() and not whole[:, 9:].any()


def test_gradients_may_take_the_place_of_dy_or_x():
    x, dy = array((4, 6)), array((4, 6), seed=1)
    stats = _core.forward(_core.LAYER_NORM, x, 6, None, None, 1e-5, np.empty((3, 4), "f"), np.empty_like(x), 1, None)[1]
    expected = evenkeel.layer_norm_backward(dy, x, stats[0], stats[1], mean_lo=stats[2])[0]
    for target in (dy.copy(), x.copy()):
        inputs = (target, x) if (target == dy).all() else (dy, target)
        results = _core.backward(_core.LAYER_NORM, *inputs, 6, None, stats, 0, target, None, None, None, 1, None)
        assert results[0] is target and results[1:] == (None, None)
        assert (target == expected).all()


def test_a_row_may_be_counted_by_any_whole_number():
    x = array((3, 8))
    assert np.array_equal(evenkeel.layer_norm(x, normalized_shape=np.int64(8)), evenkeel.layer_norm(x))


class _Stream:
    ptr = 77


class _Device:
    entered = 0

    def __enter__(self):
        _Device.entered += 1

    def __exit__(self, *error):
        pass


def test_arrays_of_a_gpu_are_made_on_its_device_and_work_goes_on_its_stream():
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=_Stream), empty=np.empty, float32=np.float32, float64=np.float64
    )
    cupy.ndarray = SimpleNamespace
    x = SimpleNamespace(__cuda_array_interface__={}, device=_Device(), dtype=np.dtype("f4"))
    kind = _arrays._Module(cupy)
    assert kind.stream(x) == 77 and kind.stream(array((2, 2))) is None
    assert kind.empty((2, 3), x).shape == (2, 3) and kind.statistics((3, 2), x).dtype == np.float32
    assert _Device.entered == 2
