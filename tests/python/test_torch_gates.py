"""evenkeel.torch's norms with a gate: every activation in both orders beside PyTorch's, what is saved, dtypes,
autocast, fallbacks, mistakes. The other tests of fused norms have gates too, as cases. SPDX-License-Identifier: MIT"""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.func import jvp, vmap

import evenkeel.torch as ek
from evenkeel.torch import _kernels
from fused_cases import Case
from reference import TOLERANCE
from test_torch_fused import (
    ACTIVATIONS,
    BF16,
    EVERY_GATE,
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

every_gate = pytest.mark.parametrize("norm", EVERY_GATE, ids=str)
silu_gates = pytest.mark.parametrize("norm", [g for g in EVERY_GATE if g.activation == "silu"], ids=str)
either_order = pytest.mark.parametrize("first", [False, True], ids=["gated result", "gated x"])


# ---- values ----


@every_dtype
@either_order
def test_it_is_the_code_of_gated_models_within_rounding(first, dtype):
    """Mamba 2's norm, as its own forward without kernels has it."""
    x, gate, weight = tensor((50, 300), dtype), tensor((50, 300), dtype, 1), tensor((300,), dtype, 2)
    found = ek.rms_norm_gated(x, gate, (300,), weight, 1e-6, gate_first=first)
    inner = torch.float64 if dtype == "f64" else torch.float32
    h = x.to(inner) * F.silu(gate.to(inner)) if first else x.to(inner)
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * weight.to(inner)
    y = y if first else y * F.silu(gate.to(inner))
    assert found.dtype is x.dtype
    close(found, y, dtype)
    assert (found != y.to(x.dtype)).double().mean() < 0.01 or dtype in ("f32", "f64")


def test_silu_of_the_gate_multiplies_the_result_by_default():
    x, gate = tensor((6, 40)), tensor((6, 40), seed=1)
    for call, eps in ((ek.layer_norm_gated, 1e-5), (ek.rms_norm_gated, torch.finfo(x.dtype).eps)):
        y = call(x, gate, (40,))
        assert same_bits(y, call(x, gate, (40,), eps=eps, activation="silu", gate_first=False))
        assert not same_bits(y, call(x, gate, (40,), activation="sigmoid"))
        assert not same_bits(y, call(x, gate, (40,), gate_first=True))
        assert not same_bits(y, call(x, gate, (40,), eps=1.0))
        assert same_bits(call(x, gate, (40,), gate_first=1), call(x, gate, (40,), gate_first=True))


@pytest.mark.parametrize("absent", list(itertools.product([False, True], repeat=2)), ids=str)
@either_way
@every_gate
def test_columns_may_each_be_absent(norm, absent, way, monkeypatch):
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, (dy,) = operands(norm, F64)
    gone = {name: None for name, is_gone in zip(("weight", "bias"), absent, strict=True) if is_gone}
    inputs = inputs._replace(**gone)
    close(fused_norm(norm, inputs, F64)[0], composed(norm, inputs, F64)[0])
    found = gradients(call_of(norm, F64), inputs, dy)
    for a, b in zip(found, gradients(lambda i: composed(norm, i, F64), inputs, dy), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


@either_way
@pytest.mark.parametrize("again", [False, True], ids=["first order", "with a graph"])
@either_order
def test_a_float32_bias_alone_has_a_gradient_in_float32(first, again, way, monkeypatch):
    """Not one that went through the dtype of x; with gate_first the bias is not saved."""
    if way == "python":
        leave_calls_to_python(monkeypatch)
    x, gate, dy = (tensor((60, 40), "bf16", seed) for seed in range(3))
    bias = tensor((40,), seed=3).requires_grad_()
    y = ek.layer_norm_gated(x, gate, (40,), None, bias, gate_first=first)
    (found,) = torch.autograd.grad(y, bias, dy, create_graph=again)
    factor = 1.0 if first else F.silu(gate.double())
    assert found.dtype is torch.float32
    close(found, (dy.double() * factor).sum(0), "f32")


@either_order
def test_several_normalized_dimensions(first):
    x, gate = tensor((5, 4, 10), "f64"), tensor((5, 4, 10), "f64", seed=1)
    weight, bias = tensor((4, 10), "f64", seed=2), tensor((4, 10), "f64", seed=3)
    factor = F.silu(gate)
    expected = F.layer_norm(x * factor if first else x, (4, 10), weight, bias) * (1 if first else factor)
    for shape in ((4, 10), [4, 10]):
        close(ek.layer_norm_gated(x, gate, shape, weight, bias, gate_first=first), expected)


# ---- the dtype of the gate ----


@pytest.mark.parametrize(("dtype", "other"), [*itertools.permutations(DTYPES, 2)])
@either_way
@either_order
def test_a_gate_of_another_dtype_is_converted_and_so_is_its_gradient(first, way, dtype, other, monkeypatch):
    """To the dtype of x, or where that has 16 bits, as x, to float32."""
    if way == "python":
        leave_calls_to_python(monkeypatch)
    x, weight, dy = tensor((6, 40), dtype), tensor((40,), dtype, 3), tensor((6, 40), dtype, 2)
    inner = torch.float32 if dtype in ("bf16", "f16") else x.dtype
    leaves = require_gradients(x, tensor((6, 40), other, 1), weight)
    copies = require_gradients(*(t.detach().to(inner) for t in leaves))
    (y, gradients), (expected, copied) = (
        (y, torch.autograd.grad(y, (x, gate, weight), dy))
        for x, gate, weight in (leaves, copies)
        for y in [ek.rms_norm_gated(x, gate, (40,), weight, gate_first=first, out_dtype=dy.dtype)]
    )
    assert y.dtype is dy.dtype and same_bits(y, expected)
    assert same_bits(y, ek.rms_norm_gated(*(leaves[:2]), (40,), weight, gate_first=first))
    assert all(g.dtype is t.dtype for g, t in zip(gradients, leaves, strict=True))
    assert all_same(gradients, [g.to(t.dtype) for g, t in zip(copied, leaves, strict=True)])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("rounding", ["once", "each"])
@every_gate
def test_a_float32_gate_of_a_16_bit_x_is_exact(norm, rounding, dtype, fallback):
    """y rounds once, or where the flavour says; it has the bits of the composition in all but rare elements."""
    fallback("silent")  # with "each" PyTorch computes
    x, gate, weight = tensor((50, 300), dtype), tensor((50, 300), seed=1), tensor((300,), dtype, 2)
    bias = tensor((300,), dtype, 3) if norm.has_bias else None
    columns = (weight, bias) if norm.op == "layer_norm" else (weight,)
    options = {"eps": 1e-5, "activation": norm.activation, "gate_first": norm.gate_first, "rounding": rounding}
    y = getattr(ek, norm.name)(x, gate, (300,), *columns, **options)
    xd, w = x.double(), weight.double()
    factor = ACTIVATIONS[norm.activation](gate.double())
    normalized = norm.theirs(xd * factor if norm.gate_first else xd, (300,))
    each = (lambda t: t.to(x.dtype).double()) if rounding == "each" else lambda t: t
    result = each(each(normalized) * w + (0 if bias is None else bias.double()))
    expected = (result if norm.gate_first else result * factor).to(x.dtype)
    assert y.dtype is x.dtype and (y != expected).double().mean() < 2e-3
    rounded = getattr(ek, norm.name)(x, gate.to(x.dtype), (300,), *columns, **options)
    assert (rounded != expected).double().mean() > 0.02


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_columns_beside_a_float32_gate_are_checked_as_beside_any_other(name, fallback):
    x, gate = tensor((4, 8), "bf16"), tensor((4, 8), seed=1)
    with pytest.warns(RuntimeWarning, match="left this call to PyTorch: weight or bias of f64 does not go with"):
        ek.layer_norm_gated(x, gate, (8,), **{name: tensor(8, "f64")})
    wrong = {rf"{name} is torch.int64; expected float32": tensor(8).long(), f"{name} is of type list": [1.0] * 8}
    for words, column in wrong.items():
        with pytest.raises(TypeError, match=f"^{words}"):
            ek.layer_norm_gated(x, gate, (8,), **{name: column})


def test_a_float32_gate_with_rounding_each_is_left_to_pytorch_with_a_warning(fallback):
    x, gate = tensor((4, 8), "bf16"), tensor((4, 8), seed=1)
    with pytest.warns(RuntimeWarning, match="left this call to PyTorch: gate is f32: it must be bf16, as x"):
        ek.rms_norm_gated(x, gate, (8,), rounding="each")


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
def test_a_float32_gate_under_autocast(out_dtype, casting):
    """y is float32 there, unless out_dtype says otherwise."""
    x, gate, weight = tensor((6, 40), "bf16"), tensor((6, 40), seed=1), tensor((40,), "bf16", 2)
    call = under_autocast(ek.layer_norm_gated)
    wide = ek.layer_norm_gated(x.float(), gate, (40,), weight.float())
    assert same_bits(call(x, gate, (40,), weight), wide)
    assert same_bits(call(x, gate, (40,), weight, out_dtype=out_dtype), wide.to(out_dtype))


# ---- explicit ----


@every_gate
def test_the_explicit_functions_compute_the_same_bits(norm):
    """With a mean_lo, as autograd has it."""
    inputs, (dy,) = operands(norm, BF16, (70, 129))
    x, gate, weight, bias, _ = inputs
    is_layer = norm.op == "layer_norm"
    options = {"gate": gate, "activation": norm.activation, "gate_first": norm.gate_first}
    affine, more = ((weight, bias), {"return_mean_lo": True}) if is_layer else ((weight,), {})
    y, *stats = getattr(ek, f"{norm.op}_forward")(x, *affine, 1e-5, **options, **more)
    assert same_bits(y, *fused_norm(norm, inputs, BF16))
    more = {"mean_lo": stats.pop(), "bias": None if norm.gate_first else bias} if is_layer else {}
    backward = getattr(ek, f"{norm.op}_backward")
    *found, dgate = backward(dy, x, *stats, weight, need_dgate=True, **options, **more)
    expected = Operands(*gradients(call_of(norm, BF16), inputs, dy))
    columns = (expected.weight, expected.bias) if is_layer else (expected.weight,)
    assert all_same([*found, dgate], [expected.x, *columns, expected.residual])
    assert all_same(backward(dy, x, *stats, weight, **options, **more), found)


@either_order
def test_explicit_calls_refuse_what_does_not_go_together(first):
    x, bias = tensor((6, 40)), tensor((40,), seed=1)
    options = {"gate": x, "activation": "silu", "gate_first": first}
    _, mean, rstd = ek.layer_norm_forward(x, None, bias, **options)
    if first:
        with pytest.raises(ValueError, match=r"^bias does not go with gate_first \(1\); expected None"):
            ek.layer_norm_backward(x, x, mean, rstd, bias=bias, **options)
    with pytest.raises(ValueError, match="^gate goes with an activation alone, and activation is None; expected None$"):
        ek.layer_norm_forward(x, gate=x)
    refused = {"x_bias": bias, "residual": x, "residual_after": x}
    for name, other in refused.items():
        words = "residual_after does not go with activation" if name == "residual_after" else f"gate .* with {name}:"
        with pytest.raises(ValueError, match=f"^{words} "):
            ek.layer_norm_forward(x, **{name: other}, **options)
    with pytest.raises(TypeError, match="^gate is bf16: it must be f32, as x$"):
        ek.layer_norm_forward(x, **{**options, "gate": x.bfloat16()})
    with pytest.raises(TypeError, match="^gate is bf16: it must be f32, as x$"):
        ek.layer_norm_backward(x, x, mean, rstd, **{**options, "gate": x.bfloat16()})
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=f"^gate_first is {wrong}; expected 0 or 1$"):
            ek.layer_norm_forward(x, **{**options, "gate_first": wrong})
        with pytest.raises(ValueError, match=f"^gate_first is {wrong}; expected 0 or 1$"):
            ek.layer_norm_backward(x, x, mean, rstd, **{**options, "gate_first": wrong})


@either_order
def test_the_workspace_of_an_old_pytorch_on_a_gpu_is_known(first):
    x = tensor((600, 40))
    made = _kernels.empty_gradients(x, (40,), x.dtype, True, True, False, need_dgate=True)
    options = _kernels.workspace_options(x, made, None)
    choices = {"gate": x, "activation": "silu", "gate_first": first}
    assert options["dgate"] and made.dgate.shape == x.shape
    assert _kernels.workspace_bytes(_kernels.RMS_NORM, x, (40,), None, True, False, **options, **choices) > 0


# ---- what is saved ----


@pytest.mark.parametrize("case", [F32, IN_F32], ids=str)
@either_way
@silu_gates
def test_x_gate_weight_bias_and_the_statistics_are_saved(norm, case, way, monkeypatch):
    """The bias where the gate multiplies the result, as backward needs that result."""
    if way == "python":
        leave_calls_to_python(monkeypatch)
    inputs, _ = operands(norm, case)
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        leaves = Operands(*require_gradients(*inputs))
        fused_norm(norm, leaves, case)
    *kept, stats = saved
    bias = None if norm.gate_first else leaves.bias
    expected = [t for t in (leaves.x, leaves.residual, leaves.weight, bias) if t is not None]
    assert all_same(kept, expected) and [t.data_ptr() for t in kept] == [t.data_ptr() for t in expected]
    assert stats.shape == (norm.statistics, 6) and stats.dtype is torch.float32


@silu_gates
def test_y_may_be_changed_before_backward_and_what_is_saved_may_not(norm):
    inputs, (dy,) = operands(norm)
    expected = gradients(call_of(norm), inputs, dy)
    leaves = Operands(*require_gradients(*inputs))
    (y,) = fused_norm(norm, leaves)
    with torch.no_grad():
        y.zero_()
        if norm.gate_first and norm.has_bias:
            leaves.bias.zero_()
    present = [t for t in leaves if t is not None]
    assert all_same(torch.autograd.grad(y, present, dy), [g for g in expected if g is not None])
    for name in ("x", "residual", "weight", *(() if norm.gate_first else ("bias",))):
        if getattr(leaves, name) is None:
            continue
        (y,) = fused_norm(norm, leaves)
        with torch.no_grad():
            getattr(leaves, name).zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_one_tensor_may_be_x_and_gate():
    (x,) = require_gradients(tensor((6, 40)))
    y = ek.rms_norm_gated(x, x, (40,))
    dx, dgate = gradients(lambda i: (ek.rms_norm_gated(i.x, i.residual, (40,)),), Operands(x, x), torch.ones_like(y))[
        :2
    ]
    close(torch.autograd.grad(y.sum(), x)[0], dx + dgate)


class Model(torch.nn.Module):
    def __init__(self, first, lay=lambda gate: gate):
        super().__init__()
        self.weight, self.bias = (torch.nn.Parameter(torch.ones(64)) for _ in range(2))
        self.first, self.lay = first, lay

    def forward(self, x, gate):
        return ek.layer_norm_gated(2 * x, self.lay(2 * gate), (64,), self.weight, self.bias, gate_first=self.first)


@either_order
def test_the_memory_of_a_model_is_estimated(first):
    estimate = ek.memory_estimate(Model(first), (torch.ones(1024, 64), torch.ones(1024, 64)))
    rows, stats = 1024 * 64 * 4, 3 * 1024 * 4
    assert estimate.saved == 3 * rows + stats  # 2 x, 2 gate and y
    assert estimate.gradients == 2 * 64 * 4


def test_the_copy_of_a_scattered_gate_is_estimated():
    x = torch.ones(1024, 64)
    as_it_lies = ek.memory_estimate(Model(False), (x, x))
    copied = ek.memory_estimate(Model(False, torch.t), (x, x.t()))
    assert copied >= as_it_lies + 4 * x.numel()


def test_so_is_that_of_forward():
    """Without a backward, which would need more."""

    class Frozen(Model):
        def forward(self, x, gate):
            with torch.no_grad():
                y = ek.rms_norm_gated(x, self.lay(gate), (64,))
            return y[0] * self.weight

    x = torch.ones(1024, 64)
    as_it_lies = ek.memory_estimate(Frozen(False), (x, x))
    copied = ek.memory_estimate(Frozen(False, torch.t), (x, x.t().contiguous()))
    assert copied == as_it_lies + 4 * x.numel()


# ---- derivatives ----


@every_gate
def test_derivatives_of_any_order_are_those_of_finite_differences(norm):
    inputs, _ = operands(norm, F64, (3, 5))
    names = [name for name, t in inputs._asdict().items() if t is not None]
    tensors = [t.requires_grad_() for t in inputs if t is not None]

    def call(*tensors):
        return fused_norm(norm, Operands(**dict(zip(names, tensors, strict=True))), F64, eps=0.5)[0]

    assert gradcheck(call, tensors) and gradgradcheck(call, tensors)

    def second(*tensors):
        first = torch.autograd.grad(call(*tensors).square().sum(), tensors[:2], create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), tensors, create_graph=True, allow_unused=True)

    def some(*tensors):
        return [g for g in second(*tensors) if g is not None]

    assert gradcheck(some, tensors, fast_mode=True)


