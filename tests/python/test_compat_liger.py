"""evenkeel.compat.liger: Liger's signatures, defaults and casting modes. SPDX-License-Identifier: MIT"""

import copy
import inspect

import pytest
import torch

from compat_cases import DTYPES, bare_signature, check, check_both, layer_norm, operands, rms_norm, rounded, tensor
from evenkeel.compat import liger
from test_compat_liger_parts import SIGNATURES as PARTS
from torch_cases import DEVICE

pytestmark = pytest.mark.usefixtures("no_fallback")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

# As in liger_kernel/transformers: rms_norm.py, layer_norm.py, fused_add_rms_norm.py and functional.py.
SIGNATURES = {
    "LigerRMSNorm": "(hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', in_place=True, "
    "row_mode=None, elementwise_affine=True)",
    "LigerRMSNormForGemma": "(hidden_size, eps=1e-06, offset=1.0, casting_mode='gemma', init_fn='zeros', "
    "in_place=True, row_mode=None)",
    "LigerRMSNormForGemma2": "(hidden_size, eps=1e-06, offset=1.0, casting_mode='gemma', init_fn='zeros', "
    "in_place=False, row_mode=None)",
    "LigerRMSNormForGemma3": "(dim, eps=1e-06, offset=1.0, casting_mode='gemma', init_fn='zeros', in_place=False)",
    "LigerRMSNormForGemma4": "(dim, eps=1e-06, offset=0.0, casting_mode='gemma', init_fn='ones', in_place=False, "
    "with_scale=True)",
    "LigerRMSNormForOlmo2": "(hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', "
    "in_place=False, row_mode=None)",
    "LigerRMSNormForGlm4": "(hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', "
    "in_place=False, row_mode=None)",
    "LigerRMSNormForQwen3Next": "(hidden_size, eps=1e-06, offset=1.0, casting_mode='gemma', init_fn='zeros', "
    "in_place=False, row_mode=None)",
    "LigerRMSNormForMuseGlimmer": "(dim=None, eps=1e-06, offset=0.0, casting_mode='gemma', init_fn='ones', "
    "in_place=False, with_scale=True)",
    "LigerRMSNormForMuseGlimmerTextCentered": "(hidden_size, eps=1e-06, offset=1.0, casting_mode='gemma', "
    "init_fn='zeros', in_place=False, row_mode=None)",
    "LigerLayerNorm": "(hidden_size, eps=1e-06, bias=False, init_fn='ones', impl=None, mode=None, backend=None)",
    "LigerFusedAddRMSNorm": "(hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', "
    "in_place=False)",
    "liger_layer_norm": "(X, W, B, eps)",
    "liger_rms_norm": "(X, W, eps, offset=0.0, casting_mode='llama', in_place=True)",
    "liger_fused_add_rms_norm": "(X, R, W, eps, offset=0.0, casting_mode='llama', in_place=True)",
}
RMS_MODULES = [name for name in SIGNATURES if name.startswith("LigerRMSNorm")]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_liger_s(name):
    assert bare_signature(getattr(liger, name)) == SIGNATURES[name]
    assert {*SIGNATURES, *PARTS} == set(liger.__all__)


# ---- functions ----


def cast(eps, offset, casting_mode, dtype):
    """Liger's RMSNorm of (x, weight) in float64, with its roundings."""

    def call(x, w):
        xhat = rms_norm(eps)(x)
        return (rounded(xhat, dtype) if casting_mode == "llama" else xhat) * (w + offset)

    return call


@pytest.mark.parametrize("weight_dtype", ["f32", None])
@pytest.mark.parametrize("casting_mode", ["llama", "gemma", "none"])
@pytest.mark.parametrize("offset", [0.0, 1.0, 0.25])
@every_dtype
def test_liger_rms_norm(dtype, offset, casting_mode, weight_dtype):
    x, w, _ = operands((7, 192), dtype, weight_dtype or dtype, has_bias=False)
    reference = cast(1e-5, offset, casting_mode, DTYPES[dtype])
    out = check_both(lambda x, w: liger.liger_rms_norm(x, w, 1e-5, offset, casting_mode), reference, (x, w), dtype)
    assert out.dtype is x.dtype


