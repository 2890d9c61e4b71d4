"""torch.func, forward-mode derivatives, batched gradients, lazy tensors: transforms that must see the operations, and
tensors whose memory is not what they are. SPDX-License-Identifier: MIT"""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import evenkeel.torch as ek
from torch_cases import DEVICE, LAYER, both_norms, close, gradients, require_gradients, tensor

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own


def agree(result, expected):
    assert torch.allclose(result, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def pair(norm, weight, bias=None):
    """The norm by evenkeel and by PyTorch, of x alone."""
    return (lambda x: norm.ours(x, (8,), weight, bias)), (lambda x: norm.theirs(x, (8,), weight, bias))


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
