"""The call forms of other libraries, as their READMEs and tests write them. SPDX-License-Identifier: MIT"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import evenkeel.torch
from compat_cases import DTYPES, check, check_both, layer_norm, operands, rms_norm, tensor
from evenkeel.compat import cutedsl_layernorm as cutedsl
from evenkeel.compat import fused_layernorm, quack
from reference import Norm, array, close

pytestmark = pytest.mark.usefixtures("no_fallback")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
with_and_without_bias = pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])

# ---- FusedLayerNorm ----


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module(40),
        lambda module: module((40,)),
        lambda module: module(hidden_size=40),
        lambda module: module(normalized_shape=[40]),
        lambda module: module(40, 1e-5, True, False),
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
        ((40, 1e-5, True, True), {}, NotImplementedError, "FusedLayerNorm: memory_efficient is True"),
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


# ---- quack's layernorm ----


@with_and_without_bias
@every_dtype
@pytest.mark.parametrize("shape", [(1, 256), (37, 760), (2, 3, 40)], ids=str)
def test_layernorm_with_weights_in_float32(shape, dtype, has_bias):
    given = operands(shape, dtype, has_bias=has_bias)
    for asked in ({}, {"return_rstd": True, "return_mean": True}):

        def call(x, w, b, asked=asked):
            out, *statistics = quack.layernorm(x, w, bias=b, **asked) if asked else [quack.layernorm(x, w, bias=b)]
            assert not any(statistic.requires_grad for statistic in statistics)
            return out

        assert check_both(call, layer_norm(1e-6), given, dtype).dtype is given[0].dtype


@pytest.mark.parametrize("call", [quack.layernorm, quack.layernorm_fwd, cutedsl.layernorm, cutedsl.cutedsl_layernorm])
def test_statistics_come_in_the_order_that_was_asked_for(call):
    x, w = tensor((37, 64), "bf16"), tensor((64,), seed=1)
    exact = Norm("layer_norm", x.double(), w.double(), eps=1e-6)
    out, rstd, mean = call(x, w, return_rstd=True, return_mean=True)
    assert rstd.shape == mean.shape == (37,) and rstd.dtype is mean.dtype is torch.float32
    check(out, torch.from_numpy(exact.y), "bf16")
    close(mean, exact.mean, "f32")
    close(rstd, exact.rstd, "f32")
    for asked, statistic in (("return_rstd", rstd), ("return_mean", mean)):
        again, single = call(x, w, **{asked: True})
        assert torch.equal(again, out) and torch.equal(single, statistic)
    assert torch.equal(call(x, w), out)


def test_layernorm_with_statistics_has_a_second_derivative():
    x, w, b = (t.detach().double().requires_grad_() for t in operands((3, 8)))

    def out(x, w, b):
        return quack.layernorm(x, w, bias=b, return_rstd=True)[0]

    assert torch.autograd.gradcheck(out, (x, w, b))
    assert torch.autograd.gradgradcheck(out, (x, w, b))


def test_layernorm_fwd_has_no_gradient():
    x, w, _ = operands((4, 40))
    results = quack.layernorm_fwd(x, w, None, 1e-6, True, True)
    assert not any(result.requires_grad for result in results)


@with_and_without_bias
@every_dtype
def test_layernorm_bwd_takes_what_layernorm_fwd_returns(dtype, has_bias):
    x, w, dout = tensor((37, 64), dtype), tensor((64,), seed=1), tensor((37, 64), dtype, 2)
    _, rstd, mean = quack.layernorm_fwd(x, w, return_rstd=True, return_mean=True)
    results = quack.layernorm_bwd(x, w, dout, rstd, mean, has_bias=has_bias)
    exact = Norm("layer_norm", x.double(), w.double(), eps=1e-6).backward(dout.double())
    for result, expected, its_dtype in zip(results, exact, (dtype, "f32", "f32" if has_bias else None), strict=True):
        if its_dtype is None:
            assert result is None
        else:
            assert result.dtype is DTYPES[its_dtype]
            close(result.double(), expected, its_dtype)


# ---- quack's rmsnorm ----


@with_and_without_bias
@pytest.mark.parametrize("weight_dtype", [*DTYPES, None])
@every_dtype
def test_rmsnorm_with_weights_of_any_dtype(dtype, weight_dtype, has_bias):
    columns = weight_dtype or "f32"
    given = operands((7, 192), dtype, columns, has_weight=weight_dtype is not None, has_bias=has_bias)
    out = check_both(quack.rmsnorm, rms_norm(1e-6), given, dtype, dtype, columns, columns)
    assert out.dtype is given[0].dtype


@pytest.mark.parametrize("weight_dtype", DTYPES)
def test_a_weight_offset_is_added_in_float32(weight_dtype):
    x, w = tensor((7, 64), "bf16", grad=True), (tensor((64,), weight_dtype, 1) * 0.1).requires_grad_()
    out = check_both(
        lambda x, w: quack.rmsnorm(x, w, weight_offset=1.0),
        lambda x, w: rms_norm(1e-6)(x, w + 1),
        (x, w),
        "bf16",
        "bf16",
        weight_dtype,
    )
    fwd, _, rstd = quack.rmsnorm_fwd(x, w, weight_offset=1.0, store_rstd=True)
    dy = tensor((7, 64), "f32", 9).bfloat16()
    quack.rmsnorm(x, w, weight_offset=1.0).backward(dy)
    dx, dw, _, _ = quack.rmsnorm_bwd(x, w, dy, rstd, weight_offset=1.0)
    assert torch.equal(fwd, out) and torch.equal(dx, x.grad) and torch.equal(dw, w.grad)


@every_dtype
def test_rmsnorm_fwd_and_bwd(dtype):
    x, w, b, dout = tensor((37, 64), dtype), tensor((64,), seed=1), tensor((64,), seed=2), tensor((37, 64), dtype, 3)
    exact = Norm("rms_norm", x.double(), w.double(), b.double(), eps=1e-6)
    out, residual_out, rstd = quack.rmsnorm_fwd(x, w, bias=b, store_rstd=True)
    assert residual_out is x and rstd.shape == (37,) and rstd.dtype is torch.float32
    close(out.double(), exact.y, dtype)
    close(rstd, exact.rstd, "f32")
    assert quack.rmsnorm_fwd(x, w, bias=b)[2] is None
    dx, dw, db, dresidual = quack.rmsnorm_bwd(x, w, dout, rstd, has_bias=True, has_residual=True)
    assert dresidual is dx and dx.dtype is x.dtype and dw.dtype is db.dtype is torch.float32
    for result, expected in zip((dx, dw, db), exact.backward(dout.double()), strict=True):
        close(result.double(), expected, dtype)
    dx_alone, *others = quack.rmsnorm_bwd(x, None, dout, rstd)
    assert others == [None, None, None]
    close(dx_alone.double(), Norm("rms_norm", x.double(), eps=1e-6).backward(dout.double())[0], dtype)


def test_quack_rms_norm_is_a_module():
    layer = quack.QuackRMSNorm(64, dtype=torch.bfloat16)
    assert isinstance(layer, torch.nn.RMSNorm) and layer.eps == 1e-6
    x = tensor((3, 64))
    assert layer(x).dtype is torch.float32
    check(layer(x), rms_norm(1e-6)(x.double()))
    assert quack.QuackRMSNorm(64, elementwise_affine=False).weight is None


def test_results_have_the_dtype_of_x_under_autocast():
    x, w = tensor((3, 64), "bf16"), tensor((64,), seed=1)
    expected = quack.layernorm(x, w), quack.rmsnorm(x, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for result, same in zip((quack.layernorm(x, w), quack.rmsnorm(x, w)), expected, strict=True):
            assert result.dtype is torch.bfloat16 and torch.equal(result, same)
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, b: quack.layernorm(x, w, bias=b),
        lambda x, w, b: quack.layernorm(x, w, bias=b, return_rstd=True)[0],
        lambda x, w, b: quack.rmsnorm(x, w, b),
        lambda x, w, b: quack.rmsnorm(x, w),
    ],
    ids=["layernorm", "statistics", "rmsnorm with bias", "rmsnorm"],
)
def test_compiled_code_calls_the_same_functions(call):
    operands = tensor((6, 40), grad=True), tensor((40,), seed=1), tensor((40,), seed=2)
    expected = call(*operands)
    expected.square().sum().backward()
    grad, operands[0].grad = operands[0].grad, None
    torch._dynamo.reset()
    out = torch.compile(lambda *tensors: call(*tensors) * 2, backend="eager")(*operands)
    assert torch.equal(out, expected * 2)
    (out / 2).square().sum().backward()
    assert torch.equal(operands[0].grad, grad)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: quack.rmsnorm(x, w, residual=x), r"rmsnorm: residual is a tensor of shape \(3, 64\)"),
        (lambda x, w: quack.rmsnorm(x, w, out_dtype=torch.float32), "out_dtype is torch.float32.*: cast the result"),
        (lambda x, w: quack.rmsnorm(x, w, residual_dtype=torch.float32), "residual_dtype is torch.float32"),
        (lambda x, w: quack.rmsnorm(x, w, prenorm=True), "prenorm is True"),
        (lambda x, w: quack.rmsnorm(x, torch.ones(3, 64)), r"rmsnorm: weight is a tensor of shape \(3, 64\).*per head"),
        (lambda x, w: quack.rmsnorm(x, w, torch.ones(3, 64)), r"bias is a tensor of shape \(3, 64\)"),
        (lambda x, w: quack.rmsnorm_fwd(x, w, residual=x), "rmsnorm_fwd: residual"),
        (lambda x, w: quack.rmsnorm_fwd(x, w, out_dtype=torch.float16), "rmsnorm_fwd: out_dtype is torch.float16"),
        (lambda x, w: quack.rmsnorm_bwd(x, w, x, x[:, 0], x), "rmsnorm_bwd: dresidual_out.*: add it to dx"),
        (lambda x, w: quack.layernorm(x, torch.ones(3, 64)), "layernorm: weight"),
        (lambda x, w: quack.layernorm_bwd(x, torch.ones(3, 64), x, x, x), "layernorm_bwd: weight"),
        (lambda x, w: cutedsl.layernorm(x, w, backend="torch"), "layernorm: backend is 'torch'.*functional.layer_norm"),
    ],
)
def test_what_evenkeel_lacks_is_named(call, words):
    with pytest.raises(NotImplementedError, match=words):
        call(tensor((3, 64), "bf16"), tensor((64,)))


def test_an_argument_that_asks_for_nothing_is_accepted():
    x, w = tensor((3, 64), "bf16"), tensor((64,))
    expected = quack.rmsnorm(x, w)
    same = quack.rmsnorm(x, w, None, None, torch.bfloat16, torch.bfloat16, 1e-6, False, 0.0)
    assert torch.equal(same, expected)


def test_wrong_operands_are_refused():
    x = tensor((3, 64))
    with pytest.raises(RuntimeError, match="512"):
        quack.layernorm(x, torch.ones(512))
    with pytest.raises(ValueError, match="512"):
        quack.layernorm(x, torch.ones(512), return_mean=True)
    with pytest.raises(ValueError, match="weight_offset is 1.0 and weight is None"):
        quack.rmsnorm(x, weight_offset=1.0)


# ---- the kernels made from quack's ----


def test_a_backend_is_chosen_by_name():
    x, w, b = operands((4, 64), "f16")
    assert cutedsl.is_cutedsl_available()
    for backend in ("auto", "cutedsl"):
        assert torch.equal(cutedsl.layernorm(x, w, bias=b, backend=backend), quack.layernorm(x, w, bias=b))


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
