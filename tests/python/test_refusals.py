"""What is refused, with which exception and words; nothing is written then. SPDX-License-Identifier: MIT"""

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import evenkeel
from evenkeel import _core
from frameworks import Exporter
from reference import array

EXPECTED = r"; expected an array with DLPack or the buffer protocol, such as numpy.asarray\(x, 'float32'\)"


def refusals():
    """(name, call, exception, words)"""
    x, w = array((4, 6)), array((6,))
    frozen = np.zeros((4, 6), np.float32)
    frozen.flags.writeable = False
    long = array((5, 6))
    records = np.zeros((4, 6), [("value", "f4"), ("tag", "i2")])
    yield (
        "a weight of another shape",
        lambda: evenkeel.layer_norm(x, w[:5], normalized_shape=6),
        ValueError,
        (r"weight has shape \(5,\): it must have \(6,\)"),
    )
    yield "a bias of another shape", lambda: evenkeel.layer_norm(x, w, w[:5]), ValueError, r"bias has shape \(5,\)"
    yield (
        "a normalized shape that x does not end in",
        lambda: evenkeel.layer_norm(x, normalized_shape=(4, 5)),
        (ValueError),
        r"x has shape \(4, 6\): it must end in the normalized shape \(4, 5\)",
    )
    yield (
        "more normalized dimensions than x has",
        lambda: evenkeel.rms_norm(w, normalized_shape=(4, 6)),
        (ValueError),
        r"x has shape \(6,\)",
    )
    yield "no normalized dimension", lambda: evenkeel.rms_norm(w, normalized_shape=()), ValueError, "end in"
    yield "a number alone", lambda: evenkeel.rms_norm(np.float32(3)), ValueError, r"x has shape \(\)"
    yield (
        "a normalized shape that is no number",
        lambda: evenkeel.rms_norm(w, normalized_shape=("6",)),
        TypeError,
        "^normalized_shape is '6'; expected an integer",
    )
    yield (
        "integers",
        lambda: evenkeel.layer_norm(np.ones((2, 3), np.int32)),
        TypeError,
        ("x has elements of the format 'i': it must be f32, f16, bf16 or f64"),
    )
    for name, call in {
        "x": lambda: evenkeel.layer_norm(x.astype(">f4")),
        "weight": lambda: evenkeel.layer_norm(x, w.astype(">f4")),
        "out": lambda: evenkeel.layer_norm(x, out=x.astype(">f4")),
        "dy": lambda: evenkeel.rms_norm_backward(x.astype(">f4"), x, w[:4]),
    }.items():
        words = f"{name} is big-endian \\(format '>f'\\); expected native byte order: numpy.asarray\\({name}, '=f4'\\)"
        yield f"the other byte order of {name}", call, TypeError, words
    yield "the other byte order in f64", lambda: evenkeel.layer_norm(x.astype(">f8")), TypeError, r"asarray\(x, '=f8'\)"
    yield (
        "the other byte order of ctypes",
        lambda: evenkeel.layer_norm((ctypes.c_float.__ctype_be__ * 6)()),
        TypeError,
        r"x is big-endian \(format '>f'\)",
    )
    yield "integers of the other byte order", lambda: evenkeel.layer_norm(x.astype(">i4")), TypeError, "format '>i'"
    yield "complex numbers", lambda: evenkeel.layer_norm(x.astype(np.complex64)), TypeError, "format 'Zf'"
    yield "bytes", lambda: evenkeel.layer_norm(b"1234"), TypeError, "x has elements of the format 'B': it must be f32"
    yield "bytes with a result", lambda: evenkeel.layer_norm(b"1234", out=bytearray(4)), TypeError, "format 'B'"
    yield "strings", lambda: evenkeel.layer_norm(np.array(["a"])), TypeError, "format"
    yield "a number", lambda: evenkeel.layer_norm(3), TypeError, "^x is of type int" + EXPECTED
    yield "a list", lambda: evenkeel.layer_norm([[1.0, 2.0]]), TypeError, "^x is of type list" + EXPECTED
    yield "None", lambda: evenkeel.layer_norm(None), TypeError, "^x is of type NoneType" + EXPECTED
    for name, call in {
        "x": lambda: evenkeel.layer_norm([1.0], out=x, normalized_shape=1),
        "weight": lambda: evenkeel.layer_norm(x, [1.0, 2.0]),
        "bias": lambda: evenkeel.layer_norm(x, w, [1.0]),
        "out": lambda: evenkeel.layer_norm(x, out=[1.0]),
        "dy": lambda: evenkeel.layer_norm_backward([1.0], x, w[:4], w[:4]),
        "mean": lambda: evenkeel.layer_norm_backward(x, x, [1.0], w[:4]),
    }.items():
        yield f"a list as {name}", call, TypeError, f"^{name} is of type list" + EXPECTED.replace("(x", f"({name}")
    yield (
        "a list as weight with its shape",
        lambda: evenkeel.layer_norm(x, [1, 2], normalized_shape=6),
        TypeError,
        "^weight is of type list" + EXPECTED.replace("(x", "(weight"),
    )
    yield (
        "an array of a kind that cannot be made",
        lambda: evenkeel.layer_norm(with_shape(x)),
        TypeError,
        "^out must be given, or x must be an array of NumPy, CuPy or PyTorch",
    )
    yield (
        "an array of a kind that cannot be copied",
        lambda: evenkeel.layer_norm(with_shape(x.T), out=np.empty_like(x.T)),
        TypeError,
        "^one of x, weight, bias is neither contiguous nor can it be copied here; expected contiguous arrays",
    )
    yield (
        "a gradient of a kind that cannot be copied",
        lambda: evenkeel.rms_norm_backward(with_shape(np.asfortranarray(x)), x, w[:4]),
        TypeError,
        "^one of dy, x, weight, rstd is neither contiguous nor can it be copied here; expected contiguous arrays",
    )
    masked = np.ma.masked_greater(x, 0.0)
    for name, call in {
        "x": lambda: evenkeel.layer_norm(masked),
        "weight": lambda: evenkeel.layer_norm(x, masked[0]),
        "bias": lambda: evenkeel.layer_norm(x, w, masked[0]),
        "out": lambda: evenkeel.layer_norm(x, out=masked),
        "dy": lambda: evenkeel.rms_norm_backward(masked, x, w[:4]),
        "rstd": lambda: evenkeel.rms_norm_backward(x, x, masked[:, 0]),
        "mean": lambda: evenkeel.layer_norm_backward(x, x, masked[:, 0], w[:4]),
        "mean_lo": lambda: evenkeel.layer_norm_backward(x, x, w[:4], w[:4], mean_lo=masked[:, 0]),
    }.items():
        words = f"^{name} is a masked array; expected one without a mask: {name}.filled\\(0\\) or {name}.data"
        yield f"a masked array as {name}", call, TypeError, words
    for op in (evenkeel.layer_norm, evenkeel.layer_norm_forward):
        words = "^eps is None; expected a number, such as 1e-5"
        yield f"eps=None of {op.__name__}", lambda op=op: op(x, eps=None), TypeError, words
    yield (
        "weights wider than x",
        lambda: evenkeel.layer_norm(x, w.astype(np.float64)),
        TypeError,
        "^weight or bias of f64 does not go with dtype f32",
    )
    yield (
        "a bias unlike the weight",
        lambda: evenkeel.layer_norm(x, w, w.astype(np.float16)),
        TypeError,
        ("bias is f16: it must be f32, as weight"),
    )
    yield "an eps below 0", lambda: evenkeel.layer_norm(x, eps=-1), ValueError, r"eps \(-1\)"
    yield (
        "an eps that is no number",
        lambda: evenkeel.layer_norm(x, eps="1"),
        TypeError,
        "^eps is '1'; expected a number",
    )
    yield "an eps beyond f64", lambda: evenkeel.layer_norm(x, eps=10**400), ValueError, "^eps is 10+; expected a number"
    yield "threads below 0", lambda: evenkeel.layer_norm(x, threads=-1), ValueError, r"threads \(-1\)"
    for threads in (4097, 2**40, 2**80, -(2**40)):
        words = rf"^threads \({threads}\) is not in 0 to 4096"
        yield f"threads={threads}", lambda threads=threads: evenkeel.layer_norm(x, threads=threads), ValueError, words
    yield (
        "threads that are no number",
        lambda: evenkeel.layer_norm(x, threads="2"),
        TypeError,
        "^threads is '2'; expected an integer",
    )
    yield (
        "a stream that is no number",
        lambda: evenkeel.layer_norm(x, stream="0"),
        TypeError,
        "^stream is '0'; expected an integer",
    )
    yield (
        "a read-only result",
        lambda: evenkeel.layer_norm(x, out=frozen),
        ValueError,
        "out is read-only: give a writable one",
    )
    yield (
        "a result of another shape",
        lambda: evenkeel.layer_norm(x, out=x[:2]),
        ValueError,
        (r"out has shape \(2, 6\): it must have \(4, 6\)"),
    )
    yield (
        "a result of another dtype",
        lambda: evenkeel.layer_norm(x, out=x.astype("f8")),
        TypeError,
        ("out is f64: it must be f32"),
    )
    yield (
        "a scattered result",
        lambda: evenkeel.layer_norm(x, out=np.asfortranarray(x)),
        ValueError,
        (r"out has strides \(1, 4\): it must be contiguous, or rows at one distance"),
    )
    yield (
        "a result between other elements",
        lambda: evenkeel.layer_norm(x, out=records["value"]),
        ValueError,
        ("out has strides of no whole elements: it must be contiguous"),
    )
    yield (
        "a result that overlaps x",
        lambda: evenkeel.layer_norm(long[:4], out=long[1:]),
        ValueError,
        r"^out \[0x\w+, 0x\w+\) overlaps x \[0x\w+, 0x\w+\): in place means the same address",
    )
    yield (
        "a gradient of another shape",
        lambda: evenkeel.rms_norm_backward(x[:2], x, w[:4]),
        ValueError,
        (r"dy has shape \(2, 6\)"),
    )
    yield (
        "a gradient of another dtype",
        lambda: evenkeel.rms_norm_backward(x.astype("f8"), x, w[:4]),
        TypeError,
        ("dy is f64: it must be f32, as x"),
    )
    yield (
        "too few statistics",
        lambda: evenkeel.rms_norm_backward(x, x, w[:3]),
        ValueError,
        ("rstd has 3 elements: it must have 4, one for each row of x"),
    )
    yield "statistics in f16", lambda: evenkeel.rms_norm_backward(x, x, w[:4].astype("f2")), TypeError, "rstd is f16"
    yield "more dimensions than are known", lambda: forward(memoryview(x), shape=(1,) * 65), ValueError, "end in"


