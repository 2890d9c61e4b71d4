"""What the tests of evenkeel.compat share: operands, references in float64, and a fixture that forbids fallbacks.
SPDX-License-Identifier: MIT"""

import pytest
import torch

import evenkeel.torch
from reference import array, close

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(autouse=True)
def nothing_is_left_to_pytorch():
    before = evenkeel.torch.set_fallback("error")
    yield
    evenkeel.torch.set_fallback(before)


def tensor(shape, dtype="f32", seed=0, grad=False):
    return torch.from_numpy(array(shape, "f64", seed)).to(DTYPES[dtype]).requires_grad_(grad)


def wide(*tensors):
    """The same values in float64, as leaves of a graph of their own."""
    return [None if t is None else t.detach().double().requires_grad_() for t in tensors]


def check(result, expected, dtype):
    close(result.detach().double(), expected.detach(), dtype)


def check_gradients(out, reference, inputs, references, dtypes):
    """Backward of both from the same dy; a gradient has the dtype of what it is for."""
    dy = tensor(out.shape, "f32", 9).to(out.dtype)
    out.backward(dy)
    reference.backward(dy.double())
    for given, exact, dtype in zip(inputs, references, dtypes, strict=True):
        if given is not None:
            assert given.grad.dtype is given.dtype
            check(given.grad, exact.grad, dtype)
