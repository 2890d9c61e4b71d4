"""evenkeel.torch's norms with a residual before or after them, an activation or a gate: values, bits, what is saved,
gradients that are absent. SPDX-License-Identifier: MIT"""

import itertools
import pickle
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import evenkeel
import evenkeel.torch as ek
import fused_cases
import reference
from evenkeel.torch import _autograd, _kernels
from fused_cases import CASES, SHAPES, Case
from processes import run_python
from test_torch_values import as_tensor, memory
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    RMS,
    Norm,
    all_same,
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
F64, BF16 = Case(*["f64"] * 4), Case(*["bf16"] * 4)
BF16_IN_F32 = Case("bf16", "bf16", "f32", "bf16")
IN_F32 = Case("bf16", "f32", "bf16", "f32")
either_way = pytest.mark.parametrize("way", ["c", "python"])


class Fused(Norm):
    """A norm in one of its forms: (y, h) where it has a residual before it, else y alone, in a tuple here."""

    def __new__(cls, norm, form):
        made = super().__new__(cls, *norm)
        made.form = form
        return made

    @property
    def has_h(self):
        return self.form.place == "before"

    @property
    def is_after(self):
        return self.form.place == "after"

    @property
    def activation(self):
        return self.form.activation

    @property
    def gate_first(self):
        return self.form.gate == "gated x"

    @property
    def name(self):
        if self.form.gate:
            return f"{self.op}_gated"
        return f"{self.op}_act" if self.activation else f"{self.op}_residual" if self.is_after else f"add_{self.op}"

    @property
    def eager(self):
        """The beginning of the names in the extension."""
        if self.form.gate:
            return "eager_gated"
        return "eager_act" if self.activation else "eager_after" if self.is_after else "eager_add"

    def __str__(self):
        return " ".join(filter(None, (self.name, self.activation, "first" * self.gate_first)))


BEFORE, AFTER = ([Fused(norm, form) for norm in (LAYER, RMS)] for form in (fused_cases.BEFORE, fused_cases.AFTER))
EVERY_ACT = [Fused(norm, form) for norm in (LAYER, RMS) for form in fused_cases.ACTS]
ACTS = EVERY_ACT[2:4] + EVERY_ACT[4:6]  # each activation, with one of the norms
EVERY_GATE = [Fused(norm, form) for norm in (LAYER, RMS) for form in fused_cases.GATES]
GATES = [EVERY_GATE[1], EVERY_GATE[8 + 4 + 1], EVERY_GATE[4 + 3], EVERY_GATE[8]]  # both norms, both orders
every_norm = pytest.mark.parametrize("norm", BEFORE + AFTER + ACTS + GATES, ids=str)
with_x_bias = pytest.mark.parametrize("norm", BEFORE + AFTER + ACTS, ids=str)
with_residual = pytest.mark.parametrize("norm", BEFORE + AFTER, ids=str)
with_h = pytest.mark.parametrize("norm", BEFORE, ids=str)
without_h = pytest.mark.parametrize("norm", AFTER, ids=str)

ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Operands(NamedTuple):
    x: torch.Tensor
    residual: torch.Tensor | None = None  # or the gate
    weight: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    x_bias: torch.Tensor | None = None


def operands(norm, case=F32, shape=(6, 40)):
    """The operands of the norm, and the gradients of its results: (dy, dh), or dy alone."""
    *inputs, dy, dh = map(as_tensor, fused_cases.operands(case, shape, norm.form))
    inputs = Operands(*inputs)
    inputs = inputs if norm.has_bias else inputs._replace(bias=None)
    inputs = inputs if norm.form.place or norm.form.gate else inputs._replace(residual=None)
    inputs = inputs._replace(x_bias=None) if norm.form.gate else inputs
    return inputs, (dy, dh) if norm.has_h else (dy,)


