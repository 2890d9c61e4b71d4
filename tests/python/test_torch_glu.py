"""evenkeel.torch's gated activations: values and gradients beside a composition in float64, what is saved and written,
layouts, dtypes, transforms, fallbacks, mistakes. SPDX-License-Identifier: MIT"""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, grad, hessian, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import evenkeel
import evenkeel.torch as ek
from evenkeel._glu import Options
from evenkeel.torch import _only_memory, _recompute
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
    strided,
    tensor,
    wide,
)

VALUES = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "relu_squared": lambda t: F.relu(t).square(),
    "none": lambda t: t,
}
CLAMPED = {"limit": 0.7, "alpha": 1.702, "value_offset": 1.0}
OPTIONS = [{"activation": name} for name in VALUES] + [CLAMPED, {"activation": "gelu", "limit": 0.5}]
FORMS = "two", "packed", "interleaved", "alone"

every_option = pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
every_form = pytest.mark.parametrize("form", FORMS)


def formula(gate, value, gate_bias, value_bias, activation="silu", limit=None, alpha=1.0, value_offset=0.0):
    t = gate if gate_bias is None else gate + gate_bias
    t = t if limit is None else t.clamp(max=limit)
    y = VALUES[activation](t) if alpha == 1 else t * torch.sigmoid(alpha * t)
    if value is None:
        return y
    v = value if value_bias is None else value + value_bias
    return y * ((v if limit is None else v.clamp(-limit, limit)) + value_offset)


def parts(pair, form):
    if pair is None:
        return None, None
    return pair.chunk(2, -1) if form == "packed" else (pair[..., ::2], pair[..., 1::2])


def composed(form, *inputs, **options):
    """The same call in PyTorch's operations, of the arguments of ours."""
    if form == "two":
        return formula(*inputs, **options)
    gate, bias = inputs
    if form == "alone":
        return formula(gate, None, bias, None, **options)
    (gate, value), (gate_bias, value_bias) = parts(gate, form), parts(bias, form)
    return formula(gate, value, gate_bias, value_bias, **options)


def ours(form, *inputs, **options):
    if form == "two":
        return ek.glu(*inputs, **options)
    gate, bias = inputs
    if form == "alone":
        return ek.bias_act(gate, bias, options["activation"])
    return ek.glu(gate, None, bias, interleaved=form == "interleaved", **options)


def allowed(form, options):
    """Those that a call of the form has."""
    return {"activation": options.get("activation", "silu")} if form == "alone" else options


def operands(form, dtype="f32", shape=(4, 5, 6), columns=None):
    """The inputs of a call and dy."""
    *leading, cols = shape
    if form == "two":
        found = [tensor(shape, dtype, s) for s in (0, 1)] + [tensor((cols,), columns or dtype, s) for s in (2, 3)]
    else:
        each = cols if form == "alone" else 2 * cols
        found = [tensor((*leading, each), dtype), tensor((each,), columns or dtype, seed=2)]
    return found, tensor(shape, dtype, seed=4)


def gradients(call, inputs, dy):
    leaves = require_gradients(*inputs)
    y = call(*leaves)
    return y.detach(), torch.autograd.grad(y, [leaf for leaf in leaves if leaf is not None], dy)


# ---- values and gradients ----


@every_option
@every_form
@every_dtype
def test_results_and_gradients_are_those_of_the_formula(form, options, dtype, kernels, no_fallback):
    options = allowed(form, options)
    for columns in {dtype: None, "f32": None} if dtype in ("bf16", "f16") else (dtype,):
        inputs, dy = operands(form, dtype, columns=columns)
        y, found = gradients(partial(ours, form, **options), inputs, dy)
        assert y.is_contiguous() and y.dtype is dy.dtype
        expected_y, expected = gradients(partial(composed, form, **options), wide(*inputs), dy.double())
        close(y, expected_y)
        for a, b, leaf in zip(found, expected, inputs, strict=True):
            assert a.dtype is leaf.dtype and a.is_contiguous()
            close(a, b, dtype)
    assert kernels.forward == kernels.backward > 0


