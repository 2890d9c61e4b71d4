"""Derivatives of derivatives, torch.func, forward-mode derivatives, lazy tensors, autocast and torch.compile.
SPDX-License-Identifier: MIT"""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import evenkeel.torch as ek
from evenkeel.torch import _functional
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    RMS,
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
    """Is a float64 result what is expected, relative to the largest element?"""
    assert torch.allclose(result, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


# ---- second and third derivatives, against finite differences and PyTorch's ----

EPS = 0.1  # rows are short: without it the derivatives are steep


def operands(norm, shape=(3, 5), normalized=(5,)):
    """The operands that the norm has, as leaves."""
    tensors = tensor(shape, "f64"), *norm.affine(normalized, "f64")
    return [t for t in require_gradients(*tensors) if t is not None]


def function(norm, normalized=(5,)):
    """The norm of those operands."""

    def call(x, *affine):
        given = iter(affine)
        weight = next(given) if norm.has_weight else None
        return norm.ours(x, normalized, weight, next(given) if norm.has_bias else None, EPS)

    return call


@every_norm
def test_first_and_second_derivatives_are_those_of_finite_differences(norm):
    assert gradcheck(function(norm), operands(norm))
    assert gradgradcheck(function(norm), operands(norm))


@both_norms
def test_so_are_those_over_several_dimensions(norm):
    inputs = operands(norm, (2, 2, 3), (2, 3))
    assert gradcheck(function(norm, (2, 3)), inputs)
    assert gradgradcheck(function(norm, (2, 3)), inputs)
    alone = operands(norm, (2, 3), (2, 3))
    assert gradgradcheck(function(norm, (2, 3)), alone)


@both_norms
def test_third_derivatives(norm):
    inputs = operands(norm, (2, 3), (3,))

    def slope(x, *affine):
        y = function(norm, (3,))(x, *affine)
        return torch.autograd.grad(y.pow(3).sum(), (x, *affine), create_graph=True)

    assert gradgradcheck(slope, inputs)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_second_derivatives_where_an_operand_is_frozen(frozen):
    x, weight = tensor((3, 5), "f64"), tensor((5,), "f64", seed=1)
    if frozen == "x":
        assert gradgradcheck(lambda w: ek.layer_norm(x, (5,), w, eps=EPS), require_gradients(weight))
    else:
        assert gradgradcheck(lambda x: ek.layer_norm(x, (5,), weight, eps=EPS), require_gradients(x))


def penalty(norm, call, x, weight):
    """Derivatives of a loss of derivatives: dy depends on x and weight, as x does on what it is computed from."""
    x, weight = require_gradients(x, weight)
    y = call(norm, (x * weight).tanh(), tuple(x.shape[-1:]), weight)
    (slope,) = torch.autograd.grad((y.pow(3) * x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), (x, weight))


@both_norms
def test_a_gradient_penalty_is_that_of_pytorch(norm):
    x, weight = tensor((4, 8), "f64"), tensor((8,), "f64", seed=1)
    found = penalty(norm, type(norm).ours, x, weight)
    expected = penalty(norm, type(norm).theirs, x, weight)
    for result, correct in zip(found, expected, strict=True):
        agree(result, correct, 1e-10)


@both_norms
def test_a_gradient_penalty_in_f32(norm):
    x, weight = tensor((4, 8)), tensor((8,), seed=1)
    found = penalty(norm, type(norm).ours, x, weight)
    expected = penalty(norm, type(norm).theirs, *wide(x, weight))
    for result, correct in zip(found, expected, strict=True):
        close(result / correct.abs().max(), correct / correct.abs().max(), "f32")


def test_second_derivatives_without_an_eps():
    found = []
    for library in (ek, torch.nn.functional):
        (x,) = require_gradients(tensor((4, 8), "f64", scale=1e-8))
        (slope,) = torch.autograd.grad(library.rms_norm(x, (8,)).pow(3).sum(), x, create_graph=True)
        found += torch.autograd.grad(slope.square().sum(), x)
    agree(*found)


@both_norms
def test_first_derivatives_have_the_same_bits_with_and_without_a_graph(norm):
    x, weight = require_gradients(tensor((40, 100)), tensor((100,), seed=1))
    y = norm.ours(x, (100,), weight)
    dy = tensor((40, 100), seed=2)
    plain = torch.autograd.grad(y, (x, weight), dy, retain_graph=True)
    recorded = torch.autograd.grad(y, (x, weight), dy, create_graph=True)
    assert all(map(torch.equal, plain, recorded)) and all(g.requires_grad for g in recorded)


def test_derivatives_that_nothing_depends_on_are_none():
    x, bias = require_gradients(tensor((3, 5), "f64"), tensor((5,), "f64"))
    y = ek.layer_norm(x, (5,), None, bias)
    dbias, dx = torch.autograd.grad(y.sum(), (bias, x), create_graph=True)
    assert torch.autograd.grad(dx.sum(), bias, allow_unused=True, retain_graph=True) == (None,)
    assert not torch.autograd.grad(dbias.sum(), x, allow_unused=True, materialize_grads=True)[0].any()


def test_hessians_of_both_kinds():
    x = tensor((2, 4), "f64")

    def loss(library):
        return lambda x: library.layer_norm(x, (4,), eps=EPS).pow(3).sum()

    expected = torch.autograd.functional.hessian(loss(torch.nn.functional), x)
    for vectorize in (False, True):
        found = torch.autograd.functional.hessian(loss(ek), x, vectorize=vectorize)
        agree(found, expected, 1e-12)


# ---- torch.func, forward mode and batched gradients ----


def pair(norm, weight, bias=None):
    """The norm by evenkeel and by PyTorch, of x alone."""
    return (lambda x: norm.ours(x, (8,), weight, bias)), (lambda x: norm.theirs(x, (8,), weight, bias))


@ignore_jit_warnings
@both_norms
def test_transforms_of_functions(norm, kernels):
    x, tangent = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1)
    ours, theirs = pair(norm, *norm.affine((8,), "f64"))
    agree(grad(lambda x: ours(x).pow(3).sum())(x), grad(lambda x: theirs(x).pow(3).sum())(x))
    agree(vmap(ours)(x), theirs(x))
    agree(vmap(ours, in_dims=1)(x.t().contiguous()), theirs(x))
    agree(jvp(ours, (x,), (tangent,))[1], jvp(theirs, (x,), (tangent,))[1])
    agree(vjp(ours, x)[1](tangent)[0], vjp(theirs, x)[1](tangent)[0])
    agree(jacrev(ours)(x), jacrev(theirs)(x))
    agree(hessian(lambda x: ours(x).pow(3).sum())(x), hessian(lambda x: theirs(x).pow(3).sum())(x))
    assert kernels.forward == 0


