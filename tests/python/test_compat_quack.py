"""evenkeel.compat.quack: quack's signatures, results and dtypes. SPDX-License-Identifier: MIT"""

import pytest
import torch

from compat_cases import DTYPES, bare_signature, check, check_both, layer_norm, operands, rms_norm, rounded, tensor
from evenkeel.compat import cutedsl_layernorm as cutedsl
from evenkeel.compat import quack
from reference import Norm, close

pytestmark = pytest.mark.usefixtures("no_fallback")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
with_and_without_bias = pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])

# As in quack/rmsnorm.py.
MORE = "out_dtype=None, residual_dtype=None, eps=1e-06"
SIGNATURES = {
    "rmsnorm": f"(x, weight=None, bias=None, residual=None, {MORE}, prenorm=False, weight_offset=0.0)",
    "rmsnorm_fwd": f"(x, weight=None, bias=None, residual=None, {MORE}, store_rstd=False, weight_offset=0.0)",
    "rmsnorm_bwd": "(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0)",
    "layernorm_fwd": "(x, weight, bias=None, eps=1e-06, return_rstd=False, return_mean=False)",
    "layernorm_bwd": "(x, weight, dout, rstd, mean, has_bias=True)",
    "QuackRMSNorm": "(dim, eps=1e-06, elementwise_affine=True, device=None, dtype=None)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_quack_s(name):
    assert bare_signature(getattr(quack, name)) == SIGNATURES[name]


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


def test_quack_rms_norm_with_a_weight_per_head():
    layer, x = quack.QuackRMSNorm((3, 64)), tensor((2, 5, 3, 64), "bf16")
    torch.nn.init.normal_(layer.weight)
    check(layer(x), rms_norm(1e-6)(x.double()) * layer.weight.double(), "bf16")
    assert torch.equal(layer(x), quack.rmsnorm(x, layer.weight))


# ---- quack's rmsnorm with a residual and other dtypes ----


def with_residual(eps, h_dtype, offset=0.0):
    """(y, h) of (x, weight, bias, residual) in float64, of the h that was rounded to its dtype."""

    def call(x, w, b, residual):
        h = rounded(x + residual, h_dtype)
        return rms_norm(eps)(h, w + offset, b), h

    return call


@with_and_without_bias
@pytest.mark.parametrize("offset", [0.0, 1.0, 0.5])
@pytest.mark.parametrize(
    "x, residual, residual_dtype, h",
    [
        ("bf16", "bf16", None, "bf16"),
        ("f32", "f32", None, "f32"),
        ("bf16", "f32", None, "f32"),
        ("bf16", "bf16", "f32", "f32"),
        ("bf16", "f32", "bf16", "f32"),  # the kernel sums in float32, the sum is rounded afterwards
        ("f32", "bf16", None, "f32"),
        ("f16", "bf16", "f16", "f32"),
    ],
)
def test_a_residual_is_added_before_rmsnorm(x, residual, residual_dtype, h, offset, has_bias):
    given = (*operands((7, 192), x, "f32", has_bias=has_bias), tensor((7, 192), residual, 3, grad=True))
    dtype = residual_dtype or residual
    options = {"residual_dtype": DTYPES[dtype], "prenorm": True, "weight_offset": offset}
    coarse = max((x, residual, dtype), key=["f32", "f16", "bf16"].index)

    def ours(x, w, b, r):
        return quack.rmsnorm(x, w, b, r, **options)

    out, sum = check_both(ours, with_residual(1e-6, DTYPES[h], offset), given, coarse)
    assert out.dtype is DTYPES[x] and sum.dtype is DTYPES[dtype]
    assert torch.equal(sum, (given[0].float() + given[3].float()).to(sum.dtype))
    assert torch.equal(quack.rmsnorm(*given, **options | {"prenorm": False}), out)


def test_the_sum_has_the_dtype_of_the_residual_by_default():
    x, w = tensor((7, 64), "bf16"), tensor((64,))
    for dtype in ("bf16", "f32", "f16"):
        out, h = quack.rmsnorm(x, w, residual=tensor((7, 64), dtype, 1), prenorm=True)
        assert out.dtype is torch.bfloat16 and h.dtype is DTYPES[dtype]


def test_prenorm_without_a_residual_returns_x():
    x, w, _ = operands((7, 64), "bf16", has_bias=False)
    out, h = quack.rmsnorm(x, w, prenorm=True)
    assert h is x and torch.equal(out, quack.rmsnorm(x, w))
    wide = quack.rmsnorm(x, w, prenorm=True, residual_dtype=torch.float32)[1]
    assert wide.dtype is torch.float32 and torch.equal(wide, x.float())


@with_and_without_bias
@pytest.mark.parametrize("out", DTYPES)
@every_dtype
def test_out_dtype_is_that_of_the_result_and_of_its_gradient(dtype, out, has_bias):
    given = operands((7, 192), dtype, dtype, has_bias=has_bias)
    coarse = max(dtype, out, key=["f32", "f16", "bf16"].index)
    result = check_both(lambda *t: quack.rmsnorm(*t, out_dtype=DTYPES[out]), rms_norm(1e-6), given, coarse)
    assert result.dtype is DTYPES[out]
    assert torch.equal(quack.rmsnorm_fwd(*given, out_dtype=DTYPES[out])[0], result)


@pytest.mark.parametrize("residual", ["bf16", "f32"])
@pytest.mark.parametrize("out", ["bf16", "f32", "f16"])
def test_rmsnorm_fwd_and_bwd_with_a_residual_are_rmsnorm(residual, out):
    x, w, _ = operands((37, 64), "bf16", "bf16", has_bias=False)
    r, more = tensor((37, 64), residual, 3, grad=True), {"out_dtype": DTYPES[out]}
    y, h = quack.rmsnorm(x, w, None, r, prenorm=True, **more)
    dy, dh = tensor((37, 64), out, 4), tensor((37, 64), residual, 5)
    dx, dw, dr = torch.autograd.grad((y, h), (x, w, r), (dy, dh))
    out, residual_out, rstd = quack.rmsnorm_fwd(x, w, None, r, store_rstd=True, **more)
    assert torch.equal(out, y) and torch.equal(residual_out, h) and rstd.shape == (37,)
    found = quack.rmsnorm_bwd(residual_out, w, dy, rstd, dh, has_residual=True)
    assert torch.equal(found[0].to(x.dtype), dx) and torch.equal(found[1], dw) and torch.equal(found[3], dr)


@pytest.mark.parametrize("dtype, of_h", [("bf16", "f32"), ("f32", "bf16"), ("bf16", "bf16")])
def test_dresidual_has_the_dtype_of_dresidual_out(dtype, of_h):
    x, w, dout = tensor((37, 64), dtype), tensor((64,), seed=1), tensor((37, 64), dtype, 2)
    dh, rstd = tensor((37, 64), of_h, 3), quack.rmsnorm_fwd(x, w, store_rstd=True)[2]
    exact = Norm("rms_norm", x.double(), w.double(), eps=1e-6).backward(dout.double())[0] + dh.double().numpy()
    dx, _, _, dresidual = quack.rmsnorm_bwd(x, w, dout, rstd, dh, has_residual=True)
    assert dx.dtype is x.dtype and dresidual.dtype is dh.dtype
    close(dx.double(), exact, dtype)
    close(dresidual.double(), exact, of_h)
    alone = quack.rmsnorm_bwd(x, w, dout, rstd, dh)
    assert torch.equal(alone[0], dx) and (alone[3] is None) == (dtype == of_h)


@pytest.mark.parametrize("dtype, of_dy", [("f32", "bf16"), ("f32", "f16"), ("bf16", "f32"), ("bf16", "f16")])
def test_dout_may_have_another_dtype_than_x(dtype, of_dy):
    x, w, dout = tensor((37, 64), dtype), tensor((64,), seed=1), tensor((37, 64), of_dy, 2)
    rstd = quack.rmsnorm_fwd(x, w, store_rstd=True)[2]
    exact = Norm("rms_norm", x.double(), w.double(), eps=1e-6).backward(dout.double())
    dx, dw, _, _ = quack.rmsnorm_bwd(x, w, dout, rstd)
    assert dx.dtype is x.dtype
    close(dx.double(), exact[0], dtype)
    close(dw.double(), exact[1], "f32")
    _, rstd, mean = quack.layernorm_fwd(x, w, return_rstd=True, return_mean=True)
    exact = Norm("layer_norm", x.double(), w.double(), eps=1e-6).backward(dout.double())
    close(quack.layernorm_bwd(x, w, dout, rstd, mean)[0].double(), exact[0], dtype)


# ---- both ----


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
        lambda x, w, b: quack.rmsnorm(x, w, b, x, prenorm=True)[1],
        lambda x, w, b: quack.rmsnorm(x, w, residual=x, out_dtype=torch.bfloat16).float(),
    ],
    ids=["layernorm", "statistics", "rmsnorm with bias", "rmsnorm", "residual with bias", "residual"],
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
        (lambda x, w: quack.rmsnorm(x, torch.ones(4, 64)), r"weight is a tensor of shape \(4, 64\).*must be \(3, 64\)"),
        (
            lambda x, w: quack.rmsnorm(x, w, torch.ones(3, 64)),
            r"weight is a tensor of shape \(64,\).*must be \(3, 64\)",
        ),
        (lambda x, w: quack.rmsnorm(x, torch.ones(1, 3, 64)), "one row, or one for each head"),
        (lambda x, w: quack.layernorm(x, torch.ones(3, 64)), "layernorm: weight"),
        (lambda x, w: quack.layernorm_bwd(x, torch.ones(3, 64), x, x, x), "layernorm_bwd: weight"),
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


@pytest.mark.parametrize("name", ["out_dtype", "residual_dtype"])
@pytest.mark.parametrize("call", [quack.rmsnorm, quack.rmsnorm_fwd])
def test_a_result_of_integers_is_refused(call, name):
    x, words = tensor((3, 64)), f"{call.__name__}: {name} is torch.int32; expected a floating-point dtype"
    with pytest.raises(TypeError, match=words):
        call(x, residual=x, **{name: torch.int32})


def test_gradients_of_another_shape_are_named_as_quack_does():
    x, w, rstd, wrong = tensor((3, 64)), torch.ones(64), torch.ones(3), tensor((2, 64))
    words = r"has shape \(2, 64\): it must have \(3, 64\)"
    with pytest.raises(ValueError, match=f"rmsnorm_bwd: dout {words}"):
        quack.rmsnorm_bwd(x, w, wrong, rstd)
    with pytest.raises(ValueError, match=f"rmsnorm_bwd: dresidual_out {words}"):
        quack.rmsnorm_bwd(x, w, x, rstd, wrong)
    with pytest.raises(ValueError, match=f"layernorm_bwd: dout {words}"):
        quack.layernorm_bwd(x, w, wrong, rstd, rstd)
