"""What forward keeps for backward: x, weight, the statistics of the rows, and nothing else.
SPDX-License-Identifier: MIT"""

import gc
import weakref

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import evenkeel.torch as ek
from torch_cases import (
    DEVICE,
    Wrapped,
    both_norms,
    every_dtype,
    every_norm,
    gpu_only,
    gradients,
    require_gradients,
    same_bits,
    tensor,
)


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
