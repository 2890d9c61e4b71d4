"""What is refused, with which exception and words; nothing is written then. SPDX-License-Identifier: MIT"""

import ctypes
import inspect
import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import evenkeel
from evenkeel import _core, layer_norm, layer_norm_forward, rms_norm, rms_norm_backward
from frameworks import Exporter
from processes import run_python
from reference import array

X, W = array((4, 6)), array((6,))
S = W[:4]  # statistics of X

# ---- each operand of each op ----

OPS = [getattr(evenkeel, name) for name in evenkeel.__all__ if "norm" in name and "rope" not in name]
SHAPES = dict.fromkeys(("x", "dy", "out", "residual", "residual_after", "gate", "dh"), (4, 6))
SHAPES |= dict.fromkeys(("weight", "bias", "x_bias"), (6,)) | dict.fromkeys(("mean", "rstd", "mean_lo"), (4,))


def operands(op):
    """One array for each operand in the op's signature."""
    parameters = inspect.signature(op).parameters.values()
    return {p.name: array(SHAPES[p.name]) for p in parameters if p.annotation in (Any, Any | None)}


MISTAKES = {  # what is made of an operand, the exception, its words
    "a list": (
        np.ndarray.tolist,
        TypeError,
        "{0} is of type list; expected an array with DLPack or the buffer protocol, such as "
        "numpy.asarray({0}, 'float32')",
    ),
    "a masked array": (
        lambda array: np.ma.masked_greater(array, 0.0),
        TypeError,
        "{0} is a masked array; expected one without a mask: {0}.filled(0) or {0}.data",
    ),
    "the other byte order": (
        lambda array: array.astype(">f4"),
        TypeError,
        "{0} is big-endian (format '>f'); expected native byte order: numpy.asarray({0}, '=f4')",
    ),
    "integers": (
        lambda array: array.astype(np.int32),
        TypeError,
        "{0} has elements of the format 'i': it must be f32, f16, bf16 or f64",
    ),
    "another dtype": (lambda array: array.astype("f8"), TypeError, "{0} is f64: it must be f32"),
}
# These may have another dtype, and this is not one of those.
OF_DTYPE = {"dy": "y or dy of f64 does not go with dtype f32", "residual": "residual of f64 does not go with dtype f32"}
OF_SHAPE = {
    (4, 6): "{0} has shape (4, 5): it must have (4, 6)",
    (6,): "{0} has shape (5,): it must have (6,)",
    (4,): "{0} has 3 elements: it must have 4, one for each row of x",
}


def refuses(op, name, value, exception, words, shapes=(6, None)):
    given = operands(op) | {name: value}
    given.pop("residual" if name == "residual_after" else "residual_after", None)  # a call has one of them
    name = name.removesuffix("_after")
    out = np.array(given.get("out", 0.0))
    for shape in shapes:
        with pytest.raises(exception, match="^" + re.escape(words.format(name))):
            op(**given, normalized_shape=shape)
    assert np.array_equal(out, given.get("out", 0.0))


every_operand = pytest.mark.parametrize(("op", "name"), [(op, name) for op in OPS for name in operands(op)])


@pytest.mark.parametrize("mistake", MISTAKES)
@every_operand
def test_a_wrong_operand_is_named_and_nothing_is_written(op, name, mistake):
    is_converted = name == "gate" and op in (evenkeel.layer_norm_gated, evenkeel.rms_norm_gated)
    if mistake != "another dtype" or not (is_converted or name in ("x", "weight")):  # with which the others must go
        spoil, exception, words = MISTAKES[mistake]
        words = OF_DTYPE.get(name.removesuffix("_after"), words) if mistake == "another dtype" else words
        refuses(op, name, spoil(operands(op)[name]), exception, words)


@every_operand
def test_an_operand_of_another_shape_is_named_with_its_shape(op, name):
    words = OF_SHAPE[SHAPES[name]] if name != "x" else "x has shape (4, 5): it must end in the normalized shape (6,)"
    refuses(op, name, operands(op)[name][..., :-1], ValueError, words, shapes=(6,))


@every_operand
def test_an_operand_of_a_dimension_more_is_named_with_its_shape(op, name):
    shape = SHAPES[name]
    if name != "x" and shape != (4,):  # the rows of x and of statistics may have any shape
        words = f"{{0}} has shape {(1, *shape)}: it must have {shape}"
        refuses(op, name, operands(op)[name][None], ValueError, words, shapes=(6,))