def with_shape(array):
    """What DLPack can read, and this package can neither make nor copy."""
    exporter = Exporter(array)
    exporter.shape = array.shape
    return exporter


def forward(x, *, norm=_core.LAYER_NORM, shape=6, stats=None, out=None):
    out = np.empty((4, 6), np.float32) if out is None else out
    return _core.forward(norm, x, shape, None, None, 0.0, stats, out, 1, None)


def backward(stats, *, norm=_core.LAYER_NORM, dx=None, dweight=None, workspace=None):
    x = array((4, 6))
    return _core.backward(norm, x, x, 6, None, stats, 0.0, dx, dweight, None, workspace, 1, None)


def core_refusals():
    x, s = array((4, 6)), np.ones(4, np.float32)
    yield "too few arguments", lambda: _core.forward(1, x), TypeError, r"forward\(\) takes 10 arguments \(2 given\)"
    yield "too few for backward", lambda: _core.backward(), TypeError, r"takes 13 arguments \(0 given\)"
    yield "too few for its workspace", lambda: _core.backward_workspace(), TypeError, "takes 7 arguments"
    yield "a norm that is no number", lambda: forward(x, norm="layer"), TypeError, "integer"
    yield "a norm that there is not", lambda: forward(x, norm=7), ValueError, r"norm \(7\)"
    yield "a norm without backward", lambda: backward(None, norm=7, dx=x), ValueError, r"norm \(7\)"
    yield "a result that x's framework cannot make", lambda: forward(x, out=True), TypeError, "out must be given"
    yield "an unwanted result", lambda: forward(x, out=False), ValueError, "^out is NULL"
    yield (
        "statistics of two rows",
        lambda: forward(x, stats=np.ones((2, 4), "f4")),
        ValueError,
        (r"stats has shape \(2, 4\): it must have \(3, 4\)"),
    )
    yield (
        "scattered statistics",
        lambda: forward(x, stats=np.ones((4, 3), "f4").T),
        ValueError,
        (r"stats has strides \(1, 3\): it must be contiguous"),
    )
    yield (
        "one statistic of LayerNorm",
        lambda: backward((s,), dx=x),
        ValueError,
        ("stats has 1 tensors: it must have 2 or 3, mean, rstd and mean_lo"),
    )
    yield "two statistics of RMSNorm", lambda: backward((s, s), norm=2, dx=x), ValueError, "it must have 1, rstd"
    yield "statistics as a vector", lambda: backward(s, dx=x), ValueError, r"stats has shape \(4,\)"
    yield "statistics as a number", lambda: backward(np.float32(1), dx=x), ValueError, r"stats has shape \(\)"
    yield "statistics in f64", lambda: backward(np.ones((3, 4)), dx=x), TypeError, "stats is f64"
    yield "no statistic but a list", lambda: backward(([1], s), dx=x), TypeError, "mean is of type"
    yield "a bad second statistic", lambda: backward((s, s[:1], s), dx=x), ValueError, "rstd has 1 elements"
    yield "a bad third statistic", lambda: backward((s, s, s[:1]), dx=x), ValueError, "mean_lo has 1 elements"
    yield (
        "a workspace too small",
        lambda: backward(None, dweight=s.repeat(2)[:6], workspace=s[:0]),
        ValueError,
        ("workspace"),
    )
    yield (
        "a scattered workspace",
        lambda: backward(None, dweight=np.ones(6, "f4"), workspace=np.ones((9, 9)).T[1:]),
        (ValueError),
        r"workspace has strides \(1, 9\): it must be contiguous",
    )
    yield (
        "a read-only workspace",
        lambda: backward(None, dweight=np.ones(6, "f4"), workspace=memoryview(bytes(64)).cast("f")),
        (ValueError),
        "workspace is read-only: give a writable one",
    )
    yield "a list as workspace", lambda: backward(None, dweight=np.ones(6, "f4"), workspace=[]), TypeError, "workspace"


