"""RoPE and the norms of heads on arrays: values, tables, layouts, levels, mistakes. SPDX-License-Identifier: MIT"""

import hashlib
import re
from itertools import product

import numpy as np
import pytest

import evenkeel
from processes import run_python
from reference import DTYPES, array, close, wide

BATCH, SEQ, ROWS = 2, 5, 9
HEADS = (4, 2, 8), (3, 3, 16), (2, 1, 10)  # of q, of k, and elements of a head
TURNS = {}, {"interleaved": True}, {"rotary_dim": 4}, {"rotary_dim": 6, "trailing": True, "interleaved": True}
NORMS = (
    {},
    {"norm": "rms"},
    {"norm": "layer", "weight_offset": 1.0},
    {"norm": "rms", "norm_first": False},
)
WEIGHT_DTYPES = [
    (dtype, weight) for dtype in DTYPES for weight in dict.fromkeys((dtype, "f64" if dtype == "f64" else "f32"))
]

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_turn = pytest.mark.parametrize("turn", TURNS, ids=lambda t: "-".join(t) or "whole")
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda n: "-".join(map(str, n.values())) or "none")


class Operands:
    """Those of a call, by their names in it."""

    def __init__(self, heads, dtype="f32", weight=None, turn=None, norm=None):
        q_heads, k_heads, head_dim = heads
        pairs = (turn or {}).get("rotary_dim", head_dim) // 2
        self.q = array((BATCH, SEQ, q_heads, head_dim), dtype)
        self.k = array((BATCH, SEQ, k_heads, head_dim), dtype, 1)
        self.dq = array((BATCH, q_heads, SEQ, head_dim), dtype, 2)
        self.dk = array((BATCH, k_heads, SEQ, head_dim), dtype, 3)
        self.cos, self.sin = (array((ROWS, pairs), weight or dtype, seed) for seed in (4, 5))
        self.q_bias, self.k_bias = (array((n * head_dim,), weight or dtype, 6) for n in (q_heads, k_heads))
        has_weights = norm and norm.get("norm_first", True)
        self.q_weight, self.k_weight = (array((head_dim,), weight or dtype, s) if has_weights else None for s in (8, 9))


def results(o, turn, norm, **options):
    """q, k and the six gradients."""
    tables = o.cos, o.sin
    if not norm:
        outputs = evenkeel.rope(o.q, o.k, *tables, o.q_bias, o.k_bias, **turn, **options)
        dtypes = [getattr(array, "dtype", None) for array in (o.q_bias, o.dq)]
        needs = {"need_dq_bias": True, "need_dk_bias": True}
        needs |= {} if dtypes[0] == dtypes[1] else {"gradient_dtype": dtypes[0]}
        return *outputs, *evenkeel.rope_backward(o.dq, o.dk, *tables, **turn, **options, **needs), None, None
    options = {"q_bias": o.q_bias, "k_bias": o.k_bias, **turn, **norm, **options}
    given = o.q, o.k, *tables, o.q_weight, o.k_weight
    return *evenkeel.qk_norm_rope(*given, **options), *evenkeel.qk_norm_rope_backward(o.dq, o.dk, *given, **options)


# ---- the formula in float64, with the gradient of a sum over its Jacobian ----


def turned(x, cos, sin, interleaved=False, rotary_dim=None, trailing=False):
    """Of [batch, seq, heads, head_dim] and tables [batch or 1, seq, pairs]."""
    head_dim = x.shape[-1]
    rotary_dim = rotary_dim or head_dim
    first = head_dim - rotary_dim if trailing else 0
    half, y = rotary_dim // 2, x.copy()
    a = first + (2 * np.arange(half) if interleaved else np.arange(half))
    b = a + (1 if interleaved else half)
    cos, sin = cos[:, :, None, :half], sin[:, :, None, :half]
    y[..., a] = x[..., a] * cos - x[..., b] * sin
    y[..., b] = x[..., b] * cos + x[..., a] * sin
    return y


def normalized(x, norm, eps=1e-6):
    """xhat, and the function that takes the gradient of xhat to that of x."""
    x = x - x.mean(-1, keepdims=True) if norm == "layer" else x
    rstd = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + eps)
    xhat = x * rstd

    def gradient(g):
        g = g - xhat * (g * xhat).mean(-1, keepdims=True)
        return (g - g.mean(-1, keepdims=True) if norm == "layer" else g) * rstd

    return xhat, gradient