@silu_gates
def test_formulas_have_the_gradients_of_the_kernels_in_every_dtype(norm):
    """Batched gradients have no memory that the kernels could read."""
    for case in (*(Case(*[dtype] * 4) for dtype in DTYPES), IN_F32, BF16._replace(weight_offset=1.0, rounding="each")):
        inputs, (dy,) = operands(norm, case, (20, 100))
        leaves = Operands(*require_gradients(*inputs))
        present = [t for t in leaves if t is not None]
        (y,) = fused_norm(norm, leaves, case)
        expected = torch.autograd.grad(y, present, dy, retain_graph=True)
        for a, b in zip(torch.autograd.grad(y, present, dy[None], is_grads_batched=True), expected, strict=True):
            assert a.dtype is b.dtype
            close(a[0], b, case.coarsest)


@pytest.mark.filterwarnings("ignore")
@every_gate
def test_transforms_compute_the_same(norm, kernels):
    inputs, _ = operands(norm, F64, (4, 8))
    tangent = tensor((4, 8), "f64", seed=2)
    for name in ("x", "residual"):
        ours, theirs = (
            lambda t, f=f, name=name: f(norm, inputs._replace(**{name: t}), F64)[0] for f in (fused_norm, composed)
        )
        given = getattr(inputs, name)
        close(jvp(ours, (given,), (tangent,))[1], jvp(theirs, (given,), (tangent,))[1])
        batch = torch.stack([given, tangent])
        close(vmap(ours)(batch), vmap(theirs)(batch))
    assert kernels.forward == 0


