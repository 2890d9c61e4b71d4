"""evenkeel.compat.apex: Apex's signatures, defaults and dtypes. SPDX-License-Identifier: MIT"""

import copy
import inspect
import pickle

import pytest
import torch

import evenkeel.torch
from compat_cases import DTYPES, bare_signature, check, check_both, layer_norm, operands, rms_norm, rounded, tensor
from evenkeel.compat import apex
from torch_cases import DEVICE

pytestmark = pytest.mark.usefixtures("no_fallback")

# As in apex/normalization/fused_layer_norm.py.
MODULE = "(normalized_shape, eps=1e-05, elementwise_affine=True, memory_efficient=False)"
MIXED = "(normalized_shape, eps=1e-05, *, memory_efficient=False, **kwargs)"
SIGNATURES = {
    "FusedLayerNorm": MODULE,
    "FusedRMSNorm": MODULE,
    "MixedFusedLayerNorm": MIXED,
    "MixedFusedRMSNorm": MIXED,
    "fused_layer_norm": "(input, normalized_shape, eps=1e-06, memory_efficient=False)",
    "fused_layer_norm_affine": "(input, weight, bias, normalized_shape, eps=1e-06, memory_efficient=False)",
    "mixed_dtype_fused_layer_norm_affine": "(input, weight, bias, normalized_shape, eps=1e-06, memory_efficient=False)",
    "fused_rms_norm": "(input, normalized_shape, eps=1e-06, memory_efficient=False)",
    "fused_rms_norm_affine": "(input, weight, normalized_shape, eps=1e-06, memory_efficient=False)",
    "mixed_dtype_fused_rms_norm_affine": "(input, weight, normalized_shape, eps=1e-06, memory_efficient=False)",
    "manual_rms_norm": "(input, normalized_shape, weight, eps)",
}
LAYER_MODULES = apex.FusedLayerNorm, apex.MixedFusedLayerNorm
RMS_MODULES = apex.FusedRMSNorm, apex.MixedFusedRMSNorm


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_apex_s(name):
    assert bare_signature(getattr(apex, name)) == SIGNATURES[name]
    assert set(SIGNATURES) == set(apex.__all__)


@pytest.mark.parametrize(
    "call, reference",
    [
        (lambda x, w, b: apex.FusedLayerNorm(40)(x), layer_norm(1e-5)),
        (lambda x, w, b: apex.MixedFusedLayerNorm(40)(x), layer_norm(1e-5)),
        (lambda x, w, b: apex.fused_layer_norm(x, (40,)), layer_norm(1e-6)),
        (lambda x, w, b: apex.fused_layer_norm(x, (40,), 1e-3), layer_norm(1e-3)),
        (lambda x, w, b: apex.fused_layer_norm(x, [40], 1e-3, False), layer_norm(1e-3)),
        (lambda x, w, b: apex.fused_layer_norm_affine(x, w, b, (40,)), layer_norm(1e-6)),
        (lambda x, w, b: apex.fused_layer_norm_affine(x, w, b, (40,), 1e-3), layer_norm(1e-3)),
        (lambda x, w, b: apex.mixed_dtype_fused_layer_norm_affine(x, w, b, torch.Size([40])), layer_norm(1e-6)),
        (lambda x, w, b: apex.FusedLayerNorm(40, elementwise_affine=False)(x), layer_norm(1e-5)),
        (lambda x, w, b: apex.FusedRMSNorm(40)(x), rms_norm(1e-5)),
        (lambda x, w, b: apex.MixedFusedRMSNorm(40)(x), rms_norm(1e-5)),
        (lambda x, w, b: apex.fused_rms_norm(x, (40,)), rms_norm(1e-6)),
        (lambda x, w, b: apex.fused_rms_norm(x, (40,), 1e-3), rms_norm(1e-3)),
        (lambda x, w, b: apex.fused_rms_norm_affine(x, w, (40,)), rms_norm(1e-6)),
        (lambda x, w, b: apex.mixed_dtype_fused_rms_norm_affine(x, w, (40,)), rms_norm(1e-6)),
        (lambda x, w, b: apex.manual_rms_norm(x, (40,), w, 1e-3), rms_norm(1e-3)),
        (lambda x, w, b: apex.manual_rms_norm(x, (40,), None, 1e-3), rms_norm(1e-3)),
        (lambda x, w, b: apex.FusedRMSNorm(40, elementwise_affine=False)(x), rms_norm(1e-5)),
    ],
)
def test_norms_have_apex_s_eps(call, reference):
    x = tensor((3, 5, 40)) * 1e-3  # so small that eps decides the result
    check(call(x, torch.ones(40), torch.zeros(40)), reference(x.double()))


