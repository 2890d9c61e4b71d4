"""The blocks: fused and not they are the same, to rounding. SPDX-License-Identifier: MIT"""

import copy
import pickle
import re
from collections import Counter

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import evenkeel
import evenkeel.torch as ek
from block_cases import FORMS, block_of, example, step, twin
from evenkeel.torch import _block_fork
from evenkeel.torch._block_bias import copy_and_sum
from evenkeel.torch._block_fork import fork
from evenkeel.torch._block_heads import packed_heads
from evenkeel.torch._block_tables import tables
from torch_cases import DEVICE

SMOKE = ["reordered", "pre-norm"]
OTHERS = [pytest.param(form, marks=pytest.mark.slow) for form in FORMS if form not in SMOKE]
every_form = pytest.mark.parametrize("form", SMOKE + OTHERS)


def largest_difference(found, expected):
    """Of all tensors, each over its largest element where that is above 1."""
    assert found.keys() == expected.keys()
    pairs = [(found[name].double(), expected[name].double()) for name in found]
    return max(((a - b).abs().max() / max(1, b.abs().max())).item() for a, b in pairs)


@every_form
def test_a_fused_block_in_f32_is_within_1e_5_of_the_unfused_one(form):
    block, x, dy = block_of(form), example(), example(seed=2)
    assert largest_difference(step(twin(block, True), x, dy), step(twin(block, False), x, dy)) < 1e-5


def error(block, x, dy, exact):
    """The root mean square of what differs from the exact step, tensor by tensor."""
    found = step(block, x, dy)
    return {name: ((found[name].double() - exact[name]).norm() / exact[name].norm()).item() for name in exact}


@every_form
def test_a_fused_block_in_bf16_is_no_less_accurate_than_the_unfused_one(form):
    block = block_of(form, torch.bfloat16)
    x, dy = (example((2, 40, 32), torch.bfloat16, seed) for seed in (1, 2))
    exact = step(twin(block, False, torch.float64), x.double(), dy.double())
    fused, plain = (error(twin(block, choice), x, dy, exact) for choice in (True, False))
    assert fused["out"] <= 1.1 * plain["out"] and fused["x"] <= 1.1 * plain["x"]
    assert sum(fused.values()) <= 1.1 * sum(plain.values())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"norm": "rms", "qk_norm": "rms", "kv_heads": 2}], ids=str)
@pytest.mark.parametrize("cls", [ek.ReorderedNormBlock, ek.PreNormBlock])
def test_no_gradient_of_a_larger_bf16_block_is_less_accurate(cls, options):
    torch.manual_seed(3)
    block = cls(256, 4, 688, **options).to(DEVICE, torch.bfloat16)
    x, dy = (example((2, 256, 256), torch.bfloat16, seed) for seed in (1, 2))
    exact = step(twin(block, False, torch.float64), x.double(), dy.double())
    fused, plain = (error(twin(block, choice), x, dy, exact) for choice in (True, False))
    assert {name: found for name, found in fused.items() if found > 1.1 * plain[name]} == {}


@pytest.mark.parametrize("form", SMOKE)
def test_state_dicts_load_both_ways(form):
    fused, plain = block_of(form, seed=1), block_of(form, seed=2, fused=False)
    assert list(fused.state_dict()) == list(plain.state_dict())
    x = example()
    plain.load_state_dict(fused.state_dict())
    torch.testing.assert_close(plain(x), fused(x), rtol=1e-5, atol=1e-5)
    fused.load_state_dict(block_of(form, seed=3).state_dict())
    assert not torch.allclose(plain(x), fused(x))


def test_fused_may_be_set_at_any_time():
    block, x = block_of("pre-norm"), example()
    fused = block(x)
    block.fused = False
    assert torch.equal(block(x), twin(block, False)(x)) and torch.equal(twin(block, True)(x), fused)


# ---- the formulas of the blocks ----