def formula(x, bias, weight, dy, cos, sin, turn, norm=None, weight_offset=0.0, norm_first=True):
    """The result and the gradients of x, bias and weight, for q or k."""
    heads, head_dim = x.shape[2:]
    v = x + bias.reshape(heads, head_dim)
    dy = dy.swapaxes(1, 2)
    w = 1.0 if weight is None else weight + weight_offset
    if norm is None:
        y, dv, dweight = turned(v, cos, sin, **turn), turned(dy, cos, -sin, **turn), None
    elif norm_first:
        xhat, gradient = normalized(v, norm)
        back = turned(dy, cos, -sin, **turn)
        y, dv, dweight = turned(xhat * w, cos, sin, **turn), gradient(back * w), (back * xhat).sum((0, 1, 2))
    else:
        y, gradient = normalized(turned(v, cos, sin, **turn), norm)
        dv, dweight = turned(gradient(dy), cos, -sin, **turn), None
    return y.swapaxes(1, 2), dv, dv.sum((0, 1)).ravel(), dweight


def expected(o, turn, norm, rows=None):
    cos, sin = (t[None, :SEQ] if rows is None else t[rows] for t in wide(o.cos, o.sin))
    sides = [wide(o.q, o.q_bias, o.q_weight, o.dq), wide(o.k, o.k_bias, o.k_weight, o.dk)]
    found = zip(*(formula(*side, cos, sin, turn, **norm) for side in sides), strict=True)
    return [result for pair in found for result in pair]


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


# ---- values ----


@every_turn
@every_norm
@pytest.mark.parametrize("dtypes", WEIGHT_DTYPES, ids=str)
def test_every_result_is_that_of_the_formula(dtypes, norm, turn):
    for heads in HEADS:
        o = Operands(heads, *dtypes, turn, norm)
        for found, right in zip(results(o, turn, norm), expected(o, turn, norm), strict=True):
            assert (found is None) == (right is None)
            if found is not None:
                close(found, right, dtypes[0])


def digest():
    """Of every result of the cases, by the library in use."""
    sum = hashlib.sha256()
    for number, (dtypes, turn, norm) in enumerate(product(WEIGHT_DTYPES, TURNS, NORMS)):
        for result in results(Operands(HEADS[number % len(HEADS)], *dtypes, turn, norm), turn, norm):
            sum.update(b"" if result is None else result.tobytes())
    return sum.hexdigest()


@pytest.mark.parametrize("level", [name for name, usable in evenkeel.info()["levels"].items() if usable])
def test_every_level_has_the_same_bits(level):
    assert run_python("import test_rope; print(test_rope.digest())", EVENKEEL_ISA=level) == digest()


# ---- tables and positions ----


@every_norm
def test_tables_may_be_wider_and_have_a_dimension_of_sequences(norm):
    o = Operands(HEADS[0], norm=norm)
    wanted = results(o, {}, norm)
    for view in (
        lambda t: np.concatenate([t, np.full_like(t, np.nan)], -1),
        lambda t: t[None],
        lambda t: np.stack([t] * BATCH),
        lambda t: np.concatenate([t, t * 9], -1)[None],
    ):
        other = Operands(HEADS[0], norm=norm)
        other.cos, other.sin = view(o.cos), view(o.sin)
        same(results(other, {}, norm), wanted)


def test_each_sequence_may_have_tables_of_its_own():
    o = Operands(HEADS[0])
    cos, sin = (array((BATCH, ROWS, 4), seed=s) for s in (20, 21))
    q, k = evenkeel.rope(o.q, o.k, cos, sin, offset=2)
    for b in range(BATCH):
        same(evenkeel.rope(o.q[b : b + 1], o.k[b : b + 1], cos[b], sin[b], offset=2), (q[b : b + 1], k[b : b + 1]))


@every_turn
def test_positions_and_offset_choose_rows(turn):
    o = Operands(HEADS[1], "f64", turn=turn)
    rows = np.random.default_rng(0).integers(0, ROWS, (BATCH, SEQ))
    for found, right in zip(results(o, turn, {}, positions=rows), expected(o, turn, {}, rows), strict=True):
        assert found is right is None or close(found, right, "f64") is None
    rows = np.tile(np.arange(3, 3 + SEQ), (BATCH, 1))
    same(results(o, turn, {}, positions=rows), results(o, turn, {}, offset=3))


def test_tables_of_rope_tables_turn_by_the_position():
    cos, sin = evenkeel.rope_tables(16, 8)
    o = Operands((1, 1, 8), "f64")
    a, _ = evenkeel.rope(o.q, o.k, cos.astype("f8"), sin.astype("f8"))
    close(np.square(a).sum(-1), np.square(o.q).sum(-1).swapaxes(1, 2), "f32")


# ---- layouts ----


