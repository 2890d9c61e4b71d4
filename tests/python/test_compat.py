"""The call forms of other libraries, as their READMEs and tests write them. SPDX-License-Identifier: MIT"""

import copy
import pickle

import numpy as np
import pytest

from reference import Norm, array, close

torch = pytest.importorskip("torch")
F = torch.nn.functional

import evenkeel.torch  # noqa: E402
from compat_cases import (  # noqa: E402
    DTYPES,
    check,
    check_gradients,
    nothing_is_left_to_pytorch,  # noqa: F401
    tensor,
    wide,
)
from evenkeel.compat import cutedsl_layernorm as cutedsl  # noqa: E402
from evenkeel.compat import fused_layernorm, quack  # noqa: E402

# ---- FusedLayerNorm ----


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module(40),
        lambda module: module((40,)),
        lambda module: module(hidden_size=40),
        lambda module: module(normalized_shape=[40]),
        lambda module: module(40, 1e-5, True),
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
    check(layer(x), F.layer_norm(x.double(), (40,)), "f32")


def test_a_fused_layer_norm_takes_what_its_library_takes():
    layer = fused_layernorm.FusedLayerNorm(hidden_size=40, eps=1e-3, elementwise_affine=False)
    assert layer.weight is None and layer.bias is None
    x = tensor((4, 40))
    check(layer(x), F.layer_norm(x.double(), (40,), eps=1e-3), "f32")
    half = fused_layernorm.FusedLayerNorm(40, dtype=torch.float16, device="cpu")
    assert half.weight.dtype is torch.float16
    assert half(tensor((4, 40), "f16")).dtype is torch.float16
    assert fused_layernorm.FusedLayerNorm(40, bias=False).bias is None


def test_a_fused_layer_norm_reads_the_state_of_its_library_and_is_copied_and_pickled():
    state = {"weight": tensor((40,), seed=1), "bias": tensor((40,), seed=2)}
    layer = fused_layernorm.FusedLayerNorm(40)
    layer.load_state_dict(state)
    x = tensor((4, 40))
    expected = layer(x)
    check(expected, F.layer_norm(x.double(), (40,), *(t.double() for t in state.values())), "f32")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is fused_layernorm.FusedLayerNorm
        assert torch.equal(other(x), expected)


def test_a_fused_layer_norm_accumulates_gradients():
    layer = fused_layernorm.FusedLayerNorm(40)
    exact = torch.nn.LayerNorm(40, dtype=torch.float64)
    for seed in range(3):
        x = tensor((8, 40), seed=seed)
        layer(x).square().sum().backward()
        exact(x.double()).square().sum().backward()
    check(layer.weight.grad, exact.weight.grad, "f32")
    check(layer.bias.grad, exact.bias.grad, "f32")


@pytest.mark.parametrize("shape", [40, (40,), [5, 40], torch.Size([40])])
def test_fused_layer_norm_as_a_function(shape):
    whole = (40,) if shape == 40 else tuple(shape)
    x, w, b = tensor((3, 5, 40), grad=True), tensor(whole, seed=1, grad=True), tensor(whole, seed=2, grad=True)
    references = wide(x, w, b)
    out = fused_layernorm.fused_layer_norm(x, shape, w, b)
    reference = F.layer_norm(references[0], whole, *references[1:])
    check(out, reference, "f32")
    check_gradients(out, reference, (x, w, b), references, ("f32",) * 3)
    check(fused_layernorm.fused_layer_norm(x, shape), F.layer_norm(x.double(), whole), "f32")
    check(fused_layernorm.fused_layer_norm(x, shape, eps=0.1), F.layer_norm(x.double(), whole, eps=0.1), "f32")