def fused_norm(norm, inputs, case=F32, eps=1e-5, **options):
    """(y, h), or y alone in a tuple, over the last dimension."""
    x, residual, weight, bias, x_bias = inputs
    affine = (weight, bias) if norm.op == "layer_norm" else (weight,)
    options = {"out_dtype": DTYPES[case.y], **case.flavour, **options}
    call, shape = getattr(ek, norm.name), x.shape[-1:]
    if norm.form.gate:
        return (call(x, residual, shape, *affine, eps, norm.activation, norm.gate_first, **options),)
    if norm.activation:
        return (call(x, shape, *affine, eps, norm.activation, x_bias=x_bias, **options),)
    results = call(x, residual, shape, *affine, eps, x_bias, **options)
    return (results,) if norm.is_after else results


def composed(norm, inputs, case=F32):
    """The same in float64 by PyTorch, h rounded where it is."""
    x, residual, weight, bias, x_bias = inputs
    weight = weight if weight is None else weight + case.weight_offset
    h = x if x_bias is None else x + x_bias
    if norm.form.gate:
        factor = ACTIVATIONS[norm.activation](residual)
        if norm.gate_first:
            return (norm.theirs(x * factor, x.shape[-1:], weight, bias),)
        return (norm.theirs(x, x.shape[-1:], weight, bias) * factor,)
    if not norm.has_h:
        y = norm.theirs(h, x.shape[-1:], weight, bias)
        return (ACTIVATIONS[norm.activation](y) if norm.activation else y + residual,)
    h = h + residual
    h = h + (h.detach().to(DTYPES[case.h]).double() - h.detach())
    return norm.theirs(h, x.shape[-1:], weight, bias), h


def call_of(norm, case=F32, **options):
    return lambda inputs: fused_norm(norm, inputs, case, **options)


def gradients(call, inputs, *outer):
    """Of what is not None, for the gradients of the results: either may be None."""
    leaves = require_gradients(*inputs)
    results = [(r, g) for r, g in zip(call(Operands(*leaves)), outer, strict=True) if g is not None]
    present = [leaf for leaf in leaves if leaf is not None]
    results, outer = zip(*results, strict=True)
    found = iter(torch.autograd.grad(results, present, outer, allow_unused=True))
    return [None if leaf is None else next(found) for leaf in leaves]


# ---- values ----


@every_case
@pytest.mark.parametrize("norm", BEFORE + AFTER + EVERY_ACT + EVERY_GATE, ids=str)
def test_results_and_gradients_are_those_of_float64(norm, case):
    inputs, outer = operands(norm, case, (12, 70))
    results = fused_norm(norm, inputs, case)
    assert [t.dtype for t in results] == [DTYPES[case.y], DTYPES[case.h]][: len(results)]
    for found, expected in zip(results, composed(norm, wide(*inputs), case), strict=True):
        close(found, expected, case.coarsest)
    found = gradients(lambda i: fused_norm(norm, i, case), inputs, *outer)
    expected = gradients(lambda i: composed(norm, i, case), wide(*inputs), *wide(*outer))
    for a, b, leaf in zip(found, expected, inputs, strict=True):
        if leaf is not None:
            assert a.dtype == leaf.dtype
            close(a, b, case.coarsest)


@pytest.mark.parametrize("absent", list(itertools.product([False, True], repeat=3)), ids=str)
@every_norm
def test_weight_bias_and_x_bias_may_each_be_absent(norm, absent):
    inputs, outer = operands(norm, Case(*["f64"] * 4))
    gone = {name: None for name, is_gone in zip(("weight", "bias", "x_bias"), absent, strict=True) if is_gone}
    inputs = inputs._replace(**gone)
    case = Case(*["f64"] * 4)
    for a, b in zip(fused_norm(norm, inputs, case), composed(norm, inputs, case), strict=True):
        close(a, b)
    found = gradients(lambda i: fused_norm(norm, i, case), inputs, *outer)
    expected = gradients(lambda i: composed(norm, i, case), inputs, *outer)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@with_x_bias
