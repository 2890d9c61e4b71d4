"""First derivatives: their values, which of them are computed, the ways to call backward, and the tensors that forward
saves for it. SPDX-License-Identifier: MIT"""

import gc
import threading
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import evenkeel.torch as ek
from evenkeel.torch import _autograd
from torch_cases import (
    DEVICE,
    LAYER,
    Wrapped,
    any_call,
    both_norms,
    close,
    every_dtype,
    every_norm,
    exchange_only,
    gpu_only,
    gradients,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

# ---- values ----


def check(norm, x, weight, bias, dy, shape=None, eps=1e-5):
    """The gradients are those of float64, in the dtypes of what they belong to."""
    shape = tuple(x.shape[-1:]) if shape is None else shape
    operands = (x, weight, bias)
    found = gradients(lambda *o: norm.ours(o[0], shape, *o[1:], eps), operands, dy)
    expected = gradients(lambda *o: norm.theirs(o[0], shape, *o[1:], eps), wide(*operands), wide(dy)[0])
    for gradient, correct, operand in zip(found, expected, operands, strict=True):
        assert (gradient is None) == (correct is None)
        if gradient is not None:
            assert gradient.dtype == operand.dtype and gradient.shape == operand.shape
            close(gradient, correct)


@every_dtype
@every_norm
def test_any_operands_in_any_dtype(norm, dtype):
    check(norm, tensor((4, 3, 40), dtype), *norm.affine((40,), dtype), tensor((4, 3, 40), dtype, seed=1))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@every_norm
def test_f32_weights_have_f32_gradients(norm, dtype):
    check(norm, tensor((6, 40), dtype), *norm.affine((40,), "f32"), tensor((6, 40), dtype, seed=1))


@both_norms
def test_several_normalized_dimensions(norm):
    check(norm, tensor((3, 4, 5, 6)), *norm.affine((5, 6)), tensor((3, 4, 5, 6), seed=1), (5, 6))
    check(norm, tensor((5, 6)), *norm.affine((5, 6)), tensor((5, 6), seed=1), (5, 6))


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_far_from_zero_as_exact_as_near_it(offset):
    check(LAYER, tensor((8, 1000), offset=offset), *LAYER.affine((1000,)), tensor((8, 1000), seed=1))


LAYOUTS = {
    "expanded from one number": lambda: tensor((1, 1)).expand(6, 40),
    "expanded rows": lambda: tensor((1, 40)).expand(6, 40),
    "expanded columns": lambda: tensor((6, 1)).expand(6, 40),
    "transposed": lambda: tensor((40, 6)).t(),
    "every other column": lambda: tensor((6, 80))[:, ::2],
    "columns of a wider matrix": lambda: tensor((6, 90))[:, 7:47],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@both_norms
def test_dy_of_any_layout(norm, layout):
    dy = LAYOUTS[layout]()
    check(norm, tensor((6, 40), seed=1), *norm.affine((40,)), dy)


@pytest.mark.parametrize(
    "loss", [torch.sum, torch.mean, lambda y: y.t()[3:7].square().sum(), lambda y: y.t().sum(0)[2]]
)
@both_norms
def test_dy_from_reductions_and_views(norm, loss):
    x, weight, bias = tensor((6, 40), "f64"), *norm.affine((40,), "f64")
    found = gradients(lambda *o: loss(norm.ours(o[0], (40,), *o[1:])), (x, weight, bias), None)
    expected = gradients(lambda *o: loss(norm.theirs(o[0], (40,), *o[1:])), (x, weight, bias), None)
    for gradient, correct in zip(found, expected, strict=True):
        assert gradient is correct is None or torch.allclose(gradient, correct, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layout", ["transposed", "expanded", "sliced"])
def test_x_of_any_layout(layout):
    base = {"transposed": tensor((40, 6)), "expanded": tensor((1, 40)), "sliced": tensor((6, 80))}[layout]
    view = {"transposed": torch.t, "expanded": lambda b: b.expand(6, 40), "sliced": lambda b: b[:, ::2]}[layout]
    dy, weight, bias = tensor((6, 40), seed=1), *LAYER.affine((40,))
    (found,) = gradients(lambda b: LAYER.ours(view(b), (40,), weight, bias), [base], dy)
    (expected,) = gradients(lambda b: LAYER.theirs(view(b), (40,), *wide(weight, bias)), wide(base), dy.double())
    close(found, expected)


@settings(max_examples=150, deadline=None)
@given(any_call(), st.sampled_from([lambda x: x.new_ones(()).expand(x.shape), lambda x: x.flip(0), torch.cos]))
def test_any_shape_strides_dtype_and_operands(call, make_dy):
    norm, x, shape, *affine = call
    check(norm, x, *affine, make_dy(x), shape, eps=0.5)  # short rows may vary little


# ---- which gradients are computed ----


@pytest.mark.parametrize("needs", range(1, 8), ids=lambda needs: f"{needs:03b}")
def test_gradients_are_computed_for_exactly_what_needs_them(needs, monkeypatch):
    made, compute = [], _autograd.Norm.backward
    monkeypatch.setattr(_autograd.Norm, "backward", staticmethod(lambda *args: made.append(compute(*args)) or made[-1]))
    operands = tensor((6, 40)), *LAYER.affine((40,))
    leaves = [t.requires_grad_(bool(needs >> i & 1)) for i, t in enumerate(operands)]
    ek.layer_norm(leaves[0], (40,), *leaves[1:]).sum().backward()
    assert [t.grad is not None for t in leaves] == [t.requires_grad for t in leaves]
    (gradients_made,) = made
    assert [g is not None for g in gradients_made] == [*(t.requires_grad for t in leaves), False]


def test_gradients_are_kept_by_the_leaves_without_a_copy(monkeypatch):
    addresses, compute = [], _autograd.Norm.backward

    def noted(ctx, dy):
        gradients = compute(ctx, dy)
        addresses.extend(g.data_ptr() for g in gradients[:3])
        return gradients

    monkeypatch.setattr(_autograd.Norm, "backward", staticmethod(noted))
    leaves = require_gradients(tensor((6, 40)), *LAYER.affine((40,)))
    ek.layer_norm(leaves[0], (40,), *leaves[1:]).backward(tensor((6, 40), seed=1))
    assert [leaf.grad.data_ptr() for leaf in leaves] == addresses


@exchange_only
def test_an_expanded_gradient_is_served_in_c(kernels):
    x = tensor((6, 40)).requires_grad_()
    ek.layer_norm(x, (40,), *LAYER.affine((40,))).sum().backward()
    assert kernels.last == "eager_backward"


def test_nothing_is_recorded_where_nothing_needs_a_gradient(kernels):
    y = ek.layer_norm(tensor((6, 40)), (40,), *LAYER.affine((40,)))
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
    x, dy = tensor((6, 40)), tensor((6, 40), seed=1)
    expected = gradients(lambda x: ek.layer_norm(x, (40,)), [x], dy)
    found = gradients(lambda x: ek.layer_norm(x, (40,)).add_(1), [x], dy)
    assert same_bits(found[0], expected[0])


# ---- ways to call backward ----


def test_gradients_accumulate_over_calls():
    x, weight, bias = require_gradients(tensor((6, 40)), *LAYER.affine((40,)))
    ek.layer_norm(x, (40,), weight, bias).sum().backward()
    once = [t.grad.clone() for t in (x, weight, bias)]
    ek.layer_norm(x, (40,), weight, bias).sum().backward()
    assert all(same_bits(t.grad, 2 * g) for t, g in zip((x, weight, bias), once, strict=True))


def test_a_graph_is_kept_where_asked_and_freed_otherwise():
    (x,) = require_gradients(tensor((6, 40)))
    y = ek.layer_norm(x, (40,)).square().sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    second = torch.autograd.grad(y, x)
    assert same_bits(first[0], second[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, x)


def test_one_x_in_two_norms_and_one_weight_in_three():
    operands = tensor((6, 40), "f64"), tensor((40,), "f64", seed=1)

    def stack(library, x, weight):
        y = library.layer_norm(x, (40,), weight) + library.rms_norm(x, (40,), weight, 1e-5)
        return library.layer_norm(y.square(), (40,), weight)

    dy = tensor((6, 40), "f64", seed=2)
    found = gradients(lambda *o: stack(ek, *o), operands, dy)
    expected = gradients(lambda *o: stack(torch.nn.functional, *o), operands, dy)
    assert all(torch.allclose(*pair, rtol=1e-11, atol=1e-12) for pair in zip(found, expected, strict=True))


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
    operands, dy = (tensor((6, 40)), *norm.affine((40,))), tensor((6, 40), seed=1)

    def call(x, weight, bias):
        return norm.ours(norm.ours(x, (40,), weight, bias).relu(), (40,), weight, bias)

    expected = gradients(call, operands, dy)
    kernels.forward = 0
    found = gradients(lambda *o: checkpoint(call, *o, use_reentrant=reentrant), operands, dy)
    assert kernels.forward == 4
    assert all(a is b is None or same_bits(a, b) for a, b in zip(found, expected, strict=True))


def test_backward_in_another_thread():
    operands, dy = require_gradients(tensor((300, 400)), *LAYER.affine((400,))), tensor((300, 400), seed=1)
    y = ek.layer_norm(operands[0], (400,), *operands[1:])
    thread = threading.Thread(target=y.backward, args=(dy,))
    thread.start()
    thread.join()
    expected = gradients(lambda *o: ek.layer_norm(o[0], (400,), *o[1:]), operands, dy)
    assert all(same_bits(t.grad, g) for t, g in zip(operands, expected, strict=True))


@pytest.mark.slow
def test_a_loss_that_goes_down():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), ek.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    model.to(DEVICE)
    x = tensor((64, 8))
    target = x[:, :1] * x[:, 1:2]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5


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
    x, weight, bias = require_gradients(tensor((6, 5, 40), dtype), *norm.affine((40,), dtype))
    saved = saved_by(lambda: norm.ours(x, (40,), weight, bias))
    kept = [t for t in (x, weight) if t is not None]
    assert [t.data_ptr() for t in saved[: len(kept)]] == [t.data_ptr() for t in kept]
    (stats,) = saved[len(kept) :]
    assert stats.numel() == norm.statistics * 30
    assert stats.dtype == (torch.float64 if dtype == "f64" else torch.float32)


@every_dtype
@both_norms
def test_the_storage_of_what_is_saved_belongs_to_pytorch(norm, dtype):
    """A storage that came through DLPack cannot be resized, and record_stream does nothing for it."""
    x, weight, bias = require_gradients(tensor((6, 40), dtype), *norm.affine((40,), dtype))
    saved = saved_by(lambda: norm.ours(x, (40,), weight, bias))
    assert [t.untyped_storage().resizable() for t in saved] == [True] * 3


@gpu_only
@both_norms
def test_a_hook_may_copy_on_another_stream(norm):
    """As activation offloading does: the memory of the statistics is reused only after the copy."""
    operands, dy = (tensor((5000, 40)), *norm.affine((40,))), tensor((5000, 40), seed=2)
    expected = gradients(lambda x, *affine: norm.ours(x, (40,), *affine), operands, dy)
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def copy_later(t):
        side.wait_stream(main)
        t.record_stream(side)
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            return t.clone()

    def call(x, *affine):
        with saved_tensors_hooks(copy_later, lambda t: t):
            y = norm.ours(x, (40,), *affine)
        overwriting = [torch.full((norm.statistics, 5000), torch.nan, device=DEVICE) for _ in range(8)]
        main.wait_stream(side)
        del overwriting
        return y

    found = gradients(call, operands, dy)
    assert all(a is b is None or same_bits(a, b) for a, b in zip(found, expected, strict=True))


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


def test_nothing_is_saved_where_nothing_needs_a_gradient():
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        ek.layer_norm(tensor((6, 40)), (40,))
    assert not saved


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
    operands, dy = (tensor((6, 40)), tensor((40,), seed=1)), tensor((6, 40), seed=2)
    expected = gradients(lambda x, w: ek.layer_norm(x, (40,), w), operands, dy)

    def under(hooks):
        def call(x, weight):
            with hooks:
                return ek.layer_norm(x, (40,), weight)

        return gradients(call, operands, dy)

    assert all(map(same_bits, under(save_on_cpu()), expected))
    doubled = under(saved_tensors_hooks(torch.Tensor.clone, lambda t: t * 2 if t.shape == (40,) else t))
    assert torch.allclose(doubled[0], 2 * expected[0], rtol=1e-5, atol=1e-5)


def test_saved_tensors_may_come_back_as_a_subclass(kernels):
    operands, dy = (tensor((6, 40)), tensor((40,), seed=1)), tensor((6, 40), seed=2)
    expected = gradients(lambda x, w: ek.layer_norm(x, (40,), w), operands, dy)

    def call(x, weight):
        with saved_tensors_hooks(lambda t: t, Wrapped):
            return ek.layer_norm(x, (40,), weight)

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
