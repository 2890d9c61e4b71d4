"""group_cols: norms over groups of a row, on arrays and in PyTorch: beside the norm of a view with a dimension for the
groups, gradients, statistics, one group, rows alone, mistakes. SPDX-License-Identifier: MIT"""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

import evenkeel
import evenkeel.torch as ek
from evenkeel.compat import quack
from torch_cases import close, every_dtype, leave_calls_to_python, same_bits, tensor, wide

ROWS, COLS, GROUP = 7, 96, 24
either_norm = pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
either_order = pytest.mark.parametrize("first", [False, True], ids=["gated result", "gated x"])
either_way = pytest.mark.parametrize("way", ["c", "python"])
KINDS = ["plain", "add", "residual", "act", "gated", "gated_first"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def inputs_of(dtype="f32", rows=(ROWS,)):
    """x, a residual or gate, weight, bias."""
    shapes = (*rows, COLS), (*rows, COLS), (COLS,), (COLS,)
    return [tensor(shape, dtype, seed) for seed, shape in enumerate(shapes)]


def call(kind, norm, x, other, weight, bias, library=ek, **options):
    """The function of that kind."""
    bias = (bias,) if norm == "layer_norm" else ()
    shape = ((COLS,),) if library is ek else ()
    options = {"eps": 1e-5, "group_cols": GROUP} | options
    if kind == "plain":
        return getattr(library, norm)(x, *shape, weight, *bias, **options)
    if kind == "add":
        return getattr(library, f"add_{norm}")(x, other, *shape, weight, *bias, **options)[0]
    if kind == "residual":
        return getattr(library, f"{norm}_residual")(x, other, *shape, weight, *bias, **options)
    if kind == "act":
        return getattr(library, f"{norm}_act")(x, *shape, weight, *bias, activation="silu", **options)
    first = kind == "gated_first"
    return getattr(library, f"{norm}_gated")(x, other, *shape, weight, *bias, gate_first=first, **options)


def composed(kind, norm, x, other, weight, bias):
    """The same with the groups as a dimension."""
    h = x + other if kind == "add" else x * F.silu(other) if kind == "gated_first" else x
    h = h.unflatten(-1, (-1, GROUP))
    if norm == "layer_norm":
        y = F.layer_norm(h, (GROUP,), None, None, 1e-5).flatten(-2) * weight + bias
    else:
        y = F.rms_norm(h, (GROUP,), None, 1e-5).flatten(-2) * weight
    if kind == "residual":
        return y + other
    return F.silu(y) if kind == "act" else y * F.silu(other) if kind == "gated" else y


# ---- values and gradients ----


@every_dtype
@every_kind
@either_norm
def test_each_group_is_normalized_on_its_own(norm, kind, dtype):
    given = inputs_of(dtype)
    close(call(kind, norm, *given), composed(kind, norm, *wide(*given)), dtype)


@either_way
@every_kind
@either_norm
def test_gradients_are_those_of_the_composition(norm, kind, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    found, exact = ([t.requires_grad_() for t in given] for given in (inputs_of(), wide(*inputs_of())))
    dy = tensor((ROWS, COLS), seed=9)
    call(kind, norm, *found).backward(dy)
    composed(kind, norm, *exact).backward(*wide(dy))
    for a, b in zip(found, exact, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            close(a.grad, b.grad)


@either_way
@either_order
@either_norm
def test_gradcheck_of_any_order(norm, first, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    kind = "gated_first" if first else "gated"
    given = [t.requires_grad_() for t in inputs_of("f64", (2,))]
    function = functools.partial(call, kind, norm)
    assert gradcheck(function, given)
    assert gradgradcheck(function, given)


@either_norm
def test_transforms_see_groups(norm):
    x, other, weight, bias = inputs_of()
    expected = composed("plain", norm, x, other, weight, bias)
    close(vmap(lambda row: call("plain", norm, row, other, weight, bias))(x), expected)


# ---- statistics ----


@every_dtype
@either_norm
def test_explicit_statistics_have_a_dimension_of_groups(norm, dtype):
    x, _, weight, bias = inputs_of(dtype, (2, 3))
    columns = (weight, bias) if norm == "layer_norm" else (weight,)
    y, *stats = getattr(ek, f"{norm}_forward")(x, *columns, eps=1e-5, group_cols=GROUP)
    assert all(s.shape == (2, 3, COLS // GROUP) for s in stats)
    assert same_bits(y, call("plain", norm, x, None, weight, bias))
    dy = tensor(x.shape, dtype, 7)
    dx, dweight, *_ = getattr(ek, f"{norm}_backward")(dy, x, *stats, weight, group_cols=GROUP)
    leaves = [t.clone().requires_grad_() for t in (x, weight)]
    call("plain", norm, leaves[0], None, leaves[1], bias).backward(dy)
    close(dx, leaves[0].grad, dtype)
    close(dweight, leaves[1].grad, dtype)
    with pytest.raises(ValueError, match="it must have 24, one for each group of each row of x"):
        getattr(ek, f"{norm}_backward")(dy, x, *(s[0] for s in stats), weight, group_cols=GROUP)


# ---- arrays ----


@every_kind
@either_norm
def test_arrays_have_the_bits_of_tensors(norm, kind):
    given = inputs_of()
    found = call(kind, norm, *(t.numpy() for t in given), library=evenkeel)
    assert np.array_equal(found, call(kind, norm, *given).numpy())


def test_explicit_functions_of_arrays():
    x, _, weight, bias = (t.numpy() for t in inputs_of())
    y, mean, rstd, mean_lo = evenkeel.layer_norm_forward(x, weight, bias, group_cols=GROUP, return_mean_lo=True)
    assert mean.shape == rstd.shape == mean_lo.shape == (ROWS, COLS // GROUP)
    rows = evenkeel.layer_norm_forward(x.reshape(-1, GROUP), return_mean_lo=True)
    assert all(np.array_equal(a.ravel(), b) for a, b in zip((mean, rstd, mean_lo), rows[1:], strict=True))
    assert np.array_equal(y, evenkeel.layer_norm(x, weight, bias, group_cols=GROUP))
    dx, dweight, _ = evenkeel.layer_norm_backward(y, x, mean, rstd, weight, mean_lo=mean_lo, group_cols=GROUP)
    torch_dx, torch_dweight, _ = ek.layer_norm_backward(
        *map(torch.from_numpy, (y, x, mean, rstd, weight)), mean_lo=torch.from_numpy(mean_lo), group_cols=GROUP
    )
    assert np.array_equal(dx, torch_dx.numpy()) and np.array_equal(dweight, torch_dweight.numpy())


# ---- what changes nothing ----


@every_kind
@either_norm
def test_one_group_is_none(norm, kind):
    given = inputs_of()
    assert same_bits(call(kind, norm, *given, group_cols=COLS), call(kind, norm, *given, group_cols=None))


@every_kind
@either_norm
def test_a_row_alone_has_its_bits_in_the_batch(norm, kind):
    x, other, weight, bias = inputs_of()
    batch = call(kind, norm, x, other, weight, bias)
    for row in (0, 3, ROWS - 1):
        one = slice(row, row + 1)
        assert same_bits(batch[one], call(kind, norm, x[one], other[one], weight, bias))


def test_several_dimensions_are_cut_as_they_lie_in_memory():
    x, weight = tensor((5, 4, 24)), tensor((4, 24), seed=1)
    found = ek.rms_norm(x, (4, 24), weight, 1e-5, group_cols=48)
    assert same_bits(
        found.reshape(5, 96), ek.rms_norm(x.reshape(5, 96), (96,), weight.reshape(96), 1e-5, group_cols=48)
    )


# ---- mistakes ----


@pytest.mark.parametrize("wrong", [0, -24, 7, 2 * COLS])
@every_kind
@either_norm
def test_a_size_that_does_not_divide_is_refused(norm, kind, wrong):
    message = rf"group_cols \({wrong}\) does not divide 96, the elements that are normalized"
    given = inputs_of()
    for library, operands in ((ek, given), (evenkeel, [t.numpy() for t in given])):
        with pytest.raises(ValueError, match=message):
            call(kind, norm, *operands, library=library, group_cols=wrong)
    with pytest.raises(ValueError, match=message):
        getattr(ek, f"{norm}_forward")(given[0], group_cols=wrong)


@pytest.mark.parametrize("wrong", [1.5, "24"])
def test_what_is_no_integer_is_refused(wrong):
    x = tensor((ROWS, COLS))
    with pytest.raises(TypeError, match="group_cols is .*; expected an integer, or None"):
        ek.rms_norm(x, (COLS,), group_cols=wrong)
    with pytest.raises(TypeError, match="group_cols is .*; expected an integer, or None"):
        evenkeel.rms_norm(x.numpy(), group_cols=wrong)


# ---- quack's weights per head ----


def test_quack_s_weights_per_head():
    """The call of quack's documentation: x (B, S, H, D), weight (H, D)."""
    x, weight = (t.requires_grad_() for t in (tensor((2, 5, 4, 64), "bf16"), tensor((4, 64), "f32", 1)))
    out = quack.rmsnorm(x, weight)
    exact = [t.detach().double().requires_grad_() for t in (x, weight)]
    expected = F.rms_norm(exact[0], (64,), None, 1e-6) * exact[1]
    close(out, expected, "bf16")
    assert out.dtype is torch.bfloat16 and out.shape == x.shape
    dy = tensor(x.shape, "bf16", 2)
    out.backward(dy)
    expected.backward(*wide(dy))
    close(x.grad, exact[0].grad, "bf16")
    close(weight.grad, exact[1].grad, "bf16")
    assert weight.grad.shape == (4, 64) and weight.grad.dtype is torch.float32


def test_quack_s_explicit_functions_per_head():
    x, weight, bias = tensor((10, 4, 64)), tensor((4, 64), seed=1), tensor((4, 64), seed=2)
    residual = tensor((10, 4, 64), seed=3)
    out, h, rstd = quack.rmsnorm_fwd(x, weight, bias, residual, store_rstd=True)
    assert rstd.shape == (10, 4)
    close(out, F.rms_norm(wide(x)[0] + wide(residual)[0], (64,), None, 1e-6) * wide(weight)[0] + wide(bias)[0])
    assert same_bits(out, quack.rmsnorm(x, weight, bias, residual))
    dx, dweight, dbias, dresidual = quack.rmsnorm_bwd(h, weight, out, rstd, has_bias=True, has_residual=True)
    assert dweight.shape == dbias.shape == (4, 64) and dx is dresidual
    close(dbias, wide(out)[0].sum(0))


def test_a_number_of_numpy_is_an_integer_too():
    x = tensor((ROWS, COLS)).numpy()
    found, expected = (evenkeel.rms_norm_forward(x, group_cols=number) for number in (np.int64(GROUP), GROUP))
    assert all(np.array_equal(f, e) for f, e in zip(found, expected, strict=True)) and len(found) == 2


def test_what_is_wrong_with_the_shape_is_said_first():
    x = tensor((ROWS, COLS))
    with pytest.raises(TypeError, match="normalized_shape"):
        ek.layer_norm(x, COLS, x[0], group_cols=GROUP)
    with pytest.raises(ValueError, match=r"cols \(0\) is not in 1 to"):
        evenkeel.layer_norm_forward(np.zeros((3, 0), "f4"), group_cols=4)
