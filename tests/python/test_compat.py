"""The call forms of other libraries, as their READMEs and tests write them. SPDX-License-Identifier: MIT"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import evenkeel.torch
from compat_cases import check, check_both, layer_norm, operands, tensor
from evenkeel.compat import cutedsl_layernorm as cutedsl
from evenkeel.compat import fused_layernorm, quack
from reference import Norm, array, close

pytestmark = pytest.mark.usefixtures("no_fallback")

# ---- FusedLayerNorm ----


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module(40),
        lambda module: module((40,)),
        lambda module: module(hidden_size=40),
        lambda module: module(normalized_shape=[40]),
        lambda module: module(40, 1e-5, True, True),
        lambda module: module(40, eps=1e-5, elementwise_affine=True, memory_efficient=False),
    ],
)
def test_a_fused_layer_norm_is_a_layer_norm(make):
    layer = make(fused_layernorm.FusedLayerNorm)
    assert isinstance(layer, evenkeel.torch.LayerNorm) and isinstance(layer, torch.nn.LayerNorm)
    assert layer.normalized_shape == (40,) and layer.eps == 1e-5
    assert layer.weight.shape == layer.bias.shape == (40,)
    x = tensor((3, 5, 40))
    assert torch.equal(layer(x), evenkeel.torch.layer_norm(x, (40,), layer.weight, layer.bias, 1e-5))


def test_a_fused_layer_norm_takes_what_its_library_takes():
    layer = fused_layernorm.FusedLayerNorm(hidden_size=40, eps=1e-3, elementwise_affine=False)
    assert layer.weight is None and layer.bias is None
    x = tensor((4, 40))
    check(layer(x), layer_norm(1e-3)(x.double()))
    half = fused_layernorm.FusedLayerNorm(40, dtype=torch.float16, device="cpu")
    assert half.weight.dtype is half(tensor((4, 40), "f16")).dtype is torch.float16
    assert fused_layernorm.FusedLayerNorm(40, bias=False).bias is None


@pytest.mark.parametrize("shape", [40, (40,), [5, 40], torch.Size([40])])
def test_fused_layer_norm_as_a_function(shape):
    call, whole = fused_layernorm.fused_layer_norm, (40,) if shape == 40 else tuple(shape)
    x, w, b = tensor((3, 5, 40), grad=True), tensor(whole, seed=1, grad=True), tensor(whole, seed=2, grad=True)
    check_both(lambda x, w, b: call(x, shape, w, b), layer_norm(1e-5), (x, w, b))
    check(call(x, shape), F.layer_norm(x.double(), whole))
    check(call(x, shape, eps=0.1), F.layer_norm(x.double(), whole, eps=0.1))


@pytest.mark.parametrize(
    ("arguments", "options", "exception", "words"),
    [
        ((40, 1e-5, True, "cuda"), {}, NotImplementedError, "memory_efficient is 'cuda'"),
        ((40,), {"hidden_size": 30}, TypeError, "normalized_shape is 40, hidden_size is 30: give one of them"),
        ((), {}, TypeError, "normalized_shape is None, hidden_size is None"),
    ],
)
def test_what_fused_layer_norms_do_not_have_is_said(arguments, options, exception, words):
    with pytest.raises(exception, match=words):
        fused_layernorm.FusedLayerNorm(*arguments, **options)


def test_an_eps_in_the_place_of_a_weight_is_named():
    with pytest.raises(TypeError, match="weight is 1e-06, no tensor: write eps=1e-06"):
        fused_layernorm.fused_layer_norm(tensor((4, 40)), (40,), 1e-6)


# ---- the kernels made from quack's ----


def test_a_backend_is_chosen_by_name():
    x, w, b = operands((4, 64), "f16")
    assert cutedsl.is_cutedsl_available()
    for backend in ("auto", "cutedsl"):
        assert torch.equal(cutedsl.layernorm(x, w, bias=b, backend=backend), quack.layernorm(x, w, bias=b))


def test_another_backend_is_named():
    words = "layernorm: backend is 'torch', which evenkeel does not have: .*functional.layer_norm"
    with pytest.raises(NotImplementedError, match=words):
        cutedsl.layernorm(tensor((3, 64)), tensor((64,)), backend="torch")


def test_arrays_of_another_library_are_read_where_they_lie():
    x, w, b = array((4, 64), "f16"), array((64,), seed=1), array((64,), seed=2)
    exact = Norm("layer_norm", x, w, b, eps=1e-6)
    out, rstd, mean = cutedsl.layernorm(x, w, bias=b, return_rstd=True, return_mean=True)
    assert all(isinstance(result, np.ndarray) for result in (out, rstd, mean))
    close(out, exact.y, "f16")
    close(rstd, exact.rstd, "f32")
    close(mean, exact.mean, "f32")
    assert cutedsl.layernorm(x, w, bias=b).tobytes() == out.tobytes()
    from_torch = quack.layernorm(*map(torch.from_numpy, (x, w)), bias=torch.from_numpy(b))
    assert from_torch.numpy().tobytes() == out.tobytes()


def test_its_module():
    layer = cutedsl.CuTeDSLLayerNorm(64)
    assert isinstance(layer, torch.nn.LayerNorm) and layer.eps == 1e-5
    x = tensor((2, 3, 64))
    check(layer(x), layer_norm(1e-5)(x.double()))
    assert cutedsl.CuTeDSLLayerNorm(64, elementwise_affine=False).weight is None
