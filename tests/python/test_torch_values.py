"""The norms of evenkeel.torch against torch.nn.functional in float64: shapes, dtypes, layouts, operands.
SPDX-License-Identifier: MIT"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import evenkeel.torch as ek
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    NORMS,
    both_norms,
    close,
    every_dtype,
    every_norm,
    require_gradients,
    same_bits,
    strided,
    tensor,
    wide,
)

SHAPES = [((5,), 1), ((3, 64), 1), ((2, 3, 100), 1), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 4), ((1, 1), 1), ((1, 2049), 1)]


def check(norm, x, shape, weight, bias, eps=1e-5):
    """With autograd and without it, the result is that of float64."""
    expected = norm.theirs(wide(x)[0], shape, *wide(weight, bias), eps)
    y = norm.ours(x, shape, weight, bias, eps)
    assert type(y) is torch.Tensor and y.dtype == x.dtype and y.device == x.device
    assert y.is_contiguous() or (norm.op == "rms_norm" and y.stride() == x.stride())  # of channels_last
    close(y, expected)
    recorded = norm.ours(x.detach().requires_grad_(), shape, weight, bias, eps)
    assert recorded.requires_grad and same_bits(recorded, y)


@every_dtype
@every_norm
def test_any_operands_in_any_dtype(norm, dtype):
    check(norm, tensor((4, 3, 40), dtype), (40,), *norm.affine((40,), dtype))


@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
@both_norms
def test_any_number_of_dimensions(norm, shape, dims):
    normalized = shape[len(shape) - dims :]
    check(norm, tensor(shape), normalized, *norm.affine(normalized))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@every_norm
def test_f32_weights_go_with_16_bit_activations(norm, dtype):
    check(norm, tensor((6, 40), dtype), (40,), *norm.affine((40,), "f32"))


@pytest.mark.parametrize("eps", [0.0, 1e-12, 0.5, 3], ids=str)
@both_norms
def test_any_eps(norm, eps):
    check(norm, tensor((6, 40)), (40,), *norm.affine((40,)), eps)


@every_dtype
def test_rms_norm_without_eps_is_pytorch_s(dtype):
    x = tensor((3, 8), dtype, scale=1e-3 if dtype != "f64" else 1e-8)
    close(ek.rms_norm(x, (8,)), torch.nn.functional.rms_norm(x, (8,)))


@pytest.mark.parametrize("kind", [list, tuple, torch.Size])
def test_the_shape_may_be_any_kind_of_list(kind):
    x = tensor((2, 3, 4))
    assert same_bits(ek.layer_norm(x, kind((3, 4))), ek.layer_norm(x, (3, 4)))


LAYOUTS = {
    "transposed": lambda: tensor((40, 6)).t(),
    "leading dimensions swapped": lambda: tensor((5, 3, 40)).transpose(0, 1),
    "channels last": lambda: tensor((2, 5, 3, 40)).to(memory_format=torch.channels_last),
    "expanded rows": lambda: tensor((1, 40)).expand(7, 40),
    "expanded columns": lambda: tensor((7, 1)).expand(7, 40),
    "one number everywhere": lambda: tensor((1, 1)).expand(7, 40),
    "columns of a wider matrix": lambda: tensor((7, 60))[:, 11:51],
    "every other column": lambda: tensor((7, 80))[:, ::2],
    "every third row": lambda: tensor((21, 40))[::3],
    "rows from an odd element": lambda: tensor((281,))[1:].view(7, 40),
    "windows that overlap": lambda: tensor((100,)).unfold(0, 40, 7),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@both_norms
def test_any_layout(norm, layout):
    x = LAYOUTS[layout]()
    check(norm, x, (40,), *norm.affine((40,)))
    assert same_bits(norm.ours(x, (40,)), norm.ours(x.contiguous(), (40,)))


def test_weights_and_biases_of_any_layout():
    x, weight, bias = tensor((4, 6, 8)), tensor((8, 6), seed=1).t(), tensor((6, 16), seed=2)[:, ::2]
    check(LAYER, x, (6, 8), weight, bias)
    check(LAYER, x, (6, 8), tensor((1, 1)).expand(6, 8), bias)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (0, 0, 8), (4, 0), (0, 0)], ids=str)
@every_norm
def test_nothing_in_nothing_out(norm, shape, recwarn):
    x, weight, bias = require_gradients(tensor(shape), *norm.affine(shape[-1:]))
    y = norm.ours(x, shape[-1:], weight, bias)
    assert y.shape == shape and not recwarn.list
    y.sum().backward()
    assert x.grad.shape == shape
    assert all(not p.grad.any() and p.grad.shape == p.shape for p in (weight, bias) if p is not None)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_far_from_zero_as_exact_as_near_it(offset):
    x = tensor((8, 1000), offset=offset)
    check(LAYER, x, (1000,), None, None)


def test_rows_of_equal_numbers_have_no_variance():
    assert not ek.layer_norm(torch.full((3, 100), 1234.5, device=DEVICE), (100,)).any()


@both_norms
def test_nan_and_infinity_stay_in_their_row(norm):
    x = tensor((3, 16))
    expected = norm.ours(x, (16,))[::2]
    x[1, 3] = float("nan")
    assert same_bits(norm.ours(x, (16,))[::2], expected)
    assert norm.ours(x, (16,))[1].isnan().all()


def test_operands_are_not_changed():
    operands = tensor((4, 8)), tensor((8,), seed=1), tensor((8,), seed=2)
    before = [t.clone() for t in operands]
    ek.layer_norm(operands[0], (8,), *operands[1:])
    assert all(map(torch.equal, operands, before))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_shape_strides_dtype_and_operands(data):
    dtype = data.draw(st.sampled_from(sorted(DTYPES)))
    norm = data.draw(st.sampled_from(NORMS))
    x = data.draw(strided(dtype))
    shape = tuple(x.shape[-data.draw(st.integers(1, x.dim())) :])
    mixed = dtype in ("f16", "bf16") and data.draw(st.booleans())
    check(norm, x, shape, *norm.affine(shape, "f32" if mixed else dtype), data.draw(st.sampled_from([1e-5, 0.1])))
