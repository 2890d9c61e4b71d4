"""First derivatives: which of them are computed, the ways to call backward, and the tensors that forward
saves for it. SPDX-License-Identifier: MIT"""

import gc
import threading
import weakref

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import evenkeel.torch as ek
from evenkeel.torch import _autograd
from torch_cases import (
    DEVICE,
    LAYER,
    Wrapped,
    all_same,
    both_norms,
    every_dtype,
    every_norm,
    exchange_only,
    gpu_only,
    gradients,
    require_gradients,
    same_bits,
    tensor,
)

# ---- which gradients are computed ----


@pytest.fixture
def made(monkeypatch):
    """Where the gradients lie that Norm.backward has made; None for one that it has not."""
    addresses, compute = [], _autograd.Norm.backward

    def noted(*args):
        found = compute(*args)
        addresses.extend(None if g is None else g.data_ptr() for g in found)
        return found

    monkeypatch.setattr(_autograd.Norm, "backward", staticmethod(noted))
    return addresses


@pytest.mark.parametrize("needs", range(1, 8), ids=lambda needs: f"{needs:03b}")
def test_gradients_are_computed_for_exactly_what_needs_them(needs, made):
    leaves = [t.requires_grad_(bool(needs >> i & 1)) for i, t in enumerate(LAYER.operands((6, 40)))]
    LAYER.rows(*leaves).sum().backward()
    assert [t.grad is not None for t in leaves] == [t.requires_grad for t in leaves]
    assert [address is not None for address in made] == [*(t.requires_grad for t in leaves), False]


def test_gradients_are_kept_by_the_leaves_without_a_copy(made):
    leaves = require_gradients(*LAYER.operands((6, 40)))
    LAYER.rows(*leaves).backward(tensor((6, 40), seed=1))
    assert [leaf.grad.data_ptr() for leaf in leaves] == made[:3]


@exchange_only
def test_an_expanded_gradient_is_served_in_c(kernels):
    LAYER.rows(*require_gradients(*LAYER.operands((6, 40)))).sum().backward()
    assert kernels.last == "eager_backward"


def test_nothing_is_recorded_where_nothing_needs_a_gradient(kernels):
    y = LAYER.rows(*LAYER.operands((6, 40)))
    assert not y.requires_grad and y.grad_fn is None and kernels.forward == 1
    with torch.no_grad():
        y = ek.layer_norm(tensor((6, 40)).requires_grad_(), (40,))
    assert not y.requires_grad and y.grad_fn is None
    assert kernels.forward == 2


def test_under_inference_mode_the_result_is_an_inference_tensor(kernels):
    x = tensor((6, 40)).requires_grad_()
    with torch.inference_mode():
        y = ek.layer_norm(x, (40,))
    assert y.is_inference() and kernels.forward == 1
    assert same_bits(y, ek.layer_norm(x.detach(), (40,)))


def test_a_result_may_be_changed_in_place():
    operands, dy = LAYER.operands((6, 40)), tensor((6, 40), seed=1)
    found = gradients(lambda *o: LAYER.rows(*o).add_(1), operands, dy)
    assert all_same(found, gradients(LAYER.rows, operands, dy))


# ---- ways to call backward ----


def test_gradients_accumulate_over_calls():
    leaves = require_gradients(*LAYER.operands((6, 40)))
    LAYER.rows(*leaves).sum().backward()
    twice = [2 * t.grad for t in leaves]
    LAYER.rows(*leaves).sum().backward()
    assert all_same([t.grad for t in leaves], twice)


def test_a_graph_is_kept_where_asked_and_freed_otherwise():
    (x,) = require_gradients(tensor((6, 40)))
    y = ek.layer_norm(x, (40,)).square().sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    second = torch.autograd.grad(y, x)
    assert same_bits(first[0], second[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, x)


def test_hooks_on_tensors_are_called_and_may_change_gradients():
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    seen = []
    y = ek.layer_norm(x, (40,), weight)
    y.register_hook(lambda dy: seen.append(dy.shape) or dy * 2)
    weight.register_hook(lambda dweight: dweight * 0)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.shape))
    y.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
    y.backward(torch.ones_like(y))
    expected = gradients(lambda x: ek.layer_norm(x, (40,), weight.detach()), [x], torch.full_like(y, 2.0))
    assert sorted(map(str, seen)) == ["1", "torch.Size([6, 40])", "torch.Size([6, 40])"]
    assert same_bits(x.grad, expected[0]) and not weight.grad.any()


@pytest.mark.parametrize("reentrant", [True, False])
@both_norms
def test_checkpoints_compute_the_same_bits(norm, reentrant, kernels):
    operands, dy = norm.operands((6, 40)), tensor((6, 40), seed=1)

    def call(x, *affine):
        return norm.rows(norm.rows(x, *affine).relu(), *affine)

    expected = gradients(call, operands, dy)
    kernels.forward = 0
    found = gradients(lambda *o: checkpoint(call, *o, use_reentrant=reentrant), operands, dy)
    assert kernels.forward == 4 and all_same(found, expected)


def test_backward_in_another_thread():
    operands, dy = require_gradients(*LAYER.operands((300, 400))), tensor((300, 400), seed=1)
    thread = threading.Thread(target=LAYER.rows(*operands).backward, args=(dy,))
    thread.start()
    thread.join()
    assert all_same([t.grad for t in operands], gradients(LAYER.rows, operands, dy))


# ---- tensors that forward saves: x, weight and the statistics of the rows ----


def saved_by(call):
    """Every tensor that the call saves, in order."""
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = call()
    assert y.requires_grad
    return saved