# ---- other arguments, and arrays that only one op refuses ----

FROZEN = np.zeros((4, 6), np.float32)
FROZEN.flags.writeable = False
LONG = array((5, 6))
RECORDS = np.zeros((4, 6), [("value", "f4"), ("tag", "i2")])


def with_shape(array):
    """What DLPack can read, and this package can neither make nor copy."""
    exporter = Exporter(array)
    exporter.shape = array.shape
    return exporter


def forward(x=X, *, norm=_core.LAYER_NORM, shape=6, stats=None, out=None):
    out = np.empty((4, 6), np.float32) if out is None else out
    return _core.forward(norm, x, shape, None, None, 0.0, stats, out, 1, None)


def backward(stats, *, norm=_core.LAYER_NORM, dx=None, dweight=None, workspace=None):
    return _core.backward(norm, X, X, 6, None, stats, 0.0, dx, dweight, None, workspace, 1, None)


def backward_in(workspace):
    return backward(None, dweight=np.ones(6, "f4"), workspace=workspace)


REFUSED = {
    ValueError: {
        r"^x has shape \(4, 6\): it must end in the normalized shape \(4, 5\)": lambda: layer_norm(
            X, normalized_shape=(4, 5)
        ),
        r"^x has shape \(6,\): it must end in": lambda: rms_norm(W, normalized_shape=(4, 6)),
        r"it must end in the normalized shape \(\)": lambda: rms_norm(W, normalized_shape=()),
        r"it must end in the normalized shape \(1, 1, ": lambda: forward(memoryview(X), shape=(1,) * 65),
        r"^x has shape \(\): it must end in": lambda: rms_norm(np.float32(3)),
        r"eps \(-1\)": lambda: layer_norm(X, eps=-1),
        "^eps is 10+; expected a number": lambda: layer_norm(X, eps=10**400),
        r"threads \(-1\)": lambda: layer_norm(X, threads=-1),
        r"^threads \(4097\) is not in 0 to 4096": lambda: layer_norm(X, threads=4097),
        rf"^threads \({2**40}\) is not in 0 to 4096": lambda: layer_norm(X, threads=2**40),
        rf"^threads \({2**80}\) is not in 0 to 4096": lambda: layer_norm(X, threads=2**80),
        rf"^threads \({-(2**40)}\) is not in 0 to 4096": lambda: layer_norm(X, threads=-(2**40)),
        "^out is read-only: give a writable one": lambda: layer_norm(X, out=FROZEN),
        r"^out has strides \(1, 4\): it must be contiguous, or rows at one distance": lambda: layer_norm(
            X, out=np.asfortranarray(X)
        ),
        "^out has strides of no whole elements: it must be contiguous": lambda: layer_norm(X, out=RECORDS["value"]),
        "^out overlaps x: in place means the same address": lambda: layer_norm(LONG[:4], out=LONG[1:]),
        "^out is None": lambda: forward(out=False),
        r"norm \(7\)": lambda: forward(norm=7),
        r"norm \(7\).*": lambda: backward(None, norm=7, dx=X),
        r"^stats has shape \(2, 4\): it must have \(3, 4\)": lambda: forward(stats=np.ones((2, 4), "f4")),
        r"^stats has strides \(1, 3\): it must be contiguous": lambda: forward(stats=np.ones((4, 3), "f4").T),
        "^stats has 1 tensors: it must have 2 or 3, mean, rstd and mean_lo": lambda: backward((S,), dx=X),
        "^stats has 2 tensors: it must have 1, rstd": lambda: backward((S, S), norm=2, dx=X),
        r"^stats has shape \(4,\)": lambda: backward(S, dx=X),
        r"^stats has shape \(\)": lambda: backward(np.float32(1), dx=X),
        r"^workspace_size \(0\) is smaller than what ek_norm_backward_workspace asks for": lambda: backward_in(S[:0]),
        r"^workspace has strides \(1, 9\): it must be contiguous": lambda: backward_in(np.ones((9, 9)).T[1:]),
        "^workspace is read-only: give a writable one": lambda: backward_in(memoryview(bytes(64)).cast("f")),
    },
    TypeError: {
        "^normalized_shape is '6'; expected an integer": lambda: rms_norm(W, normalized_shape=("6",)),
        r"asarray\(x, '=f8'\)": lambda: layer_norm(X.astype(">f8")),
        r"^x is big-endian \(format '>f'\)": lambda: layer_norm((ctypes.c_float.__ctype_be__ * 6)()),
        "format '>i'": lambda: layer_norm(X.astype(">i4")),
        "format 'Zf'": lambda: layer_norm(X.astype(np.complex64)),
        "^x has elements of the format 'B': it must be f32": lambda: layer_norm(b"1234"),
        "format 'B'": lambda: layer_norm(b"1234", out=bytearray(4)),
        "format '1w'": lambda: layer_norm(np.array(["a"])),
        "^x is of type int; expected an array": lambda: layer_norm(3),
        "^x is of type NoneType; expected an array": lambda: layer_norm(None),
        "^x is of type list; expected an array": lambda: layer_norm([1.0], out=X, normalized_shape=1),
        "^out must be given, or x must be an array of NumPy, CuPy or PyTorch": lambda: layer_norm(with_shape(X)),
        "^x is neither contiguous nor can it be copied here; expected": lambda: layer_norm(
            with_shape(X.T), out=np.empty_like(X.T)
        ),
        "^dy or x or rstd is neither contiguous nor can it be copied": lambda: rms_norm_backward(
            with_shape(np.asfortranarray(X)), X, S
        ),
        "^eps is None; expected a number, such as 1e-5": lambda: layer_norm(X, eps=None),
        "^eps is None; expected a number, such": lambda: layer_norm_forward(X, eps=None),
        "^eps is '1'; expected a number": lambda: layer_norm(X, eps="1"),
        "^weight or bias of f64 does not go with dtype f32": lambda: layer_norm(X, W.astype(np.float64)),
        "^bias is f16: it must be f32, as weight": lambda: layer_norm(X, W, W.astype(np.float16)),
        "^threads is '2'; expected an integer": lambda: layer_norm(X, threads="2"),
        "^stream is '0'; expected an integer": lambda: layer_norm(X, stream="0"),
        "^rstd is f16": lambda: rms_norm_backward(X, X, S.astype("f2")),
        r"forward\(\) takes 10 arguments \(2 given\)": lambda: _core.forward(1, X),
        r"backward\(\) takes 13 arguments \(0 given\)": lambda: _core.backward(),
        r"backward_workspace\(\) takes 7 arguments": lambda: _core.backward_workspace(),
        "integer": lambda: forward(norm="layer"),
        "^out must be given": lambda: forward(out=True),
        "^stats is f64": lambda: backward(np.ones((3, 4)), dx=X),
        "^mean is of type": lambda: backward(([1], S), dx=X),
        "^workspace is of type list": lambda: backward_in([]),
    },
}


