"""Norms with a residual before or after them, an activation or a gate under what PyTorch does to functions: higher
derivatives, torch.func, autocast, modes, compilation, calls that are left to PyTorch, and mistakes.
SPDX-License-Identifier: MIT"""

import re

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, jacrev, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import evenkeel.torch as ek
from fused_cases import Case
from test_torch_fused import (
    ACTS,
    AFTER,
    BEFORE,
    F32,
    GATES,
    Operands,
    composed,
    every_norm,
    fused_norm,
    gradients,
    operands,
    with_h,
    with_residual,
)
from test_torch_transforms import under_autocast
from torch_cases import DEVICE, DTYPES, Wrapped, all_same, close, cpu_only, same_bits, tensor, wide

F64 = Case(*["f64"] * 4)
FLAVOURS = [F64, F64._replace(weight_offset=1.0), F64._replace(rounding="each")]
every_flavour = pytest.mark.parametrize("case", FLAVOURS, ids=str)


def leaves(norm, shape=(3, 5)):
    """The operands that are there, as leaves in float64, and a function of them."""
    inputs, _ = operands(norm, F64, shape)
    names = [name for name, t in inputs._asdict().items() if t is not None]
    return names, [t.requires_grad_() for t in inputs if t is not None]


def function_of(norm, case, names):
    return lambda *tensors: fused_norm(norm, Operands(**dict(zip(names, tensors, strict=True))), case, eps=0.5)


# ---- derivatives ----


@every_flavour
@every_norm
def test_first_and_second_derivatives_are_those_of_finite_differences(norm, case):
    names, tensors = leaves(norm)
    function = function_of(norm, case, names)
    assert gradcheck(function, tensors) and gradgradcheck(function, tensors)


@pytest.mark.parametrize("which", [0, 1], ids=["y alone", "h alone"])
@with_h
def test_so_are_those_of_one_result(norm, which):
    names, tensors = leaves(norm)
    function = function_of(norm, F64, names)
    assert gradcheck(lambda *t: function(*t)[which], tensors) and gradgradcheck(lambda *t: function(*t)[which], tensors)


@every_norm
def test_first_derivatives_have_the_same_bits_with_and_without_a_graph(norm):
    inputs, outer = operands(norm)
    tensors = Operands(*(None if t is None else t.requires_grad_() for t in inputs))
    results, present = fused_norm(norm, tensors), [t for t in tensors if t is not None]
    outer = [g.requires_grad_() for g in outer]
    plain = torch.autograd.grad(results, present, outer, retain_graph=True)
    recorded = torch.autograd.grad(results, present, outer, create_graph=True)
    assert all_same(recorded, plain) and all(g.requires_grad for g in recorded)


def test_a_graph_without_gradients_of_its_own_is_a_graph_all_the_same():
    x = tensor((4, 8), "f64").requires_grad_()
    y, h = ek.add_rms_norm(x, x.detach(), (8,))
    (dx,) = torch.autograd.grad(h.sum(), x, create_graph=True)
    assert torch.equal(dx, torch.ones_like(dx))


# ---- torch.func, forward mode, batched gradients ----


def pair(norm, which):
    """y or h of x by evenkeel, and by the composition."""
    inputs, _ = operands(norm, F64, (4, 8))
    ours = lambda x, **rest: fused_norm(norm, inputs._replace(x=x, **rest), F64)[which]  # noqa: E731
    theirs = lambda x, **rest: composed(norm, inputs._replace(x=x, **rest), F64)[which]  # noqa: E731
    return ours, theirs


TRANSFORMS = {
    "grad": lambda f, x, t: grad(lambda x: f(x).pow(3).sum())(x),
    "jvp": lambda f, x, t: jvp(f, (x,), (t,))[1],
    "jacrev": lambda f, x, t: jacrev(f)(x),
    "vmap": lambda f, x, t: vmap(f)(torch.stack([x, t])),
    "vmap of grad": lambda f, x, t: vmap(grad(lambda x: f(x).pow(3).sum()))(torch.stack([x, t])),
    "vmap over x and residual": lambda f, x, t: vmap(lambda x, r: f(x, residual=r))(
        torch.stack([x, t]), torch.stack([t, x])
    ),
}