def test_gradients_per_sample_of_a_module(kernels):
    module, plain = ek.LayerNorm(8, device=DEVICE).double(), torch.nn.LayerNorm(8, device=DEVICE).double()
    x = tensor((5, 3, 8), "f64")

    def per_sample(module):
        parameters = {name: p.detach() for name, p in module.named_parameters()}
        loss = grad(lambda parameters, x: functional_call(module, parameters, (x,)).pow(3).sum())
        return vmap(loss, in_dims=(None, 0))(parameters, x)

    found, expected = per_sample(module), per_sample(plain)
    for name in expected:
        agree(found[name], expected[name])
    assert kernels.forward == 0


def test_functional_call_alone_is_computed_by_evenkeel(kernels):
    module = ek.LayerNorm(8, device=DEVICE)
    weights = {"weight": tensor((8,), seed=1), "bias": tensor((8,), seed=2)}
    y = functional_call(module, weights, (tensor((4, 8)),))
    close(y, LAYER.theirs(tensor((4, 8)), (8,), *weights.values()))
    assert kernels.forward == 1


@ignore_jit_warnings
@both_norms
def test_forward_mode_derivatives(norm, kernels):
    x, tangent = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1)
    ours, theirs = pair(norm, *norm.affine((8,), "f64"))
    found = []
    for function in (ours, theirs):
        with forward_ad.dual_level():
            y = function(forward_ad.make_dual(x, tangent))
            found.append(forward_ad.unpack_dual(y).tangent)
    agree(*found)
    assert kernels.forward == 0


@ignore_jit_warnings
def test_forward_over_a_backward_that_was_recorded_before():
    x, tangent = tensor((4, 8), "f64"), tensor((4, 8), "f64", seed=1)
    found = []
    for library in (ek, torch.nn.functional):
        (leaf,) = require_gradients(x)
        y = library.layer_norm(leaf, (8,))
        with forward_ad.dual_level():
            dy = forward_ad.make_dual(torch.ones_like(x), tangent)
            (dx,) = torch.autograd.grad(y, leaf, dy)
            found.append(forward_ad.unpack_dual(dx).tangent)
    agree(*found)