@every_norm
def test_the_layout_is_that_of_the_results_alone(norm):
    o = Operands(HEADS[0], norm=norm)
    q, k, *gradients = results(o, {}, norm)
    other = Operands(HEADS[0], norm=norm)
    other.dq, other.dk = (d.swapaxes(1, 2).copy() for d in (o.dq, o.dk))
    found = results(other, {}, norm, layout="bshd")
    same([a.swapaxes(1, 2) for a in found[:2]], (q, k))
    same(found[2:], gradients)
    assert all(a.flags.c_contiguous for a in (q, k, *found[:2]))


@every_norm
def test_slices_of_one_array_and_transposed_views_are_read_where_they_lie(norm):
    o = Operands((4, 2, 8), norm=norm)
    wanted = results(o, {}, norm)
    both = np.concatenate([o.q, o.k, o.k], 2)
    o.q, o.k = both[:, :, :4], both[:, :, 4:6]
    same(results(o, {}, norm), wanted)
    o.q, o.k = (a.swapaxes(1, 2).copy().swapaxes(1, 2) for a in (o.q, o.k))
    o.dq, o.dk = (a.swapaxes(1, 2).copy().swapaxes(1, 2) for a in (o.dq, o.dk))
    assert not o.q.flags.c_contiguous and not o.dq.flags.c_contiguous
    same(results(o, {}, norm), wanted)


def test_other_layouts_are_copied():
    o = Operands(HEADS[0])
    wanted = evenkeel.rope(o.q, o.k, o.cos, o.sin)
    odd = np.repeat(o.q, 2, -1)[..., ::2]
    expanded = np.broadcast_to(o.k[:, :, :1], o.k.shape)
    same(evenkeel.rope(odd, o.k, o.cos, o.sin), wanted)
    same(evenkeel.rope(o.q, expanded, o.cos, o.sin), evenkeel.rope(o.q, expanded.copy(), o.cos, o.sin))


def test_in_place():
    o = Operands(HEADS[0])
    q, k = evenkeel.rope(o.q, o.k, o.cos, o.sin, layout="bshd")
    found = evenkeel.rope(o.q, o.k, o.cos, o.sin, layout="bshd", out=(o.q, o.k))
    assert found[0] is o.q and found[1] is o.k
    same(found, (q, k))


def test_q_alone():
    o = Operands(HEADS[0])
    q, k = evenkeel.rope(o.q, None, o.cos, o.sin)
    same((q, k), (evenkeel.rope(o.q, o.k, o.cos, o.sin)[0], None))
    wanted = evenkeel.rope_backward(o.dq, o.dk, o.cos, o.sin)
    same(evenkeel.rope_backward(o.dq, None, o.cos, o.sin), (wanted[0], None, None, None))


def test_without_tokens_gradients_of_biases_are_zero():
    o = Operands(HEADS[0])
    for name in ("q", "k"):
        setattr(o, name, getattr(o, name)[:, :0])
        setattr(o, f"d{name}", getattr(o, f"d{name}")[:, :, :0])
    q, k, dq, _, dq_bias, _, _, _ = results(o, {}, {})
    assert q.shape == (BATCH, 4, 0, 8) and dq.shape == (BATCH, 0, 4, 8) and (dq_bias == 0).all()


# ---- mistakes ----