def test_columns_in_float32_without_a_weight_have_gradients_in_float32(norm, dtype):
    inputs, outer = operands(norm, Case(dtype, "f32", dtype, dtype))
    inputs = inputs._replace(weight=None)
    found = Operands(*gradients(lambda i: fused_norm(norm, i, Case(dtype, "f32", dtype, dtype)), inputs, *outer))
    assert found.x_bias.dtype is torch.float32 and found.x.dtype is DTYPES[dtype]
    close(found.x_bias, wide(found.x)[0].sum(0), dtype)
    leaves = Operands(*require_gradients(*inputs))
    results, present = fused_norm(norm, leaves, Case(dtype, "f32", dtype, dtype)), [t for t in leaves if t is not None]
    recorded = torch.autograd.grad(results, present, outer, create_graph=True)
    assert all_same(recorded, [g for g in found if g is not None])


@with_residual
def test_several_normalized_dimensions(norm):
    x, residual, weight = tensor((5, 4, 10), "f64"), tensor((5, 4, 10), "f64", seed=1), tensor((4, 10), "f64", seed=2)
    found = getattr(ek, norm.name)(x, residual, (4, 10), weight, x_bias=weight)
    h = x + weight if norm.is_after else x + weight + residual
    y = norm.theirs(h, (4, 10), weight, eps=1e-5 if norm.has_bias else None)
    for a, b in zip((found,) if norm.is_after else found, (y + residual,) if norm.is_after else (y, h), strict=True):
        close(a, b)


# ---- dtypes of the sum ----