@cpu_only
@every_form
@every_dtype
def test_the_bits_are_those_of_arrays(form, dtype):
    if dtype == "bf16":
        pytest.skip("NumPy has none; test_glu.py has ml_dtypes'")
    inputs, dy = operands(form, dtype, (3, 33))
    y, found = gradients(partial(ours, form, activation="gelu"), inputs, dy)
    arrays = [t.numpy() for t in inputs]
    if form == "alone":
        expected = evenkeel.bias_act(*arrays, "gelu"), *evenkeel.bias_act_backward(dy.numpy(), *arrays, "gelu")
    else:
        given = arrays if form == "two" else (arrays[0], None, arrays[1], None)
        options = {"activation": "gelu", "interleaved": form == "interleaved"}
        expected = evenkeel.glu(*given, **options), *evenkeel.glu_backward(dy.numpy(), *given, **options)
    assert all_same([y, *found], [torch.from_numpy(e) for e in expected if e is not None])


def test_the_short_functions_are_glu_with_an_activation():
    inputs, _ = operands("two")
    assert same_bits(ek.swiglu(*inputs), ek.glu(*inputs))
    assert same_bits(ek.geglu(*inputs), ek.glu(*inputs, "gelu"))
    assert same_bits(ek.geglu(*inputs, approximate="tanh"), ek.glu(*inputs, "gelu_tanh"))
    assert same_bits(ek.bias_act(inputs[0], inputs[2]), ek.bias_act(inputs[0], inputs[2], "gelu"))
    both, _ = operands("packed")
    assert same_bits(ek.swiglu(both[0]), ek.swiglu(*both[0].chunk(2, -1)))


@every_form
def test_biases_may_be_absent(form):
    inputs, dy = operands(form, "f64")
    inputs[len(inputs) // 2 :] = [None] * (len(inputs) // 2)
    options = {"activation": "gelu"}
    found, expected = (gradients(partial(f, form, **options), inputs, dy) for f in (ours, composed))
    close(found[0], expected[0])
    for a, b in zip(found[1], expected[1], strict=True):
        close(a, b)


@every_option
@every_form
def test_first_and_second_derivatives_agree_with_finite_differences(form, options):
    inputs, _ = operands(form, "f64", (3, 4))
    call, leaves = partial(ours, form, **allowed(form, options)), require_gradients(*inputs)
    assert gradcheck(call, leaves, check_forward_ad=True, check_batched_grad=form == "packed")
    assert gradgradcheck(call, leaves)


@every_form
def test_third_derivatives_agree_with_the_formula(form):
    inputs, _ = operands(form, "f64", (2, 3))

    def third(call):
        leaves = require_gradients(*inputs)
        y = call(*leaves).sin()
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), leaves[:1], create_graph=True)
        return y, *torch.autograd.grad(y.square().sum(), leaves)

    for a, b in zip(third(partial(ours, form, activation="silu")), third(partial(composed, form)), strict=True):
        assert torch.allclose(a, b, rtol=1e-9)


def test_the_gradient_of_a_gradient_keeps_the_dtypes(kernels):
    leaves = require_gradients(*operands("two", "bf16", columns="f32")[0])
    first = torch.autograd.grad(ek.swiglu(*leaves).float().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.float().square().sum() for g in first), leaves)
    assert kernels.backward == 1
    assert [g.dtype for g in first] == [g.dtype for g in second] == [t.dtype for t in leaves]


# ---- what is computed, saved and written ----


@every_form
def test_only_the_inputs_are_saved(form):
    inputs, dy = operands(form)
    leaves, saved = require_gradients(*inputs), []
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = ours(form, *leaves, activation="silu")
    assert {t.data_ptr() for t in saved} == {t.data_ptr() for t in leaves}
    y.backward(dy)


@exchange_only
@every_form
def test_a_gradient_that_is_not_needed_is_not_computed(form, monkeypatch):
    inputs, dy = operands(form)
    made = []
    backward = evenkeel._core.glu_backward
    monkeypatch.setattr(evenkeel._core, "glu_backward", lambda *given: made.append(given[11:15]) or backward(*given))
    for number in range(len(inputs)):
        leaves = [t.clone().requires_grad_(i == number) for i, t in enumerate(inputs)]
        ours(form, *leaves, activation="silu").backward(dy)
        assert [t.grad is not None for t in leaves] == [i == number for i in range(len(inputs))]
        assert sum(m is not None for m in made.pop()) == 1