# ---- modules ----


@pytest.mark.parametrize("module", [*LAYER_MODULES, *RMS_MODULES])
def test_a_module_has_apex_s_attributes(module):
    layer, base = module([5, 40]), torch.nn.LayerNorm if module in LAYER_MODULES else torch.nn.RMSNorm
    assert isinstance(layer, base) and isinstance(layer, module.__mro__[1])
    assert type(layer.normalized_shape) is torch.Size and layer.normalized_shape == (5, 40)
    assert layer.eps == 1e-5 and layer.elementwise_affine is True and layer.memory_efficient is False
    assert repr(layer) == f"{module.__name__}(torch.Size([5, 40]), eps=1e-05, elementwise_affine=True)"
    assert list(layer.state_dict()) == (["weight", "bias"] if module in LAYER_MODULES else ["weight"])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(3)
    layer.reset_parameters()
    assert layer.weight.equal(torch.ones(5, 40)) and getattr(layer, "bias", torch.zeros(1)).any() == 0
    x = tensor((3, 5, 40))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(twin) is module and torch.equal(twin(x), layer(x))


@pytest.mark.parametrize("module", [apex.FusedLayerNorm, apex.FusedRMSNorm])
def test_a_module_without_weights(module):
    layer = module(40, elementwise_affine=False)
    assert list(layer.parameters()) == [] and layer.weight is None


@pytest.mark.parametrize("module", [apex.MixedFusedLayerNorm, apex.MixedFusedRMSNorm])
def test_a_mixed_module_has_weights_and_ignores_other_options(module):
    assert module(40, 1e-3, sequence_parallel=True).weight is not None
    with pytest.warns(UserWarning, match=f"{module.__name__} does not support the argument elementwise_affine") as seen:
        assert module(40, elementwise_affine=True).elementwise_affine
    assert seen[0].filename == __file__
    with (
        pytest.warns(UserWarning),
        pytest.raises(RuntimeError, match=f"{module.__name__}: elementwise_affine is False; expected True"),
    ):
        module(40, elementwise_affine=False)


@pytest.mark.parametrize("name", [name for name in SIGNATURES if "memory_efficient" in SIGNATURES[name]])
def test_memory_efficient_changes_nothing(name):
    values = {"input": tensor((2, 40)), "normalized_shape": (40,), "weight": tensor((40,)), "bias": tensor((40,))}
    given = {p: values[p] for p in inspect.signature(getattr(apex, name)).parameters if p in values}
    results = [getattr(apex, name)(**given, memory_efficient=choice) for choice in (False, True)]
    if isinstance(results[0], torch.nn.Module):
        assert results[1].memory_efficient is True
        results = [module(values["input"]) for module in results]
    assert torch.equal(*results)


# ---- dtypes ----


