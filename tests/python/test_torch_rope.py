"""evenkeel.torch's RoPE and norms of heads: values and gradients beside a composition in float64, what is saved,
tables, layouts, dtypes, transforms, fallbacks, mistakes. SPDX-License-Identifier: MIT"""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.func import grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import evenkeel
import evenkeel.torch as ek
from test_torch_transforms import under_autocast
from torch_cases import (
    DTYPES,
    Wrapped,
    all_same,
    close,
    cpu_only,
    every_dtype,
    exchange_only,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

BATCH, SEQ, HEADS, K_HEADS, DIM, ROWS = 2, 5, 4, 2, 8, 9
TURNS = {}, {"interleaved": True}, {"rotary_dim": 4}, {"rotary_dim": 6, "trailing": True, "interleaved": True}
NORMS = {}, {"norm": "rms"}, {"norm": "layer", "weight_offset": 1.0}, {"norm": "rms", "norm_first": False}
INPUTS = "q", "k", "q_bias", "k_bias", "q_weight", "k_weight"

every_turn = pytest.mark.parametrize("turn", TURNS, ids=lambda t: "-".join(t) or "whole")
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda n: "-".join(map(str, n.values())) or "none")


def operands(dtype="f32", columns=None, norm=None, turn=None, shape=(BATCH, SEQ, HEADS, K_HEADS, DIM)):
    """The inputs that have gradients, (cos, sin), and the gradients of both results."""
    batch, seq, heads, k_heads, dim = shape
    columns, pairs = columns or dtype, (turn or {}).get("rotary_dim", dim) // 2
    inputs = [tensor((batch, seq, heads, dim), dtype), tensor((batch, seq, k_heads, dim), dtype, 1)]
    inputs += [tensor((heads * dim,), columns, 2), tensor((k_heads * dim,), columns, 3)]
    if norm and norm.get("norm_first", True):
        inputs += [tensor((dim,), columns, 4), tensor((dim,), columns, 5)]
    tables = [tensor((max(ROWS, seq), pairs), columns, seed) for seed in (6, 7)]
    return inputs, tables, [tensor((batch, h, seq, dim), dtype, 8) for h in (heads, k_heads)]


def ours(inputs, tables, norm=None, **options):
    q, k, q_bias, k_bias, *weights = inputs
    if not norm:
        return ek.rope(q, k, *tables, q_bias, k_bias, **options)
    return ek.qk_norm_rope(q, k, *tables, *weights, q_bias=q_bias, k_bias=k_bias, **norm, **options)


def normalized(x, norm, weight=None, offset=0.0):
    y = F.layer_norm(x, x.shape[-1:], eps=1e-6) if norm == "layer" else F.rms_norm(x, x.shape[-1:], eps=1e-6)
    return y if weight is None else y * (weight + offset)