def test_one_tensor_of_both_gets_one_gradient():
    """Not two that are put together."""
    product, dy = tensor((6, 80)).requires_grad_(), tensor((6, 40), seed=1)
    y = ek.swiglu(product)
    assert type(y.grad_fn.next_functions[0][0]).__name__ == "AccumulateGrad"
    (found,) = torch.autograd.grad(y, product, dy)
    gate, value = require_gradients(*product.chunk(2, -1))
    assert same_bits(found, torch.cat(torch.autograd.grad(ek.swiglu(gate, value), [gate, value], dy), -1))


def test_slices_of_one_tensor_are_not_copied(monkeypatch):
    whole = tensor((4, 5, 3, 40))
    gate, value = whole[:, :, 1], whole[:, :, 2]
    assert not gate.is_contiguous()
    expected = ek.swiglu(gate.contiguous(), value.contiguous())
    monkeypatch.setattr(ek._kernels, "_contiguous", None)
    assert same_bits(ek.swiglu(gate, value), expected)
    assert same_bits(ek.swiglu(whole[:, :, 0]), ek.swiglu(*whole[:, :, 0].chunk(2, -1)))


VIEWS = {"T": lambda t: t.T, "steps": lambda t: t[:, ::2], "expanded": lambda t: t[:1].expand(40, 40)}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_other_layouts_are_copied(view):
    gate, value = view(tensor((40, 40))), view(tensor((40, 40), seed=1))
    assert same_bits(ek.swiglu(gate, value), ek.swiglu(gate.contiguous(), value.contiguous()))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(DTYPES)).flatmap(strided), st.sampled_from(FORMS), st.booleans())
def test_any_shape_and_strides(x, form, is_expanded):
    """The bits are those of copies without gaps."""
    if form in ("packed", "interleaved"):
        x = torch.cat((x, x), -1) if x.shape[-1] % 2 else x
    tensors = (x, x.flip(-1)) if form == "two" else (x,)
    biases = [None] * len(tensors)
    call = partial(ours, form, activation="silu")
    results = []
    for make in (lambda t: t, lambda t: t.contiguous()):
        leaves = [make(t).detach().requires_grad_() for t in tensors]
        y = call(*leaves, *biases)
        dy = torch.ones((), dtype=y.dtype, device=y.device).expand(y.shape) if is_expanded else y.detach().cos()
        results.append([y, *torch.autograd.grad(y, leaves, make(dy))])
    assert all_same(*results)


def test_a_gradient_that_is_expanded_is_copied():
    gate = tensor((4, 8)).requires_grad_()
    y = ek.swiglu(gate)
    found = torch.autograd.grad(y.sum(), gate, retain_graph=True)
    assert all_same(found, torch.autograd.grad(y, gate, torch.ones_like(y)))


@every_form
def test_checkpoint_recomputes_the_same(form, kernels):
    inputs, dy = operands(form)
    call = partial(ours, form, activation="silu")
    found = gradients(lambda *t: checkpoint(call, *t, use_reentrant=False), inputs, dy)[1]
    assert all_same(found, gradients(call, inputs, dy)[1])


def test_hooks_see_the_gradients():
    gate, seen = tensor((4, 8)).requires_grad_(), []
    y = ek.swiglu(gate)
    y.register_hook(lambda g: 2 * g)
    gate.register_hook(seen.append)
    y.sum().backward()
    (expected,) = torch.autograd.grad(ek.swiglu(gate), gate, torch.full_like(y, 2))
    assert same_bits(seen[0], expected) and same_bits(gate.grad, expected)


def test_an_input_that_is_changed_before_backward_is_an_error():
    gate = tensor((4, 8))
    y = ek.swiglu(gate, tensor((4, 8), seed=1).requires_grad_())
    gate.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@every_form
def test_without_elements_there_are_zeros(form):
    for shape in ((0, 6), (3, 0)):
        inputs, dy = operands(form, shape=shape)
        y, found = gradients(partial(ours, form, activation="silu"), inputs, dy)
        assert y.shape == dy.shape and all((g == 0).all() for g in found)