@every_dtype
@every_norm
def test_x_weight_and_the_statistics_are_saved_each_once(norm, dtype):
    x, weight, bias = require_gradients(*norm.operands((6, 5, 40), dtype))
    saved = saved_by(lambda: norm.rows(x, weight, bias))
    kept = [t for t in (x, weight) if t is not None]
    assert [t.data_ptr() for t in saved[: len(kept)]] == [t.data_ptr() for t in kept]
    (stats,) = saved[len(kept) :]
    assert stats.numel() == norm.statistics * 30
    assert stats.dtype == (torch.float64 if dtype == "f64" else torch.float32)
    # A storage that came through DLPack cannot be resized, and record_stream does nothing for it.
    assert all(t.untyped_storage().resizable() for t in saved)


@gpu_only
@both_norms
def test_a_hook_may_copy_on_another_stream(norm):
    """As activation offloading does: the memory of the statistics is reused only after the copy."""
    operands, dy = norm.operands((5000, 40)), tensor((5000, 40), seed=2)
    expected = gradients(norm.rows, operands, dy)
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def copy_later(t):
        side.wait_stream(main)
        t.record_stream(side)
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            return t.clone()

    def call(*operands):
        with saved_tensors_hooks(copy_later, lambda t: t):
            y = norm.rows(*operands)
        overwriting = [torch.full((norm.statistics, 5000), torch.nan, device=DEVICE) for _ in range(8)]
        main.wait_stream(side)
        del overwriting
        return y

    assert all_same(gradients(call, operands, dy), expected)


@pytest.mark.parametrize("scattered", [False, True])
def test_rms_norm_in_training_takes_an_inference_tensor(scattered):
    with torch.inference_mode():
        x = tensor((8, 6)).t() if scattered else tensor((6, 8))
    module, dy = ek.RMSNorm(8, device=DEVICE), tensor((6, 8), seed=1)
    assert x.is_inference() and module.weight.requires_grad
    y = module(x)
    y.backward(dy)
    (expected,) = gradients(lambda weight: ek.rms_norm(x.clone(), (8,), weight), [module.weight], dy)
    assert same_bits(y, ek.rms_norm(x.clone(), (8,), module.weight)) and same_bits(module.weight.grad, expected)


@pytest.mark.parametrize("library", [torch.nn.functional, ek], ids=["PyTorch", "evenkeel"])
def test_layer_norm_in_training_does_not(library):
    with torch.inference_mode():
        x = tensor((6, 8))
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        library.layer_norm(x, (8,), tensor((8,), seed=1).requires_grad_())


def test_a_copy_of_a_scattered_x_is_not_kept():
    x = tensor((40, 6)).t().requires_grad_()
    saved = saved_by(lambda: ek.layer_norm(x, (40,)))
    assert saved[0].data_ptr() == x.data_ptr() and saved[0].stride() == x.stride() and len(saved) == 2


def test_the_result_is_not_kept():
    x = tensor((6, 40)).requires_grad_()
    y = ek.layer_norm(x, (40,))
    graph, memory = y.grad_fn, weakref.ref(y.untyped_storage())
    del y
    gc.collect()
    assert memory() is None and graph is not None


@pytest.mark.parametrize("which", ["x", "weight"])
@pytest.mark.parametrize("library", [torch.nn.functional, ek], ids=["PyTorch", "evenkeel"])
def test_what_is_saved_and_changed_raises(library, which):
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    x_used, weight_used = x * 1, weight * 1
    y = library.layer_norm(x_used, (40,), weight_used)
    (x_used if which == "x" else weight_used).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_bias_may_be_changed_before_backward():
    x, bias = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    y = ek.layer_norm(x, (40,), None, bias)
    with torch.no_grad():
        bias.add_(1)
    y.sum().backward()
    assert torch.equal(bias.grad, torch.full((40,), 6.0, device=DEVICE))


def test_hooks_may_move_and_round_what_is_saved():
    operands, dy = LAYER.operands((6, 40))[:2], tensor((6, 40), seed=2)
    expected = gradients(LAYER.rows, operands, dy)

    def under(hooks):
        def call(*operands):
            with hooks:
                return LAYER.rows(*operands)

        return gradients(call, operands, dy)

    assert all_same(under(save_on_cpu()), expected)
    doubled = under(saved_tensors_hooks(torch.Tensor.clone, lambda t: t * 2 if t.shape == (40,) else t))
    assert torch.allclose(doubled[0], 2 * expected[0], rtol=1e-5, atol=1e-5)


def test_saved_tensors_may_come_back_as_a_subclass(kernels):
    operands, dy = LAYER.operands((6, 40))[:2], tensor((6, 40), seed=2)
    expected = gradients(LAYER.rows, operands, dy)

    def call(*operands):
        with saved_tensors_hooks(lambda t: t, Wrapped):
            return LAYER.rows(*operands)

    kernels.backward = 0
    found = gradients(call, operands, dy)
    assert kernels.backward == 0 and all(type(g) is Wrapped for g in found)
    assert all(torch.allclose(a.inner, b, rtol=1e-5, atol=1e-5) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("again", [False, True], ids=["once", "to be differentiated again"])
def test_each_saved_tensor_is_unpacked_once(again):
    unpacked = []
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    with saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        y = ek.layer_norm(x, (40,), weight)
    torch.autograd.grad(y, x, tensor((6, 40), seed=2), create_graph=again)
    assert len(unpacked) == 3


def test_what_a_hook_raises_is_the_caller_s(fallback):
    calls = []

    def failing(t):
        calls.append(t)
        raise ValueError("not today")

    fallback("error")
    with saved_tensors_hooks(failing, lambda t: t), pytest.raises(ValueError, match="not today"):
        ek.layer_norm(tensor((4, 8)).requires_grad_(), (8,))
    assert len(calls) == 1