@pytest.mark.parametrize("rounding", ["once", "each"])
@every_gate
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
@either_order
def test_under_autocast_the_result_is_float32_and_x_and_gate_are_saved_as_they_are(first, dtype, casting, kernels):
    x, gate, weight = tensor((6, 40), dtype), tensor((6, 40), dtype, 1), tensor((40,), "bf16", seed=2)
    call = under_autocast(ek.layer_norm_gated)
    y = call(x, gate, (40,), weight, weight, gate_first=first)
    assert y.dtype is torch.float32 and kernels.forward == 1
    columns = weight.float()
    assert same_bits(y, ek.layer_norm_gated(x.float(), gate.float(), (40,), columns, columns, gate_first=first))
    assert call(x, gate, (40,), out_dtype=x.dtype).dtype is x.dtype
    assert same_bits(under_autocast(ek.rms_norm_gated)(x, gate, (40,)), ek.rms_norm_gated(x, gate, (40,)))
    leaves, saved = [x.requires_grad_(), gate.requires_grad_()], []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = call(*leaves, (40,), weight, weight, gate_first=first)
    assert [t.dtype for t in saved[:2]] == [x.dtype] * 2
    found = torch.autograd.grad(y, leaves, y.detach())
    copies = [t.detach().float().requires_grad_() for t in leaves]
    y = ek.layer_norm_gated(*copies, (40,), columns, columns, gate_first=first)
    assert all_same(found, [g.to(x.dtype) for g in torch.autograd.grad(y, copies, y.detach())])