@pytest.mark.parametrize("create_graph", [False, True])
@both_norms
def test_batched_gradients(norm, create_graph):
    directions = tensor((3, 4, 8), "f64", seed=5)
    found = []
    for call in (norm.ours, norm.theirs):
        x, weight, bias = require_gradients(tensor((4, 8), "f64"), *norm.affine((8,), "f64"))
        wanted = [t for t in (x, weight, bias) if t is not None]
        y = call(x, (8,), weight, bias)
        found.append(torch.autograd.grad(y, wanted, directions, is_grads_batched=True, create_graph=create_graph))
    for result, expected in zip(*found, strict=True):
        agree(result, expected)


# ---- lazy tensors ----


def negated(shape, seed=0):
    """A tensor that is minus what lies in its memory."""
    lazy = torch._neg_view(tensor(shape, "f64", seed))  # as x.conj().imag, and no element apart from the next
    assert lazy.is_neg() and lazy.is_contiguous()
    return lazy


@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "weight", "bias"])
@pytest.mark.parametrize("parameter", [False, True])
def test_negations_are_carried_out(which, parameter):
    operands = [tensor((4, 8), "f64"), *LAYER.affine((8,), "f64")]
    operands[which] = negated(operands[which].shape)
    if parameter:
        operands[which] = torch.nn.Parameter(operands[which])
    y = ek.layer_norm(operands[0], (8,), *operands[1:])
    close(y, torch.nn.functional.layer_norm(operands[0], (8,), *operands[1:]))


def test_gradients_flow_through_a_negation():
    dy, found = tensor((4, 8), "f64", seed=3), []
    for library in (ek, torch.nn.functional):
        z = torch.complex(tensor((4, 8), "f64"), tensor((4, 8), "f64", 1)).requires_grad_()
        found.append(torch.autograd.grad(library.layer_norm(z.conj().imag, (8,)), z, dy)[0])
    agree(*map(torch.view_as_real, found))


@both_norms
def test_a_negated_gradient_has_its_sign(norm):
    dy = negated((4, 8), seed=3)
    operands = tensor((4, 8), "f64"), *norm.affine((8,), "f64")
    found = gradients(lambda *o: norm.ours(o[0], (8,), *o[1:]), operands, dy)
    expected = gradients(lambda *o: norm.theirs(o[0], (8,), *o[1:]), operands, dy)
    for result, correct in zip(found, expected, strict=True):
        assert result is correct is None or close(result, correct) is None


def test_a_norm_inside_a_complex_computation():
    x, found = tensor((4, 8), "f64"), []
    for library in (ek, torch.nn.functional):
        (leaf,) = require_gradients(x)
        y = library.layer_norm(leaf, (8,))
        torch.complex(x, y).conj().mul(2 + 1j).imag.pow(3).sum().backward()
        found.append(leaf.grad)
    agree(*found)


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


@every_dtype
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


# ---- torch.compile: evenkeel computes the norms ----

backends = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@pytest.fixture
def compiling():
    """torch.compile, which starts without what earlier tests compiled."""
    torch._dynamo.reset()
    return torch.compile


@ignore_compile_warnings
@backends
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
@backends
def test_the_functions_too(backend, compiling, kernels):
    weight, bias = LAYER.affine((40,))

    def call(x):
        return ek.layer_norm(x.sin(), (40,), weight, bias) + ek.rms_norm(x, (40,), weight)

    x = tensor((6, 40))
    assert same_bits(compiling(call, backend=backend)(x), call(x))
    assert kernels.forward == 4


@ignore_compile_warnings
@backends
def test_other_shapes_and_dtypes_come_later(backend, compiling):
    module = ek.LayerNorm(40, device=DEVICE)
    compiled = compiling(module, backend=backend)
    for shape in ((6, 40), (7, 40), (2, 3, 40)):
        assert same_bits(compiled(tensor(shape)), module(tensor(shape)))


@ignore_compile_warnings
def test_a_graph_that_must_be_whole_says_what_breaks_it(compiling):
    compiled = compiling(ek.LayerNorm(40), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"evenkeel\.torch"):
        compiled(torch.ones(6, 40))
