"""Over many calls, in threads, after a fork, on every level: nothing leaks and no bit changes.
SPDX-License-Identifier: MIT"""

import ctypes
import hashlib
import os
import sys

import numpy as np
import pytest

import evenkeel
from evenkeel import _core
from frameworks import Exporter, Tensor, aligned
from processes import in_threads, resident_bytes, run_python
from reference import DTYPES, OPS, array, every_result, operands


def test_references_are_flat_over_a_thousand_calls():
    arrays = [array((4, 6)), array((6,)), array((4, 6), seed=2)]
    stats = np.empty((3, 4), np.float32)
    workspace = aligned((256,), np.float32)
    exported, tensor = Exporter(arrays[0]), Tensor(arrays[0])
    buffer = (ctypes.c_float * 6)(*arrays[1])
    watched = [*arrays, stats, workspace, exported, tensor, buffer]

    def every_way():
        x, w, out = arrays
        for source in (x, exported, tensor):
            _core.forward(1, source, (6,), w, w, 1e-5, stats, out, 1, None)
        _core.forward(2, tensor, 6, buffer, None, None, True, True, 1, None)
        _core.backward(1, x, x, 6, w, stats, 0.0, out, w.copy(), w.copy(), None, 1, None)
        _core.backward(1, x, x, 6, w, (stats[0], stats[1]), 0.0, out, w.copy(), None, workspace, 1, None)
        _core.backward_workspace(1, x, 6, w, True, True, 1)
        flavour = {"weight_offset": 1.0, "rounding": "each"}
        _core.forward(1, x, 6, w, w, 0, stats, out, 1, None, residual=x, x_bias=w, h=x.copy(), y_dtype=1, **flavour)
        _core.forward(2, tensor, 6, None, None, None, True, True, 1, None, residual=exported, h=True)
        more = {"dresidual": out.copy(), "dx_bias": w.copy(), "dh": x}
        _core.backward(1, None, x, 6, w, stats, 0.0, out, None, None, None, 1, None, **more, **flavour)
        assert _core.forward(1, x.T, 4, None, None, 1e-5, None, out, 1, None) is None
        for bad in ({"weight": x}, {"out": stats}, {"eps": -1}, {"threads": 2**40}, {"rounding": "never"}):
            with pytest.raises(ValueError):
                evenkeel.layer_norm(x, normalized_shape=6, **bad)
        for bad in ({"weight": [1.0]}, {"bias": w.astype(">f4")}, {"eps": None}, {"out_dtype": int}):
            with pytest.raises(TypeError):
                evenkeel.layer_norm(x, normalized_shape=6, **bad)
        evenkeel.info()
        exported.asked.clear(), exported.kept.clear()

    for _ in range(20):
        every_way()
    before, memory = [sys.getrefcount(thing) for thing in watched], resident_bytes()
    for _ in range(1000):
        every_way()
    assert [sys.getrefcount(thing) for thing in watched] == before
    assert not Tensor.live
    assert resident_bytes() - memory < 2 << 20


def test_bits_do_not_depend_on_threads():
    given = operands((300, 1000))
    for op in OPS:
        y = every_result(op, *given)[0].tobytes()
        for threads in (1, 2, 3):
            columns = given[2:] if op == "layer_norm" else given[2:3]
            assert getattr(evenkeel, op)(given[0], *columns, 1e-5, threads=threads).tobytes() == y


def test_many_threads_call_at_once():
    x = array((200, 512))
    expected = evenkeel.layer_norm(x).tobytes()

    def work():
        assert all(evenkeel.layer_norm(x, threads=2).tobytes() == expected for _ in range(50))

    in_threads(work)


def test_a_child_after_a_fork_computes_too():
    x = array((300, 1000))
    expected = evenkeel.layer_norm(x).tobytes()  # the parent's threads have started
    child = os.fork()
    if child == 0:
        os._exit(0 if evenkeel.layer_norm(x).tobytes() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def digest():
    """Of every result of some shapes and dtypes."""
    sum = hashlib.sha256()
    for dtype in DTYPES:
        for shape in [(1, 1), (5, 63), (40, 129), (3, 4097)]:
            for op in OPS:
                for result in every_result(op, *operands(shape, dtype, offset=1)):
                    sum.update(result.tobytes())
    return sum.hexdigest()


@pytest.mark.parametrize("level", [name for name, usable in evenkeel.info()["levels"].items() if usable])
def test_every_level_has_the_bits_of_the_reference(level):
    assert run_python("import test_life; print(test_life.digest())", EVENKEEL_ISA=level) == digest()


def test_info_says_what_there_is():
    info = evenkeel.info()
    assert info["version"] == evenkeel.__version__ and info["numerics"] == 1
    assert info["levels"][info["level"]] and info["threads"] >= 1
    assert isinstance(info["gpus"], list) and (info["gpus"] or info["missing"])


def test_importing_needs_no_array_library():
    script = "import evenkeel, sys; print([name for name in ('numpy', 'torch', 'ml_dtypes') if name in sys.modules])"
    assert run_python(script) == "[]"
