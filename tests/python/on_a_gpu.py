"""What test_gpu.py runs in a process of its own, on a GPU that the stand-ins for libcuda and NVRTC pretend:
`on_a_gpu.py NAME`, a function below `tests`. Its memory is the host's. SPDX-License-Identifier: MIT"""

import ctypes
import os
import sys

import numpy as np

import evenkeel
import gpu_arrays
from evenkeel import _core
from frameworks import CUDA, Exporter, Tensor
from reference import DTYPES, OPS, array, every_result, operands

driver = ctypes.CDLL(os.environ["EVENKEEL_LIBCUDA"])


class Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char * 128),
        ("order", ctypes.c_char * 32),
        ("blocks", ctypes.c_int64),
        ("sizes", ctypes.c_int * 3),
        ("flags", ctypes.c_bool * 2),
        ("stream", ctypes.c_void_p),
    ]


def last_stream():
    launch = Launch()
    assert driver.standin_last_launch(ctypes.byref(launch))
    return launch.stream or 0


def new_stream():
    evenkeel.layer_norm(tensor(array((1, 8))))  # which makes a CUDA context
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
    return stream.value


def tensor(values, ordinal=0):
    return Tensor(values, (CUDA, ordinal))


def same(results, expected):
    assert driver.cuCtxSynchronize() in (0, 201)  # 201: no context is current, and the stand-in has run everything
    assert len(results) == len(expected)
    for result, correct in zip(results, expected, strict=True):
        assert result.array.tobytes() == correct.tobytes()


def refused(call, exception, words):
    try:
        call()
    except exception as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {exception.__name__}")


def check_ops(make):
    for dtype in DTYPES:
        for op in OPS:
            given = operands((33, 40), dtype)
            same(every_result(op, *map(make, given)), every_result(op, *given))
        x, w = array((33, 40), dtype)[:, ::2], array((20,), dtype, 2)
        same([evenkeel.rms_norm(make(x), make(w))], [evenkeel.rms_norm(x, w)])


# ---- tests ----


def the_bits_are_the_cpu_s():
    check_ops(tensor)
    assert not Tensor.live  # the workspaces were freed


def arrays_without_the_exchange_api_do_too():
    check_ops(gpu_arrays.ndarray)


def same_but_absent(results, expected):
    """Those that are None are the same."""
    assert [r is None for r in results] == [e is None for e in expected]
    same([r for r in results if r is not None], [e for e in expected if e is not None])


def gated_activations_have_the_bits_of_the_cpu():
    import test_glu  # which asks for the GPUs, as no other function here may

    for make in (tensor, gpu_arrays.ndarray):
        for dtype, options in (("f32", {"activation": "relu"}), ("bf16", test_glu.OPTIONS[-1])):
            dy, *inputs = test_glu.operands((70, 33), dtype)
            same(test_glu.results(*map(make, (dy, *inputs)), **options), test_glu.results(dy, *inputs, **options))
            gate, bias = test_glu.packed(*inputs[:2]), test_glu.packed(*inputs[2:])
            expected = test_glu.results(dy, gate, None, bias, None, **options)
            same_but_absent(test_glu.results(make(dy), make(gate), None, make(bias), None, **options), expected)
        dy, x, _, bias, _ = test_glu.operands((70, 33))
        same([evenkeel.bias_act(make(x), make(bias), "relu")], [evenkeel.bias_act(x, bias, "relu")])
        found = evenkeel.bias_act_backward(make(dy), make(x), make(bias), "relu")
        same(found, evenkeel.bias_act_backward(dy, x, bias, "relu"))


class Moved:
    """Operands of RoPE in the layout of the results, on the GPU of a framework."""

    def __init__(self, operands, make):
        for name, given in vars(operands).items():
            moved = np.ascontiguousarray(given.swapaxes(1, 2)) if name in ("dq", "dk") else given
            setattr(self, name, moved if moved is None else make(moved))


def rope_has_the_bits_of_the_cpu():
    import test_rope

    positions = np.arange(10).reshape(2, 5)[:, ::-1].copy() % 9
    for make in (tensor, gpu_arrays.ndarray):
        for dtype, norm in (("f32", {}), ("bf16", test_rope.NORMS[2])):
            operands = test_rope.Operands((4, 2, 8), dtype, norm=norm)
            found = test_rope.results(Moved(operands, make), {}, norm, layout="bshd", positions=make(positions))
            expected = test_rope.results(Moved(operands, np.asarray), {}, norm, layout="bshd", positions=positions)
            same_but_absent(found, expected)


def workspaces_are_as_large_as_backward_needs():
    """Without the exchange API they are asked for ahead of the call; which operands it has decides."""
    for cols, groups, options in (
        (1032, (), {"bias": True, "activation": "gelu"}),
        (1032, (), {"x_bias": True}),
        (8192, (2,), {"bias": True, "gate": True, "activation": "silu", "group_cols": 4096}),
        (1032, (2,), {"gate": True, "gate_first": True, "activation": "silu", "group_cols": 516}),
    ):
        x, column, stats = array((100, cols)), array((cols,)), array((100, *groups))
        arrays = {"gate": x, "bias": column, "x_bias": column}

        def backward(make, options=options, arrays=arrays, given=(x, x, stats, stats, column)):
            named = {name: make(arrays[name]) if name in arrays else value for name, value in options.items()}
            return evenkeel.layer_norm_backward(*map(make, given), **named)

        same(backward(gpu_arrays.ndarray), backward(np.asarray))