def test_casting_modes_choose_where_results_round():
    x, w, _ = operands((64, 192), "bf16", "bf16", has_bias=False)
    results = {mode: liger.liger_rms_norm(x, w, 1e-6, 0.0, mode) for mode in ("llama", "gemma", "none", 0, 1, -1)}
    exact = rms_norm(1e-6)(x.double())
    assert torch.equal(results["llama"], (exact.bfloat16().double() * w.double()).bfloat16())
    assert torch.equal(results["gemma"], (exact * w.double()).bfloat16())
    assert not torch.equal(results["llama"], results["gemma"])
    assert torch.equal(results["none"], results["gemma"])
    for mode, number in (("llama", 0), ("gemma", 1), ("none", -1)):
        assert torch.equal(results[mode], results[number])


def test_a_norm_without_a_weight_ignores_the_offset():
    x = tensor((7, 64), "bf16")
    assert torch.equal(liger.liger_rms_norm(x, None, 1e-6, 1.0), liger.liger_rms_norm(x, None, 1e-6))
    check(liger.liger_rms_norm(x, None, 1e-6), rms_norm(1e-6)(x.double()), "bf16")


@pytest.mark.parametrize("weight_dtype", ["f32", None])
@every_dtype
def test_liger_layer_norm(dtype, weight_dtype):
    given = operands((3, 5, 40), dtype, weight_dtype or dtype)
    out = check_both(lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-3), layer_norm(1e-3), given, dtype)
    assert out.dtype is given[0].dtype