def turned(x, cos, sin, interleaved=False, rotary_dim=None, trailing=False):
    rotary_dim = rotary_dim or x.shape[-1]
    first = x.shape[-1] - rotary_dim if trailing else 0
    part = x[..., first : first + rotary_dim]
    if interleaved:
        half = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
        cos, sin = (t.repeat_interleave(2, -1) for t in (cos, sin))
    else:
        half = torch.cat((-part[..., rotary_dim // 2 :], part[..., : rotary_dim // 2]), -1)
        cos, sin = (torch.cat((t, t), -1) for t in (cos, sin))
    return torch.cat((x[..., :first], part * cos + half * sin, x[..., first + rotary_dim :]), -1)


def formula(inputs, tables, norm=None, **turn):
    """The same in PyTorch's operations, as models have it."""
    q, k, q_bias, k_bias, *weights = inputs
    cos, sin = (t[: q.shape[1], None] for t in tables)
    results = []
    for x, bias, weight in ((q, q_bias, (weights or [None])[0]), (k, k_bias, (weights or [None])[-1])):
        x = x if bias is None else x + bias.view(x.shape[2:])
        if norm and norm.get("norm_first", True):
            x = normalized(x, norm["norm"], weight, norm.get("weight_offset", 0.0))
        x = turned(x, cos, sin, **turn)
        x = normalized(x, norm["norm"]) if norm and not norm.get("norm_first", True) else x
        results.append(x.transpose(1, 2))
    return tuple(results)


def gradients(call, inputs, dys):
    leaves = require_gradients(*inputs)
    results = call(leaves)
    found = torch.autograd.grad(results, [leaf for leaf in leaves if leaf is not None], dys)
    return [r.detach() for r in results], found


# ---- values and gradients ----


@every_turn
@every_norm
@every_dtype
def test_results_and_gradients_are_those_of_the_formula(norm, turn, dtype, kernels, no_fallback):
    for columns in dict.fromkeys((dtype, "f64" if dtype == "f64" else "f32")):
        inputs, tables, dys = operands(dtype, columns, norm, turn)
        results, found = gradients(lambda i, t=tables: ours(i, t, norm, **turn), inputs, dys)
        exact = wide(*tables)
        right = gradients(lambda i, t=exact: formula(i, t, norm, **turn), wide(*inputs), wide(*dys))
        for a, b, dy in zip(results, right[0], dys, strict=True):
            assert a.is_contiguous() and a.dtype is dy.dtype
            close(a, b)
        for a, b, leaf in zip(found, right[1], inputs, strict=True):
            assert a.is_contiguous() and a.dtype is leaf.dtype
            close(a, b, dtype)
    assert kernels.forward == kernels.backward > 0


@cpu_only
@every_norm
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_the_bits_are_those_of_arrays(norm, dtype):
    inputs, tables, dys = operands(dtype, norm=norm)
    results, found = gradients(lambda i: ours(i, tables, norm), inputs, dys)
    q, k, q_bias, k_bias, *weights = (t.numpy() for t in inputs)
    cos, sin, dq, dk = (t.numpy() for t in (*tables, *dys))
    if norm:
        options = {"q_bias": q_bias, "k_bias": k_bias, **norm}
        expected = evenkeel.qk_norm_rope(q, k, cos, sin, *weights, **options)
        expected += evenkeel.qk_norm_rope_backward(dq, dk, q, k, cos, sin, *weights, **options)
    else:
        expected = evenkeel.rope(q, k, cos, sin, q_bias, k_bias)
        expected += evenkeel.rope_backward(dq, dk, cos, sin, need_dq_bias=True, need_dk_bias=True)
    assert all_same([*results, *found], [torch.from_numpy(e) for e in expected if e is not None])


@pytest.mark.slow
@every_turn
@every_norm
def test_first_and_second_derivatives_agree_with_finite_differences(norm, turn):
    inputs, tables, _ = operands("f64", norm=norm, turn=turn, shape=(1, 2, 2, 1, 6))
    options = {"eps": 0.1, **norm} if norm else {}
    call, leaves = lambda *i: ours(i, tables, options, **turn), require_gradients(*inputs)
    assert gradcheck(call, leaves, check_forward_ad=True)
    assert gradgradcheck(call, leaves)


@every_norm
def test_derivatives_of_gradients_are_those_of_the_formula(norm):
    inputs, tables, dys = operands("f64", norm=norm)

    def second(call):
        leaves = require_gradients(*inputs, *dys)
        inner, outer = leaves[: len(inputs)], leaves[len(inputs) :]
        first = torch.autograd.grad(call(inner, tables, norm), inner, outer, create_graph=True)
        total = sum(g.sin().sum() for g in first)
        return *first, *torch.autograd.grad(total, leaves, allow_unused=not norm)

    for a, b in zip(second(ours), second(formula), strict=True):
        assert (a is None) or torch.allclose(a, torch.zeros_like(a) if b is None else b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("absent", ["q_bias", "k_bias", "q_weight", "k_weight"])
def test_biases_and_weights_may_be_absent(absent):
    norm = NORMS[1]
    inputs, tables, dys = operands("f64", norm=norm)
    if absent.endswith("weight"):
        weights = [None if name == absent else t for name, t in zip(INPUTS[4:], inputs[4:], strict=True)]
        inputs = [*inputs[:4], *weights]
    else:
        inputs[INPUTS.index(absent)] = None
    found = gradients(lambda i: ours(i, tables, norm), inputs, dys)
    ones = [torch.ones_like(inputs[0][0, 0, 0]) if t is None and i > 3 else t for i, t in enumerate(inputs)]
    expected = gradients(lambda i: formula(i, tables, norm), ones, dys)[1]
    if absent.endswith("weight"):
        expected = [e for name, e in zip(INPUTS, expected, strict=True) if name != absent]
    for a, b in zip(found[1], expected, strict=True):
        close(a, b)


def test_q_alone_and_k_alone(kernels):
    inputs, tables, (dq, dk) = operands()
    results, found = gradients(lambda i: ours(i, tables), inputs, (dq, dk))
    q, q_bias = require_gradients(inputs[0], inputs[2])
    y, none = ek.rope(q, None, *tables, q_bias)
    assert none is None and same_bits(y, results[0])
    assert all_same(torch.autograd.grad(y, [q, q_bias], dq), [found[0], found[2]])
    leaves = require_gradients(*inputs)
    assert all_same(torch.autograd.grad(ours(leaves, tables)[1], [leaves[1], leaves[3]], dk), [found[1], found[3]])


# ---- what is saved, and what is computed ----


@every_norm
def test_without_a_norm_only_tables_are_saved(norm):
    inputs, tables, dys = operands(norm=norm)
    leaves, saved = require_gradients(*inputs), []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        results = ours(leaves, tables, norm)
    kept = [*leaves, *tables] if norm else tables
    assert {t.data_ptr() for t in saved} == {t.data_ptr() for t in kept}
    torch.autograd.backward(results, dys)


@exchange_only
@every_norm
def test_a_gradient_that_is_not_needed_is_not_computed(norm, monkeypatch):
    inputs, tables, dys = operands(norm=norm)
    made, backward = [], evenkeel._core.rope_backward
    monkeypatch.setattr(evenkeel._core, "rope_backward", lambda *given: made.append(given[20:26]) or backward(*given))
    for number in range(len(inputs)):
        leaves = [t.clone().requires_grad_(i == number) for i, t in enumerate(inputs)]
        torch.autograd.backward(ours(leaves, tables, norm)[number % 2], dys[number % 2])
        assert [t.grad is not None for t in leaves] == [i == number for i in range(len(inputs))]
        assert [m is not None for m in made.pop()] == [i == number for i in range(6)]


@every_norm
def test_a_result_that_is_not_used_or_not_differentiable_costs_nothing(norm, monkeypatch):
    inputs, tables, dys = operands(norm=norm)
    wanted = gradients(lambda i: ours(i, tables, norm), inputs, dys)[1]
    made, backward = [], evenkeel._core.rope_backward
    monkeypatch.setattr(evenkeel._core, "rope_backward", lambda *given: made.append(given[20:26]) or backward(*given))
    for side in (0, 1):
        leaves = require_gradients(*inputs)
        found = torch.autograd.grad(ours(leaves, tables, norm)[side], leaves, dys[side], allow_unused=True)
        expected = [g if at % 2 == side else None for at, g in enumerate(wanted)]
        assert all_same(found, expected) and [m is not None for m in made.pop()][: len(inputs)] == [
            e is not None for e in expected
        ]
        leaves = [t.clone().requires_grad_(at % 2 == side) for at, t in enumerate(inputs)]
        assert [r.requires_grad for r in ours(leaves, tables, norm)] == [side == 0, side == 1]


@every_norm
def test_tables_get_no_gradient(norm):
    inputs, tables, dys = operands(norm=norm)
    leaves, tables = require_gradients(*inputs), require_gradients(*tables)
    torch.autograd.backward(ours(leaves, tables, norm), dys)
    assert leaves[0].grad is not None and tables[0].grad is tables[1].grad is None
    with torch.no_grad():
        assert not any(r.requires_grad for r in ours(leaves, tables, norm))
    assert not any(r.requires_grad for r in ours([t.detach() for t in leaves], tables, norm))


@every_norm
def test_checkpoint_recomputes_the_same(norm):
    inputs, tables, dys = operands(norm=norm)
    call = lambda *i: ours(i, tables, norm)  # noqa: E731
    found = gradients(lambda i: checkpoint(call, *i, use_reentrant=False), inputs, dys)[1]
    assert all_same(found, gradients(lambda i: call(*i), inputs, dys)[1])


# ---- tables and positions ----


def test_tables_of_a_model_are_read_as_they_are(monkeypatch):
    inputs, (cos, sin), dys = operands()
    expected = gradients(lambda i: ours(i, (cos, sin)), inputs, dys)
    monkeypatch.setattr(ek._kernels, "_contiguous", None)
    for view in (
        lambda t: torch.cat((t, t * float("nan")), -1),
        lambda t: torch.cat((t, t), -1)[None],
        lambda t: t.expand(BATCH, *t.shape),
        lambda t: torch.stack([t] * BATCH),
        lambda t: torch.cat((t, t), -1)[:, : DIM // 2],
    ):
        found = gradients(lambda i, v=view: ours(i, (v(cos), v(sin))), inputs, dys)
        assert all_same([*found[0], *found[1]], [*expected[0], *expected[1]])


@every_turn
def test_positions_are_rows_of_the_tables(turn):
    inputs, tables, dys = operands("f64", turn=turn)
    rows = torch.randint(0, ROWS, (BATCH, SEQ), generator=torch.Generator().manual_seed(0)).to(inputs[0].device)
    for chosen in (rows, rows.int(), rows.T.contiguous().T):
        results, found = gradients(lambda i, p=chosen: ours(i, tables, positions=p, **turn), inputs, dys)
        for b in range(BATCH):
            one = [t[b : b + 1] for t in inputs[:2]] + inputs[2:]
            alone = ours(one, [t[rows[b]] for t in tables], **turn)
            assert all_same([r[b : b + 1] for r in results], alone)
        assert found[0].abs().sum() > 0
    for chosen in (rows[0], rows[:1]):
        assert all_same(
            ours(inputs, tables, positions=chosen, **turn), ours(inputs, [t[rows[0]] for t in tables], **turn)
        )


def test_an_offset_is_the_row_of_the_first_token():
    inputs, tables, _ = operands()
    assert all_same(ours(inputs, tables, offset=3), ours(inputs, [t[3:] for t in tables]))
    both = [torch.stack([t, 2 * t]) for t in tables]
    expected = [ours(inputs, [t[b, 3:] for t in both]) for b in range(BATCH)]
    for number, result in enumerate(ours(inputs, both, offset=3)):
        assert all_same(result, [expected[b][number][b] for b in range(BATCH)])


def test_an_offset_in_a_tensor_may_change():
    inputs, tables, _ = operands()
    offset = torch.tensor(1)
    for number in (1, 3):
        offset.fill_(number)
        assert all_same(ours(inputs, tables, offset=offset), ours(inputs, tables, offset=number))


def test_rope_tables_turn_as_a_hugging_face_model_does():
    models = pytest.importorskip("transformers.models.llama.modeling_llama")
    inputs, _, _ = operands(columns="f32")
    cos, sin = (torch.from_numpy(t).to(inputs[0].device) for t in evenkeel.rope_tables(SEQ, DIM))
    q, k = (t.transpose(1, 2) for t in inputs[:2])
    whole = [torch.cat((t, t), -1)[None] for t in (cos, sin)]
    for a, b in zip(ek.rope(*inputs[:2], cos, sin), models.apply_rotary_pos_emb(q, k, *whole), strict=True):
        close(a, b)


# ---- layouts ----


@every_norm
def test_slices_of_one_tensor_and_transposed_views_are_not_copied(norm, monkeypatch):
    inputs, tables, dys = operands(norm=norm)
    expected = gradients(lambda i: ours(i, tables, norm), inputs, dys)
    packed = torch.cat((inputs[0], inputs[1], inputs[1]), 2)
    sliced = packed[:, :, :HEADS], packed[:, :, HEADS : HEADS + K_HEADS]
    other_order = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (*inputs[:2], *dys)]
    monkeypatch.setattr(ek._kernels, "_contiguous", None)
    for (q, k), outer in ((sliced, dys), (other_order[:2], other_order[2:])):
        leaves = [q.detach().requires_grad_(), k.detach().requires_grad_(), *require_gradients(*inputs[2:])]
        assert not leaves[0].is_contiguous() and not leaves[1].is_contiguous()
        results = ours(leaves, tables, norm)
        assert all_same(results, expected[0])
        assert all_same(torch.autograd.grad(results, leaves, outer), expected[1])


@every_norm
def test_the_layout_is_that_of_the_results_alone(norm):
    inputs, tables, dys = operands(norm=norm)
    expected = gradients(lambda i: ours(i, tables, norm), inputs, dys)
    results, found = gradients(
        lambda i: ours(i, tables, norm, layout="bshd"), inputs, [dy.transpose(1, 2) for dy in dys]
    )
    assert all(r.is_contiguous() for r in results)
    assert all_same([r.transpose(1, 2) for r in results], expected[0]) and all_same(found, expected[1])


@st.composite
def heads(draw, dtype, batch, seq, dim):
    """[batch, seq, heads, dim] at any strides: dimensions in any order in memory, read in steps, the first expanded."""
    sizes = [batch, seq, draw(st.sampled_from([1, 2, 4])), dim]
    order, steps = draw(st.permutations(range(4))), [draw(st.integers(1, 2)) for _ in range(4)]
    base = tensor([sizes[at] * steps[at] for at in order], dtype, draw(st.integers(0, 9)))
    base = base.permute([order.index(at) for at in range(4)])
    x = base[tuple(slice(None, None, step) for step in steps)]
    return x[:1].expand(x.shape) if draw(st.booleans()) and draw(st.booleans()) else x


@st.composite
def any_call(draw):
    dtype, norm = draw(st.sampled_from(sorted(DTYPES))), draw(st.sampled_from(NORMS))
    batch, seq, dim = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.sampled_from([2, 6, 16]))
    q, k = draw(heads(dtype, batch, seq, dim)), draw(heads(dtype, batch, seq, dim))
    return norm, *sorted((q, k), key=lambda t: -t.shape[2]), draw(st.sampled_from(["bhsd", "bshd"]))


@settings(max_examples=100, deadline=None)
@given(any_call(), st.booleans())
def test_any_shape_and_strides(call, has_other_order):
    """The bits are those of copies without gaps."""
    norm, q, k, layout = call
    tables, results = [tensor((9, q.shape[-1] // 2), "f32" if q.dtype is not torch.float64 else "f64", 5)] * 2, []
    for make in (lambda t: t, lambda t: t.contiguous()):
        leaves = [make(t).detach().requires_grad_() for t in (q, k)]
        outputs = ours([*leaves, None, None], tables, norm, layout=layout)
        dys = [y.detach().cos() for y in outputs]
        dys = [dy.transpose(1, 2).contiguous().transpose(1, 2) if has_other_order else dy for dy in dys]
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, [make(dy) for dy in dys])])
    assert all_same(*results)


def test_other_layouts_are_copied():
    inputs, tables, _ = operands()
    q, k = inputs[0].repeat_interleave(2, -1)[..., ::2], inputs[1][:, :, :1].expand_as(inputs[1])
    expected = ek.rope(q.contiguous(), k.contiguous(), *tables)
    assert all_same(ek.rope(q, k, *tables), expected)
    leaf = inputs[0].clone().requires_grad_()
    y, _ = ek.rope(leaf, k, *tables)
    found = torch.autograd.grad(y.sum(), leaf, retain_graph=True)
    assert all_same(found, torch.autograd.grad(y, leaf, torch.ones_like(y)))


@every_norm
def test_without_tokens_there_are_zeros(norm):
    for shape in ((0, SEQ, 2, 1, 8), (2, 0, 2, 1, 8)):
        inputs, tables, dys = operands(norm=norm, shape=shape)
        results, found = gradients(lambda i, t=tables: ours(i, t, norm), inputs, dys)
        assert [r.shape for r in results] == [dy.shape for dy in dys] and all((g == 0).all() for g in found)


@every_norm
def test_on_the_meta_device_there_is_a_shape(norm, no_fallback):
    inputs, tables, dys = operands("bf16", norm=norm)
    results = ours([t.to("meta") for t in inputs], [t.to("meta") for t in tables], norm)
    assert all(r.is_meta and r.shape == dy.shape and r.dtype is dy.dtype for r, dy in zip(results, dys, strict=True))
    assert all(r.is_contiguous() for r in results)


# ---- dtypes ----


@pytest.mark.parametrize("columns", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@every_norm
def test_tables_biases_and_weights_are_widened_where_they_must_be(norm, dtype, columns, no_fallback):
    inputs, tables, dys = operands(dtype, columns, norm)
    results, found = gradients(lambda i: ours(i, tables, norm), inputs, dys)
    widened = [*inputs[:2], *(t.float() for t in inputs[2:])]
    assert all_same(results, ours(widened, [t.float() for t in tables], norm))
    assert [g.dtype for g in found] == [t.dtype for t in inputs]


def test_q_and_k_of_two_dtypes_have_that_of_their_sum():
    inputs, tables, _ = operands()
    q, k = ek.rope(inputs[0].bfloat16(), inputs[1], *tables)
    assert all_same((q, k), ek.rope(inputs[0].bfloat16().float(), inputs[1], *tables))


@every_norm
@every_dtype
def test_autocast_changes_nothing(norm, dtype, kernels):
    inputs, tables, _ = operands(dtype, norm=norm)
    assert all_same(under_autocast(ours)(inputs, tables, norm), ours(inputs, tables, norm))
    assert kernels.forward == 2


# ---- transforms, and who sees a call ----


@pytest.mark.filterwarnings("ignore")
@every_norm
def test_transforms_compute_the_same(norm, kernels):
    (q, *others), tables, _ = operands("f64", norm=norm)
    mine, theirs = (lambda t, f=f: f([t, *others], tables, norm)[0] for f in (ours, formula))
    tangent = tensor(q.shape, "f64", 20)
    close(jvp(mine, (q,), (tangent,))[1], jvp(theirs, (q,), (tangent,))[1])
    close(grad(lambda t: mine(t).sin().sum())(q), grad(lambda t: theirs(t).sin().sum())(q))
    close(vmap(mine)(torch.stack([q, tangent])), vmap(theirs)(torch.stack([q, tangent])))
    assert kernels.forward == 0


@every_norm
def test_a_batch_of_gradients_has_the_gradients_one_by_one(norm):
    inputs, tables, dys = operands("f64", norm=norm)
    leaves = require_gradients(*inputs)
    results, batches = ours(leaves, tables, norm), [torch.stack([dy, 2 * dy]) for dy in dys]
    grads = partial(torch.autograd.grad, results, leaves, retain_graph=True)
    found = grads(batches, is_grads_batched=True)
    for number in (0, 1):
        for a, b in zip(found, grads([batch[number] for batch in batches]), strict=True):
            close(a[number], b)


@every_turn
@every_norm
def test_the_composition_agrees_with_the_kernels(norm, turn, kernels):
    for dtype in DTYPES:
        inputs, tables, _ = operands(dtype, norm=norm, turn=turn)
        for options in ({"offset": 2}, {"positions": torch.tensor([0, 3, 3, 8, 1], device=inputs[0].device)}):
            results = ours(inputs, tables, norm, **turn, **options)
            before = kernels.forward
            composition = ours([Wrapped(inputs[0]), *inputs[1:]], tables, norm, **turn, **options)[0]
            assert kernels.forward == before and composition.dtype is results[0].dtype
            close(composition.inner, results[0].double())


def test_a_torch_function_sees_the_call():
    calls = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append((function, args[4:], kwargs))
            return "seen"

    inputs, tables, _ = operands()
    q = inputs[0].as_subclass(Noting)
    assert ek.rope(q, inputs[1], *tables, interleaved=True, layout="bshd") == "seen"
    given = {"positions": None, "offset": 0, "rotary_dim": None, "trailing": False, "layout": "bshd"}
    assert calls.pop() == (ek.rope, (None, None, True), given)
    assert ek.qk_norm_rope(q, inputs[1], *tables, eps=0.5, offset=2) == "seen"
    given |= {"offset": 2, "layout": "bhsd"}
    assert calls == [(ek.qk_norm_rope, (None, None, 0.5, "rms", 0.0, True, None, None, False), given)]


def test_a_wider_bias_is_left_to_pytorch_with_one_warning(fallback):
    inputs, tables, _ = operands()
    with pytest.warns(RuntimeWarning, match="rope left this call to PyTorch: .*f64 does not go with") as told:
        for _ in range(2):
            results = ek.rope(*inputs[:2], *tables, inputs[2].double())
    assert len(told) == 1 and told[0].filename == __file__
    for a, b in zip(results, ek.rope(*inputs[:2], *tables, inputs[2]), strict=True):
        close(a, b.double())
    fallback("error")
    with pytest.raises(NotImplementedError, match="left this call to PyTorch"):
        ek.rope(*inputs[:2], *tables, inputs[2].double())


@every_norm
def test_a_call_can_be_traced_with_symbols_for_sizes(norm):
    inputs, tables, dys = operands(norm=norm)

    def step(*inputs):
        leaves = [t.detach().requires_grad_() for t in inputs]
        return torch.autograd.grad(ours(leaves, tables, norm), leaves, dys)

    graph = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs)
    for a, b in zip(graph(*inputs), step(*inputs), strict=True):
        close(a, b.double(), "f32")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_call_has_the_same_bits():
    inputs, tables, dys = operands(norm=NORMS[1])
    compiled = torch.compile(lambda i: ours(i, tables, NORMS[1]), backend="eager")
    found, expected = gradients(compiled, inputs, dys), gradients(lambda i: ours(i, tables, NORMS[1]), inputs, dys)
    assert all_same(found[0], expected[0]) and all_same(found[1], expected[1])


def test_memory_estimate_counts_what_the_kernels_allocate():
    class Model(torch.nn.Module):
        def forward(self, q, k, cos, sin):
            return ek.rope(q, k, cos, sin)

    shapes = (1, 64, 8, 64), (1, 64, 2, 64), (64, 32), (64, 32)
    inputs = tuple(torch.empty(shape, requires_grad=len(shape) == 4) for shape in shapes)
    heads, tables = 4 * 64 * 64 * (8 + 2), 4 * 2 * 64 * 32
    estimate = ek.memory_estimate(Model(), inputs)
    assert estimate.saved == heads and estimate.peak == 4 * heads + tables  # q and k, results, two gradients of each


@every_norm
def test_the_way_of_an_older_pytorch_has_the_same_bits(norm, monkeypatch):
    inputs, tables, dys = operands(norm=norm)
    call = lambda i: ours(i, tables, norm)  # noqa: E731
    expected = gradients(call, inputs, dys)
    monkeypatch.setattr(ek._kernels, "HAS_EXCHANGE", False)
    found = gradients(call, inputs, dys)
    assert all_same([*found[0], *found[1]], [*expected[0], *expected[1]])


# ---- mistakes ----

FLOATS = "expected float32, float16, bfloat16 or float64"
MISTAKES = {
    "q is None; expected a tensor": (TypeError, lambda q, k, t, w: ek.rope(None, k, *t)),
    "cos is None; expected a tensor": (TypeError, lambda q, k, t, w: ek.rope(q, k, None, t[1])),
    "k is of type list; expected a tensor": (TypeError, lambda q, k, t, w: ek.rope(q, [1], *t)),
    f"q is torch.int64; {FLOATS}": (TypeError, lambda q, k, t, w: ek.rope(q.detach().long(), k, *t)),
    f"q_bias is torch.int64; {FLOATS}": (
        TypeError,
        lambda q, k, t, w: ek.rope(q, k, *t, torch.ones(32, dtype=torch.int64, device=q.device)),
    ),
    "positions is torch.float32; expected int64": (
        TypeError,
        lambda q, k, t, w: ek.rope(q, k, *t, positions=torch.zeros(SEQ, device=q.device)),
    ),
    "positions has shape (4,): it must have (2, 5)": (
        ValueError,
        lambda q, k, t, w: ek.rope(q, k, *t, positions=torch.zeros(4, dtype=torch.int64, device=q.device)),
    ),
    "q has shape (5, 4, 8): it must have (batch, seq, heads, head_dim)": (
        ValueError,
        lambda q, k, t, w: ek.rope(q[0], k, *t),
    ),
    "k has shape (2, 5, 3, 8): it must have (2, 5, 4, 8), or fewer": (
        ValueError,
        lambda q, k, t, w: ek.rope(q, q[:, :, :3], *t),
    ),
    "cos has shape (9, 3): it must have (rows, columns)": (
        ValueError,
        lambda q, k, t, w: ek.rope(q, k, t[0][:, :3], t[1]),
    ),
    "cos has 3 rows: it must have offset (0) + seq (5) or more": (
        ValueError,
        lambda q, k, t, w: ek.rope(q, k, t[0][:3], t[1][:3]),
    ),
    "rotary_dim is 5; expected an even number from 2 to 8": (
        ValueError,
        lambda q, k, t, w: ek.rope(q, k, *t, rotary_dim=5),
    ),
    "layout is 'sbhd'; expected 'bhsd' or 'bshd'": (ValueError, lambda q, k, t, w: ek.rope(q, k, *t, layout="sbhd")),
    "interleaved is 'a'; expected 0 or 1": (TypeError, lambda q, k, t, w: ek.rope(q, k, *t, interleaved="a")),
    "q_bias has shape (8,): it must have (32,) or (4, 8)": (ValueError, lambda q, k, t, w: ek.rope(q, k, *t, w)),
    "k_bias is given, and k is None; expected None": (ValueError, lambda q, k, t, w: ek.rope(q, None, *t, k_bias=w)),
    "q_weight has shape (7,): it must have (8,)": (ValueError, lambda q, k, t, w: ek.qk_norm_rope(q, k, *t, w[:7])),
    "norm is 'group'; expected 'layer' or 'rms'": (
        ValueError,
        lambda q, k, t, w: ek.qk_norm_rope(q, k, *t, w, norm="group"),
    ),
    "norm_first is False, and weights are given; expected no weights": (
        ValueError,
        lambda q, k, t, w: ek.qk_norm_rope(q, k, *t, w, norm_first=False),
    ),
    "eps is None; expected a number": (TypeError, lambda q, k, t, w: ek.qk_norm_rope(q, k, *t, w, eps=None)),
    "eps (-1) must be finite and not negative": (ValueError, lambda q, k, t, w: ek.qk_norm_rope(q, k, *t, w, eps=-1.0)),
}


@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_names_the_argument(words, recorded, no_fallback):
    exception, call = MISTAKES[words]
    (q, k, *_), tables, _ = operands()
    with pytest.raises(exception, match="^" + re.escape(words)):
        call(q.requires_grad_(recorded), k, tables, tensor((DIM,)))


@cpu_only
def test_a_position_that_is_not_a_row_is_an_error():
    inputs, tables, _ = operands()
    with pytest.raises((IndexError, ValueError), match="positions.*(out of bounds|is not a row of the tables)"):
        ek.rope(*inputs[:2], *tables, positions=torch.full((SEQ,), ROWS))