EVERY_RESULT = [(norm, which) for norm in BEFORE for which in (0, 1)] + [(norm, 0) for norm in AFTER + ACTS + GATES]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("norm", "which"), EVERY_RESULT, ids=lambda value: "yh"[value] if value in (0, 1) else str(value)
)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions(norm, name, which, kernels, no_fallback):
    x, tangent = tensor((4, 8), "f64", seed=1), tensor((4, 8), "f64", seed=2)
    found, expected = (TRANSFORMS[name](function, x, tangent) for function in pair(norm, which))
    close(found, expected)
    assert kernels.forward == 0


@every_norm
def test_forward_mode_derivatives(norm, kernels):
    x, tangent = tensor((4, 8), "f64", seed=1), tensor((4, 8), "f64", seed=2)
    results = (0, 1) if norm.has_h else (0,)
    with forward_ad.dual_level():
        found, expected = (
            [
                forward_ad.unpack_dual(pair(norm, which)[i](forward_ad.make_dual(x, tangent))).tangent
                for which in results
            ]
            for i in (0, 1)
        )
    for a, b in zip(found, expected, strict=True):
        close(a, b)
    assert kernels.forward == 0


@pytest.mark.parametrize("create_graph", [False, True])
@every_norm
def test_batched_gradients(norm, create_graph):
    names, tensors = leaves(norm, (4, 8))
    results = function_of(norm, F64, names)(*tensors)
    outer = [tensor((3, 4, 8), "f64", seed=seed) for seed in (5, 6)][: len(results)]
    found = torch.autograd.grad(
        results, tensors, outer, is_grads_batched=True, retain_graph=True, create_graph=create_graph
    )
    for i in range(3):
        one = torch.autograd.grad(results, tensors, [o[i] for o in outer], retain_graph=True)
        for a, b in zip(found, one, strict=True):
            close(a[i], b)


# ---- autocast ----