def test_what_fused_layer_norms_do_not_have_is_said():
    make = fused_layernorm.FusedLayerNorm
    with pytest.raises(NotImplementedError, match="FusedLayerNorm: memory_efficient is True"):
        make(40, 1e-5, True, True)
    with pytest.raises(NotImplementedError, match="memory_efficient is 'cuda'"):
        make(40, 1e-5, True, "cuda")
    with pytest.raises(TypeError, match="normalized_shape is 40, hidden_size is 30: give one of them"):
        make(40, hidden_size=30)
    with pytest.raises(TypeError, match="normalized_shape is None, hidden_size is None"):
        make()
    with pytest.raises(TypeError, match="weight is 1e-06, no tensor: write eps=1e-06"):
        fused_layernorm.fused_layer_norm(tensor((4, 40)), (40,), 1e-6)


# ---- quack's layernorm ----


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 256), (37, 760), (2, 3, 40)], ids=str)
def test_layernorm_with_weights_in_float32(shape, dtype, bias):
    x, w = tensor(shape, dtype, grad=True), tensor(shape[-1:], seed=1, grad=True)
    b = tensor(shape[-1:], seed=2, grad=True) if bias else None
    references = wide(x, w, b)
    out = quack.layernorm(x, w, bias=b)
    reference = F.layer_norm(references[0], shape[-1:], *references[1:], 1e-6)
    assert out.dtype is x.dtype
    check(out, reference, dtype)
    check_gradients(out, reference, (x, w, b), references, (dtype, dtype, dtype))


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


def test_statistics_have_no_gradient_and_the_output_has_its_own():
    x, w, b = tensor((6, 40), grad=True), tensor((40,), seed=1, grad=True), tensor((40,), seed=2, grad=True)
    references = wide(x, w, b)
    out, rstd, mean = quack.layernorm(x, w, bias=b, return_rstd=True, return_mean=True)
    assert out.requires_grad and not rstd.requires_grad and not mean.requires_grad
    reference = F.layer_norm(references[0], (40,), *references[1:], 1e-6)
    check_gradients(out, reference, (x, w, b), references, ("f32",) * 3)
    plain = quack.layernorm(x, w, bias=b)
    assert torch.equal(plain, out)


def test_layernorm_with_statistics_has_a_second_derivative():
    x, w, b = (
        t.requires_grad_() for t in (torch.randn(3, 8).double(), torch.randn(8).double(), torch.randn(8).double())
    )

    def out(x, w, b):
        return quack.layernorm(x, w, bias=b, return_rstd=True)[0]

    assert torch.autograd.gradcheck(out, (x, w, b))
    assert torch.autograd.gradgradcheck(out, (x, w, b))


def test_layernorm_fwd_has_no_gradient():
    x, w = tensor((4, 40), grad=True), tensor((40,), seed=1, grad=True)
    results = quack.layernorm_fwd(x, w, None, 1e-6, True, True)
    assert not any(result.requires_grad for result in results)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layernorm_bwd_takes_what_layernorm_fwd_returns(dtype, has_bias):
    x, w, dout = tensor((37, 64), dtype), tensor((64,), seed=1), tensor((37, 64), dtype, 2)
    _, rstd, mean = quack.layernorm_fwd(x, w, return_rstd=True, return_mean=True)
    dx, dw, db = quack.layernorm_bwd(x, w, dout, rstd, mean, has_bias=has_bias)
    exact = Norm("layer_norm", x.double(), w.double(), eps=1e-6).backward(dout.double())
    assert dx.dtype is x.dtype and dw.dtype is torch.float32
    close(dx.double(), exact[0], dtype)
    close(dw, exact[1], "f32")
    if has_bias:
        assert db.dtype is torch.float32
        close(db, exact[2], "f32")
    else:
        assert db is None


def test_the_tail_of_a_ragged_row_is_not_in_its_variance():
    rows, columns = torch.arange(3.0)[:, None], torch.arange(769.0)
    x = 1000 + 100 * rows + (columns % 17 - 8) / 8
    out, rstd, mean = quack.layernorm_fwd(x, torch.ones(769), eps=1e-5, return_rstd=True, return_mean=True)
    exact = Norm("layer_norm", x.double(), eps=1e-5)
    for result, expected in ((out, exact.y), (rstd, exact.rstd)):
        close(result, expected, "f32")
    assert torch.equal(mean, torch.from_numpy(exact.mean).float())


