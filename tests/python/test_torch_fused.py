"""evenkeel.torch's norms with a residual before them: values, bits, what is saved, gradients that are absent.
SPDX-License-Identifier: MIT"""

import itertools
import pickle
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import evenkeel
import evenkeel.torch as ek
import fused_cases
import reference
from evenkeel.torch import _autograd, _kernels
from evenkeel.torch._call import ADD_NORM
from fused_cases import CASES, SHAPES, Case
from processes import run_python
from test_torch_values import as_tensor, memory
from torch_cases import (
    DEVICE,
    DTYPES,
    all_same,
    both_norms,
    close,
    cpu_only,
    exchange_only,
    leave_calls_to_python,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

every_case = pytest.mark.parametrize("case", CASES, ids=str)
F32 = Case("f32", "f32", "f32", "f32")
BF16_IN_F32 = Case("bf16", "bf16", "f32", "bf16")


class Operands(NamedTuple):
    x: torch.Tensor
    residual: torch.Tensor
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    x_bias: torch.Tensor | None = None


def operands(norm, case=F32, shape=(6, 40)):
    """The operands of the norm, dy and dh."""
    *inputs, dy, dh = map(as_tensor, fused_cases.operands(case, shape))
    inputs = Operands(*inputs)
    return (inputs if norm.has_bias else inputs._replace(bias=None)), dy, dh


def add_norm(norm, inputs, case=F32, eps=1e-5, **options):
    """(y, h) over the last dimension."""
    x, residual, weight, bias, x_bias = inputs
    affine = (weight, bias) if norm.op == "layer_norm" else (weight,)
    options = {"out_dtype": DTYPES[case.y], **case.flavour, **options}
    return getattr(ek, f"add_{norm.op}")(x, residual, x.shape[-1:], *affine, eps, x_bias, **options)


def composed(norm, inputs, case=F32):
    """The same in float64 by PyTorch, h rounded where it is."""
    x, residual, weight, bias, x_bias = inputs
    h = x + residual if x_bias is None else x + x_bias + residual
    h = h + (h.detach().to(DTYPES[case.h]).double() - h.detach())
    weight = weight if weight is None else weight + case.weight_offset
    return norm.theirs(h, x.shape[-1:], weight, bias), h


def gradients(call, inputs, *outer):
    """Of what is not None, for the gradients of (y, h): either may be None."""
    leaves = require_gradients(*inputs)
    results = [(r, g) for r, g in zip(call(Operands(*leaves)), outer, strict=True) if g is not None]
    present = [leaf for leaf in leaves if leaf is not None]
    results, outer = zip(*results, strict=True)
    found = iter(torch.autograd.grad(results, present, outer, allow_unused=True))
    return [None if leaf is None else next(found) for leaf in leaves]


# ---- values ----


@every_case
@both_norms
def test_results_and_gradients_are_those_of_float64(norm, case):
    inputs, dy, dh = operands(norm, case)
    y, h = add_norm(norm, inputs, case)
    assert y.dtype == DTYPES[case.y] and h.dtype == DTYPES[case.h]
    for found, expected in zip((y, h), composed(norm, wide(*inputs), case), strict=True):
        close(found, expected, case.coarsest)
    found = gradients(lambda i: add_norm(norm, i, case), inputs, dy, dh)
    expected = gradients(lambda i: composed(norm, i, case), wide(*inputs), *wide(dy, dh))
    for a, b, leaf in zip(found, expected, inputs, strict=True):
        if leaf is not None:
            assert a.dtype == leaf.dtype
            close(a, b, case.coarsest)


@pytest.mark.parametrize("absent", list(itertools.product([False, True], repeat=3)), ids=str)
@both_norms
def test_weight_bias_and_x_bias_may_each_be_absent(norm, absent):
    inputs, dy, dh = operands(norm, Case(*["f64"] * 4))
    gone = {name: None for name, is_gone in zip(("weight", "bias", "x_bias"), absent, strict=True) if is_gone}
    inputs = inputs._replace(**gone)
    case = Case(*["f64"] * 4)
    for a, b in zip(add_norm(norm, inputs, case), composed(norm, inputs, case), strict=True):
        close(a, b)
    found = gradients(lambda i: add_norm(norm, i, case), inputs, dy, dh)
    expected = gradients(lambda i: composed(norm, i, case), inputs, dy, dh)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@both_norms
def test_columns_in_float32_without_a_weight_have_gradients_in_float32(norm, dtype):
    inputs, dy, dh = operands(norm, Case(dtype, "f32", dtype, dtype))
    inputs = inputs._replace(weight=None)
    found = Operands(*gradients(lambda i: add_norm(norm, i, Case(dtype, "f32", dtype, dtype)), inputs, dy, dh))
    assert found.x_bias.dtype is torch.float32 and found.x.dtype is DTYPES[dtype]
    close(found.x_bias, wide(found.x)[0].sum(0), dtype)


@both_norms
def test_several_normalized_dimensions(norm):
    x, residual, weight = tensor((5, 4, 10), "f64"), tensor((5, 4, 10), "f64", seed=1), tensor((4, 10), "f64", seed=2)
    y, h = getattr(ek, f"add_{norm.op}")(x, residual, (4, 10), weight, x_bias=weight)
    close(h, x + weight + residual)
    close(y, norm.theirs(x + weight + residual, (4, 10), weight, eps=1e-5 if norm.has_bias else None))


# ---- dtypes of the sum ----


def test_the_sum_has_the_dtype_that_pytorch_would_add_in(recwarn):
    for x_dtype, dtype in itertools.product(("f32", "bf16", "f16"), repeat=2):
        x, residual = tensor((4, 8), x_dtype), tensor((4, 8), dtype, seed=1)
        y, h = ek.add_rms_norm(x, residual, (8,))
        assert h.dtype == (x + residual).dtype and y.dtype == x.dtype
        assert same_bits(h, (x.float() + residual.float()).to(h.dtype))
    assert not recwarn


@both_norms
def test_a_residual_of_another_dtype_is_converted_first_and_so_is_its_gradient(norm):
    inputs, dy, _ = operands(norm, BF16_IN_F32)
    y, h = add_norm(norm, inputs, BF16_IN_F32, residual_dtype=torch.bfloat16)
    assert h.dtype is torch.bfloat16
    rounded = inputs._replace(residual=inputs.residual.bfloat16())
    assert all_same((y, h), add_norm(norm, rounded, BF16_IN_F32))
    dh = tensor((6, 40), "bf16", seed=9)
    found = gradients(lambda i: add_norm(norm, i, BF16_IN_F32, residual_dtype=torch.bfloat16), inputs, dy, dh)
    expected = gradients(lambda i: add_norm(norm, i, BF16_IN_F32), rounded, dy, dh)
    assert found[1].dtype is torch.float32 and same_bits(found[1], expected[1].float())
    assert all_same(found[:1] + found[2:], expected[:1] + expected[2:])


# ---- bits ----


def reference_results():
    """The bytes that the C reference computes from NumPy arrays; called in a process limited to the reference."""
    assert evenkeel.info()["level"] == "reference"
    found = {}
    for op, case, shape in itertools.product(reference.OPS, CASES, SHAPES):
        given = fused_cases.operands(case, shape)
        results = fused_cases.every_result(evenkeel, op, case, given, reference.DTYPES)
        found[op, case, shape] = [array.tobytes() for array in results]
    return found


@pytest.fixture(scope="module")
def reference_bits(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "results"
    script = f"import pickle, test_torch_fused as t; pickle.dump(t.reference_results(), open({str(path)!r}, 'wb'))"
    run_python(script, EVENKEEL_ISA="reference")
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize("way", ["c", "python", "an old PyTorch"])
@every_case
@both_norms
def test_bits_are_those_of_the_reference(norm, case, way, reference_bits, monkeypatch):
    if way != "c":
        leave_calls_to_python(monkeypatch)
    if way == "an old PyTorch":
        monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
        monkeypatch.setattr(_autograd.AddNorm, "forward", staticmethod(partial(_autograd.keep_in_python, ADD_NORM)))
    for shape in SHAPES:
        expected = reference_bits[norm.op, case, shape]
        given = tuple(map(as_tensor, fused_cases.operands(case, shape)))
        explicit = fused_cases.every_result(ek, norm.op, case, given, DTYPES)
        assert list(map(memory, explicit)) == expected
        inputs, dy, dh = operands(norm, case, shape)
        assert list(map(memory, add_norm(norm, inputs, case))) == expected[:2]
        found = Operands(*gradients(lambda i: add_norm(norm, i, case), inputs, dy, dh))
        bias = [] if found.bias is None else [found.bias]
        in_order = [found.x, found.weight, *bias, found.residual, found.x_bias]
        assert list(map(memory, in_order)) == expected[2 + norm.statistics :]


@both_norms
def test_without_x_bias_it_is_an_addition_and_a_norm_to_the_bit(norm):
    for dtype in DTYPES:
        x, residual, weight = tensor((70, 129), dtype), tensor((70, 129), dtype, 1), tensor((129,), dtype, 2)
        inputs = Operands(x, residual, weight)
        case = Case(*[dtype] * 4)
        assert all_same(add_norm(norm, inputs, case), (norm.rows(x + residual, weight), x + residual))


@cpu_only
@both_norms
def test_bits_do_not_depend_on_threads_or_the_batch(norm, threads):
    inputs, dy, dh = operands(norm, F32, (300, 1000))

    def everything(inputs, dy, dh):
        return *add_norm(norm, inputs), *gradients(lambda i: add_norm(norm, i), inputs, dy, dh)

    threads(1)
    one = everything(inputs, dy, dh)
    threads(3)
    assert all_same(everything(inputs, dy, dh), one)
    some = inputs._replace(x=inputs.x[5:8], residual=inputs.residual[5:8])
    assert all_same(everything(some, dy[5:8], dh[5:8])[:4], [whole[5:8] for whole in one[:4]])


@both_norms
def test_bits_do_not_depend_on_which_gradients_are_wanted(norm):
    inputs, dy, dh = operands(norm, BF16_IN_F32, (50, 300))
    everything = gradients(lambda i: add_norm(norm, i, BF16_IN_F32), inputs, dy, dh)
    for i, expected in enumerate(everything):
        if expected is not None:
            leaves = Operands(*(None if t is None else t.clone() for t in inputs))
            leaves[i].requires_grad_()
            found = torch.autograd.grad(add_norm(norm, leaves, BF16_IN_F32), leaves[i], (dy, dh))[0]
            assert same_bits(found, expected)


# ---- layouts ----

LAYOUTS = {
    "rows apart": lambda t: t.repeat_interleave(3, 0)[::3],
    "transposed": lambda t: t.t().contiguous().t(),
    "steps": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "a lazy negation": lambda t: torch._neg_view(-t),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@both_norms
def test_operands_and_gradients_of_any_layout(norm, layout):
    inputs, dy, dh = operands(norm)
    expected = add_norm(norm, inputs), gradients(lambda i: add_norm(norm, i), inputs, dy, dh)
    lay = LAYOUTS[layout]
    rows = {"x": lay(inputs.x), "residual": lay(inputs.residual)}
    if layout in ("steps", "a lazy negation"):
        rows |= {"weight": lay(inputs.weight), "x_bias": lay(inputs.x_bias)}
    laid_out = inputs._replace(**rows)
    assert all_same(add_norm(norm, laid_out), expected[0])
    leaves = Operands(*(None if t is None else t.detach().requires_grad_() for t in laid_out))
    present = [t for t in leaves if t is not None]
    found = torch.autograd.grad(add_norm(norm, leaves), present, (lay(dy), lay(dh)))
    assert all_same(found, [g for g in expected[1] if g is not None])


@both_norms
def test_expanded_gradients(norm):
    inputs, dy, dh = operands(norm)
    ones = torch.ones((), device=DEVICE).expand(dy.shape)
    found = gradients(lambda i: add_norm(norm, i), inputs, ones, ones)
    assert all_same(found, gradients(lambda i: add_norm(norm, i), inputs, torch.ones_like(dy), torch.ones_like(dy)))


@both_norms
def test_nothing_in_nothing_out(norm):
    for shape in ((0, 8), (3, 0, 8)):
        x = torch.empty(shape, device=DEVICE, requires_grad=True)
        weight = torch.ones(8, device=DEVICE, requires_grad=True)
        y, h = add_norm(norm, Operands(x, x, weight))
        assert y.shape == h.shape == shape
        (y.sum() + h.sum()).backward()
        assert x.grad.shape == shape and not weight.grad.any()


# ---- gradients ----


@pytest.mark.parametrize("way", ["c", "python"])
@pytest.mark.parametrize("absent", ["dy", "dh"])
@both_norms
def test_the_gradient_of_either_result_may_be_absent(norm, absent, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, dy, dh = operands(norm)
    zeros = torch.zeros_like(dy)
    given = (None, dh) if absent == "dy" else (dy, None)
    found = gradients(lambda i: add_norm(norm, i), inputs, *given)
    expected = gradients(lambda i: add_norm(norm, i), inputs, *(zeros if g is None else g for g in given))
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None) and (a is None or torch.equal(a, b))


@exchange_only
@both_norms
def test_x_and_residual_have_one_gradient_where_they_have_one_dtype(norm):
    def same(case):
        inputs, dy, dh = operands(norm, case)
        leaves = Operands(*require_gradients(*inputs))
        dx, dresidual = torch.autograd.grad(add_norm(norm, leaves, case), leaves[:2], (dy, dh))
        return dx.data_ptr() == dresidual.data_ptr()

    assert same(F32) and not same(BF16_IN_F32)


@both_norms
def test_leaves_keep_gradients_of_their_own(norm):
    inputs, dy, dh = operands(norm)
    leaves = Operands(*require_gradients(*inputs))
    torch.autograd.backward(add_norm(norm, leaves), (dy, dh))
    assert leaves.x.grad is not leaves.residual.grad and torch.equal(leaves.x.grad, leaves.residual.grad)
    before = leaves.residual.grad.clone()
    leaves.x.grad.zero_()
    assert torch.equal(leaves.residual.grad, before)


@both_norms
def test_one_tensor_may_be_x_and_residual(norm):
    (x,) = require_gradients(tensor((6, 40)))
    y, h = add_norm(norm, Operands(x, x))
    (found,) = torch.autograd.grad((y, h), x, (torch.ones_like(y), torch.ones_like(h)))
    expected = gradients(lambda i: add_norm(norm, i), Operands(x, x), torch.ones_like(y), torch.ones_like(h))
    close(found, expected[0] + expected[1])


@pytest.mark.parametrize("case", [F32, BF16_IN_F32], ids=str)
@both_norms
def test_h_weight_and_the_statistics_are_saved(norm, case):
    inputs, _, _ = operands(norm, case)
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        _, h = add_norm(norm, Operands(*require_gradients(*inputs)), case)
    kept, weight, stats = saved
    assert same_bits(kept, h) and kept.data_ptr() == h.data_ptr() and same_bits(weight, inputs.weight)
    assert stats.shape == (norm.statistics, 6) and stats.dtype is torch.float32


@both_norms
def test_x_and_residual_may_be_changed_before_backward_and_h_may_not(norm):
    inputs, dy, dh = operands(norm)
    expected = gradients(lambda i: add_norm(norm, i), inputs, dy, dh)
    leaves = Operands(*require_gradients(*inputs))
    results = add_norm(norm, leaves)
    with torch.no_grad():
        leaves.x.zero_(), leaves.residual.zero_(), leaves.x_bias.zero_(), results[0].zero_()
    present = [t for t in leaves if t is not None]
    assert all_same(torch.autograd.grad(results, present, (dy, dh)), [g for g in expected if g is not None])
    for change in (lambda y, h, weight: h.zero_(), lambda y, h, weight: weight.zero_()):
        y, h = add_norm(norm, leaves)
        with torch.no_grad():
            change(y, h, leaves.weight)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@both_norms
def test_a_result_may_be_used_in_place_by_autograd(norm):
    inputs, dy, dh = operands(norm)

    def call(inputs):
        y, h = add_norm(norm, inputs)
        return y.mul_(2.0), h

    expected = gradients(lambda i: add_norm(norm, i), inputs, 2 * dy, dh)
    assert all_same(gradients(call, inputs, dy, dh), expected)


@exchange_only
@both_norms
def test_calls_that_nobody_watches_are_served_in_c(norm, kernels):
    inputs, dy, dh = operands(norm)
    add_norm(norm, inputs)
    assert kernels.last == "eager_add_forward" and kernels.forward == 1
    gradients(lambda i: add_norm(norm, i), inputs, dy, dh)
    assert kernels.last == "eager_add_backward" and (kernels.forward, kernels.backward) == (2, 1)


def test_under_no_grad_nothing_is_recorded_and_nothing_more_is_made():
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    with torch.no_grad():
        results = ek.add_rms_norm(x, x, (40,), weight)
    assert type(results) is tuple and not any(t.requires_grad for t in results)
    with torch.inference_mode():
        assert all(t.is_inference() for t in ek.add_rms_norm(x, x, (40,), weight))


@both_norms
def test_an_inference_tensor_is_accepted_as_x_and_residual(norm):
    with torch.inference_mode():
        x = tensor((6, 40))
    weight = tensor((40,), seed=1).requires_grad_()
    y, _ = add_norm(norm, Operands(x, x, weight))
    (found,) = torch.autograd.grad(y.sum(), weight)
    assert same_bits(found, gradients(lambda i: add_norm(norm, i), Operands(x, x, weight), torch.ones_like(y), None)[2])


@both_norms
def test_checkpoints_compute_the_same_bits(norm):
    inputs, dy, dh = operands(norm)

    def call(inputs):
        return checkpoint(lambda *given: add_norm(norm, Operands(*given)), *inputs, use_reentrant=False)

    assert all_same(gradients(call, inputs, dy, dh), gradients(lambda i: add_norm(norm, i), inputs, dy, dh))