# ---- who sees a call, and what is left to PyTorch ----


def test_a_torch_function_sees_the_call():
    calls = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append((function, args[2:], kwargs))
            return "seen"

    x = torch.ones(2, 8).as_subclass(Noting)
    assert ek.layer_norm_gated(x, torch.ones(2, 8), (8,), activation="gelu", rounding="each") == "seen"
    columns = {"weight": None, "bias": None, "eps": 1e-5}
    given = {**columns, "activation": "gelu", "gate_first": False, "group_cols": None, "rounding": "each"}
    assert calls.pop() == (ek.layer_norm_gated, ((8,),), given)
    assert ek.rms_norm_gated(torch.ones(2, 8), x, (8,), gate_first=True) == "seen"
    given = {"weight": None, "eps": None, "activation": "silu", "gate_first": True, "group_cols": None}
    assert calls == [(ek.rms_norm_gated, ((8,),), given)]


@silu_gates
def test_columns_that_the_kernels_lack_are_left_to_pytorch_with_one_warning(norm, fallback):
    x, gate, columns = tensor((4, 8)), tensor((4, 8), seed=1), tensor((8,), "f64", seed=2)
    words = f"{norm.name} left this call to PyTorch: weight or bias of f64 does not go with dtype f32"
    with pytest.warns(RuntimeWarning, match=words) as told:
        for _ in range(2):
            y = getattr(ek, norm.name)(x, gate, (8,), columns, eps=1e-5, gate_first=norm.gate_first)
    assert len(told) == 1 and told[0].filename == __file__
    close(y, composed(norm, Operands(*wide(x, gate, columns)))[0], "f32")
    assert y.dtype is torch.float32
    fallback("error")
    with pytest.raises(NotImplementedError, match="left this call to PyTorch"):
        getattr(ek, norm.name)(x, gate, (8,), columns)