@every_form
def test_on_the_meta_device_there_is_a_shape(form, no_fallback):
    inputs, dy = operands(form, "bf16")
    columns_first = (t.transpose(0, -1).contiguous().transpose(0, -1) for t in inputs)
    y = ours(form, *(t.to("meta") for t in columns_first), activation="silu")
    assert y.is_meta and y.dtype is dy.dtype and y.shape == dy.shape and y.is_contiguous()


# ---- dtypes ----


def test_gate_and_value_of_two_dtypes_are_computed_in_that_of_their_product(kernels):
    for one, other in (("bf16", "f32"), ("f32", "bf16"), ("f16", "bf16"), ("f64", "f32")):
        gate, value = require_gradients(tensor((4, 8), one), tensor((4, 8), other, 1))
        y = ek.swiglu(gate, value)
        dtype = torch.promote_types(gate.dtype, value.dtype)
        assert same_bits(y, ek.swiglu(gate.to(dtype), value.to(dtype)))
        assert [g.dtype for g in torch.autograd.grad(y.sum(), [gate, value])] == [gate.dtype, value.dtype]
    assert kernels.forward == 8 and kernels.backward == 4


@pytest.mark.parametrize("columns", [("f32", "bf16"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "f32")], ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_biases_are_widened_where_they_must_be(dtype, columns, no_fallback):
    gate, value = tensor((4, 8), dtype), tensor((4, 8), dtype, 1)
    biases = require_gradients(*(tensor((8,), c, s) for c, s in zip(columns, (2, 3), strict=True)))
    y = ek.swiglu(gate, value, *biases)
    assert y.dtype is gate.dtype and same_bits(y, ek.swiglu(gate, value, *(b.float() for b in biases)))
    assert [g.dtype for g in torch.autograd.grad(y.sum(), biases)] == [b.dtype for b in biases]


@every_dtype
def test_autocast_changes_nothing(dtype, kernels):
    inputs, _ = operands("two", dtype)
    assert same_bits(under_autocast(ek.swiglu)(*inputs), ek.swiglu(*inputs))
    assert same_bits(under_autocast(ek.bias_act)(inputs[0], inputs[2]), ek.bias_act(inputs[0], inputs[2]))
    assert kernels.forward == 4


# ---- transforms, and who sees a call ----


@pytest.mark.filterwarnings("ignore")
@every_form
def test_transforms_compute_the_same(form, kernels):
    (gate, *others), dy = operands(form, "f64", (3, 4))
    mine, theirs = (lambda t, f=f: f(form, t, *others, activation="gelu") for f in (ours, composed))
    tangent = tensor(gate.shape, "f64", seed=9)
    close(jvp(mine, (gate,), (tangent,))[1], jvp(theirs, (gate,), (tangent,))[1])
    close(vjp(mine, gate)[1](dy)[0], vjp(theirs, gate)[1](dy)[0])
    close(grad(lambda t: mine(t).sum())(gate), grad(lambda t: theirs(t).sum())(gate))
    close(vmap(mine)(torch.stack([gate, tangent])), vmap(theirs)(torch.stack([gate, tangent])))
    close(hessian(lambda t: mine(t).sum())(gate), hessian(lambda t: theirs(t).sum())(gate))
    assert kernels.forward == 0


def test_a_batch_of_gradients_has_the_gradients_one_by_one():
    inputs, dy = operands("two", "f64")
    leaves = require_gradients(*inputs)
    y, batch = ek.swiglu(*leaves), torch.stack([dy, 2 * dy])
    found = torch.autograd.grad(y, leaves, batch, is_grads_batched=True, retain_graph=True)
    for number in (0, 1):
        expected = torch.autograd.grad(y, leaves, batch[number], retain_graph=True)
        for a, b in zip(found, expected, strict=True):
            close(a[number], b)


@every_form
def test_the_composition_agrees_with_the_kernels(form, kernels):
    for dtype in DTYPES:
        inputs, _ = operands(form, dtype)
        y = ours(form, *inputs, activation="gelu")
        before = kernels.forward
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(inputs[0], inputs[0])
            composition = forward_ad.unpack_dual(ours(form, dual, *inputs[1:], activation="gelu")).primal
        assert kernels.forward == before and composition.dtype is y.dtype
        close(composition, y.double())


def test_a_model_under_functional_call_has_its_gradients():
    class Model(torch.nn.Linear):
        def forward(self, x):
            return ek.swiglu(x @ self.weight.T, None, self.bias)

    model, x = Model(6, 8).double(), tensor((3, 6), "f64").cpu()
    found = grad(lambda p: functional_call(model, p, (x,)).sum())(dict(model.named_parameters()))
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        close(found[name], parameter.grad)


def test_a_torch_function_sees_the_call():
    calls = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append((function, args[1:], kwargs or {}))
            return "seen"

    x = torch.ones(2, 8).as_subclass(Noting)
    assert ek.glu(x, activation="gelu", limit=2.0) == "seen"
    assert calls.pop() == (ek.glu, (None, None, None, "gelu", 2.0, 1.0, 0.0, False), {})
    assert ek.geglu(x, approximate="tanh") == "seen"
    assert calls.pop() == (ek.geglu, (None, None, None, "tanh"), {})
    assert ek.swiglu(x) == ek.bias_act(x, activation="relu") == "seen"
    assert calls == [(ek.swiglu, (None, None, None), {}), (ek.bias_act, (None, "relu"), {})]


def test_a_wrapper_of_a_tensor_sees_operations():
    y = ek.swiglu(Wrapped(tensor((4, 8))))
    assert isinstance(y, Wrapped)
    close(y.inner, ek.swiglu(tensor((4, 8), "f64")), "f32")


def test_a_wider_bias_is_left_to_pytorch_with_one_warning(fallback):
    x, bias = tensor((4, 8)), tensor((8,), "f64", seed=1)
    with pytest.warns(RuntimeWarning, match="swiglu left this call to PyTorch: .*f64 does not go with") as told:
        for _ in range(2):
            y = ek.swiglu(x, None, bias)
    assert len(told) == 1 and told[0].filename == __file__
    close(y, ek.swiglu(x.double(), None, bias), "f32")
    fallback("error")
    with pytest.raises(NotImplementedError, match="left this call to PyTorch"):
        ek.swiglu(x, None, bias)


@every_form
def test_a_call_can_be_traced_with_symbols_for_sizes(form):
    inputs, dy = operands(form)

    def step(*inputs):
        leaves = [t.detach().requires_grad_() for t in inputs]
        return torch.autograd.grad(ours(form, *leaves, activation="silu"), leaves, dy)

    graph = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs)
    for a, b in zip(graph(*inputs), step(*inputs), strict=True):
        close(a, b.double(), "f32")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_call_has_the_same_bits():
    x = tensor((4, 8)).requires_grad_()
    compiled = torch.compile(lambda t: ek.bias_act(ek.swiglu(t)) + 1, backend="eager")
    y = compiled(x)
    assert same_bits(y, ek.bias_act(ek.swiglu(x)) + 1)
    y.sum().backward()