@either_way
def test_the_sum_has_the_dtype_that_pytorch_would_add_in(way, recwarn, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    for x_dtype, dtype in itertools.product(("f32", "bf16", "f16"), repeat=2):
        x, residual = tensor((4, 8), x_dtype), tensor((4, 8), dtype, seed=1)
        y, h = ek.add_rms_norm(x, residual, (8,))
        assert h.dtype == (x + residual).dtype and y.dtype == x.dtype
        assert same_bits(h, (x.float() + residual.float()).to(h.dtype))
        last = ek.rms_norm_residual(x, residual, (8,))
        assert same_bits(last, (ek.rms_norm(x.float(), (8,)) + residual.float()).to(h.dtype))
    assert not recwarn


@without_h
def test_a_residual_that_is_added_last_is_converted_first_and_so_is_its_gradient(norm):
    """The residual of 16 bits, x in float32: the result is float32."""
    inputs, (dy,) = operands(norm, Case("f32", "f32", "bf16", "f32"))
    converted = inputs._replace(residual=inputs.residual.float())
    assert all_same(fused_norm(norm, inputs), fused_norm(norm, converted))
    found = gradients(lambda i: fused_norm(norm, i), inputs, dy)
    expected = gradients(lambda i: fused_norm(norm, i), converted, dy)
    assert same_bits(found[1], dy.bfloat16()) and same_bits(expected[1], dy)
    assert all_same(found[:1] + found[2:], expected[:1] + expected[2:])


@with_h
def test_a_residual_of_another_dtype_is_converted_first_and_so_is_its_gradient(norm):
    inputs, (dy, _) = operands(norm, BF16_IN_F32)
    y, h = fused_norm(norm, inputs, BF16_IN_F32, residual_dtype=torch.bfloat16)
    assert h.dtype is torch.bfloat16
    rounded = inputs._replace(residual=inputs.residual.bfloat16())
    assert all_same((y, h), fused_norm(norm, rounded, BF16_IN_F32))
    dh = tensor((6, 40), "bf16", seed=9)
    found = gradients(lambda i: fused_norm(norm, i, BF16_IN_F32, residual_dtype=torch.bfloat16), inputs, dy, dh)
    expected = gradients(lambda i: fused_norm(norm, i, BF16_IN_F32), rounded, dy, dh)
    assert found[1].dtype is torch.float32 and same_bits(found[1], expected[1].float())
    assert all_same(found[:1] + found[2:], expected[:1] + expected[2:])


# ---- bits ----


def reference_results():
    """The bytes that the C reference computes from NumPy arrays; called in a process limited to the reference."""
    assert evenkeel.info()["level"] == "reference"
    found = {}
    for norm, case, shape in itertools.product(BEFORE + AFTER + ACTS + GATES, CASES, SHAPES):
        given = fused_cases.operands(case, shape, norm.form)
        results = fused_cases.every_result(evenkeel, norm.op, case, given, reference.DTYPES, norm.form)
        found[norm.op, case, shape, norm.form] = [array.tobytes() for array in results]
    return found


@pytest.fixture(scope="module")
def reference_bits(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "results"
    script = f"import pickle, test_torch_fused as t; pickle.dump(t.reference_results(), open({str(path)!r}, 'wb'))"
    run_python(script, EVENKEEL_ISA="reference")
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize("way", ["c", "python", "an old PyTorch"])
@every_case
@every_norm
def test_bits_are_those_of_the_reference(norm, case, way, reference_bits, monkeypatch):
    if way != "c":
        leave_calls_to_python(monkeypatch)
    if way == "an old PyTorch":
        monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
        for op, node in _autograd.NODES.items():
            monkeypatch.setattr(node, "forward", staticmethod(partial(_autograd.keep_in_python, op)))
    for shape in SHAPES:
        expected = reference_bits[norm.op, case, shape, norm.form]
        given = tuple(map(as_tensor, fused_cases.operands(case, shape, norm.form)))
        explicit = fused_cases.every_result(ek, norm.op, case, given, DTYPES, norm.form)
        assert list(map(memory, explicit)) == expected
        inputs, outer = operands(norm, case, shape)
        assert list(map(memory, fused_norm(norm, inputs, case))) == expected[: len(outer)]
        found = Operands(*gradients(lambda i: fused_norm(norm, i, case), inputs, *outer))
        bias = [] if found.bias is None else [found.bias]
        residual = [found.residual] if norm.has_h or norm.form.gate else []
        x_bias = [] if norm.form.gate else [found.x_bias]
        in_order = [found.x, found.weight, *bias, *residual, *x_bias]
        assert list(map(memory, in_order)) == expected[len(outer) + norm.statistics :]


@with_h
def test_without_x_bias_it_is_an_addition_and_a_norm_to_the_bit(norm):
    for dtype in DTYPES:
        x, residual, weight = tensor((70, 129), dtype), tensor((70, 129), dtype, 1), tensor((129,), dtype, 2)
        inputs = Operands(x, residual, weight)
        case = Case(*[dtype] * 4)
        assert all_same(fused_norm(norm, inputs, case), (norm.rows(x + residual, weight), x + residual))


@without_h
def test_in_float32_and_float64_it_is_a_norm_and_an_addition_to_the_bit(norm):
    for dtype in ("f32", "f64"):
        inputs, _ = operands(norm, Case(*[dtype] * 4), (70, 129))
        plain = norm.rows(inputs.x + inputs.x_bias, inputs.weight, inputs.bias)
        assert same_bits(*fused_norm(norm, inputs, Case(*[dtype] * 4)), plain + inputs.residual)


@cpu_only
@every_norm
def test_bits_do_not_depend_on_threads_or_the_batch(norm, threads):
    inputs, outer = operands(norm, F32, (300, 1000))

    def everything(inputs, *outer):
        return *fused_norm(norm, inputs), *gradients(lambda i: fused_norm(norm, i), inputs, *outer)

    threads(1)
    one = everything(inputs, *outer)
    threads(3)
    assert all_same(everything(inputs, *outer), one)

    def part(tensor):
        return None if tensor is None else tensor[5:8]

    some, rows = inputs._replace(x=part(inputs.x), residual=part(inputs.residual)), len(outer) + 2
    assert all_same(everything(some, *map(part, outer))[:rows], [*map(part, one[:rows])])


@every_norm
def test_bits_do_not_depend_on_which_gradients_are_wanted(norm):
    inputs, outer = operands(norm, BF16_IN_F32, (50, 300))
    everything = gradients(lambda i: fused_norm(norm, i, BF16_IN_F32), inputs, *outer)
    for i, expected in enumerate(everything):
        if expected is not None:
            leaves = Operands(*(None if t is None else t.clone() for t in inputs))
            leaves[i].requires_grad_()
            found = torch.autograd.grad(fused_norm(norm, leaves, BF16_IN_F32), leaves[i], outer)[0]
            assert same_bits(found, expected)


# ---- layouts ----

LAYOUTS = {
    "rows apart": lambda t: t.repeat_interleave(3, 0)[::3],
    "transposed": lambda t: t.t().contiguous().t(),
    "steps": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "a lazy negation": lambda t: torch._neg_view(-t),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@every_norm
def test_operands_and_gradients_of_any_layout(norm, layout):
    inputs, outer = operands(norm)
    expected = fused_norm(norm, inputs), gradients(lambda i: fused_norm(norm, i), inputs, *outer)
    lay = LAYOUTS[layout]
    names = ("x", "residual") if layout in ("rows apart", "transposed") else Operands._fields
    laid_out = inputs._replace(**{n: lay(t) for n, t in inputs._asdict().items() if t is not None and n in names})
    assert all_same(fused_norm(norm, laid_out), expected[0])
    leaves = Operands(*(None if t is None else t.detach().requires_grad_() for t in laid_out))
    present = [t for t in leaves if t is not None]
    found = torch.autograd.grad(fused_norm(norm, leaves), present, [lay(g) for g in outer])
    assert all_same(found, [g for g in expected[1] if g is not None])


@every_norm
def test_expanded_gradients(norm):
    inputs, outer = operands(norm)
    ones = [torch.ones((), device=DEVICE).expand(g.shape) for g in outer]
    found = gradients(lambda i: fused_norm(norm, i), inputs, *ones)
    assert all_same(found, gradients(lambda i: fused_norm(norm, i), inputs, *map(torch.ones_like, outer)))


@every_norm
def test_nothing_in_nothing_out(norm):
    for shape in ((0, 8), (3, 0, 8)):
        x = torch.empty(shape, device=DEVICE, requires_grad=True)
        weight = torch.ones(8, device=DEVICE, requires_grad=True)
        results = fused_norm(norm, Operands(x, x, weight))
        assert all(t.shape == shape for t in results)
        sum(t.sum() for t in results).backward()
        assert x.grad.shape == shape and not weight.grad.any()


# ---- gradients ----


@either_way
@pytest.mark.parametrize("absent", ["dy", "dh"])
@with_h
def test_the_gradient_of_either_result_may_be_absent(norm, absent, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, (dy, dh) = operands(norm)
    zeros = torch.zeros_like(dy)
    given = (None, dh) if absent == "dy" else (dy, None)
    found = gradients(lambda i: fused_norm(norm, i), inputs, *given)
    expected = gradients(lambda i: fused_norm(norm, i), inputs, *(zeros if g is None else g for g in given))
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None) and (a is None or torch.equal(a, b))


@exchange_only
@with_h
def test_x_and_residual_have_one_gradient_where_they_have_one_dtype(norm):
    def same(case):
        inputs, outer = operands(norm, case)
        leaves = Operands(*require_gradients(*inputs))
        dx, dresidual = torch.autograd.grad(fused_norm(norm, leaves, case), leaves[:2], outer)
        return dx.data_ptr() == dresidual.data_ptr()

    assert same(F32) and not same(BF16_IN_F32)


@with_h
def test_leaves_keep_gradients_of_their_own(norm):
    inputs, outer = operands(norm)
    leaves = Operands(*require_gradients(*inputs))
    torch.autograd.backward(fused_norm(norm, leaves), outer)
    assert leaves.x.grad is not leaves.residual.grad and torch.equal(leaves.x.grad, leaves.residual.grad)
    before = leaves.residual.grad.clone()
    leaves.x.grad.zero_()
    assert torch.equal(leaves.residual.grad, before)


@with_residual
def test_one_tensor_may_be_x_and_residual(norm):
    (x,) = require_gradients(tensor((6, 40)))
    results = fused_norm(norm, Operands(x, x))
    ones = [*map(torch.ones_like, results)]
    (found,) = torch.autograd.grad(results, x, ones)
    expected = gradients(lambda i: fused_norm(norm, i), Operands(x, x), *ones)
    close(found, expected[0] + expected[1])


@pytest.mark.parametrize("case", [F32, BF16_IN_F32], ids=str)
@with_h
def test_h_weight_and_the_statistics_are_saved(norm, case):
    inputs, _ = operands(norm, case)
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        _, h = fused_norm(norm, Operands(*require_gradients(*inputs)), case)
    kept, weight, stats = saved
    assert same_bits(kept, h) and kept.data_ptr() == h.data_ptr() and same_bits(weight, inputs.weight)
    assert stats.shape == (norm.statistics, 6) and stats.dtype is torch.float32


@with_h
def test_x_and_residual_may_be_changed_before_backward_and_h_may_not(norm):
    inputs, outer = operands(norm)
    expected = gradients(lambda i: fused_norm(norm, i), inputs, *outer)
    leaves = Operands(*require_gradients(*inputs))
    results = fused_norm(norm, leaves)
    with torch.no_grad():
        leaves.x.zero_(), leaves.residual.zero_(), leaves.x_bias.zero_(), results[0].zero_()
    present = [t for t in leaves if t is not None]
    assert all_same(torch.autograd.grad(results, present, outer), [g for g in expected if g is not None])
    for change in (lambda y, h, weight: h.zero_(), lambda y, h, weight: weight.zero_()):
        y, h = fused_norm(norm, leaves)
        with torch.no_grad():
            change(y, h, leaves.weight)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@every_norm
def test_a_result_may_be_used_in_place_by_autograd(norm):
    inputs, outer = operands(norm)

    def call(inputs):
        y, *h = fused_norm(norm, inputs)
        return y.mul_(2.0), *h

    expected = gradients(lambda i: fused_norm(norm, i), inputs, 2 * outer[0], *outer[1:])
    assert all_same(gradients(call, inputs, *outer), expected)


@exchange_only
@every_norm
def test_calls_that_nobody_watches_are_served_in_c(norm, kernels):
    inputs, outer = operands(norm)
    fused_norm(norm, inputs)
    assert kernels.last == f"{norm.eager}_forward" and kernels.forward == 1
    gradients(lambda i: fused_norm(norm, i), inputs, *outer)
    assert kernels.last == f"{norm.eager}_backward" and (kernels.forward, kernels.backward) == (2, 1)


@every_norm
def test_under_no_grad_nothing_is_recorded_and_nothing_more_is_made(norm):
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    with torch.no_grad():
        results = fused_norm(norm, Operands(x, x, weight))
    assert type(results) is tuple and not any(t.requires_grad for t in results)
    with torch.inference_mode():
        assert all(t.is_inference() for t in fused_norm(norm, Operands(x, x, weight)))


@every_norm
def test_an_inference_tensor_is_accepted_as_residual_and_as_an_x_that_is_not_saved(norm):
    """PyTorch's rms_norm takes one that it saves, too: a copy is saved."""
    plain = tensor((6, 40))
    with torch.inference_mode():
        inference = tensor((6, 40))
    weight = tensor((40,), seed=1).requires_grad_()
    is_savable = norm.has_h or norm.op == "rms_norm"
    other = inference if is_savable or not norm.form.gate else plain
    y, *_ = fused_norm(norm, Operands(inference if is_savable else plain, other, weight))
    (found,) = torch.autograd.grad(y.sum(), weight)
    y, *_ = fused_norm(norm, Operands(plain, plain, weight))
    assert same_bits(found, torch.autograd.grad(y.sum(), weight)[0])
    if not is_savable:
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            fused_norm(norm, Operands(inference, plain, weight))


@every_norm
def test_checkpoints_compute_the_same_bits(norm):
    inputs, outer = operands(norm)

    def call(inputs):
        return checkpoint(lambda *given: fused_norm(norm, Operands(*given)), *inputs, use_reentrant=False)

    assert all_same(gradients(call, inputs, *outer), gradients(lambda i: fused_norm(norm, i), inputs, *outer))


# ---- a residual after the norm: its gradient is that of the result ----


@exchange_only
@without_h
def test_the_gradient_of_the_residual_is_that_of_the_result(norm):
    """The same memory, where both have one dtype."""
    for case in (F32, Case("bf16", "bf16", "f32", "f32"), BF16_IN_F32):
        inputs, (dy,) = operands(norm, case)
        residual = inputs.residual.requires_grad_()
        (found,) = torch.autograd.grad(fused_norm(norm, inputs, case), residual, dy)
        assert same_bits(found, dy.to(residual.dtype))
        assert (found.data_ptr() == dy.data_ptr()) == (dy.dtype is residual.dtype)


@pytest.mark.parametrize("way", [pytest.param("c", marks=exchange_only), "python"])
@without_h
def test_where_the_residual_alone_needs_a_gradient_nothing_is_computed(norm, way, kernels, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, (dy,) = operands(norm)
    leaves = inputs._replace(residual=inputs.residual.requires_grad_())
    monkeypatch.setattr(_kernels, "backward", None)
    (found,) = torch.autograd.grad(fused_norm(norm, leaves), leaves.residual, dy)
    assert same_bits(found, dy) and kernels.backward == (1 if way == "c" else 0)  # a call of C, or none of Python


@without_h
def test_a_leaf_keeps_a_gradient_of_its_own(norm):
    inputs, (dy,) = operands(norm)
    leaves = Operands(*require_gradients(*inputs))
    before = dy.clone()
    fused_norm(norm, leaves)[0].backward(dy)
    leaves.residual.grad.zero_()
    assert torch.equal(dy, before)


@pytest.mark.parametrize("case", [F32, BF16_IN_F32], ids=str)
@without_h
def test_x_weight_x_bias_and_the_statistics_are_saved(norm, case):
    inputs, _ = operands(norm, case)
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        fused_norm(norm, Operands(*require_gradients(*inputs)), case)
    *kept, stats = saved
    assert all_same(kept, (inputs.x, inputs.weight, inputs.x_bias))
    assert stats.shape == (norm.statistics, 6) and stats.dtype is torch.float32


@without_h
def test_the_residual_the_bias_and_y_may_be_changed_before_backward_and_what_is_saved_may_not(norm):
    inputs, (dy,) = operands(norm)
    expected = gradients(lambda i: fused_norm(norm, i), inputs, dy)
    leaves = Operands(*require_gradients(*inputs))
    (y,) = fused_norm(norm, leaves)
    with torch.no_grad():
        for tensor in (leaves.residual, leaves.bias, y):
            if tensor is not None:
                tensor.zero_()
    present = [t for t in leaves if t is not None]
    assert all_same(torch.autograd.grad(y, present, dy), [g for g in expected if g is not None])
    for name in ("x", "weight", "x_bias"):
        (y,) = fused_norm(norm, leaves)
        with torch.no_grad():
            getattr(leaves, name).zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@without_h
def test_hooks_see_the_gradient_of_the_residual(norm):
    inputs, (dy,) = operands(norm)
    leaves = Operands(*require_gradients(*inputs))
    leaves.residual.register_hook(lambda gradient: 2 * gradient)
    fused_norm(norm, leaves)[0].backward(dy)
    assert same_bits(leaves.residual.grad, 2 * dy)
    assert same_bits(leaves.x.grad, gradients(lambda i: fused_norm(norm, i), inputs, dy)[0])