@pytest.mark.parametrize("casting_mode", ["llama", "gemma", "none"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@every_dtype
def test_liger_fused_add_rms_norm(dtype, offset, casting_mode):
    x, w, _ = operands((7, 192), dtype, dtype, has_bias=False)
    residual = tensor((7, 192), dtype, 3, grad=True)

    def theirs(x, r, w):
        s = rounded(x + r, DTYPES[dtype])
        return cast(1e-5, offset, casting_mode, DTYPES[dtype])(s, w), s

    def ours(x, r, w):
        return liger.liger_fused_add_rms_norm(x, r, w, 1e-5, offset, casting_mode, False)

    y, s = check_both(ours, theirs, (x, residual, w), dtype)
    assert y.dtype is s.dtype is x.dtype and torch.equal(s, x + residual)
    assert torch.equal(y, liger.liger_rms_norm(s, w, 1e-5, offset, casting_mode))


def test_the_sum_has_the_dtype_of_x_whatever_the_residual_has():
    x, w, r = tensor((7, 64), "bf16"), tensor((64,)), tensor((7, 64), "f32", 1)
    y, s = liger.liger_fused_add_rms_norm(x, r, w, 1e-6)
    assert y.dtype is s.dtype is torch.bfloat16 and torch.equal(s, (x + r).bfloat16())
    check(y, rms_norm(1e-6)(x.double() + r.double(), w.double()), "bf16")


@pytest.mark.parametrize("call", [liger.liger_rms_norm, liger.liger_fused_add_rms_norm])
def test_an_unknown_casting_mode_is_named(call):
    x = tensor((3, 64))
    given = (x, x[0]) if call is liger.liger_rms_norm else (x, x, x[0])
    words = f"{call.__name__}: casting_mode is 'qwen'; expected 'llama', 'gemma' or 'none'"
    with pytest.raises(ValueError, match=words):
        call(*given, 1e-6, casting_mode="qwen")


# ---- modules ----


@pytest.mark.parametrize("name", RMS_MODULES)
def test_a_module_computes_with_the_defaults_of_its_model(name):
    module = getattr(liger, name)(64)
    defaults = {p.name: p.default for p in inspect.signature(type(module)).parameters.values()}
    assert module.weight.equal(torch.ones(64) if defaults["init_fn"] == "ones" else torch.zeros(64))
    assert module.variance_epsilon == 1e-6 and module.in_place is defaults["in_place"] and module.row_mode is None
    assert (module.offset, module.casting_mode) == (defaults["offset"], defaults["casting_mode"])
    assert list(module.state_dict()) == ["weight"]
    shown = f"weight_shape=(64,), eps=1e-06, offset={module.offset}, in_place={module.in_place}, row_mode=None"
    assert repr(module) == f"{name}({shown})"
    torch.nn.init.normal_(module.weight)
    x, options = tensor((3, 5, 64)) * 1e-3, (module.offset, module.casting_mode)  # so small that eps decides
    reference = cast(1e-6, *options, torch.float32)(x.double(), module.weight.double())
    check(module(x), reference)
    half = copy.deepcopy(module).bfloat16()
    narrow = x.bfloat16()
    assert torch.equal(half(narrow), liger.liger_rms_norm(narrow, half.weight, 1e-6, *options))


def test_modules_without_a_weight():
    for module in (
        liger.LigerRMSNorm(64, elementwise_affine=False),
        liger.LigerRMSNorm(None, elementwise_affine=False),
        liger.LigerRMSNormForGemma4(64, with_scale=False),
        liger.LigerRMSNormForMuseGlimmer(with_scale=False),
    ):
        x = tensor((3, 64))
        assert module.weight is None and "weight_shape=None" in repr(module)
        check(module(x), rms_norm(1e-6)(x.double()))


def test_a_weight_without_a_size_is_refused():
    with pytest.raises(TypeError, match="LigerRMSNormForMuseGlimmer: dim is None; expected an integer, or with_scale"):
        liger.LigerRMSNormForMuseGlimmer()


def test_arguments_of_a_module_come_in_liger_s_order():
    module = liger.LigerRMSNorm(64, 1e-3, 1.0, "gemma", "zeros", False, True)
    assert (module.variance_epsilon, module.offset, module.casting_mode) == (1e-3, 1.0, "gemma")
    x = tensor((3, 64))
    check(module(x), rms_norm(1e-3)(x.double()))


def test_liger_layer_norm_is_a_module():
    module, x = liger.LigerLayerNorm(64), tensor((3, 64))
    assert module.hidden_size == 64 and module.eps == module.variance_epsilon == 1e-6
    assert list(module.state_dict()) == ["weight", "bias"]
    assert repr(module) == "LigerLayerNorm(64, eps=1e-06, impl=None, mode=None)"
    assert not module.bias.any() and module.weight.equal(torch.ones(64))
    check(module(x), layer_norm(1e-6)(x.double()))
    module = liger.LigerLayerNorm(64, bias=True, init_fn="zeros")
    assert module.bias.any() and torch.equal(module(x), module.bias.expand(3, 64))


def test_the_names_of_liger_s_kernels_are_accepted_and_kept():
    x, named = tensor((3, 64)), liger.LigerLayerNorm(64, 1e-6, False, "ones", "nvidia-triton", "persistent")
    assert (named.impl, named.mode, named.backend) == ("nvidia-triton", "persistent", "nvidia-triton")
    assert repr(named) == "LigerLayerNorm(64, eps=1e-06, impl='nvidia-triton', mode='persistent')"
    assert torch.equal(named(x), liger.LigerLayerNorm(64)(x))
    named.backend = "nvidia-cutile"
    assert named.impl == "nvidia-cutile" and liger.LigerLayerNorm(64, backend="triton").impl == "triton"


def test_liger_fused_add_rms_norm_is_a_module():
    module, x, r = (
        liger.LigerFusedAddRMSNorm(64, casting_mode="gemma", offset=1.0),
        tensor((3, 64)),
        tensor((3, 64), seed=1),
    )
    assert repr(module) == "LigerFusedAddRMSNorm((64,), eps=1e-06, offset=1.0, in_place=False)"
    y, s = module(x, r)
    assert torch.equal(s, x + r)
    check(y, 2 * rms_norm(1e-6)(s.double()))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: liger.LigerRMSNorm(8, init_fn="randn"), "LigerRMSNorm: init_fn is 'randn'; expected 'ones' or"),
        (lambda: liger.LigerLayerNorm(8, init_fn=None), "LigerLayerNorm: init_fn is None; expected"),
        (lambda: liger.LigerFusedAddRMSNorm(8, casting_mode=2), "LigerFusedAddRMSNorm: casting_mode is 2; expected"),
        (lambda: liger.LigerRMSNormForGemma3(8, casting_mode="x"), "LigerRMSNormForGemma3: casting_mode is 'x'"),
    ],
)
def test_wrong_arguments_of_modules_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_autocast_changes_nothing():
    x, w = tensor((3, 64), "bf16").to(DEVICE), tensor((64,)).to(DEVICE)
    expected = liger.liger_rms_norm(x, w, 1e-6), *liger.liger_fused_add_rms_norm(x, x, w, 1e-6)
    with torch.autocast(DEVICE, torch.bfloat16):
        results = liger.liger_rms_norm(x, w, 1e-6), *liger.liger_fused_add_rms_norm(x, x, w, 1e-6)
    for result, same in zip(results, expected, strict=True):
        assert result.dtype is torch.bfloat16 and torch.equal(result, same)