CASES = [*refusals(), *core_refusals()]


@pytest.mark.parametrize(("call", "exception", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_refused(call, exception, words):
    with pytest.raises(exception, match=words):
        call()


def test_a_refused_call_writes_nothing():
    out = np.full((4, 6), 7, np.float32)
    with pytest.raises(ValueError, match="eps"):
        evenkeel.layer_norm(array((4, 6)), eps=float("nan"), out=out)
    assert (out == 7).all()


def test_read_only_inputs_are_fine():
    x = array((4, 6))
    expected = evenkeel.layer_norm(x)
    x.flags.writeable = False
    assert (evenkeel.layer_norm(x) == expected).all()


def test_without_eps_rms_norm_takes_that_of_f32():
    x = array((4, 6))
    assert (evenkeel.rms_norm(x, eps=None) == evenkeel.rms_norm(x, eps=np.finfo(np.float32).eps)).all()


# ---- what is around the process ----


def run_python(script, **environment):
    """What a script prints in a process of its own."""
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


BAD_LEVEL = """
import array, warnings
{imports}
warnings.simplefilter("error")
for _ in range(2):
    try:
        {call}
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
LEVEL_CALLS = {  # import, call
    "NumPy": ("import evenkeel", 'evenkeel.layer_norm(array.array("f", [1, 2]))'),
    "info": ("import evenkeel", "evenkeel.info()"),
    "PyTorch": ("import torch, evenkeel.torch", "evenkeel.torch.layer_norm(torch.ones(2, 8), (8,))"),
    "PyTorch with a gradient": (
        "import torch, evenkeel.torch",
        "evenkeel.torch.RMSNorm(8)(torch.ones(2, 8, requires_grad=True))",
    ),
}


@pytest.mark.parametrize("name", LEVEL_CALLS)
def test_a_level_of_the_environment_that_does_not_exist_is_an_error_of_every_call(name):
    imports, call = LEVEL_CALLS[name]
    if "torch" in imports and not find_spec("torch"):
        pytest.skip("no PyTorch")
    printed = run_python(BAD_LEVEL.format(imports=imports, call=call), EVENKEEL_ISA="sse9")
    expected = 'RuntimeError $EVENKEEL_ISA "sse9" is unknown; expected reference, scalar, '
    assert [line.startswith(expected) for line in printed.splitlines()] == [True, True], printed


NO_PYTORCH = """
import sys
sys.path.insert(0, {folder!r})
try:
    import {module}
except ModuleNotFoundError as error:
    print(error.name, error)
"""
PYTORCH_MODULES = ["evenkeel.torch", "evenkeel.compat.quack", "evenkeel.compat.fused_layernorm"]


def without_pytorch(module, folder, source):
    """What importing says where PyTorch is this source."""
    (folder / "torch.py").write_text(source)
    return run_python(NO_PYTORCH.format(folder=str(folder), module=module)).strip()


@pytest.mark.parametrize("module", PYTORCH_MODULES)
def test_a_missing_pytorch_is_named_with_what_to_install(module, tmp_path):
    missing = 'raise ModuleNotFoundError("No module named \'torch\'", name="torch")'
    words = "torch evenkeel.torch needs PyTorch, which is not installed: pip install torch"
    assert without_pytorch(module, tmp_path, missing) == words


def test_a_broken_pytorch_keeps_its_own_error(tmp_path):
    assert without_pytorch("evenkeel.torch", tmp_path, "import torch_part") == "torch_part No module named 'torch_part'"
