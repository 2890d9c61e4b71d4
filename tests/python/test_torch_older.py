"""A PyTorch without DLPack's C exchange API: tensors are read in the way of Python. SPDX-License-Identifier: MIT"""

import os
import subprocess
import sys

import pytest
import torch

import evenkeel.torch as ek
from evenkeel.torch import _kernels
from torch_cases import LAYER, RMS, gradients, leave_calls_to_python, require_gradients, same_bits, tensor

pytestmark = pytest.mark.skipif(not _kernels.HAS_EXCHANGE, reason="every test goes this way on this PyTorch")

# Hung on the type by PyTorch from 2.10 on, and looked up there by the extension.
WITHOUT = "import torch, sys, pytest; del torch.Tensor.__dlpack_c_exchange_api__; sys.exit(pytest.main(sys.argv[1:]))"
FILES = ("test_torch_values.py", "test_torch_gradients.py", "test_torch_errors.py", "test_torch_explicit.py")


@pytest.mark.slow
def test_everything_else_is_as_with_it():
    folder = os.path.dirname(__file__)
    command = [sys.executable, "-c", WITHOUT, "-q", "-p", "no:cacheprovider", *FILES]
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stdout
    assert "passed" in result.stdout and "failed" not in result.stdout


@pytest.fixture
def way_of_python(monkeypatch):
    """From its call on, tensors are read as if PyTorch had no exchange API, and no call is served in C."""

    def take():
        monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
        leave_calls_to_python(monkeypatch)

    return take


@pytest.mark.parametrize("norm", [LAYER, RMS], ids=str)
def test_bits_are_the_same_in_both_ways(norm, way_of_python):
    operands, dy = (tensor((60, 40)), *norm.affine((40,))), tensor((60, 40), seed=1)

    def both():
        y = norm.ours(operands[0], (40,), *operands[1:])
        found = gradients(lambda *o: norm.ours(o[0], (40,), *o[1:]), operands, dy)
        return [y, *(g for g in found if g is not None)]

    expected = both()
    way_of_python()
    assert all(map(same_bits, both(), expected))


def test_no_gradient_is_recorded_on_the_way(way_of_python):
    way_of_python()
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    y, stats = _kernels.forward(_kernels.LAYER_NORM, x, (40,), weight, None, 1e-5, True)
    assert not y.requires_grad and not stats.requires_grad and torch.isfinite(y).all()


def test_explicit_functions_read_tensors_that_need_gradients(way_of_python):
    way_of_python()
    x, w, dy = require_gradients(tensor((6, 40)), tensor((40,), seed=1), tensor((6, 40), seed=2))
    _, mean, rstd = ek.layer_norm_forward(x, w)
    found = ek.layer_norm_backward(dy, x, mean.requires_grad_(), rstd.requires_grad_(), w)
    assert all(gradient is not None and not gradient.requires_grad for gradient in found)


def test_a_gradient_without_memory_of_its_own_is_refused(way_of_python):
    way_of_python()
    x = tensor((6, 40))
    _, mean, rstd = ek.layer_norm_forward(x)
    batched = torch._vmap_internals._vmap(lambda dy: ek.layer_norm_backward(dy, x, mean, rstd).dx)
    with pytest.raises(TypeError, match="it has no memory of its own"):
        batched(tensor((2, 6, 40)))


@pytest.mark.slow
def test_one_that_is_too_old_is_refused():
    script = "import torch; torch.__version__ = '2.3.1+cpu'; import evenkeel.torch"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ImportError: PyTorch is 2.3.1+cpu: evenkeel.torch needs 2.4 or newer" in result.stderr