# On a GPU PyTorch's attention has other roundings.
WRITTEN_OUT = dict.fromkeys(("rtol", "atol"), 1e-5 if DEVICE == "cpu" else 1e-4)


def attention_and_ffn(block):
    """Both sublayers as functions, written out for a block of four heads without options."""

    def attention(x):
        q, k, v = block.qkv(x).unflatten(-1, (3, 4, 8)).movedim(-3, 0)
        angles = (torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(4) / 4)).to(DEVICE)
        turn = torch.polar(torch.ones_like(angles), angles)[:, None]

        def turned(t):
            t = torch.complex(t[..., :4], t[..., 4:]) * turn
            return torch.cat((t.real, t.imag), -1)

        scores = torch.einsum("bshd,bthd->bhst", turned(q), turned(k)) / 8**0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=DEVICE).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return block.out(torch.einsum("bhst,bthd->bshd", weights, v).flatten(2))

    def ffn(x):
        gate, value = block.up(x).chunk(2, -1)
        return block.down(gate * torch.sigmoid(gate) * value)

    return attention, ffn


@pytest.mark.parametrize("fused", [True, False])
def test_a_reordered_norm_block_is_its_formula(fused):
    block, x = block_of("reordered", fused=fused), example()
    attention, ffn = attention_and_ffn(block)
    h = x + block.norm1(attention(x))
    torch.testing.assert_close(block(x), h + block.norm2(ffn(h)), **WRITTEN_OUT)


@pytest.mark.parametrize("fused", [True, False])
def test_a_pre_norm_block_is_its_formula(fused):
    block, x = block_of("pre-norm", fused=fused), example()
    attention, ffn = attention_and_ffn(block)
    h = x + attention(block.norm1(x))
    torch.testing.assert_close(block(x), h + ffn(block.norm2(h)), **WRITTEN_OUT)


@pytest.mark.parametrize("fused", [True, False])
def test_input_norms_come_before_the_sublayers(fused):
    block, x = block_of("reordered", fused=fused, input_norms=True), example()
    attention, ffn = attention_and_ffn(block)
    h = x + block.norm1(attention(block.input_norm1(x)))
    torch.testing.assert_close(block(x), h + block.norm2(ffn(block.input_norm2(h))), **WRITTEN_OUT)


# ---- what is computed by what ----


def graph_of(y):
    """The names of the nodes before y, each as often as it is there, and how many gradients autograd adds."""
    names, edges, left, seen = Counter(), Counter(), [y.grad_fn], set()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        names[node.name()] += 1
        for parent, number in node.next_functions:
            if parent is not None:
                edges[parent, number] += 1
                left.append(parent)
    return names, sum(count - 1 for count in edges.values())


KERNELS = {  # the nodes of evenkeel, and how many gradients autograd adds
    "reordered": ({"RecomputedBackward": 2, "NormResidualBackward": 2, "ForkBackward": 2}, 0),
    "reordered rms without biases": ({"RecomputedBackward": 2, "NormResidualBackward": 2, "ForkBackward": 2}, 0),
    "pre-norm": ({"RecomputedBackward": 3, "AddNormBackward": 2}, 0),  # one for the bias of the last product
    "pre-norm rms": ({"RecomputedBackward": 2, "AddNormBackward": 2}, 0),
    "input norms": ({"RecomputedBackward": 2, "AddNormBackward": 2, "NormResidualBackward": 2}, 0),
}


@pytest.mark.parametrize("form", KERNELS)
def test_what_is_between_the_products_is_a_node_of_evenkeel_each(form, no_fallback):
    nodes, additions = KERNELS[form]
    names, added = graph_of(block_of(form)(example().requires_grad_()))
    assert {name: names[name] for name in nodes} == nodes and added == additions
    elsewhere = {"AddBackward0": 0 if "NormResidualBackward" in nodes else 1}  # the last residual
    for name in ("AddBackward0", "SliceBackward0", "SplitWithSizesBackward0", "CatBackward0", "MulBackward0"):
        assert names[name] == elsewhere.get(name, 0), name


