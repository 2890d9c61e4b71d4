"""Under autocast the dtypes are those of PyTorch's own norms. SPDX-License-Identifier: MIT"""

import pytest
import torch

import evenkeel.torch as ek
from evenkeel.torch import _functional
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    RMS,
    both_norms,
    close,
    gradients,
    require_gradients,
    same_bits,
    tensor,
)

pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")


PAIRS = [(dtype, weight) for dtype in DTYPES for weight in (None, dtype, "f32") if (dtype, weight) != ("f64", "f32")]


@pytest.mark.parametrize(("dtype", "weight_dtype"), sorted(set(PAIRS), key=str))
@both_norms
def test_dtypes_are_pytorch_s(norm, dtype, weight_dtype):
    x = tensor((6, 40), dtype)
    weight = None if weight_dtype is None else tensor((40,), weight_dtype, seed=1)
    with torch.autocast(DEVICE, torch.bfloat16):
        y, expected = norm.ours(x, (40,), weight), norm.theirs(x, (40,), weight)
    assert y.dtype == expected.dtype
    close(y, expected, dtype)


def test_the_norm_after_a_product_of_matrices():
    model = torch.nn.Sequential(torch.nn.Linear(8, 40), ek.LayerNorm(40), torch.nn.Linear(40, 4)).to(DEVICE)
    plain = torch.nn.Sequential(model[0], torch.nn.LayerNorm(40).to(DEVICE), model[2])
    with torch.autocast(DEVICE, torch.bfloat16):
        y, expected = model(tensor((6, 8))), plain(tensor((6, 8)))
    assert y.dtype == expected.dtype == torch.bfloat16
    close(y, expected)
    y.sum().backward()
    assert model[1].weight.grad.dtype == torch.float32


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_what_is_cast_is_what_pytorch_has_registered(op, device):
    registered = f"Autocast{device.upper()}: " in torch._C._dispatch_dump(f"aten::{op}")
    assert _functional._casts(op, device) == registered
    assert not _functional._casts(op, "meta")


@pytest.fixture
def casting(monkeypatch):
    """As where autocast computes LayerNorm in float32: that is so on GPUs."""
    monkeypatch.setattr(_functional, "_casts", lambda op, device: op == "layer_norm")


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_pytorch_casts_the_result_is_float32(casting, dtype):
    x, weight, bias = tensor((6, 40), dtype), *LAYER.affine((40,), "f64" if dtype == "f64" else "f32")
    with torch.autocast(DEVICE, torch.bfloat16):
        y = ek.layer_norm(x, (40,), weight, bias)
    assert y.dtype == (torch.float64 if dtype == "f64" else torch.float32)
    wider = x if dtype == "f64" else x.float()
    assert same_bits(y, ek.layer_norm(wider, (40,), weight, bias))


def test_where_pytorch_casts_weights_are_cast_too(casting):
    x, weight = tensor((6, 40)), tensor((40,), "bf16", seed=1)
    with torch.autocast(DEVICE, torch.bfloat16):
        assert same_bits(ek.layer_norm(x, (40,), weight), ek.layer_norm(x, (40,), weight.float()))


def test_gradients_come_back_in_the_dtype_of_the_operands(casting):
    operands = tensor((6, 40), "bf16"), *LAYER.affine((40,), "f16")

    def call(x, weight, bias):
        with torch.autocast(DEVICE, torch.bfloat16):
            return ek.layer_norm(x, (40,), weight, bias)

    found = gradients(call, operands, tensor((6, 40), "f32", seed=1))
    assert [g.dtype for g in found] == [torch.bfloat16, torch.float16, torch.float16]


def test_norms_that_are_not_cast_stay_as_they_are(casting):
    with torch.autocast(DEVICE, torch.bfloat16):
        assert ek.rms_norm(tensor((6, 40), "bf16"), (40,)).dtype == torch.bfloat16


def test_autocast_that_is_off_inside_is_off(casting):
    x = tensor((6, 40), "bf16")
    with torch.autocast(DEVICE, torch.bfloat16):
        with torch.autocast(DEVICE, enabled=False):
            assert ek.layer_norm(x, (40,)).dtype == torch.bfloat16
        assert ek.layer_norm(x, (40,)).dtype == torch.float32
    assert ek.layer_norm(x, (40,)).dtype == torch.bfloat16


def test_autocast_of_another_device_changes_nothing(casting):
    other = "cuda" if DEVICE == "cpu" else "cpu"
    before = torch.is_autocast_enabled(other)
    torch.set_autocast_enabled(other, True)
    try:
        assert ek.layer_norm(tensor((6, 40), "bf16"), (40,)).dtype == torch.bfloat16
    finally:
        torch.set_autocast_enabled(other, before)


def test_backward_after_autocast_has_the_bits_of_backward_without_it():
    x, weight = require_gradients(tensor((6, 40), "bf16"), tensor((40,), seed=1))
    with torch.autocast(DEVICE, torch.bfloat16):
        y = RMS.ours(x, (40,), weight)
    found = torch.autograd.grad(y.float().square().sum(), (x, weight))
    expected = torch.autograd.grad(RMS.ours(x, (40,), weight).float().square().sum(), (x, weight))
    assert all(map(same_bits, found, expected))
