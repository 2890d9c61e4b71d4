"""The same mistakes raise what PyTorch raises, in its words, and compute nothing. SPDX-License-Identifier: MIT"""

import itertools

import pytest
import torch

import evenkeel.torch as ek
from torch_cases import DEVICE, DTYPES, cpu_only, tensor

OTHER = "meta"  # a device that is always there, and not the one of the tests

# Every mistake as a call of op(x, shape, weight, eps); LayerNorm's bias has its own below.
MISTAKES = {
    "another last dimension": lambda op, x: op(x, (7,)),
    "two dimensions in the wrong order": lambda op, x: op(x[:, :6].reshape(4, 2, 3), (3, 2)),
    "more dimensions than there are": lambda op, x: op(x, (2, 4, 8)),
    "a negative dimension": lambda op, x: op(x, (-1,)),
    "no normalized dimension": lambda op, x: op(x, ()),
    "no normalized dimension, as a list": lambda op, x: op(x, []),
    "a number of no dimension": lambda op, x: op(x[0, 0], (1,)),
    "a shape that is a number": lambda op, x: op(x, 8),
    "a shape that is text": lambda op, x: op(x, "8"),
    "a shape that is nothing": lambda op, x: op(x, None),
    "a shape that is an iterator": lambda op, x: op(x, iter((8,))),
    "a shape that is a tensor": lambda op, x: op(x, torch.tensor([8])),
    "a shape of fractions": lambda op, x: op(x, (8.0,)),
    "a shape of text": lambda op, x: op(x, ("8",)),
    "a longer weight": lambda op, x: op(x, (8,), torch.ones(9, device=DEVICE)),
    "a weight of more dimensions": lambda op, x: op(x, (8,), torch.ones(1, 8, device=DEVICE)),
    "a weight that is a number": lambda op, x: op(x, (8,), torch.tensor(1.0, device=DEVICE)),
    "a weight on another device": lambda op, x: op(x, (8,), torch.ones(8, device=OTHER)),
    "x on another device": lambda op, x: op(torch.ones(4, 8, device=OTHER), (8,), x[0]),
    "a weight of integers": lambda op, x: op(x, (8,), torch.ones(8, dtype=torch.int64, device=DEVICE)),
    "x of integers": lambda op, x: op(torch.ones(4, 8, dtype=torch.int64, device=DEVICE), (8,)),
    "x of truth values": lambda op, x: op(torch.ones(4, 8, dtype=torch.bool, device=DEVICE), (8,)),
    "x of complex numbers": lambda op, x: op(torch.ones(4, 8, dtype=torch.complex64, device=DEVICE), (8,)),
    "x of 8 bits": lambda op, x: op(x.to(torch.float8_e4m3fn), (8,)),
    "a sparse x": lambda op, x: op(x.to_sparse(), (8,)),
    "an x of sparse rows": lambda op, x: op(x.to_sparse_csr(), (8,)),
    "a sparse weight": lambda op, x: op(x, (8,), x[0].to_sparse()),
    "a quantized x": lambda op, x: op(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), (8,)),
    "an x in the layout of mkldnn": lambda op, x: op(x.cpu().to_mkldnn(), (8,)),
    "a nested x without weights": lambda op, x: op(torch.nested.nested_tensor([x, x[:2]]), (8,)),
    "an x that is nothing": lambda op, x: op(None, (8,)),
    "an x that is a list": lambda op, x: op([1.0, 2.0], (2,)),
    "an x of NumPy": lambda op, x: op(x.cpu().numpy(), (8,)),
    "a weight that is a list": lambda op, x: op(x, (8,), [1.0] * 8),
    "an eps that is text": lambda op, x: op(x, (8,), None, "small"),
    "an eps that is nothing": lambda op, x: op(x, (8,), None, None),
    "an eps of complex numbers": lambda op, x: op(x, (8,), None, 1j),
}


def layer_norm(library):
    return lambda x, shape, weight=None, eps=1e-5: library.layer_norm(x, shape, weight, None, eps)


def rms_norm(library):
    return lambda x, shape, weight=None, eps=None: library.rms_norm(x, shape, weight, eps)


def outcome(call):
    """The exception with the first line of its text, or the dtype and shape of the result."""
    try:
        y = call()
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    return y.dtype, y.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("make", [layer_norm, rms_norm])
def test_a_mistake_is_what_it_is_in_pytorch(make, mistake, recorded):
    x = tensor((4, 8)).requires_grad_(recorded)
    expected = outcome(lambda: MISTAKES[mistake](make(torch.nn.functional), x))
    assert outcome(lambda: MISTAKES[mistake](make(ek), x)) == expected
    if make is layer_norm:
        assert issubclass(expected[0], Exception)


BIASES = {
    "longer": lambda: torch.ones(9, device=DEVICE),
    "on another device": lambda: torch.ones(8, device=OTHER),
    "of another dtype": lambda: torch.ones(8, dtype=torch.float64, device=DEVICE),
    "a list": lambda: [0.0] * 8,
}


@pytest.mark.parametrize("bias", BIASES)
def test_a_wrong_bias_is_what_it_is_in_pytorch(bias):
    x = tensor((4, 8))

    def call(library):
        return lambda: library.layer_norm(x, (8,), x[0], BIASES[bias]())

    expected = outcome(call(torch.nn.functional))
    assert issubclass(expected[0], Exception) and outcome(call(ek)) == expected


@cpu_only  # on GPUs PyTorch refuses float32 weights beside 16-bit tensors, and evenkeel does not
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [layer_norm, rms_norm])
def test_dtypes_go_together_as_in_pytorch(make):
    for dtype, weight_dtype in itertools.product(DTYPES, DTYPES):
        x, weight = tensor((4, 8), dtype), tensor((8,), weight_dtype)
        expected = outcome(lambda x=x, weight=weight: make(torch.nn.functional)(x, (8,), weight))
        assert outcome(lambda x=x, weight=weight: make(ek)(x, (8,), weight)) == expected, (dtype, weight_dtype)


@cpu_only
def test_so_do_those_of_weight_and_bias():
    for dtypes in itertools.product(DTYPES, DTYPES, DTYPES):
        x, weight, bias = (tensor(shape, dtype) for shape, dtype in zip(((4, 8), (8,), (8,)), dtypes, strict=True))

        def call(library, operands=(x, (8,), weight, bias)):
            return library.layer_norm(*operands)

        assert outcome(lambda call=call: call(ek)) == outcome(lambda call=call: call(torch.nn.functional)), dtypes


def test_a_wrong_gradient_is_refused():
    y = ek.layer_norm(tensor((4, 8)).requires_grad_(), (8,))
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        y.backward(torch.ones(4, 7, device=DEVICE))