def test_memory_estimate_counts_what_the_kernels_allocate():
    class Swiglu(torch.nn.Module):
        def forward(self, x):
            return ek.swiglu(x)

    estimate = ek.memory_estimate(Swiglu(), (torch.empty(64, 256, requires_grad=True),))
    assert estimate.saved == 64 * 128 * 4  # y
    assert estimate.peak == 64 * (256 + 128 + 128 + 256) * 4  # x, y, dy, dx


def test_memory_estimate_counts_copies_where_there_are_some():
    x = tensor((64, 256))
    assert _only_memory.copies(None, x[:, :128], None, x) == []
    copied = _only_memory.copies(None, x[:, ::2], None, x[:, :128])
    assert [t.shape for t in copied] == [(64, 128)] * 2 and all(t.is_contiguous() for t in copied)


def test_on_a_gpu_the_workspace_of_backward_is_counted(monkeypatch):
    monkeypatch.setattr(_only_memory, "stand_in", lambda t: None if t is None else torch.empty(()).expand(t.shape))
    monkeypatch.setattr(_recompute, "is_estimated", lambda: True)
    ask, options = evenkeel._core.glu_backward_workspace, (*Options("silu", packed=True), True, False, None)
    with FakeTensorMode():
        inputs = torch.empty(500, 512, device="cuda"), None, torch.empty(512, device="cuda"), None
        workspace = _recompute.workspace(ask, inputs, *options)
    size = ask(torch.empty(500, 512), None, torch.empty(512), None, *options, torch.get_num_threads())
    assert workspace.is_cuda and workspace.nbytes == size > 0