@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_the_mixed_forms_have_the_dtype_of_the_weight(dtype, weight_dtype):
    coarse = dtype if weight_dtype == "f32" else weight_dtype
    x, w, b = operands((6, 40), dtype, weight_dtype)
    for call, reference, given in (
        (lambda x, w, b: apex.mixed_dtype_fused_layer_norm_affine(x, w, b, (40,)), layer_norm, (x, w, b)),
        (lambda x, w: apex.mixed_dtype_fused_rms_norm_affine(x, w, (40,)), rms_norm, (x, w)),
    ):
        out = check_both(call, reference(1e-6), given, weight_dtype, *(dtype, coarse, coarse)[: len(given)])
        assert out.dtype is w.dtype


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_mixed_modules_return_the_dtype_of_their_weight_and_the_others_that_of_the_input(dtype):
    x = tensor((6, 40), dtype)
    for module in (*LAYER_MODULES, *RMS_MODULES):
        expected = torch.float32 if module.__name__.startswith("Mixed") else DTYPES[dtype]
        assert module(40)(x).dtype is expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_of_one_dtype_give_the_bits_of_evenkeel(dtype):
    x, w, b = tensor((6, 40), dtype), tensor((40,), dtype, 1), tensor((40,), dtype, 2)
    layer, rms = evenkeel.torch.layer_norm(x, (40,), w, b, 1e-6), evenkeel.torch.rms_norm(x, (40,), w, 1e-6)
    for call in (apex.fused_layer_norm_affine, apex.mixed_dtype_fused_layer_norm_affine):
        assert torch.equal(call(x, w, b, (40,)), layer)
    for call in (apex.fused_rms_norm_affine, apex.mixed_dtype_fused_rms_norm_affine):
        assert torch.equal(call(x, w, (40,)), rms)


def test_manual_rms_norm_promotes_as_apex_s():
    for dtype, weight_dtype, expected in (
        ("bf16", None, torch.float32),
        ("bf16", "f32", torch.float32),
        ("f32", "bf16", torch.bfloat16),
        ("bf16", "f16", torch.float16),
        ("bf16", "bf16", torch.bfloat16),
    ):
        x, w = tensor((6, 40), dtype), tensor((40,), weight_dtype, 1) if weight_dtype else None
        out = apex.manual_rms_norm(x, (40,), w, 1e-5)
        assert out.dtype is expected
        check(out, rms_norm(1e-5)(x.double(), None if w is None else w.double()), weight_dtype or "f32")
    assert apex.manual_rms_norm(tensor((6, 40), "bf16"), (40,), torch.ones(40).double(), 1e-5).dtype is torch.float64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight_dtype", ["f16", "bf16"])
def test_manual_rms_norm_rounds_to_the_dtype_of_a_16_bit_weight_first(dtype, weight_dtype):
    x, w = tensor((6, 5, 40), dtype, grad=True), tensor((5, 40), weight_dtype, 1, grad=True)

    def theirs(x, w):
        return rounded(x * torch.rsqrt(x.square().mean((-2, -1), keepdim=True) + 1e-5), DTYPES[weight_dtype]) * w

    coarse = max(dtype, weight_dtype, key=["f32", "f16", "bf16"].index)
    out = check_both(lambda x, w: apex.manual_rms_norm(x, (5, 40), w, 1e-5), theirs, (x, w), coarse)
    assert torch.equal(out, theirs(x.detach().double(), w.detach().double()).to(out.dtype))


@pytest.mark.parametrize("module", [*LAYER_MODULES, *RMS_MODULES])
def test_under_autocast_operands_are_cast_to_its_dtype(module):
    layer, x = module(40).to(DEVICE), tensor((6, 40)).to(DEVICE).requires_grad_()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = layer(x)
        assert torch.is_autocast_enabled(DEVICE)
    assert out.dtype is torch.bfloat16
    assert torch.equal(out, module(40).to(DEVICE).bfloat16()(x.bfloat16()))
    out.sum().backward()
    assert x.grad.dtype is torch.float32 and layer.weight.grad.dtype is torch.float32
    with torch.autocast(DEVICE, torch.bfloat16):
        assert module(40).to(DEVICE).double()(x.double()).dtype is torch.float64