def work_goes_on_the_framework_s_stream():
    x = array((4, 8))
    Tensor.stream = new_stream()
    evenkeel.layer_norm(tensor(x))
    assert last_stream() == Tensor.stream
    weight = Exporter(array((8,)), (CUDA, 0))
    evenkeel.layer_norm(tensor(x), weight, normalized_shape=8)
    assert last_stream() == Tensor.stream and weight.asked[-1]["stream"] == Tensor.stream


def another_stream_than_the_framework_s_is_refused():
    x = array((4, 8))
    Tensor.stream = new_stream()
    evenkeel.layer_norm(tensor(x), stream=Tensor.stream)
    assert last_stream() == Tensor.stream
    words = f"stream is 0, and x's framework works on {Tensor.stream}: make it the current stream there"
    refused(lambda: evenkeel.layer_norm(tensor(x), stream=0), ValueError, words)
    Tensor.stream = 0
    evenkeel.layer_norm(tensor(x), stream=0)
    assert last_stream() == 0


def work_goes_on_the_caller_s_stream():
    stream = new_stream()
    x = gpu_arrays.ndarray(array((4, 8)))
    evenkeel.layer_norm(x)
    assert last_stream() == 0 and x.asked[-1] == {"stream": 1, "max_version": (1, 0)}
    evenkeel.layer_norm(x, stream=stream)
    assert last_stream() == stream and x.asked[-1]["stream"] == stream


def devices_that_differ_are_refused():
    x, w = array((4, 8)), array((8,))
    words = "weight is on cpu:0, x on cuda:0: they must be on one device"
    refused(lambda: evenkeel.layer_norm(tensor(x), w), ValueError, words)
    words = "weight is on cuda:0, x on cpu:0"
    refused(lambda: evenkeel.layer_norm(x, tensor(w)), ValueError, words)
    words = "weight is on cuda:1, x on cuda:0"
    refused(lambda: evenkeel.layer_norm(tensor(x), tensor(w, 1)), ValueError, words)
    refused(lambda: evenkeel.layer_norm(tensor(x, 7)), RuntimeError, "7")


def a_workspace_is_asked_for_where_it_cannot_be_made():
    x, out = gpu_arrays.ndarray(array((40, 8))), gpu_arrays.empty(8, np.float32)
    call = (_core.LAYER_NORM, x, x, 8, None, None, 1e-5, None, out, None)
    refused(lambda: _core.backward(*call, None, 0, None), TypeError, "workspace must be given")
    size = _core.backward_workspace(_core.LAYER_NORM, x, 8, None, True, False, 0)
    assert size > 0
    _core.backward(*call, gpu_arrays.empty(size // 4, np.float32), 0, None)
    expected = np.empty(8, np.float32)
    _core.backward(_core.LAYER_NORM, x.array, x.array, 8, None, None, 1e-5, None, expected, None, None, 0, None)
    same([out], [expected])
    Tensor.memory_left = False
    x = tensor(x.array)
    call = (_core.LAYER_NORM, x, x, 8, None, None, 1e-5, None, tensor(out.array), None, None, 0, None)
    refused(lambda: _core.backward(*call), MemoryError, "no memory for workspace")


def what_a_framework_says_of_its_memory_is_not_looked_up():
    x = tensor(array((4, 8)))
    os.environ["EVENKEEL_STANDIN_PAGEABLE"] = "0"  # of such a GPU the library looks up every pointer
    _core.backward_workspace(_core.LAYER_NORM, x, 8, None, True, False, 0)  # which opens it
    os.environ["EVENKEEL_STANDIN_PAGEABLE"] = "1"
    evenkeel.layer_norm(x)
    assert driver.standin_count(b"cuLaunchKernelEx") == 1 and driver.standin_count(b"cuPointerGetAttribute") == 0


def info_lists_the_gpus():
    info = evenkeel.info()
    assert [gpu["ordinal"] for gpu in info["gpus"]] == [0, 1]
    assert info["gpus"][0]["compute_capability"] == (9, 0) and info["missing"] is None
    assert info["cuda_driver"] >= (12, 0)


def info_names_a_gpu_that_fails():
    os.environ["EVENKEEL_STANDIN_FAIL"] = "cuDeviceTotalMem_v2=1@2"
    info = evenkeel.info()
    assert [gpu["ordinal"] for gpu in info["gpus"]] == [0]
    assert "on GPU 1 failed: CUDA_ERROR_INVALID_VALUE" in info["missing"], info["missing"]


if __name__ == "__main__":
    globals()[sys.argv[1]]()
