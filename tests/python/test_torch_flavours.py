"""The flavours of evenkeel.torch's plain norms and modules: weight offset, rounding, dtype of the result.
SPDX-License-Identifier: MIT"""

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import evenkeel.torch as ek
from torch_cases import (
    DEVICE,
    DTYPES,
    all_same,
    both_norms,
    close,
    every_dtype,
    exchange_only,
    gradients,
    leave_calls_to_python,
    same_bits,
    tensor,
    wide,
)

MODULES = [(ek.LayerNorm, nn.LayerNorm), (ek.RMSNorm, nn.RMSNorm)]
every_module = pytest.mark.parametrize(("ours", "theirs"), MODULES, ids=["LayerNorm", "RMSNorm"])


def flavoured(norm, **flavour):
    """norm.rows with a flavour."""

    def call(x, weight=None, bias=None):
        affine = (weight, bias) if norm.op == "layer_norm" else (weight,)
        return getattr(ek, norm.op)(x, x.shape[-1:], *affine, 1e-5, **flavour)

    return call


# ---- weight offset ----


@pytest.mark.parametrize("way", ["c", "python"])
@pytest.mark.parametrize("weight_dtype", ["f32", "bf16"])
@both_norms
def test_one_is_added_to_the_weight_in_float32(norm, weight_dtype, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    x, dy = tensor((50, 300), "bf16"), tensor((50, 300), "bf16", seed=1)
    weight, bias = norm.affine((300,), weight_dtype)
    found = flavoured(norm, weight_offset=1.0)(x, weight, bias)
    shifted = 1.0 + weight.float(), None if bias is None else bias.float()
    assert same_bits(found, norm.rows(x, *shifted))
    ours = gradients(flavoured(norm, weight_offset=1.0), (x, weight, bias), dy)
    theirs = gradients(norm.rows, (x, *shifted), dy)
    assert all_same(ours, [None if g is None else g.to(o.dtype) for g, o in zip(theirs, ours, strict=True)])


def test_without_a_weight_an_offset_has_no_effect():
    x = tensor((6, 40))
    assert same_bits(ek.rms_norm(x, (40,), weight_offset=1.0), ek.rms_norm(x, (40,)))


# ---- rounding ----


@pytest.mark.parametrize("way", ["c", "python"])
@pytest.mark.parametrize(("dtype", "weight_dtype"), [("bf16", "bf16"), ("f16", "f32"), ("f32", "f32")])
@both_norms
def test_each_rounds_what_is_normalized_before_the_weight(norm, dtype, weight_dtype, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    x, (weight, bias) = tensor((50, 300), dtype), norm.affine((300,), weight_dtype)
    xhat = norm.rows(x).double()  # products of two float32 are exact in float64
    expected = xhat * weight.double() + (0.0 if bias is None else bias.double())
    assert same_bits(flavoured(norm, rounding="each")(x, weight, bias), expected.to(x.dtype))


@both_norms
def test_each_changes_of_the_gradients_that_of_the_weight_alone(norm):
    x, dy, (weight, bias) = tensor((50, 300), "bf16"), tensor((50, 300), "bf16", seed=1), norm.affine((300,), "bf16")
    once = gradients(norm.rows, (x, weight, bias), dy)
    each = gradients(flavoured(norm, rounding="each"), (x, weight, bias), dy)
    assert all_same((each[0], each[2]), (once[0], once[2])) and not same_bits(each[1], once[1])
    close(each[1], (wide(norm.rows(x))[0] * wide(dy)[0]).sum(0))


def test_each_is_what_llama_s_code_computes():
    x, weight = tensor((500, 300), "bf16"), tensor((300,), "bf16", seed=1)
    rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    llama = weight * (x.float() * rstd).to(x.dtype)
    assert (ek.rms_norm(x, (300,), weight, 1e-5, rounding="each") != llama).double().mean() <= 1e-4
    assert (ek.rms_norm(x, (300,), weight, 1e-5) != llama).double().mean() > 1e-2


# ---- dtype of the result ----


@pytest.mark.parametrize("way", ["c", "python"])
@pytest.mark.parametrize(("dtype", "other"), [("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "f16")])
@both_norms
def test_a_result_of_another_dtype_is_rounded_once_and_so_are_gradients(norm, dtype, other, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    x, dy, affine = tensor((50, 300), dtype), tensor((50, 300), other, seed=1), norm.affine((300,), dtype)
    call = flavoured(norm, out_dtype=DTYPES[other])
    in_f32 = [None if t is None else t.float() for t in (x, *affine)]
    assert same_bits(call(x, *affine), norm.rows(*in_f32).to(DTYPES[other]))
    expected = gradients(norm.rows, in_f32, dy.float())
    assert all_same(gradients(call, (x, *affine), dy), [None if g is None else g.to(DTYPES[dtype]) for g in expected])


@every_dtype
def test_the_dtype_of_x_is_the_default(dtype):
    x = tensor((6, 40), dtype)
    assert same_bits(ek.layer_norm(x, (40,), out_dtype=x.dtype), ek.layer_norm(x, (40,)))


def test_a_dtype_that_the_kernels_lack_is_left_to_pytorch(fallback):
    x = tensor((6, 40))
    with pytest.warns(RuntimeWarning, match="y or dy of f64 does not go with dtype f32"):
        y = ek.layer_norm(x, (40,), out_dtype=torch.float64)
    close(y, ek.layer_norm(x, (40,)).double(), "f32")


# ---- derivatives, and who serves a call ----


@pytest.mark.parametrize("flavour", [{"weight_offset": 1.0}, {"rounding": "each"}], ids=str)
@both_norms
def test_derivatives_are_those_of_finite_differences(norm, flavour):
    operands = [t.requires_grad_() for t in (tensor((3, 5), "f64"), *norm.affine((5,), "f64")) if t is not None]
    call = flavoured(norm, **flavour)
    assert gradcheck(call, operands) and gradgradcheck(call, operands)


@exchange_only
@both_norms
def test_flavours_are_served_in_c(norm, kernels):
    x, affine = tensor((6, 40), "bf16").requires_grad_(), norm.affine((40,), "f32")
    y = flavoured(norm, weight_offset=1.0, rounding="each", out_dtype=torch.float32)(x, *affine)
    assert kernels.last == "eager_forward"
    y.sum().backward()
    assert kernels.last == "eager_backward" and (kernels.forward, kernels.backward) == (1, 1)


@pytest.mark.filterwarnings("ignore")
@both_norms
def test_transforms_see_the_flavour(norm):
    x, (weight, bias) = tensor((2, 6, 40)), norm.affine((40,))
    call = flavoured(norm, weight_offset=1.0)
    close(torch.vmap(lambda x: call(x, weight, bias))(x), call(x, weight, bias))


MISTAKES = {
    "weight_offset is 0.5; expected 0 or 1": (ValueError, {"weight_offset": 0.5}),
    "rounding is 'Once'; expected 'once' or 'each'": (ValueError, {"rounding": "Once"}),
    "out_dtype is torch.int64; expected float32, float16, bfloat16 or float64": (TypeError, {"out_dtype": torch.int64}),
}


@pytest.mark.parametrize("words", MISTAKES)
@both_norms
def test_a_flavour_that_does_not_exist_is_refused(norm, words):
    exception, flavour = MISTAKES[words]
    for x in (tensor((6, 40)), tensor((6, 40)).requires_grad_(), torch.ones(6, 40, device="meta")):
        with pytest.raises(exception) as raised:
            flavoured(norm, **flavour)(x)
        assert str(raised.value) == words


# ---- modules ----


@every_module
def test_a_module_with_an_offset_starts_at_zeros_and_computes_the_same(ours, theirs):
    module, plain = ours(40, weight_offset=1.0, device=DEVICE), theirs(40, device=DEVICE)
    assert not module.weight.any() and list(module.state_dict()) == list(plain.state_dict())
    x = tensor((6, 40))
    close(module(x), plain(x))
    module.weight.data.fill_(5.0)
    module.reset_parameters()
    assert not module.weight.any()


@every_module
def test_a_module_without_a_weight_may_have_an_offset(ours, theirs):
    x = tensor((6, 40))
    close(ours(40, elementwise_affine=False, weight_offset=1.0)(x), theirs(40, elementwise_affine=False)(x))


@every_module
def test_the_flavours_of_a_module_are_in_its_representation_copies_and_pickles(ours, theirs):
    module = ours(40, weight_offset=1.0, rounding="each")
    assert repr(module) == repr(theirs(40))[:-1] + ", weight_offset=1.0, rounding='each')"
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert (copied.weight_offset, copied.rounding) == (1.0, "each")


@every_module
def test_a_module_computes_in_its_flavour(ours, theirs):
    x = tensor((6, 40), "bf16")
    for offset, rounding in itertools.product((0.0, 1.0), ("once", "each")):
        module = ours(40, weight_offset=offset, rounding=rounding, dtype=torch.bfloat16, device=DEVICE)
        nn.init.normal_(module.weight)
        function = ek.layer_norm if ours is ek.LayerNorm else ek.rms_norm
        affine = (module.weight, module.bias) if ours is ek.LayerNorm else (module.weight,)
        expected = function(x, (40,), *affine, module.eps, weight_offset=offset, rounding=rounding)
        assert same_bits(module(x), expected)


@every_module
def test_a_module_refuses_a_flavour_that_does_not_exist(ours, theirs):
    with pytest.raises(ValueError, match="^rounding is 'never'; expected 'once' or 'each'$"):
        ours(40, rounding="never")


def test_a_module_that_was_made_as_another_class_has_the_flavour_of_its_own():
    """As replace makes them: their __init__ does not run."""

    class Gemma(ek.RMSNorm):
        weight_offset = 1.0

    module, x = nn.RMSNorm(40, device=DEVICE), tensor((6, 40))
    nn.init.normal_(module.weight)
    module.__class__ = Gemma
    assert same_bits(module(x), ek.rms_norm(x, (40,), module.weight, weight_offset=1.0))