# ---- quack's rmsnorm ----


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("weight_dtype", [*DTYPES, None])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm_with_weights_of_any_dtype(dtype, weight_dtype, bias):
    x = tensor((7, 192), dtype, grad=True)
    w = tensor((192,), weight_dtype, 1, grad=True) if weight_dtype else None
    b = tensor((192,), weight_dtype or "f32", 2, grad=True) if bias else None
    references = wide(x, w, b)
    out = quack.rmsnorm(x, w, b, eps=1e-6)
    reference = F.rms_norm(references[0], (192,), references[1], 1e-6)
    reference = reference + references[2] if bias else reference
    assert out.dtype is x.dtype
    check(out, reference, dtype)
    columns = weight_dtype or "f32"
    check_gradients(out, reference, (x, w, b), references, (dtype, columns, columns))


@pytest.mark.parametrize("weight_dtype", DTYPES)
def test_a_weight_offset_is_added_in_float32(weight_dtype):
    x = tensor((7, 64), "bf16", grad=True)
    w = (tensor((64,), weight_dtype, 1) * 0.1).requires_grad_()
    references = wide(x, w)
    out = quack.rmsnorm(x, w, weight_offset=1.0)
    reference = F.rms_norm(references[0], (64,), references[1] + 1, 1e-6)
    check(out, reference, "bf16")
    _, _, rstd = quack.rmsnorm_fwd(x, w, weight_offset=1.0, store_rstd=True)
    dy = tensor((7, 64), "f32", 9).bfloat16()
    dx, dw, _, _ = quack.rmsnorm_bwd(x, w, dy, rstd, weight_offset=1.0)
    check_gradients(out, reference, (x, w), references, ("bf16", weight_dtype))
    assert torch.equal(dx, x.grad) and torch.equal(dw, w.grad)


@pytest.mark.parametrize("dtype", DTYPES)
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


def test_rmsnorm_of_rows_with_gaps_and_of_gradients_without_strides():
    x = tensor((2, 5, 72))[:, :, :64].detach().requires_grad_()
    w = tensor((64,), seed=1)
    (exact,) = wide(x)
    out = quack.rmsnorm(x, w)
    check(out, F.rms_norm(exact, (64,), w.double(), 1e-6), "f32")
    out.sum().backward()
    F.rms_norm(exact, (64,), w.double(), 1e-6).sum().backward()
    check(x.grad, exact.grad, "f32")


def test_quack_rms_norm_is_a_module():
    layer = quack.QuackRMSNorm(64, dtype=torch.bfloat16)
    assert isinstance(layer, torch.nn.RMSNorm) and layer.eps == 1e-6
    x = tensor((3, 64))
    assert layer(x).dtype is torch.float32
    check(layer(x), F.rms_norm(x.double(), (64,), eps=1e-6), "f32")
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
    x, w, b = tensor((4, 64), "f16", grad=True), tensor((64,), seed=1, grad=True), tensor((64,), seed=2, grad=True)
    assert cutedsl.is_cutedsl_available()
    expected = quack.layernorm(x, w, bias=b, eps=1e-6)
    for backend in ("auto", "cutedsl"):
        assert torch.equal(cutedsl.layernorm(x, w, bias=b, eps=1e-6, backend=backend), expected)
    references = wide(x, w, b)
    reference = F.layer_norm(references[0], (64,), *references[1:], 1e-6)
    check_gradients(expected, reference, (x, w, b), references, ("f16",) * 3)


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
    check(layer(x), F.layer_norm(x.double(), (64,)), "f32")
    assert cutedsl.CuTeDSLLayerNorm(64, elementwise_affine=False).weight is None