@exchange_only
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_converted_gate_is_served_in_c(dtype, kernels):
    x, gate = tensor((6, 40)).requires_grad_(), tensor((6, 40), dtype, 1).requires_grad_()
    ek.rms_norm_gated(x, gate, (40,)).sum().backward()
    assert kernels.last == "eager_gated_backward" and (kernels.forward, kernels.backward) == (1, 1)


def test_an_inference_tensor_is_copied_for_rms_norm_alone():
    with torch.inference_mode():
        inference = tensor((6, 40), seed=3)
    x = tensor((6, 40)).requires_grad_()
    found, expected = (
        torch.autograd.grad(ek.rms_norm_gated(x, gate, (40,)).sum(), x)[0]
        for gate in (inference, tensor((6, 40), seed=3))
    )
    assert same_bits(found, expected)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        ek.layer_norm_gated(x, inference, (40,))


def test_channels_last_is_kept_as_rms_norm_keeps_it():
    x, dy = (tensor((2, 3, 4, 5), seed=s).to(memory_format=torch.channels_last) for s in (0, 2))
    gate = tensor((2, 3, 4, 5), seed=1)
    assert ek.layer_norm_gated(x, gate, (5,)).stride() == F.layer_norm(x, (5,)).stride()
    x, gate = require_gradients(x, gate)
    y = ek.rms_norm_gated(x, gate, (5,))
    assert y.stride() == F.rms_norm(x, (5,)).stride()
    expected = gradients(
        lambda i: (ek.rms_norm_gated(i.x, i.residual, (5,)),), Operands(x.contiguous(), gate), dy.contiguous()
    )
    found = torch.autograd.grad(y, [x, gate], dy)
    assert all_same(found, expected[:2]) and [g.stride() for g in found] == [x.stride()] * 2


