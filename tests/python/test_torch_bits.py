"""Eager PyTorch gives the bits of the C reference, whatever is computed beside them. SPDX-License-Identifier: MIT"""

import pickle

import numpy as np
import pytest
import torch

import evenkeel
import evenkeel.torch as ek
from reference import array
from torch_cases import (
    DEVICE,
    DTYPES,
    both_norms,
    cpu_only,
    every_dtype,
    every_norm,
    gradients,
    run_python,
    same_bits,
    tensor,
)

SHAPES = [(1, 1), (7, 33), (70, 129), (3, 4097), (5, 8192)]


def reference_results():
    """What the library itself computes from NumPy's arrays; run below in a process that has the reference alone."""
    assert evenkeel.info()["level"] == "reference"
    results = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            x, dy = array(shape, dtype, 1, offset=2.0), array(shape, dtype, 2)
            w, b = array(shape[-1:], dtype, 3), array(shape[-1:], dtype, 4)
            y, mean, rstd, mean_lo = evenkeel.layer_norm_forward(x, w, b, return_mean_lo=True)
            layer = y, *evenkeel.layer_norm_backward(dy, x, mean, rstd, w, mean_lo=mean_lo)
            y, rstd = evenkeel.rms_norm_forward(x, w)
            rms = y, *evenkeel.rms_norm_backward(dy, x, rstd, w)
            results[dtype, shape] = [a.tobytes() for a in (*layer, *rms)]
    return results


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "results"
    script = f"import pickle, test_torch_bits as t; pickle.dump(t.reference_results(), open({str(path)!r}, 'wb'))"
    run_python(script, EVENKEEL_ISA="reference")
    return pickle.loads(path.read_bytes())


def operand(shape, dtype, seed, offset=0.0):
    """array() of NumPy, as a tensor."""
    values = array(shape, dtype, seed, offset=offset)
    return torch.from_numpy(values.view(np.uint8).reshape(-1)).view(DTYPES[dtype]).reshape(shape).to(DEVICE)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_dtype
def test_forward_and_backward_have_the_bits_of_the_reference(dtype, shape, reference):
    x, dy = operand(shape, dtype, 1, 2.0).requires_grad_(), operand(shape, dtype, 2)
    w, b = (operand(shape[-1:], dtype, seed).requires_grad_() for seed in (3, 4))
    y = ek.layer_norm(x, shape[-1:], w, b)
    results = [y, *torch.autograd.grad(y, (x, w, b), dy)]
    y = ek.rms_norm(x, shape[-1:], w)
    results += [y, *torch.autograd.grad(y, (x, w), dy)]
    for result, expected in zip(results, reference[dtype, shape], strict=True):
        assert result.detach().cpu().view(torch.uint8).numpy().tobytes() == expected


@pytest.mark.parametrize("cols", [1, 40, 1000, 5000])
@every_dtype
@both_norms
def test_a_row_alone_is_the_row_of_a_batch(norm, dtype, cols):
    x, dy = tensor((37, cols), dtype, offset=1.0), tensor((37, cols), dtype, seed=1)
    weight, bias = norm.affine((cols,), dtype)

    def both(rows):
        leaf = x[rows].detach().requires_grad_()
        y = norm.ours(leaf, (cols,), weight, bias)
        y.backward(dy[rows])
        return y, leaf.grad

    batch = both(slice(None))
    for rows in (slice(0, 1), slice(36, 37), slice(5, 8), slice(0, 20)):
        assert all(same_bits(part, whole[rows]) for part, whole in zip(both(rows), batch, strict=True))


@cpu_only
@every_norm
def test_bits_do_not_depend_on_the_number_of_threads(norm, threads):
    x, dy = tensor((300, 1000)), tensor((300, 1000), seed=1)
    weight, bias = norm.affine((1000,))

    def everything(count):
        threads(count)
        y = norm.ours(x, (1000,), weight, bias)
        found = gradients(lambda x, w, b: norm.ours(x, (1000,), w, b), (x, weight, bias), dy)
        return [y, *(t for t in found if t is not None)]

    one = everything(1)
    for count in (2, 3, 7):
        assert all(map(same_bits, everything(count), one))


@both_norms
def test_bits_do_not_depend_on_which_gradients_are_wanted(norm):
    x, dy = tensor((50, 300)), tensor((50, 300), seed=1)
    weight, bias = norm.affine((300,))
    operands = [t for t in (x, weight, bias) if t is not None]

    def wanted(indices):
        leaves = [t.detach().requires_grad_(i in indices) for i, t in enumerate(operands)]
        y = norm.ours(leaves[0], (300,), *leaves[1:])
        return torch.autograd.grad(y, [leaves[i] for i in indices], dy)

    everything = wanted(range(len(operands)))
    for i in range(len(operands)):
        assert same_bits(wanted([i])[0], everything[i])


def test_bits_do_not_change_from_run_to_run():
    operands, dy = (tensor((500, 700)), tensor((700,), seed=1), tensor((700,), seed=2)), tensor((500, 700), seed=3)

    def run():
        return gradients(lambda x, w, b: ek.layer_norm(x, (700,), w, b), operands, dy)

    first = run()
    assert all(all(map(same_bits, run(), first)) for _ in range(5))


def test_the_modules_compute_what_the_functions_do():
    x = tensor((6, 40))
    for module in (ek.LayerNorm(40, device=DEVICE), ek.RMSNorm(40, device=DEVICE)):
        torch.nn.init.normal_(module.weight)
        function = ek.layer_norm if isinstance(module, ek.LayerNorm) else ek.rms_norm
        operands = (module.weight, module.bias) if isinstance(module, ek.LayerNorm) else (module.weight,)
        assert same_bits(module(x), function(x, (40,), *operands, module.eps))
