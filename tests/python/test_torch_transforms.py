"""Derivatives of derivatives, torch.func, forward-mode derivatives, lazy tensors, autocast and torch.compile.
SPDX-License-Identifier: MIT"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import evenkeel.torch as ek
from evenkeel.torch import _functional
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    RMS,
    all_same,
    both_norms,
    close,
    every_dtype,
    every_norm,
    gradients,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

# PyTorch's own.
ignore_jit_warnings = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
ignore_compile_warnings = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def agree(result, expected, tolerance=1e-9):
    """Is a result what is expected in float64, relative to the largest element?"""
    limit = tolerance * expected.abs().max().item()
    assert torch.allclose(result.double(), expected, rtol=tolerance, atol=limit)


def agree_all(results, expected, tolerance=1e-9):
    for result, correct in zip(results, expected, strict=True):
        assert result is correct is None or agree(result, correct, tolerance) is None


def both(call):
    """The results of a call with evenkeel's functions and with PyTorch's."""
    return call(ek), call(F)


# ---- second and third derivatives, against finite differences and PyTorch's ----

EPS = 0.1  # rows are short: without it the derivatives are steep


def leaves(norm, shape=(3, 5)):
    return require_gradients(*norm.operands(shape, "f64"))


def with_eps(norm):
    return partial(norm.rows, eps=EPS)


@every_norm
def test_first_and_second_derivatives_are_those_of_finite_differences(norm):
    assert gradcheck(with_eps(norm), leaves(norm))
    assert gradgradcheck(with_eps(norm), leaves(norm))


@both_norms
def test_so_are_those_over_several_dimensions(norm):
    def call(x, *affine):
        return norm.ours(x, (2, 3), *affine, EPS)

    affine = require_gradients(*norm.affine((2, 3), "f64"))
    for shape in ((2, 2, 3), (2, 3)):
        inputs = (*require_gradients(tensor(shape, "f64")), *affine)
        assert gradcheck(call, inputs) and gradgradcheck(call, inputs)


@both_norms
def test_third_derivatives(norm):
    def slope(*operands):
        wanted = [t for t in operands if t is not None]
        return torch.autograd.grad(with_eps(norm)(*operands).pow(3).sum(), wanted, create_graph=True)

    assert gradgradcheck(slope, leaves(norm, (2, 3)))


@pytest.mark.parametrize("frozen", [0, 1], ids=["x", "weight"])
def test_second_derivatives_where_an_operand_is_frozen(frozen):
    operands = leaves(LAYER)
    operands[frozen].requires_grad_(False)
    assert gradgradcheck(with_eps(LAYER), operands)


def penalty(call, x, weight):
    """Derivatives of a loss of derivatives: dy depends on x and weight, as x does on what it is computed from."""
    x, weight = require_gradients(x, weight)
    y = call((x * weight).tanh(), x.shape[-1:], weight)
    (slope,) = torch.autograd.grad((y.pow(3) * x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), (x, weight))


@pytest.mark.parametrize(("dtype", "tolerance"), [("f64", 1e-10), ("f32", 3e-6)])
@both_norms
def test_a_gradient_penalty_is_that_of_pytorch(norm, dtype, tolerance):
    x, weight = tensor((4, 8), dtype), tensor((8,), dtype, seed=1)
    agree_all(penalty(norm.ours, x, weight), penalty(norm.theirs, *wide(x, weight)), tolerance)


def test_second_derivatives_without_an_eps():
    def call(library):
        (x,) = require_gradients(tensor((4, 8), "f64", scale=1e-8))
        (slope,) = torch.autograd.grad(library.rms_norm(x, (8,)).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)

    agree_all(*both(call))


@both_norms
def test_first_derivatives_have_the_same_bits_with_and_without_a_graph(norm):
    operands, dy = require_gradients(*norm.operands((40, 100))[:2]), tensor((40, 100), seed=2)
    y = norm.rows(*operands)
    plain = torch.autograd.grad(y, operands, dy, retain_graph=True)
    recorded = torch.autograd.grad(y, operands, dy, create_graph=True)
    assert all(map(torch.equal, plain, recorded)) and all(g.requires_grad for g in recorded)


def test_derivatives_that_nothing_depends_on_are_none():
    x, bias = require_gradients(tensor((3, 5), "f64"), tensor((5,), "f64"))
    y = ek.layer_norm(x, (5,), None, bias)
    dbias, dx = torch.autograd.grad(y.sum(), (bias, x), create_graph=True)
    assert torch.autograd.grad(dx.sum(), bias, allow_unused=True, retain_graph=True) == (None,)
    assert not torch.autograd.grad(dbias.sum(), x, allow_unused=True, materialize_grads=True)[0].any()


def test_hessians_of_batched_gradients():
    def call(library):
        def loss(x):
            return library.layer_norm(x, (4,), eps=EPS).pow(3).sum()

        return torch.autograd.functional.hessian(loss, tensor((2, 4), "f64"), vectorize=True)

    agree(*both(call), 1e-12)


# ---- torch.func, forward mode and batched gradients ----


def over_rows(call):
    """norm.ours or norm.theirs, over the last dimension."""
    return lambda x, *affine: call(x, x.shape[-1:], *affine)


def pair(norm):
    """The norm by evenkeel and by PyTorch, of x alone."""
    affine = norm.affine((8,), "f64")
    return (lambda x: norm.ours(x, (8,), *affine)), (lambda x: norm.theirs(x, (8,), *affine))


TRANSFORMS = {  # of a function of x, at x and a tangent
    "grad": lambda f, x, tangent: grad(lambda x: f(x).pow(3).sum())(x),
    "vmap": lambda f, x, tangent: vmap(f)(x),
    "vmap over columns": lambda f, x, tangent: vmap(f, in_dims=1)(x.t().contiguous()),
    "jvp": lambda f, x, tangent: jvp(f, (x,), (tangent,))[1],
    "vjp": lambda f, x, tangent: vjp(f, x)[1](tangent)[0],
    "jacrev": lambda f, x, tangent: jacrev(f)(x),
    "hessian": lambda f, x, tangent: hessian(lambda x: f(x).pow(3).sum())(x),
}


@ignore_jit_warnings
@pytest.mark.parametrize("name", TRANSFORMS)
@both_norms
def test_transforms_of_functions(norm, name, kernels, no_fallback):
    x, tangent = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1)
    agree(*(TRANSFORMS[name](function, x, tangent) for function in pair(norm)))
    assert kernels.forward == 0


def test_gradients_per_sample_of_a_module(kernels):
    def per_sample(module):
        module = module(8, device=DEVICE).double()
        parameters = {name: p.detach() for name, p in module.named_parameters()}
        loss = grad(lambda parameters, x: functional_call(module, parameters, (x,)).pow(3).sum())
        return vmap(loss, in_dims=(None, 0))(parameters, tensor((5, 3, 8), "f64")).values()

    agree_all(per_sample(ek.LayerNorm), per_sample(torch.nn.LayerNorm))
    assert kernels.forward == 0


def test_functional_call_alone_is_computed_by_evenkeel(kernels):
    x, weight, bias = LAYER.operands((4, 8))
    y = functional_call(ek.LayerNorm(8, device=DEVICE), {"weight": weight, "bias": bias}, (x,))
    close(y, LAYER.theirs(x, (8,), weight, bias))
    assert kernels.forward == 1


@ignore_jit_warnings
@both_norms
def test_forward_mode_derivatives(norm, kernels):
    def tangent_of(function):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1))
            return forward_ad.unpack_dual(function(dual)).tangent

    agree(*map(tangent_of, pair(norm)))
    assert kernels.forward == 0


@ignore_jit_warnings
def test_forward_over_a_backward_that_was_recorded_before():
    x, tangent = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1)

    def call(library):
        (leaf,) = require_gradients(x)
        y = library.layer_norm(leaf, (8,))
        with forward_ad.dual_level():
            (dx,) = torch.autograd.grad(y, leaf, forward_ad.make_dual(torch.ones_like(x), tangent))
            return forward_ad.unpack_dual(dx).tangent

    agree(*both(call))


@pytest.mark.parametrize("create_graph", [False, True])
@both_norms
def test_batched_gradients(norm, create_graph):
    def batched(call):
        x, *affine = leaves(norm, (4, 8))
        wanted, dy = [x, *(t for t in affine if t is not None)], tensor((3, 4, 8), "f64", seed=5)
        y = call(x, (8,), *affine)
        return torch.autograd.grad(y, wanted, dy, is_grads_batched=True, create_graph=create_graph)

    agree_all(batched(norm.ours), batched(norm.theirs))


# ---- lazy tensors ----


def negated(shape, seed=0):
    """A tensor that is minus what lies in its memory."""
    lazy = torch._neg_view(tensor(shape, "f64", seed))  # as x.conj().imag, and no element apart from the next
    assert lazy.is_neg() and lazy.is_contiguous()
    return lazy


@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "weight", "bias"])
@pytest.mark.parametrize("parameter", [False, True])
def test_negations_are_carried_out(which, parameter):
    operands = [*LAYER.operands((4, 8), "f64")]
    operands[which] = negated(operands[which].shape)
    if parameter:
        operands[which] = torch.nn.Parameter(operands[which])
    close(LAYER.rows(*operands), F.layer_norm(operands[0], (8,), *operands[1:]))


@both_norms
def test_a_negated_gradient_has_its_sign(norm):
    operands, dy = norm.operands((4, 8), "f64"), negated((4, 8), seed=3)
    agree_all(*(gradients(over_rows(call), operands, dy) for call in (norm.ours, norm.theirs)))


COMPLEX = {  # of a library and a leaf: a norm of the imaginary part of a complex number, and one that becomes that part
    "a norm of a negation": lambda library, x: library.layer_norm(torch.complex(x, x.cos()).conj().imag, (8,)),
    "a negation of a norm": lambda library, x: torch.complex(x.detach(), library.layer_norm(x, (8,))).conj().imag,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_flow_through_negations(name):
    x, dy = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=3)
    agree_all(*both(lambda library: gradients(lambda x: COMPLEX[name](library, x), [x], dy)))


def test_lazy_zeros_are_zeros():
    zeros = torch._efficientzerotensor((4, 8), dtype=torch.float64, device=DEVICE)
    (dx,) = gradients(lambda x: ek.layer_norm(x, (8,)), [tensor((4, 8), "f64")], zeros)
    assert dx.shape == (4, 8) and not dx.any()


# ---- autocast: the dtypes of PyTorch's norms ----

PAIRS = [(dtype, weight) for dtype in DTYPES for weight in (None, dtype, "f32") if (dtype, weight) != ("f64", "f32")]


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize(("dtype", "weight_dtype"), sorted(set(PAIRS), key=str))
@both_norms
def test_dtypes_are_pytorch_s(norm, dtype, weight_dtype):
    x = tensor((6, 40), dtype)
    weight = None if weight_dtype is None else tensor((40,), weight_dtype, seed=1)
    with torch.autocast(DEVICE, torch.bfloat16):
        y, expected = norm.ours(x, (40,), weight), norm.theirs(x, (40,), weight)
    assert y.dtype == expected.dtype
    close(y, expected, dtype)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_what_is_cast_is_what_pytorch_has_registered(op, device):
    registered = f"Autocast{device.upper()}: " in torch._C._dispatch_dump(f"aten::{op}")
    assert _functional._casts(op, device) == registered
    assert not _functional._casts(op, "meta")


def under_autocast(call):
    return torch.autocast(DEVICE, torch.bfloat16)(call)


@every_dtype
def test_where_pytorch_casts_the_result_is_float32(casting, dtype):
    x, weight, bias = tensor((6, 40), dtype), *LAYER.affine((40,), "f64" if dtype == "f64" else "f32")
    y = under_autocast(LAYER.rows)(x, weight, bias)
    assert y.dtype == (torch.float64 if dtype == "f64" else torch.float32)
    assert same_bits(y, LAYER.rows(x.to(y.dtype), weight, bias))


def test_where_pytorch_casts_weights_are_cast_too(casting):
    x, weight = tensor((6, 40)), tensor((40,), "bf16", seed=1)
    assert same_bits(under_autocast(LAYER.rows)(x, weight), LAYER.rows(x, weight.float()))


def test_gradients_come_back_in_the_dtype_of_the_operands(casting):
    operands = tensor((6, 40), "bf16"), *LAYER.affine((40,), "f16")
    found = gradients(under_autocast(LAYER.rows), operands, tensor((6, 40), "f32", seed=1))
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
    operands, dy = (tensor((6, 40), "bf16"), tensor((40,), seed=1)), tensor((6, 40), "bf16", seed=2)
    assert all_same(gradients(under_autocast(RMS.rows), operands, dy), gradients(RMS.rows, operands, dy))


# ---- torch.compile: evenkeel computes the norms ----


@pytest.fixture
def compiling():
    """torch.compile, which starts without what earlier tests compiled."""
    torch._dynamo.reset()
    return torch.compile


@ignore_compile_warnings
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("module", [ek.LayerNorm, ek.RMSNorm])
def test_a_module_gives_its_own_bits_forward_and_backward(module, backend, compiling, kernels):
    model = torch.nn.Sequential(torch.nn.Linear(40, 40), module(40), torch.nn.ReLU()).to(DEVICE)
    compiled = compiling(model, backend=backend)
    x, dy = tensor((6, 40)), tensor((6, 40), seed=1)
    expected, found = model(x), compiled(x)
    assert same_bits(found, expected) and kernels.forward == 2
    results = []
    for call in (model, compiled):
        model.zero_grad()
        (dx,) = gradients(call, [x], dy)
        results.append([dx, *(p.grad.clone() for p in model.parameters())])
    assert all(map(same_bits, *results)) and kernels.backward == 2


@ignore_compile_warnings
def test_a_graph_that_must_be_whole_says_what_breaks_it(compiling):
    compiled = compiling(ek.LayerNorm(40), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"evenkeel\.torch"):
        compiled(torch.ones(6, 40))