@pytest.mark.parametrize("form", ["reordered", "pre-norm rms"])
def test_heads_lie_where_the_products_around_attention_read_and_write(form):
    block, x = block_of(form), example()
    qkv = block.qkv(x).detach().requires_grad_()
    rope = tables(block._rotation, 9, x.device)
    heads = packed_heads(qkv, None, block._cut, (block.q_norm, block.k_norm), block._rotation, rope)
    assert all(part.transpose(1, 2)[0].is_contiguous() for part in heads[:2])
    assert heads[2].data_ptr() == qkv[..., -block._cut.columns[2] :].data_ptr()  # v is not copied
    (gradient,) = torch.autograd.grad(heads, qkv, [torch.ones_like(part) for part in heads])
    assert gradient.is_contiguous() and torch.equal(gradient[..., -8:], torch.ones(2, 9, 8, device=DEVICE))


@pytest.mark.parametrize("layout", ["rows", "heads first", "every third element"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_gradient_of_v_is_copied_and_its_columns_are_summed_as_by_bias_act(dtype, layout):
    dy = example((2, 70, 2, 24), dtype)[..., ::3] if "third" in layout else example((2, 70, 2, 8), dtype)
    dy = dy.transpose(1, 2).contiguous().transpose(1, 2) if "heads" in layout else dy
    packed, sums = torch.zeros(2, 70, 24, dtype=dtype, device=DEVICE), torch.empty(16, dtype=dtype, device=DEVICE)
    copy_and_sum(dy, packed[..., 8:].unflatten(-1, (2, 8)), sums)
    assert torch.equal(packed[..., 8:], dy.flatten(2)) and not packed[..., :8].any()
    alone = torch.empty_like(sums)
    copy_and_sum(dy, None, alone)
    bias = torch.zeros_like(sums, requires_grad=True)
    (expected,) = torch.autograd.grad(ek.bias_act(packed[..., 8:], bias, "none"), bias, packed[..., 8:])
    assert torch.equal(sums, expected) and torch.equal(alone, expected)


# ---- a product and its input past it ----


def forked(kind=None):
    """x, weight, and the sum of both ways of a fork, after kind has seen what it gave."""
    x, weight = example((2, 9, 32)).requires_grad_(), example((48, 32), seed=2).requires_grad_()
    y, past = fork(x, weight, torch.ones(48, device=DEVICE))
    past = past * 3  # its gradient is new memory
    if kind is not None:
        kind(past)
    return x, weight, y.sum(-1, keepdim=True) + past


def test_a_fork_gives_the_product_and_x_and_the_sum_of_their_gradients():
    x, weight, result = forked()
    torch.testing.assert_close(result, (x @ weight.t() + 1).sum(-1, keepdim=True) + x * 3)
    dy = example((2, 9, 32), seed=3)
    expected = torch.autograd.grad((x @ weight.t()).sum(-1, keepdim=True) + x * 3, (x, weight), dy)
    for found, wanted in zip(torch.autograd.grad(result, (x, weight), dy), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kept", [False, True])
def test_the_product_of_backward_adds_in_memory_that_nothing_else_refers_to(kept):
    x, _, result = forked()
    found, (mul,) = [], [node for node, _ in result.grad_fn.next_functions if node.name() == "MulBackward0"]

    def see(inputs, _):
        found.append(inputs[0] if kept else inputs[0].data_ptr())

    mul.register_hook(see)
    dy = torch.ones(2, 9, 32, device=DEVICE)
    (dx,) = torch.autograd.grad(result, x, dy)
    if kept:
        assert found[0].data_ptr() != dx.data_ptr() and torch.equal(found[0], dy * 3)
    else:
        assert found[0] == dx.data_ptr()


def test_in_a_stack_of_blocks_the_gradient_of_every_residual_but_the_last_takes_the_sum():
    first, second = block_of("reordered"), block_of("reordered", seed=5)
    y = second(first(example().requires_grad_()))
    with torch.profiler.profile() as profiler:
        y.backward(example(seed=2))
    calls = Counter(event.name for event in profiler.events())
    assert calls["aten::addmm_"] == 3 and calls["aten::addmm"] == 1  # that one's is the user's


def test_the_gradient_that_a_user_gives_is_not_written():
    x, weight = example((2, 9, 32)).requires_grad_(), example((48, 32), seed=2)
    y, past = fork(x, weight, None)
    given = torch.ones(2, 9, 32, device=DEVICE)
    torch.autograd.grad((y, past), x, (torch.ones_like(y), given))
    assert torch.equal(given, torch.ones_like(given))


def test_a_fork_has_gradients_of_gradients():
    x, weight = (example(shape, torch.float64).requires_grad_() for shape in ((2, 3, 4), (5, 4)))
    assert torch.autograd.gradcheck(lambda *given: fork(*given, None), (x, weight))
    assert torch.autograd.gradgradcheck(lambda *given: fork(*given, None), (x, weight))
    for first in (True, False):  # one of the ways alone
        y, past = fork(x, weight, None)
        (dx,) = torch.autograd.grad((y if first else past).sum(), x)
        expected = weight.sum(0).expand_as(x) if first else torch.ones_like(x)
        torch.testing.assert_close(dx, expected)


def test_a_gradient_that_is_wanted_on_its_way_is_not_written():
    x, weight = example((2, 9, 32)).requires_grad_(), example((48, 32), seed=2)
    y, past = fork(x, weight, None)
    result = y.sum(-1, keepdim=True) + past * 3
    _, on_its_way = torch.autograd.grad(result, (x, past), torch.ones_like(x))
    assert torch.equal(on_its_way, torch.full_like(x, 3.0))


def test_a_pytorch_that_does_not_count_references_gives_the_same_gradients(monkeypatch):
    def step_of(fork_result):
        x, weight, result = fork_result
        return torch.autograd.grad(result, (x, weight), example((2, 9, 32), seed=3))

    expected = step_of(forked())

    def missing(_):
        raise AttributeError("_use_count")

    _block_fork._references_of_autograd.cache_clear()
    monkeypatch.setattr(_block_fork, "_references", missing)
    found = step_of(forked())
    _block_fork._references_of_autograd.cache_clear()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_a_fork_keeps_only_what_a_gradient_is_made_of(frozen):
    x, weight, kept = example((2, 9, 32)), example((48, 32), seed=2), []
    (weight if frozen == "x" else x).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y, past = fork(x, weight, None)
    assert [t.shape for t in kept] == [x.shape if frozen == "x" else weight.shape]
    (y.sum() + past.sum()).backward()
    if frozen == "x":
        torch.testing.assert_close(weight.grad, x.sum((0, 1)).expand_as(weight))
    else:
        torch.testing.assert_close(x.grad, (weight.sum(0) + 1).expand_as(x))


@pytest.mark.parametrize("form", SMOKE)
def test_gradients_in_batches_are_those_one_by_one(form):
    block, x = block_of(form), example().requires_grad_()
    batch = torch.stack([example(seed=2), example(seed=3)])
    with sdpa_kernel(SDPBackend.MATH):
        y = block(x)
    (found,) = torch.autograd.grad(y, x, batch, is_grads_batched=True, retain_graph=True)
    for dx, dy in zip(found, batch, strict=True):
        torch.testing.assert_close(dx, torch.autograd.grad(y, x, dy, retain_graph=True)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["weight", "bias", "qkv", "down"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("form", SMOKE)
def test_frozen_parameters_have_no_gradient_and_the_others_the_same(form, alone, part):
    block, x, dy = block_of(form), example(), example(seed=2)
    for name, parameter in block.named_parameters():
        parameter.requires_grad_((part in name) == alone)
    every, found = (step(b, x, dy) for b in (block_of(form), block))
    assert all((found[name] is None) == ((part in name) != alone) for name, _ in block.named_parameters())
    found = {name: gradient for name, gradient in found.items() if gradient is not None}
    assert largest_difference(found, {name: every[name] for name in found}) < 1e-5


def test_the_last_product_of_a_carrying_block_may_be_written_in_place():
    block, x, found = block_of("pre-norm"), example(), []
    for choice in (True, False):
        leaf = x.clone().requires_grad_()
        f, h = twin(block, choice)(leaf, carry=True)
        (f.mul_(2) + h).backward(example(seed=2))
        found.append({"x": leaf.grad})
    assert largest_difference(*found) < 1e-5


def test_the_bias_of_the_last_product_of_a_pre_norm_block_has_a_gradient_of_every_order():
    block, x = block_of("pre-norm", torch.float64), example((2, 9, 32), torch.float64)
    dy = example((2, 9, 32), torch.float64, seed=2).requires_grad_()
    (gradient,) = torch.autograd.grad(block(x), block.down.bias, dy, create_graph=True)
    torch.testing.assert_close(gradient, dy.sum((0, 1)), rtol=1e-13, atol=1e-13)
    (again,) = torch.autograd.grad(gradient @ gradient.detach(), dy)
    torch.testing.assert_close(again, gradient.detach().expand_as(dy), rtol=0, atol=0)


def test_a_carried_residual_is_added_by_a_kernel(no_fallback):
    first, second = block_of("pre-norm"), block_of("pre-norm", seed=5)
    names, added = graph_of(second(*first(example().requires_grad_(), carry=True), carry=True)[0])
    assert names["AddNormBackward"] == 4 and names["AddBackward0"] == added == 0


# ---- what a call may have ----


@pytest.mark.parametrize("fused", [True, False])
def test_a_carried_residual_is_added_by_the_next_block(fused):
    first, second, x = block_of("pre-norm", fused=fused), block_of("pre-norm", seed=5, fused=fused), example()
    f, h = first(x, carry=True)
    torch.testing.assert_close(f + h, first(x), rtol=0, atol=0)
    torch.testing.assert_close(second(f, h), second(first(x)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("form", SMOKE)
def test_given_tables_take_the_place_of_the_positions_from_0_on(form, fused):
    block, x = block_of(form, fused=fused), example()
    cos, sin = (torch.from_numpy(t).to(DEVICE) for t in evenkeel.rope_tables(12, 8))
    torch.testing.assert_close(block(x, rope=(cos[:9], sin[:9])), block(x))
    starts = (torch.tensor([0, 3])[:, None] + torch.arange(9)).to(DEVICE)
    y = block(x, rope=(cos[starts], sin[starts]))
    torch.testing.assert_close(y, block(x), rtol=1e-4, atol=1e-4)  # attention sees differences of positions alone
    wrong = block(x, rope=(cos[2 * starts.clamp(max=5)], sin[2 * starts.clamp(max=5)]))
    assert not torch.allclose(wrong, y, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("form", SMOKE)
def test_a_mask_takes_the_place_of_causal(form):
    block, x = block_of(form), example()
    causal = torch.ones(9, 9, dtype=torch.bool, device=DEVICE).tril()
    torch.testing.assert_close(block(x, mask=causal), block(x), rtol=1e-5, atol=1e-5)
    seen = block(x, mask=torch.ones(9, 9, dtype=torch.bool, device=DEVICE))
    torch.testing.assert_close(seen, block_of(form, causal=False)(x), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(seen, block(x), rtol=1e-2)


# ---- modules as others know them ----


@pytest.mark.parametrize("form", SMOKE)
def test_copies_compute_the_same(form):
    block, x = block_of(form), example()
    expected = block(x)
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert torch.equal(other(x), expected)


def test_the_text_of_a_block_names_its_sizes():
    words = "32, heads=4, kv_heads=2, head_dim=8, ffn=48, activation='swiglu', fused=True"
    assert words in str(ek.PreNormBlock(32, 4, 48, kv_heads=2))


def test_tables_of_inference_mode_serve_training():
    block, x = block_of("pre-norm", rope_theta=777.0), example().requires_grad_()
    with torch.inference_mode():
        block(example())
    block(x).sum().backward()
    assert x.grad is not None


def test_angles_that_depend_on_the_length_are_those_of_the_length():
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    block = ek.PreNormBlock(32, 4, 48, rope_scaling=scaling, max_position_embeddings=4)
    for length in (4, 9):
        found = tables(block._rotation, length, torch.device("cpu"))
        expected = evenkeel.rope_tables(length, 8, scaling=scaling, max_position_embeddings=4)
        assert all(torch.equal(a, torch.from_numpy(b)) for a, b in zip(found, expected, strict=True))


def test_blocks_of_the_same_angles_share_tables():
    first, second = (ek.PreNormBlock(32, 4, 48, rope_theta=1234.5) for _ in range(2))
    a, b = (tables(block._rotation, 9, example().device)[0] for block in (first, second))
    assert a.data_ptr() == b.data_ptr() and a.shape == (9, 4)
    assert tables(first._rotation, 9, example().device, torch.float64)[0].dtype is torch.float64


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("form", SMOKE)
def test_a_traced_block_computes_the_same(form):
    block, x = block_of(form).requires_grad_(False), example()
    torch.testing.assert_close(torch.jit.trace(block, x)(x + 1), block(x + 1), rtol=1e-5, atol=1e-5)


# ---- refusals ----

BAD = {
    "norm is 'batch'; expected 'layer' or 'rms'": {"norm": "batch"},
    "activation is 'swish'; expected 'swiglu' or 'geglu'": {"activation": "swish"},
    "qk_norm is 'l2'; expected None or 'rms'": {"qk_norm": "l2"},
    "bias is 'q'; expected 'qkv' or 'out' or 'up' or 'down'": {"bias": ["q"]},
    r"kv_heads \(3\) does not divide heads \(4\)": {"kv_heads": 3},
    r"heads \(4\) does not divide d_model \(34\); give head_dim": {"d_model": 34},
    "rotary_dim is 3; expected an even number from 2 to 8": {"rotary_dim": 3},
    "rotary_dim is 10; expected an even number from 2 to 8": {"rotary_dim": 10},
    "head_dim is 15; expected an even number from 2 to 15": {"d_model": 60},
    "ffn is 0; expected a positive number": {"ffn": 0},
    "rope_type is 'longer'; expected default": {"rope_scaling": {"rope_type": "longer"}},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_argument_is_named(message):
    with pytest.raises(ValueError, match=message):
        ek.PreNormBlock(**{"d_model": 32, "heads": 4, "ffn": 48, **BAD[message]})


@pytest.mark.parametrize("bias", ["qkv", None, 1])
def test_a_bias_that_is_no_list_of_names_is_refused(bias):
    with pytest.raises(TypeError, match=f"bias is {bias!r}; expected True, False or a list of qkv, out, up, down"):
        ek.PreNormBlock(32, 4, 48, bias=bias)


@pytest.mark.parametrize("shape", [(9, 32), (2, 9, 31), (2, 2, 9, 32)])
@pytest.mark.parametrize("cls", [ek.ReorderedNormBlock, ek.PreNormBlock])
def test_an_x_of_another_shape_is_refused(cls, shape):
    with pytest.raises(ValueError, match=re.escape(f"x has shape {shape}; expected (batch, seq, 32)")):
        cls(32, 4, 48, device=DEVICE)(example(shape))


@pytest.mark.parametrize("form", SMOKE)
@pytest.mark.parametrize("fused", [True, False])
def test_no_sequences_are_no_results(fused, form):
    block, x = block_of(form, fused=fused), example((0, 9, 32)).requires_grad_()
    y = block(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == (0, 9, 32) and not block.qkv.weight.grad.any()


@pytest.mark.parametrize("form", SMOKE)
def test_a_float16_block_and_rows_with_gaps(form, no_fallback):
    block, x = block_of(form, torch.float16), example((2, 9, 64), torch.float16)[..., ::2]
    y = block(x.requires_grad_())
    y.sum().backward()
    exact = twin(block, False, torch.float64)(x.detach().double())
    torch.testing.assert_close(y.double(), exact, rtol=2e-2, atol=2e-2)


def test_a_size_that_is_no_integer_is_a_type_error():
    with pytest.raises(TypeError, match="heads is 2.5; expected an integer"):
        ek.ReorderedNormBlock(32, 2.5, 48)


# ---- with the rest of PyTorch ----


class Adapted(torch.nn.Linear):
    """A product with something added, as adapters have it."""

    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True) * torch.linspace(0, 1, self.out_features).to(x)


@pytest.mark.parametrize("name", ["qkv", "out", "up", "down"])
@pytest.mark.parametrize("form", SMOKE)
def test_adapters_and_hooks_of_products_are_called(form, name):
    block, x, dy = block_of(form), example(), example(seed=2)
    before = block(x)
    product = getattr(block, name)
    product.__class__ = Adapted
    product.register_forward_hook(lambda module, given, y: torch.tanh(y))
    found, expected = (step(twin(block, choice), x, dy) for choice in (True, False))
    assert largest_difference(found, expected) < 1e-5 and not torch.allclose(found["out"], before, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("form", [*SMOKE, "reordered rms without biases"])
def test_gradients_of_every_order(form):
    block, x = block_of(form, torch.float64), example((1, 3, 32), torch.float64).requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
        assert torch.autograd.gradcheck(block, (x,), fast_mode=True)
        assert torch.autograd.gradgradcheck(block, (x,), fast_mode=True)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("form", SMOKE)
def test_a_checkpointed_block_has_the_same_gradients(form, reentrant):
    block, x = block_of(form), example().requires_grad_()
    (expected,) = torch.autograd.grad(block(x).sum(), x)
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("form", SMOKE)
def test_without_gradients_the_bits_are_the_same(form):
    block, x = block_of(form), example()
    with torch.no_grad():
        y = block(x)
    assert torch.equal(y, block(x.requires_grad_()))


@every_form
def test_autocast_keeps_a_float32_stream(form):
    block, x = block_of(form), example()
    with torch.autocast(DEVICE, torch.bfloat16):
        y = block(x)
    y.sum().backward()
    assert y.dtype is torch.float32 and block.qkv.weight.grad.dtype is torch.float32
    torch.testing.assert_close(y, block(x), rtol=0.1, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("form", SMOKE)
def test_a_compiled_block_gives_the_same(form):
    block, x = block_of(form), example()
    torch.testing.assert_close(torch.compile(block, backend="eager")(x), block(x), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", SMOKE)
def test_an_unfused_block_with_given_tables_compiles_as_one_graph(form):
    block, x = block_of(form, fused=False), example()
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    for length in (9, 5):
        rope = tables(block._rotation, length, x.device)
        torch.testing.assert_close(compiled(x[:, :length], rope=rope), block(x[:, :length]), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", SMOKE)
def test_a_block_under_torch_func(form):
    block, x = block_of(form), example()
    gradient = torch.func.grad(lambda t: block(t).sum())(x)
    torch.testing.assert_close(gradient, step(block, x, torch.ones_like(x))["x"], rtol=1e-5, atol=1e-5)


def test_a_fused_block_saves_less_than_the_unfused_one():
    block, x = block_of("input norms"), example()
    fused, plain = (ek.memory_estimate(twin(block, choice), x).saved for choice in (True, False))
    assert fused < plain