def test_on_the_meta_device_there_is_a_shape(no_fallback):
    x = torch.ones(4, 8, device="meta", dtype=torch.bfloat16)
    y = ek.layer_norm_gated(x, x.float(), (8,))
    assert y.is_meta and y.dtype is torch.bfloat16 and y.shape == x.shape
    assert ek.rms_norm_gated(x, x, (8,), out_dtype=torch.float32, gate_first=True).dtype is torch.float32


# ---- mistakes ----

EXPECTED = "expected 'sigmoid', 'silu', 'gelu' or 'gelu_tanh'"
FLOATS = "expected float32, float16, bfloat16 or float64"
MISTAKES = {
    "gate has shape (4, 7): it must have (4, 8)": (ValueError, lambda gated, x: gated(x, x[:, :7], (8,))),
    "gate has shape (8,): it must have (4, 8)": (ValueError, lambda gated, x: gated(x, x[0], (8,))),
    "gate has shape (1, 8): it must have (4, 8)": (ValueError, lambda gated, x: gated(x, x[:1], (8,))),
    "x is of type Tensor and gate of type NoneType; expected tensors": (
        TypeError,
        lambda gated, x: gated(x, None, (8,)),
    ),
    "x is of type list and gate of type Tensor; expected tensors": (TypeError, lambda gated, x: gated([1.0], x, (8,))),
    f"gate is torch.int64; {FLOATS}": (TypeError, lambda gated, x: gated(x, x.long(), (8,))),
    f"x is torch.int64; {FLOATS}": (TypeError, lambda gated, x: gated(x.long(), x, (8,))),
    f"activation is 'relu'; {EXPECTED}": (ValueError, lambda gated, x: gated(x, x, (8,), activation="relu")),
    f"activation is None; {EXPECTED}": (ValueError, lambda gated, x: gated(x, x, (8,), activation=None)),
    "gate_first is 2; expected 0 or 1": (ValueError, lambda gated, x: gated(x, x, (8,), gate_first=2)),
    "gate_first is 'first'; expected 0 or 1": (TypeError, lambda gated, x: gated(x, x, (8,), gate_first="first")),
    "weight_offset is 2.0; expected 0 or 1": (ValueError, lambda gated, x: gated(x, x, (8,), weight_offset=2.0)),
    "rounding is 'twice'; expected 'once' or 'each'": (
        ValueError,
        lambda gated, x: gated(x, x, (8,), rounding="twice"),
    ),
    f"out_dtype is torch.int8; {FLOATS}": (TypeError, lambda gated, x: gated(x, x, (8,), out_dtype=torch.int8)),
    "Given normalized_shape=[7], expected input with shape [*": (RuntimeError, lambda gated, x: gated(x, x, (7,))),
}


@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("words", MISTAKES)
@pytest.mark.parametrize("name", ["layer_norm_gated", "rms_norm_gated"])
def test_a_mistake_names_the_argument(name, words, recorded, no_fallback):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words)):
        call(getattr(ek, name), tensor((4, 8)).requires_grad_(recorded))


def test_a_gate_on_another_device_is_refused():
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        ek.rms_norm_gated(tensor((4, 8)), torch.ones(4, 8, device="meta"), (8,))