@pytest.mark.parametrize("residual", ["f32", "bf16"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_where_autocast_casts_dtypes_are_those_of_the_composition(dtype, residual, casting, kernels):
    x, added, weight = tensor((6, 40), dtype), tensor((6, 40), residual, seed=1), tensor((40,), "bf16", seed=2)
    with torch.autocast(DEVICE, torch.bfloat16):
        y, h = ek.add_layer_norm(x, added, (40,), weight, weight, x_bias=weight)
        total = x + weight + added
    assert y.dtype is torch.float32 and h.dtype is total.dtype and kernels.forward == 1
    assert same_bits(y, ek.layer_norm(h, (40,), weight.float(), weight.float(), out_dtype=torch.float32))
    found = gradients(
        lambda i: under_autocast(ek.add_layer_norm)(*i[:2], (40,), i.weight), Operands(x, added, weight), y, h
    )
    assert [g.dtype for g in found[:3]] == [x.dtype, added.dtype, weight.dtype]


@pytest.mark.parametrize("residual", ["f32", "bf16"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_so_are_those_of_a_residual_after_the_norm(dtype, residual, casting, kernels):
    x, added, weight = tensor((6, 40), dtype), tensor((6, 40), residual, seed=1), tensor((40,), "bf16", seed=2)
    call = under_autocast(ek.layer_norm_residual)
    y = call(x, added, (40,), weight, weight, x_bias=weight)
    total = x.float() + weight.float()
    assert y.dtype is torch.float32 and kernels.forward == 1
    assert same_bits(y, ek.layer_norm(total, (40,), weight.float(), weight.float()) + added.float())
    found = gradients(lambda i: (call(*i[:2], (40,), i.weight),), Operands(x, added, weight), y)
    assert [g.dtype for g in found[:3]] == [x.dtype, added.dtype, weight.dtype]
    assert call(x, added, (40,), out_dtype=x.dtype).dtype is x.dtype


def test_an_out_dtype_holds_under_autocast(casting):
    x = tensor((6, 40), "bf16")
    y, _ = under_autocast(ek.add_layer_norm)(x, x, (40,), out_dtype=torch.bfloat16)
    assert y.dtype is torch.bfloat16
    assert under_autocast(ek.add_layer_norm)(x.double(), x, (40,))[0].dtype is torch.float64


def test_norms_that_autocast_does_not_cast_stay_as_they_are(casting):
    x = tensor((6, 40), "bf16")
    assert all_same(under_autocast(ek.add_rms_norm)(x, x, (40,)), ek.add_rms_norm(x, x, (40,)))
    assert same_bits(under_autocast(ek.rms_norm_residual)(x, x, (40,)), ek.rms_norm_residual(x, x, (40,)))


# ---- who sees a call ----


@every_norm
def test_a_subclass_sees_the_operations(norm, kernels):
    inputs, _ = operands(norm)
    Wrapped.seen.clear()
    name = "residual" if norm.form.place or norm.form.gate else "x_bias"
    results = fused_norm(norm, inputs._replace(**{name: Wrapped(getattr(inputs, name))}))
    assert all(isinstance(t, Wrapped) for t in results) and Wrapped.seen and kernels.forward == 0
    close(results[0].inner, composed(norm, Operands(*wide(*inputs)))[0], "f32")


@every_norm
def test_a_dispatch_mode_sees_the_operations(norm, kernels):
    seen = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    inputs, _ = operands(norm)
    with Watching():
        fused_norm(norm, inputs)
    assert seen and kernels.forward == 0


def test_a_torch_function_sees_the_call_with_the_flavours_that_are_not_the_defaults():
    calls = []

    class Noting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append((function, kwargs))
            return "seen"

    x = torch.ones(2, 8).as_subclass(Noting)
    assert ek.add_rms_norm(x, x, (8,), weight_offset=1.0, residual_dtype=torch.float32) == "seen"
    (call,) = calls
    given = {"weight": None, "eps": None, "x_bias": None, "weight_offset": 1.0, "residual_dtype": torch.float32}
    assert call == (ek.add_rms_norm, given)
    ek.rms_norm(x, (8,), rounding="each")
    assert calls[1] == (ek.rms_norm, {"weight": None, "eps": None, "rounding": "each"})
    ek.layer_norm_residual(torch.ones(2, 8), x, (8,), out_dtype=torch.float32)
    given = {"weight": None, "bias": None, "eps": 1e-5, "x_bias": None, "out_dtype": torch.float32}
    assert calls[2] == (ek.layer_norm_residual, given)


@every_norm
def test_fake_tensors_stay_fake(norm):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    inputs, _ = operands(norm, Case("bf16", "f32", "f32", "bf16"))
    with FakeTensorMode() as mode:
        fake = Operands(*(None if t is None else mode.from_tensor(t) for t in inputs))
        results = fused_norm(norm, fake, Case("bf16", "f32", "f32", "bf16"))
    assert all(isinstance(t, FakeTensor) for t in results)
    assert [t.dtype for t in results] == [torch.bfloat16, torch.float32][: len(results)]


@cpu_only
@pytest.mark.parametrize("norm", [BEFORE[0], AFTER[0], ACTS[0], GATES[0]], ids=str)
def test_a_compiled_function_has_the_same_bits(norm):
    inputs, outer = operands(norm)

    def call(inputs):
        return fused_norm(norm, inputs)

    torch._dynamo.reset()
    compiled = torch.compile(call, backend="aot_eager")
    assert all_same(gradients(compiled, inputs, *outer), gradients(call, inputs, *outer))
    torch._dynamo.reset()


def test_the_memory_of_a_model_with_a_residual_is_estimated():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))

        def forward(self, x):
            y, h = ek.add_rms_norm(x, x, (64,), self.weight)
            return y + h

    estimate = ek.memory_estimate(Model(), (1024, 64))
    rows, stats = 1024 * 64 * 4, 1024 * 4
    assert estimate.saved == 2 * rows + stats  # h and y + h; x is the caller's
    assert estimate.gradients == 64 * 4


def test_of_a_residual_after_the_norm_x_is_saved_and_the_residual_is_not():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.x_bias = (torch.nn.Parameter(torch.ones(64)) for _ in range(2))

        def forward(self, x, residual):
            return ek.rms_norm_residual(2 * x, 2 * residual, (64,), self.weight, x_bias=self.x_bias)

    estimate = ek.memory_estimate(Model(), (torch.ones(1024, 64), torch.ones(1024, 64)))
    rows, stats = 1024 * 64 * 4, 1024 * 4
    assert estimate.saved == 2 * rows + stats  # 2 x and y
    assert estimate.gradients == 2 * 64 * 4


def test_the_copy_of_a_scattered_residual_is_estimated():
    """Of a wide one, so that forward needs most memory."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(64))

        def forward(self, x, residual):
            residual = residual if residual.shape == x.shape else residual.t()
            return ek.rms_norm_residual(x, residual, (64,), self.weight, out_dtype=torch.bfloat16)

    x = torch.ones(1024, 64, dtype=torch.bfloat16)
    as_it_lies, copied = (ek.memory_estimate(Model(), (x, torch.ones(shape))) for shape in (x.shape, x.t().shape))
    assert copied > as_it_lies + x.numel()


# ---- what is left to PyTorch ----


@with_residual
def test_pytorch_computes_what_the_kernels_lack_with_one_warning(norm, fallback):
    x, residual = tensor((4, 8)), tensor((4, 8), "f64", seed=1)
    with pytest.warns(RuntimeWarning, match=f"{norm.name} left this call to PyTorch: residual of f64") as told:
        for _ in range(2):
            results = getattr(ek, norm.name)(x, residual, (8,))
    assert len(told) == 1 and told[0].filename == __file__
    if norm.is_after:
        assert results.dtype is torch.float64
        close(results, norm.theirs(x.double(), (8,), eps=1e-5 if norm.has_bias else None) + residual, "f32")
    else:
        y, h = results
        assert y.dtype is torch.float32 and h.dtype is torch.float64
        close(h, x.double() + residual)
    fallback("error")
    with pytest.raises(NotImplementedError, match="left this call to PyTorch"):
        getattr(ek, norm.name)(x, residual, (8,))


@every_norm
def test_on_a_device_without_kernels_there_is_a_shape(norm, no_fallback):
    x = torch.ones(4, 8, device="meta", dtype=torch.bfloat16)
    results = fused_norm(norm, Operands(x, x.float(), x[0], x_bias=x[0]), Case("bf16", "bf16", "f32", "f32"))
    assert all(t.is_meta and t.dtype is torch.float32 and t.shape == x.shape for t in results)


@pytest.mark.parametrize("case", [F32, F32._replace(weight_offset=1.0), F32._replace(rounding="each")], ids=str)
@every_norm
def test_the_composition_has_the_order_of_the_contract(norm, case):
    """By PyTorch, in bfloat16: h has the same bits, and y but for the rounding of sums. PyTorch's GELU loses digits
    below zero."""
    bf16 = Case("bf16", "bf16", "bf16", "bf16", case.weight_offset, case.rounding)
    inputs, _ = operands(norm, bf16, (50, 300))
    y, *h = fused_norm(norm, inputs, bf16)
    with torch.autograd.forward_ad.dual_level():  # the kernels do not see it
        dual = inputs._replace(x=forward_ad.make_dual(inputs.x, inputs.x))
        y_by_pytorch, *h_by_pytorch = (forward_ad.unpack_dual(t).primal for t in fused_norm(norm, dual, bf16))
    assert all_same(h_by_pytorch, h)
    is_compared = y > 0 if norm.activation else torch.ones_like(y, dtype=torch.bool)
    assert (y_by_pytorch != y)[is_compared].double().mean() < 1e-3


# ---- mistakes ----

MISTAKES = {
    "residual has shape (4, 7): it must have (4, 8)": (ValueError, lambda add, x: add(x, x[:, :7], (8,))),
    "x_bias has shape (7,): it must have (8,)": (ValueError, lambda add, x: add(x, x, (8,), x_bias=x[0, :7])),
    "weight has shape (7,): it must have (8,)": (
        ValueError,
        lambda add, x: add(x, x, (8,), weight=x[0, :7], rounding="each"),
    ),
    "x is of type list and residual of type Tensor; expected tensors": (TypeError, lambda add, x: add([1.0], x, (8,))),
    "x is of type Tensor and residual of type NoneType; expected tensors": (
        TypeError,
        lambda add, x: add(x, None, (8,)),
    ),
    "x is torch.int64; expected float32, float16, bfloat16 or float64": (
        TypeError,
        lambda add, x: add(x.long(), x.long(), (8,)),
    ),
    "weight_offset is 2.0; expected 0 or 1": (ValueError, lambda add, x: add(x, x, (8,), weight_offset=2.0)),
    "rounding is 'twice'; expected 'once' or 'each'": (ValueError, lambda add, x: add(x, x, (8,), rounding="twice")),
    "out_dtype is torch.int8; expected float32, float16, bfloat16 or float64": (
        TypeError,
        lambda add, x: add(x, x, (8,), out_dtype=torch.int8),
    ),
    "residual_dtype is float; expected float32, float16, bfloat16 or float64": (
        TypeError,
        lambda add, x: add(x, x, (8,), residual_dtype="float"),
    ),
    "Given normalized_shape=[7], expected input with shape [*": (RuntimeError, lambda add, x: add(x, x, (7,))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize(
    ("norm", "words"),
    [
        (norm, words)
        for norm in BEFORE + AFTER
        for words in MISTAKES
        if not (norm.is_after and words.startswith("residual_dtype"))  # which it does not have
    ],
    ids=str,
)
def test_a_mistake_names_the_argument(norm, words, recorded, no_fallback):
    exception, call = MISTAKES[words]
    with pytest.raises(exception, match="^" + re.escape(words)):
        call(getattr(ek, norm.name), tensor((4, 8)).requires_grad_(recorded))


@with_residual
def test_columns_of_two_dtypes_are_left_to_pytorch(norm, fallback):
    x, columns = tensor((4, 8)), tensor((8,), "f64", seed=1)
    with pytest.warns(RuntimeWarning, match="x_bias is f64: it must be f32, as weight"):
        results = getattr(ek, norm.name)(x, x, (8,), weight=columns.float(), x_bias=columns)
    if norm.is_after:
        assert results.dtype is torch.float32
        eps = 1e-5 if norm.has_bias else None
        close(results, norm.theirs(x + columns.float(), (8,), columns.float(), eps=eps) + x)
    else:
        y, h = results
        assert y.dtype is h.dtype is torch.float32
        assert same_bits(h, x + columns.float() + x)


@with_residual
def test_a_residual_on_another_device_is_refused(norm):
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        getattr(ek, norm.name)(tensor((4, 8)), torch.ones(4, 8, device="meta"), (8,))


def test_dtypes_of_evenkeel_s_are_pytorch_s():
    from evenkeel import _core
    from evenkeel.torch._call import number_of

    numbers = {"f32": _core.F32, "f16": _core.F16, "bf16": _core.BF16, "f64": _core.F64}
    assert {name: number_of(dtype) for name, dtype in DTYPES.items()} == numbers
    assert number_of(torch.int8) == 0 and DEVICE
