"""evenkeel.torch's norms with an activation of the result: every one of them beside PyTorch's, what is saved, dtypes,
autocast, fallbacks, mistakes. The other tests of fused norms have them too, as cases. SPDX-License-Identifier: MIT"""

import inspect
import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.func import jvp, vmap

import evenkeel.torch as ek
from fused_cases import Case
from reference import TOLERANCE
from test_torch_fused import (
    ACTIVATIONS,
    BF16,
    EVERY_ACT,
    F32,
    F64,
    IN_F32,
    Operands,
    call_of,
    composed,
    either_way,
    fused_norm,
    gradients,
    operands,
)
from test_torch_transforms import under_autocast
from torch_cases import (
    DEVICE,
    DTYPES,
    all_same,
    close,
    every_dtype,
    exchange_only,
    leave_calls_to_python,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

every_act = pytest.mark.parametrize("norm", EVERY_ACT, ids=str)


# ---- values ----


@every_dtype
@every_act
def test_results_are_pytorch_s_within_the_rounding_of_the_dtype(norm, dtype):
    """In 16 bits PyTorch's norm rounds before the activation, and this does not: it errs less."""
    x, weight, bias = norm.operands((50, 300), dtype)
    found = getattr(ek, norm.name)(x, (300,), *((weight, bias) if norm.has_bias else (weight,)), 1e-5, norm.activation)
    expected = ACTIVATIONS[norm.activation](norm.theirs(x, (300,), weight, bias))
    assert found.dtype is expected.dtype
    close(found, expected.double())
    exact = ACTIVATIONS[norm.activation](norm.theirs(*wide(x), (300,), *wide(weight, bias)))
    ours, theirs = ((y.double() - exact).abs().mean() for y in (found, expected))
    assert ours < theirs or dtype in ("f32", "f64")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_layer_norm_gelu_takes_pytorch_s_argument(approximate):
    x, weight, bias = tensor((6, 40)), tensor((40,), seed=1), tensor((40,), seed=2)
    found = ek.layer_norm_gelu(x, (40,), weight, bias, 1e-3, approximate)
    close(found, F.gelu(F.layer_norm(x, (40,), weight, bias, 1e-3), approximate=approximate))
    name = {"none": "gelu", "tanh": "gelu_tanh"}[approximate]
    assert same_bits(found, ek.layer_norm_act(x, (40,), weight, bias, 1e-3, name))
    assert not same_bits(found, ek.layer_norm_gelu(x, (40,), weight, bias, 1e-5, approximate))


def test_layer_norm_gelu_has_the_keywords_of_layer_norm_act():
    x, weight, x_bias = tensor((6, 40), "bf16"), tensor((40,), "bf16", 1), tensor((40,), "bf16", 2)
    act, gelu = (inspect.signature(f).parameters for f in (ek.layer_norm_act, ek.layer_norm_gelu))
    keywords = {name for name, p in act.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords == {name for name, p in gelu.items() if p.kind is p.KEYWORD_ONLY}
    options = {"x_bias": x_bias, "weight_offset": 1.0, "rounding": "each", "out_dtype": torch.float32, "group_cols": 8}
    whole = ek.layer_norm_act(x, (40,), weight, **options)
    assert keywords == options.keys() and same_bits(ek.layer_norm_gelu(x, (40,), weight, **options), whole)
    for name in options:
        less = {n: value for n, value in options.items() if n != name}
        found = ek.layer_norm_gelu(x, (40,), weight, **less)
        assert same_bits(found, ek.layer_norm_act(x, (40,), weight, **less)) and not torch.equal(found, whole)


def test_gelu_is_the_default():
    x = tensor((6, 40))
    assert same_bits(ek.layer_norm_act(x, (40,)), ek.layer_norm_act(x, (40,), activation="gelu"))
    assert same_bits(ek.layer_norm_act(x, (40,)), ek.layer_norm_gelu(x, (40,)))
    assert same_bits(ek.rms_norm_act(x, (40,)), ek.rms_norm_act(x, (40,), activation="gelu"))
    assert not same_bits(ek.layer_norm_gelu(x, (40,)), ek.layer_norm_gelu(x, (40,), approximate="tanh"))
    assert same_bits(ek.rms_norm_act(x, (40,)), ek.rms_norm_act(x, (40,), eps=torch.finfo(x.dtype).eps))


@pytest.mark.parametrize("absent", list(itertools.product([False, True], repeat=3)), ids=str)
@either_way
@every_act
def test_columns_may_each_be_absent(norm, absent, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, (dy,) = operands(norm, F64)
    gone = {name: None for name, is_gone in zip(("weight", "bias", "x_bias"), absent, strict=True) if is_gone}
    inputs = inputs._replace(**gone)
    close(fused_norm(norm, inputs, F64)[0], composed(norm, inputs, F64)[0])
    found = gradients(call_of(norm, F64), inputs, dy)
    for a, b in zip(found, gradients(lambda i: composed(norm, i, F64), inputs, dy), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


@either_way
@pytest.mark.parametrize("again", [False, True], ids=["first order", "with a graph"])
@pytest.mark.parametrize("name", ["bias", "x_bias"])
def test_a_float32_column_alone_has_a_gradient_in_float32(name, again, way, monkeypatch):
    """Not one that went through the dtype of x."""
    if way == "python":
        leave_calls_to_python(monkeypatch)
    (norm,) = (act for act in EVERY_ACT if str(act) == "layer_norm_act gelu")
    inputs, (dy,) = operands(norm, Case("bf16", "f32", "bf16", "bf16"))
    column = getattr(inputs, name).requires_grad_()
    inputs = Operands(inputs.x, **{name: column})
    (y,) = fused_norm(norm, inputs, Case("bf16", "f32", "bf16", "bf16"))
    (found,) = torch.autograd.grad(y, column, dy, create_graph=again)
    exact = Operands(*wide(*inputs))
    exact = exact._replace(**{name: getattr(exact, name).requires_grad_()})
    (expected,) = torch.autograd.grad(composed(norm, exact), getattr(exact, name), *wide(dy))
    assert found.dtype is torch.float32
    close(found, expected)


def test_several_normalized_dimensions():
    x, weight, bias = tensor((5, 4, 10), "f64"), tensor((4, 10), "f64", seed=1), tensor((4, 10), "f64", seed=2)
    expected = F.silu(F.layer_norm(x + bias, (4, 10), weight, bias))
    close(ek.layer_norm_act(x, (4, 10), weight, bias, activation="silu", x_bias=bias), expected)
    close(ek.layer_norm_act(x, [4, 10], weight, bias, activation="silu", x_bias=bias), expected)
    close(ek.layer_norm_gelu(x, (4, 10), weight, bias), F.gelu(F.layer_norm(x, (4, 10), weight, bias)))


@every_act
def test_an_x_bias_is_added_without_rounding(norm):
    inputs, _ = operands(norm, BF16)
    wide = inputs._replace(x=inputs.x.float() + inputs.x_bias.float(), x_bias=None)
    wide = wide._replace(weight=wide.weight.float(), bias=None if wide.bias is None else wide.bias.float())
    assert same_bits(fused_norm(norm, inputs, BF16)[0], fused_norm(norm, wide, BF16)[0])


# ---- explicit ----


@every_act
def test_the_explicit_functions_compute_the_same_bits(norm):
    """With a mean_lo, as autograd has it."""
    inputs, (dy,) = operands(norm, BF16, (70, 129))
    x, _, weight, bias, x_bias = inputs
    is_layer = norm.op == "layer_norm"
    options = {"x_bias": x_bias, "activation": norm.activation}
    affine, more = ((weight, bias), {"return_mean_lo": True}) if is_layer else ((weight,), {})
    y, *stats = getattr(ek, f"{norm.op}_forward")(x, *affine, 1e-5, **options, **more)
    assert same_bits(y, *fused_norm(norm, inputs, BF16))
    more = {"mean_lo": stats.pop(), "bias": bias} if is_layer else {}
    found = getattr(ek, f"{norm.op}_backward")(dy, x, *stats, weight, need_dx_bias=True, **options, **more)
    expected = [g for g in gradients(call_of(norm, BF16), inputs, dy) if g is not None]
    assert all_same(found, expected)


def test_explicit_backward_normalizes_the_shape_of_bias_and_has_its_dtype():
    x, bias = tensor((2, 3, 4), "bf16"), tensor((3, 4), seed=1)
    y, mean, rstd = ek.layer_norm_forward(x, None, bias, activation="gelu")
    found = ek.layer_norm_backward(y, x, mean, rstd, bias=bias, activation="gelu")
    assert found.dbias.shape == (3, 4) and found.dbias.dtype is torch.float32 and mean.shape == (2,)


def test_explicit_calls_refuse_what_does_not_go_together():
    x, bias = tensor((6, 40)), tensor((40,), seed=1)
    _, mean, rstd = ek.layer_norm_forward(x)
    with pytest.raises(ValueError, match="^bias goes with an activation alone, and activation is None; expected None$"):
        ek.layer_norm_backward(x, x, mean, rstd, bias=bias)
    with pytest.raises(
        ValueError, match=r"^residual_after does not go with activation \('gelu'\); expected None, or activation None$"
    ):
        ek.layer_norm_forward(x, residual_after=x, activation="gelu")


# ---- what is saved ----


@pytest.mark.parametrize("case", [F32, IN_F32], ids=str)
@either_way
@every_act
def test_x_weight_bias_x_bias_and_the_statistics_are_saved(norm, case, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, _ = operands(norm, case)
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        leaves = Operands(*require_gradients(*inputs))
        fused_norm(norm, leaves, case)
    *kept, stats = saved
    expected = [t for t in (leaves.x, leaves.weight, leaves.bias, leaves.x_bias) if t is not None]
    assert all_same(kept, expected) and [t.data_ptr() for t in kept] == [t.data_ptr() for t in expected]
    assert stats.shape == (norm.statistics, 6) and stats.dtype is torch.float32


@every_act
def test_y_may_be_changed_before_backward_and_what_is_saved_may_not(norm):
    inputs, (dy,) = operands(norm)
    expected = gradients(call_of(norm), inputs, dy)
    leaves = Operands(*require_gradients(*inputs))
    (y,) = fused_norm(norm, leaves)
    with torch.no_grad():
        y.zero_()
    present = [t for t in leaves if t is not None]
    assert all_same(torch.autograd.grad(y, present, dy), [g for g in expected if g is not None])
    for name in ("x", "weight", "bias", "x_bias"):
        if getattr(leaves, name) is None:
            continue
        (y,) = fused_norm(norm, leaves)
        with torch.no_grad():
            getattr(leaves, name).zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_memory_of_a_model_is_estimated():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = (torch.nn.Parameter(torch.ones(64)) for _ in range(2))

        def forward(self, x):
            return ek.layer_norm_act(2 * x, (64,), self.weight, self.bias)

    estimate = ek.memory_estimate(Model(), (1024, 64))
    rows, stats = 1024 * 64 * 4, 3 * 1024 * 4
    assert estimate.saved == 2 * rows + stats  # 2 x and y
    assert estimate.gradients == 2 * 64 * 4


# ---- derivatives ----


@every_act
def test_derivatives_of_any_order_are_those_of_finite_differences(norm):
    inputs, _ = operands(norm, F64, (3, 5))
    names = [name for name, t in inputs._asdict().items() if t is not None]
    tensors = [t.requires_grad_() for t in inputs if t is not None]

    def call(*tensors):
        return fused_norm(norm, Operands(**dict(zip(names, tensors, strict=True))), F64, eps=0.5)[0]

    assert gradcheck(call, tensors) and gradgradcheck(call, tensors)

    def second(*tensors):
        (first,) = torch.autograd.grad(call(*tensors).square().sum(), tensors[:1], create_graph=True)
        return torch.autograd.grad(first.square().sum(), tensors, create_graph=True)

    assert gradcheck(second, tensors, fast_mode=True)


@every_act
def test_second_derivatives_far_from_zero_are_finite(norm):
    """Where the activation is saturated: the formulas have no 0 times infinity."""
    x = tensor((4, 8), "f32").requires_grad_()
    weight = torch.full((8,), 1e4, device=DEVICE)
    (y,) = fused_norm(norm, Operands(x, None, weight))
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert first.isfinite().all() and second.isfinite().all()


@pytest.mark.filterwarnings("ignore")
@every_act
def test_transforms_compute_the_same(norm, kernels):
    inputs, _ = operands(norm, F64, (4, 8))
    tangent = tensor((4, 8), "f64", seed=2)
    ours, theirs = (
        lambda x, f=f: f(x)[0]
        for f in (
            lambda x: fused_norm(norm, inputs._replace(x=x), F64),
            lambda x: composed(norm, inputs._replace(x=x), F64),
        )
    )
    close(jvp(ours, (inputs.x,), (tangent,))[1], jvp(theirs, (inputs.x,), (tangent,))[1])
    batch = torch.stack([inputs.x, tangent])
    close(vmap(ours)(batch), vmap(theirs)(batch))
    assert kernels.forward == 0


@pytest.mark.parametrize("rounding", ["once", "each"])
@every_act
def test_the_composition_agrees_with_the_kernels(norm, rounding, kernels):
    for dtype in DTYPES:
        case = Case(*[dtype] * 4, rounding=rounding)
        inputs, _ = operands(norm, case, (20, 100))
        (y,) = fused_norm(norm, inputs, case)
        before = kernels.forward
        with forward_ad.dual_level():
            dual = inputs._replace(x=forward_ad.make_dual(inputs.x, inputs.x))
            composition = forward_ad.unpack_dual(*fused_norm(norm, dual, case)).primal
        assert kernels.forward == before and composition.dtype is y.dtype
        limit = TOLERANCE[dtype] * y.double().abs().max().clamp(min=1)
        assert ((y.double() - composition.double()).abs() <= limit).all()


# ---- autocast ----


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_under_autocast_the_result_is_float32_and_x_is_saved_as_it_is(dtype, casting, kernels):
    x, weight = tensor((6, 40), dtype), tensor((40,), "bf16", seed=2)
    call = under_autocast(ek.layer_norm_act)
    y = call(x, (40,), weight, weight, x_bias=weight)
    assert y.dtype is torch.float32 and kernels.forward == 1
    columns = weight.float()
    assert same_bits(y, ek.layer_norm_act(x.float(), (40,), columns, columns, x_bias=columns))
    assert same_bits(under_autocast(ek.layer_norm_gelu)(x, (40,)), ek.layer_norm_gelu(x.float(), (40,)))
    close(y, under_autocast(lambda: F.gelu(F.layer_norm(x.float() + columns, (40,), columns, columns)))(), "f32")
    assert call(x, (40,), out_dtype=x.dtype).dtype is x.dtype
    assert same_bits(under_autocast(ek.rms_norm_act)(x, (40,)), ek.rms_norm_act(x, (40,)))
    leaf, saved = x.requires_grad_(), []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = call(leaf, (40,), weight, weight)
    assert saved[0].dtype is x.dtype
    (found,) = torch.autograd.grad(y, leaf, y.detach())
    copy = x.detach().float().requires_grad_()
    y = ek.layer_norm_act(copy, (40,), columns, columns)
    assert same_bits(found, torch.autograd.grad(y, copy, y.detach())[0].to(x.dtype))


# ---- who sees a call, and what is left to PyTorch ----


def test_a_torch_function_sees_the_call():
    calls = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append((function, args[1:], kwargs))
            return "seen"

    x = torch.ones(2, 8).as_subclass(Noting)
    assert ek.layer_norm_act(x, (8,), activation="silu", rounding="each") == "seen"
    given = {"weight": None, "bias": None, "eps": 1e-5, "activation": "silu", "rounding": "each"}
    assert calls.pop() == (ek.layer_norm_act, ((8,),), given)
    ek.rms_norm_act(torch.ones(2, 8), (8,), x_bias=x)
    ((function, _, given),) = calls
    assert function is ek.rms_norm_act and given.pop("x_bias") is x
    assert given == {"weight": None, "eps": None, "activation": "gelu"}
    calls.clear()
    ek.layer_norm_gelu(x, (8,), approximate="tanh")
    given = {"weight": None, "bias": None, "eps": 1e-5, "activation": "gelu_tanh"}
    assert calls == [(ek.layer_norm_act, ((8,),), given)]


@every_act
def test_columns_that_the_kernels_lack_are_left_to_pytorch_with_one_warning(norm, fallback):
    x, columns = tensor((4, 8)), tensor((8,), "f64", seed=1)
    words = f"{norm.name} left this call to PyTorch: weight or bias of f64 does not go with dtype f32"
    with pytest.warns(RuntimeWarning, match=words) as told:
        for _ in range(2):
            y = getattr(ek, norm.name)(x, (8,), columns, activation=norm.activation)
    assert len(told) == 1 and told[0].filename == __file__
    eps = 1e-5 if norm.has_bias else None
    close(y, ACTIVATIONS[norm.activation](norm.theirs(x.double(), (8,), columns, eps=eps)), "f32")
    assert y.dtype is torch.float32
    fallback("error")
    with pytest.raises(NotImplementedError, match="left this call to PyTorch"):
        getattr(ek, norm.name)(x, (8,), columns, activation=norm.activation)


def test_a_warning_of_layer_norm_gelu_names_the_caller(fallback):
    with pytest.warns(RuntimeWarning, match="layer_norm_act left this call to PyTorch") as told:
        ek.layer_norm_gelu(tensor((4, 8)), (8,), tensor((8,), "f64"))
    assert told[0].filename == __file__


@exchange_only
def test_layer_norm_gelu_is_served_in_c(kernels):
    x = tensor((6, 40)).requires_grad_()
    ek.layer_norm_gelu(x, (40,)).sum().backward()
    assert kernels.last == "eager_act_backward" and (kernels.forward, kernels.backward) == (1, 1)


def test_an_inference_tensor_is_copied_for_rms_norm_alone():
    with torch.inference_mode():
        inference = tensor((40,), seed=3)
    x = tensor((6, 40)).requires_grad_()
    for name in ("weight", "x_bias"):
        y = ek.rms_norm_act(x, (40,), **{name: inference})
        (found,) = torch.autograd.grad(y.sum(), x)
        y = ek.rms_norm_act(x, (40,), **{name: tensor((40,), seed=3)})
        assert same_bits(found, torch.autograd.grad(y.sum(), x)[0])
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        ek.layer_norm_act(x, (40,), bias=inference)


def test_channels_last_is_kept_as_rms_norm_keeps_it():
    x = tensor((2, 3, 4, 5)).to(memory_format=torch.channels_last)
    assert ek.rms_norm_act(x, (5,)).stride() == F.rms_norm(x, (5,)).stride()
    assert ek.layer_norm_act(x, (5,)).stride() == F.layer_norm(x, (5,)).stride()


def test_on_the_meta_device_there_is_a_shape(no_fallback):
    x = torch.ones(4, 8, device="meta", dtype=torch.bfloat16)
    y = ek.layer_norm_gelu(x, (8,))
    assert y.is_meta and y.dtype is torch.bfloat16 and y.shape == x.shape
    assert ek.rms_norm_act(x, (8,), out_dtype=torch.float32).dtype is torch.float32


# ---- mistakes ----

EXPECTED = "expected 'sigmoid', 'silu', 'gelu' or 'gelu_tanh'"
MISTAKES = {
    f"activation is 'relu'; {EXPECTED}": (ValueError, lambda act, x: act(x, (8,), activation="relu")),
    f"activation is None; {EXPECTED}": (ValueError, lambda act, x: act(x, (8,), activation=None)),
    f"activation is 3; {EXPECTED}": (ValueError, lambda act, x: act(x, (8,), activation=3)),
    "x_bias has shape (7,): it must have (8,)": (ValueError, lambda act, x: act(x, (8,), x_bias=x[0, :7])),
    "x is of type list; expected a tensor": (TypeError, lambda act, x: act([1.0], (8,))),
    "x is torch.int64; expected float32, float16, bfloat16 or float64": (
        TypeError,
        lambda act, x: act(x.long(), (8,)),
    ),
    "weight_offset is 2.0; expected 0 or 1": (ValueError, lambda act, x: act(x, (8,), weight_offset=2.0)),
    "rounding is 'twice'; expected 'once' or 'each'": (ValueError, lambda act, x: act(x, (8,), rounding="twice")),
    "out_dtype is torch.int8; expected float32, float16, bfloat16 or float64": (
        TypeError,
        lambda act, x: act(x, (8,), out_dtype=torch.int8),
    ),
    "Given normalized_shape=[7], expected input with shape [*": (RuntimeError, lambda act, x: act(x, (7,))),
}


@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("words", MISTAKES)
@pytest.mark.parametrize("name", ["layer_norm_act", "rms_norm_act"])
def test_a_mistake_names_the_argument(name, words, recorded, no_fallback):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words)):
        call(getattr(ek, name), tensor((4, 8)).requires_grad_(recorded))


@pytest.mark.parametrize("wrong", ["Tanh", "gelu", None, ["none"]], ids=repr)
def test_a_form_of_gelu_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError) as raised:
        ek.layer_norm_gelu(tensor((4, 8)), (8,), approximate=wrong)
    assert str(raised.value) == f"approximate is {wrong!r}; expected 'none' or 'tanh'"


@pytest.mark.parametrize("wrong", ["relu", 3], ids=repr)
def test_the_explicit_functions_refuse_other_activations(wrong):
    x = tensor((4, 8))
    _, rstd = ek.rms_norm_forward(x)
    for call in (ek.rms_norm_forward, lambda x, **options: ek.rms_norm_backward(x, x, rstd, **options)):
        with pytest.raises(ValueError, match=re.escape(f"activation is {wrong!r}; {EXPECTED}")):
            call(x, activation=wrong)