GIVEN = Operands(HEADS[0])
Q, K, COS, SIN, BIAS, W = GIVEN.q, GIVEN.k, GIVEN.cos, GIVEN.sin, GIVEN.q_bias, array((8,))
POSITIONS = np.zeros((BATCH, SEQ), np.int64)
rope, norm_rope = evenkeel.rope, evenkeel.qk_norm_rope
MISTAKES = {
    "q has shape (5, 4, 8): it must have (batch, seq, heads, head_dim)": (ValueError, lambda: rope(Q[0], K, COS, SIN)),
    "k has shape (2, 5, 3, 8): it must have (2, 5, 4, 8), or fewer heads that divide 4": (
        ValueError,
        lambda: rope(Q, Q[:, :, :3], COS, SIN),
    ),
    "k has shape (2, 4, 2, 8)": (ValueError, lambda: rope(Q, K[:, :4], COS, SIN)),
    "k is f64: it must be f32, as q": (TypeError, lambda: rope(Q, K.astype("f8"), COS, SIN)),
    "cos has shape (9, 3): it must have (rows, columns), or those of 1 or 2 sequences, with 4 or 8 columns": (
        ValueError,
        lambda: rope(Q, K, COS[:, :3], SIN),
    ),
    "cos has shape (3, 9, 4)": (ValueError, lambda: rope(Q, K, np.stack([COS] * 3), SIN)),
    "sin has shape (8, 4): it must have (9, 4), as cos": (ValueError, lambda: rope(Q, K, COS, SIN[:8])),
    "sin is f64: it must be f32, as cos": (TypeError, lambda: rope(Q, K, COS, SIN.astype("f8"))),
    "cos has 3 rows: it must have offset (0) + seq (5) or more": (ValueError, lambda: rope(Q, K, COS[:3], SIN[:3])),
    "cos has 9 rows: it must have offset (5) + seq (5) or more": (ValueError, lambda: rope(Q, K, COS, SIN, offset=5)),
    "offset (-1) must not be negative": (ValueError, lambda: rope(Q, K, COS, SIN, offset=-1)),
    "offset is 1.5; expected an integer": (TypeError, lambda: rope(Q, K, COS, SIN, offset=1.5)),
    "positions say which rows, and offset is 1; expected 0": (
        ValueError,
        lambda: rope(Q, K, COS, SIN, positions=POSITIONS, offset=1),
    ),
    "positions say which rows, and cos has shape (2, 9, 4); expected (rows, columns)": (
        ValueError,
        lambda: rope(Q, K, np.stack([COS] * 2), np.stack([SIN] * 2), positions=POSITIONS),
    ),
    "positions[0][0] (9) is not a row of the tables; expected 0 to 8": (
        ValueError,
        lambda: rope(Q, K, COS, SIN, positions=POSITIONS + 9),
    ),
    "positions[0][0] (-1) is not a row of the tables": (
        ValueError,
        lambda: evenkeel.rope_backward(GIVEN.dq, GIVEN.dk, COS, SIN, positions=POSITIONS - 1),
    ),
    "positions has elements of the format 'i': it must be int64": (
        TypeError,
        lambda: rope(Q, K, COS, SIN, positions=POSITIONS.astype("i4")),
    ),
    "positions has shape (5,): it must have (2, 5)": (ValueError, lambda: rope(Q, K, COS, SIN, positions=POSITIONS[0])),
    "rotary_dim is 3; expected an even number from 2 to 8": (ValueError, lambda: rope(Q, K, COS, SIN, rotary_dim=3)),
    "rotary_dim is 10; expected an even number from 2 to 8": (ValueError, lambda: rope(Q, K, COS, SIN, rotary_dim=10)),
    "head_dim is 7; expected an even number": (ValueError, lambda: rope(Q[..., :7], K[..., :7], COS, SIN)),
    "layout is 'sbhd'; expected 'bhsd' or 'bshd'": (ValueError, lambda: rope(Q, K, COS, SIN, layout="sbhd")),
    "interleaved is 2; expected 0 or 1": (ValueError, lambda: rope(Q, K, COS, SIN, interleaved=2)),
    "trailing is 'no'; expected 0 or 1": (TypeError, lambda: rope(Q, K, COS, SIN, trailing="no")),
    "q_bias has shape (31,): it must have (32,)": (ValueError, lambda: rope(Q, K, COS, SIN, BIAS[:31])),
    "k_bias is given, and k is None; expected None": (ValueError, lambda: rope(Q, None, COS, SIN, None, BIAS)),
    "norm is 'batch'; expected 'layer' or 'rms'": (ValueError, lambda: norm_rope(Q, K, COS, SIN, norm="batch")),
    "norm is None; expected 'layer' or 'rms'": (ValueError, lambda: norm_rope(Q, K, COS, SIN, norm=None)),
    "norm_first is False, and weights are given; expected no weights": (
        ValueError,
        lambda: norm_rope(Q, K, COS, SIN, W, norm_first=False),
    ),
    "weight_offset is 2.0; expected 0 or 1": (ValueError, lambda: norm_rope(Q, K, COS, SIN, W, weight_offset=2.0)),
    "q_weight has shape (7,): it must have (8,)": (ValueError, lambda: norm_rope(Q, K, COS, SIN, W[:7])),
    "eps (-1) must be finite and not negative": (ValueError, lambda: norm_rope(Q, K, COS, SIN, W, eps=-1.0)),
    "cos is of type NoneType; expected an array": (TypeError, lambda: rope(Q, K, None, SIN)),
    "layout is 'bhsd', and an array of type memoryview has no swapaxes; expected layout 'bshd'": (
        TypeError,
        lambda: rope(memoryview(Q), memoryview(K), COS, SIN),
    ),
    "q_out has shape (2, 4, 5, 8): it must have (2, 5, 4, 8)": (ValueError, lambda: rope(Q, K, COS, SIN, out=(Q, K))),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_names_the_argument(words):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words)):
        call()