@every_form
def test_the_way_of_an_older_pytorch_has_the_same_bits(form, monkeypatch):
    inputs, dy = operands(form, shape=(70, 6))
    call = partial(ours, form, activation="gelu")
    expected = gradients(call, inputs, dy)
    monkeypatch.setattr(ek._kernels, "HAS_EXCHANGE", False)
    found = gradients(call, inputs, dy)
    assert all_same([found[0], *found[1]], [expected[0], *expected[1]])


# ---- mistakes ----

FLOATS = "expected float32, float16, bfloat16 or float64"
ACTIVATION = "expected 'sigmoid', 'silu', 'gelu', 'gelu_tanh', 'relu', 'relu_squared' or 'none'"
MISTAKES = {
    "gate is None; expected a tensor": (TypeError, lambda x: ek.glu(None)),
    "gate is of type list; expected a tensor": (TypeError, lambda x: ek.glu([1.0])),
    "value is of type float; expected a tensor": (TypeError, lambda x: ek.glu(x, 1.0)),
    "x is of type list; expected a tensor": (TypeError, lambda x: ek.bias_act([1.0], None)),
    f"gate is torch.int64; {FLOATS}": (TypeError, lambda x: ek.glu(x.detach().long())),
    f"value is torch.int64; {FLOATS}": (TypeError, lambda x: ek.glu(x, x.detach().long())),
    f"bias is torch.int64; {FLOATS}": (TypeError, lambda x: ek.bias_act(x, x[0].detach().long())),
    "gate has shape (4, 7): it must have an even last dimension": (ValueError, lambda x: ek.glu(x[:, :7])),
    "gate has shape (): it must have 1 dimension or more": (ValueError, lambda x: ek.glu(x[0, 0])),
    "value has shape (4, 7): it must have (4, 8)": (ValueError, lambda x: ek.glu(x, x[:, :7])),
    "value has shape (1, 8): it must have (4, 8)": (ValueError, lambda x: ek.glu(x, x[:1])),
    "gate_bias has shape (4,): it must have (8,)": (ValueError, lambda x: ek.glu(x, None, x[0, :4])),
    "value_bias has shape (4,): it must have (8,)": (ValueError, lambda x: ek.glu(x, x, None, x[0, :4])),
    "bias has shape (4, 8): it must have (8,)": (ValueError, lambda x: ek.bias_act(x, x)),
    "value_bias is given, and value is None": (ValueError, lambda x: ek.swiglu(x, None, None, x[0])),
    "interleaved is True, and value is given": (ValueError, lambda x: ek.glu(x, x, interleaved=True)),
    f"activation is 'tanh'; {ACTIVATION}": (ValueError, lambda x: ek.glu(x, activation="tanh")),
    f"activation is None; {ACTIVATION}": (ValueError, lambda x: ek.bias_act(x, None, None)),
    "approximate is 'erf'; expected 'none' or 'tanh'": (ValueError, lambda x: ek.geglu(x, approximate="erf")),
    "limit is -2; expected a positive number, or None": (ValueError, lambda x: ek.glu(x, limit=-2)),
    "alpha (2.0) goes with activation 'silu'": (ValueError, lambda x: ek.glu(x, activation="relu", alpha=2.0)),
    "alpha is 0.0; expected a positive number": (ValueError, lambda x: ek.glu(x, alpha=0.0)),
    "alpha is 'a'; expected a number": (TypeError, lambda x: ek.glu(x, alpha="a")),
    "value_offset (1e+300) must be in": (ValueError, lambda x: ek.glu(x, value_offset=1e300)),
}


@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_names_the_argument(words, recorded, no_fallback):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words)):
        call(tensor((4, 8)).requires_grad_(recorded))


def test_a_value_on_another_device_is_refused():
    with pytest.raises((ValueError, RuntimeError)):
        ek.swiglu(tensor((4, 8)), torch.ones(4, 8, device="meta"))