@pytest.mark.parametrize(("exception", "words"), [(kind, words) for kind in REFUSED for words in REFUSED[kind]])
def test_refused(exception, words):
    with pytest.raises(exception, match=words):
        REFUSED[exception][words]()


def test_a_value_that_is_refused_leaves_out_as_it_is():
    out = np.full((4, 6), 7, np.float32)
    with pytest.raises(ValueError, match="eps"):
        layer_norm(X, eps=float("nan"), out=out)
    assert (out == 7).all()


def test_read_only_inputs_are_fine():
    frozen = X.copy()
    frozen.flags.writeable = False
    assert (layer_norm(frozen) == layer_norm(X)).all()


def test_without_eps_rms_norm_takes_that_of_f32():
    assert (rms_norm(X, eps=None) == rms_norm(X, eps=np.finfo(np.float32).eps)).all()


# ---- what is around the process ----

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


def test_a_choice_of_any_length_is_translated_whole():
    """No call has one of two digits: the name of a level stands in for such a message."""
    imports, call = LEVEL_CALLS["info"]
    printed = run_python(BAD_LEVEL.format(imports=imports, call=call), EVENKEEL_ISA="activation (-77) rounding is -12")
    assert '"activation (None) rounding is None" is unknown' in printed


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
    return run_python(NO_PYTORCH.format(folder=str(folder), module=module))


@pytest.mark.parametrize("module", PYTORCH_MODULES)
def test_a_missing_pytorch_is_named_with_what_to_install(module, tmp_path):
    missing = 'raise ModuleNotFoundError("No module named \'torch\'", name="torch")'
    words = "torch evenkeel.torch needs PyTorch, which is not installed: pip install torch"
    assert without_pytorch(module, tmp_path, missing) == words


def test_a_broken_pytorch_keeps_its_own_error(tmp_path):
    assert without_pytorch("evenkeel.torch", tmp_path, "import torch_part") == "torch_part No module named 'torch_part'"
