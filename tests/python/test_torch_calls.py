"""Whether evenkeel or PyTorch computes a call. PyTorch's dispatcher gets the calls that subclasses, modes and tracers
must see; PyTorch computes what evenkeel cannot, with a warning; an error inside evenkeel is raised.
SPDX-License-Identifier: MIT"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import evenkeel.torch as ek
from evenkeel.torch import _kernels
from processes import run_python
from torch_cases import (
    DEVICE,
    LAYER,
    Wrapped,
    both_norms,
    close,
    every_norm,
    exchange_only,
    gradients,
    leave_calls_to_python,
    require_gradients,
    same_bits,
    tensor,
)


class Seen(TorchDispatchMode):
    """Notes the operations under it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def saw_a_norm(names):
    """LayerNorm is an operation of its own; RMSNorm one, or what it is made of."""
    return any(name in ("native_layer_norm", "_fused_rms_norm", "rms_norm", "rsqrt") for name in names)


# ---- calls that nothing watches ----


@exchange_only
@both_norms
def test_a_call_that_nobody_watches_is_served_in_c(norm, kernels):
    x, *affine = norm.operands((6, 40))
    norm.rows(x, *affine)
    assert kernels.last == "eager_forward"
    y = norm.rows(x.requires_grad_(), *affine)
    assert kernels.last == "eager_forward"
    y.backward(tensor((6, 40), seed=1))
    assert kernels.last == "eager_backward" and (kernels.forward, kernels.backward) == (2, 1)


# ---- subclasses ----


@pytest.mark.parametrize("which", [0, 1, 2], ids=["x", "weight", "bias"])
def test_a_subclass_with_torch_function_sees_the_call(which, kernels):
    class Noting(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.seen.append((function, args, kwargs))
            return super().__torch_function__(function, types, args, kwargs or {})

    operands = [*LAYER.operands((6, 40))]
    operands[which] = operands[which].as_subclass(Noting)
    y = ek.layer_norm(operands[0], (40,), *operands[1:], eps=0.5)
    called, args, kwargs = Noting.seen[0]
    assert called is ek.layer_norm and args[1] == (40,) and kwargs["eps"] == 0.5
    assert type(y) is Noting
    close(y.as_subclass(torch.Tensor), LAYER.rows(*LAYER.operands((6, 40)), eps=0.5))


def test_a_subclass_may_answer_in_its_own_way():
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function.__name__

    x = tensor((6, 40)).as_subclass(Refusing)
    assert ek.layer_norm(x, (40,)) == "layer_norm" and ek.rms_norm(x, (40,)) == "rms_norm"
    assert ek.LayerNorm(40)(x) == "layer_norm" and ek.RMSNorm(40)(x) == "rms_norm"


@both_norms
def test_a_subclass_with_torch_dispatch_sees_the_operation(norm, kernels):
    Wrapped.seen.clear()
    x, weight, bias = norm.operands((6, 40))
    y = norm.ours(Wrapped(x), (40,), weight, bias)
    assert type(y) is Wrapped and kernels.forward == 0
    assert saw_a_norm(function.overloadpacket.__name__ for function in Wrapped.seen)
    close(y.inner, norm.theirs(x, (40,), weight, bias))
    y = norm.ours(x, (40,), Wrapped(weight), bias)
    assert type(y) is Wrapped and kernels.forward == 0


@both_norms
def test_a_gradient_of_a_subclass_gives_gradients_of_it(norm, kernels):
    x, weight, bias = require_gradients(*norm.operands((6, 40)))
    dy = tensor((6, 40), seed=1)
    expected = gradients(norm.rows, (x, weight, bias), dy)
    kernels.backward = 0
    wanted = [t for t in (x, weight, bias) if t is not None]
    found = torch.autograd.grad(norm.rows(x, weight, bias), wanted, Wrapped(dy))
    assert kernels.backward == 0 and all(type(g) is Wrapped for g in found)
    for result, correct in zip(found, [g for g in expected if g is not None], strict=True):
        close(result.inner, correct)


def test_parameters_are_plain_tensors_and_their_subclasses_are_not(kernels):
    class Special(torch.nn.Parameter):
        pass

    x = tensor((6, 40))
    ek.layer_norm(x, (40,), torch.nn.Parameter(tensor((40,))))
    assert kernels.forward == 1
    special = Special(tensor((40,)))
    close(ek.layer_norm(x, (40,), special), F.layer_norm(x, (40,), special))
    assert kernels.forward == 1


# ---- modes ----


@both_norms
def test_a_function_mode_sees_the_call(norm, kernels):
    class Noting(TorchFunctionMode):
        seen = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    x, weight, bias = norm.operands((6, 40))
    with Noting():
        y = norm.ours(x, (40,), weight, bias)
    assert Noting.seen[0] is getattr(ek, norm.op) and kernels.forward == 1
    assert same_bits(y, norm.rows(x, weight, bias))


@every_norm
def test_a_dispatch_mode_sees_the_operation(norm, kernels):
    x, weight, bias = require_gradients(*norm.operands((6, 40)))
    with Seen() as seen:
        y = norm.rows(x, weight, bias)
    assert saw_a_norm(seen.names) and kernels.forward == 0
    close(y, norm.theirs(x, (40,), weight, bias))


@both_norms
def test_a_dispatch_mode_around_backward_alone_sees_its_operations(norm, kernels):
    x, weight, bias = require_gradients(*norm.operands((6, 40)))
    y, dy = norm.rows(x, weight, bias), tensor((6, 40), seed=1)
    with Seen() as seen:
        y.backward(dy)
    assert kernels.backward == 0 and "mean" in seen.names and "mul" in seen.names
    expected = gradients(norm.rows, (x, weight, bias), dy)
    for leaf, correct in zip((x, weight, bias), expected, strict=True):
        assert leaf is correct is None or close(leaf.grad, correct) is None


@both_norms
def test_fake_tensors_stay_fake(norm, kernels):
    with FakeTensorMode() as mode:
        x = torch.empty(6, 40, requires_grad=True)
        y = norm.ours(x, (40,), torch.empty(40))
        assert isinstance(y, FakeTensor) and y.shape == (6, 40)
        y.sum().backward()
        assert isinstance(x.grad, FakeTensor)
    outside = norm.ours(mode.from_tensor(tensor((6, 40))), (40,))
    assert isinstance(outside, FakeTensor) and kernels.forward == 0


# ---- tracers ----


@both_norms
def test_make_fx_records_the_operation(norm, kernels):
    x, weight, bias = norm.operands((6, 40))
    graph = make_fx(lambda x: norm.rows(x, weight, bias))(x)
    assert saw_a_norm(str(node.target).split(".")[1] for node in graph.graph.nodes if node.op == "call_function")
    assert kernels.forward == 0
    other = tensor((6, 40), seed=7)
    close(graph(other), norm.theirs(other, (40,), weight, bias))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("module", [ek.LayerNorm, ek.RMSNorm])
def test_jit_trace_records_the_operation(module, kernels):
    norm = module(40, device=DEVICE)
    traced = torch.jit.trace(norm, tensor((6, 40)))
    assert "norm" in str(traced.graph) or "rsqrt" in str(traced.graph)
    kernels.forward = 0
    other = tensor((9, 40), seed=7)
    close(traced(other), norm(other))
    assert kernels.forward == 1  # that of the module itself


@pytest.mark.parametrize("module", [ek.LayerNorm, ek.RMSNorm])
def test_symbolic_trace_records_evenkeel_s_function(module, kernels):
    norm = module(40, device=DEVICE)
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(norm, torch.nn.ReLU()))
    function = ek.layer_norm if module is ek.LayerNorm else ek.rms_norm
    assert function in [node.target for node in graph.graph.nodes]
    x = tensor((6, 40))
    assert same_bits(graph(x), norm(x).relu()) and kernels.forward == 2


# ---- calls that only PyTorch can compute ----


def complex_numbers():
    return torch.complex(tensor((4, 8)), tensor((4, 8), seed=1))


def nested():
    return torch.nested.nested_tensor([tensor((2, 8)), tensor((3, 8), seed=1)])


CALLS = {  # what only PyTorch can compute, of a library, and a part of the reason
    "complex numbers": (lambda library: library.rms_norm(complex_numbers(), (8,)), "x is complex64"),
    "a wider weight": (lambda library: library.rms_norm(tensor((4, 8)), (8,), tensor((8,), "f64")), "f64 does not go"),
    "a nested tensor": (
        lambda library: library.layer_norm(nested(), (8,), tensor((8,)), tensor((8,))).to_padded_tensor(0.0),
        "",
    ),
}

pytorch_s_own_warnings = pytest.mark.filterwarnings(
    "ignore:Mismatch dtype between input and weight", "ignore:The PyTorch API of nested tensors"
)


@pytorch_s_own_warnings
@pytest.mark.parametrize("name", CALLS)
def test_pytorch_computes_with_one_warning(name, fallback):
    call, reason = CALLS[name]
    with pytest.warns(RuntimeWarning, match=f"evenkeel.torch.(layer|rms)_norm left this call to PyTorch: .*{reason}"):
        y = call(ek)
    assert torch.equal(torch.nan_to_num(y), torch.nan_to_num(call(F)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        call(ek)


def test_the_warning_points_at_the_caller(fallback):
    with pytest.warns(RuntimeWarning) as caught:
        ek.rms_norm(complex_numbers(), (8,))
    assert caught[0].filename == __file__


def test_each_reason_has_a_warning(fallback):
    with pytest.warns(RuntimeWarning) as caught:
        for dtype in (torch.complex64, torch.complex128) * 2:
            ek.rms_norm(complex_numbers().to(dtype), (8,))
    assert len(caught) == 2


@pytorch_s_own_warnings
@pytest.mark.parametrize("name", CALLS)
def test_it_is_an_error_where_that_is_asked_for(name, no_fallback):
    call, reason = CALLS[name]
    with pytest.raises(NotImplementedError, match=f"left this call to PyTorch: .*{reason}"):
        call(ek)


def test_it_is_silent_where_that_is_asked_for(fallback):
    fallback("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        ek.rms_norm(complex_numbers(), (8,))


def test_gradients_are_pytorch_s_then(fallback):
    fallback("silent")
    x, dy = complex_numbers(), complex_numbers()
    (found,), (expected,) = (gradients(lambda x, n=n: n.rms_norm(x, (8,)), [x], dy) for n in (ek, F))
    assert torch.equal(found, expected)


def test_a_choice_returns_the_one_before_and_another_is_refused(fallback):
    assert fallback("error") == "warn" and fallback("silent") == "error" and fallback("warn") == "silent"
    with pytest.raises(ValueError, match="choice is 'loud': it must be one of 'warn', 'error', 'silent'"):
        fallback("loud")
    assert fallback("warn") == "warn"


VALUES = {  # that PyTorch accepts and evenkeel does not: a call of a library, and the words of the error
    "a negative eps": (lambda library: library.layer_norm(tensor((4, 8)), (8,), eps=-0.1), r"eps \(-0.1\)"),
    "too many columns": (lambda library: library.layer_norm(tensor((1, 2**24 + 1), "bf16"), (2**24 + 1,)), "16777217"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("choice", ["warn", "silent"])
@pytest.mark.parametrize("name", VALUES)
def test_values_that_only_pytorch_accepts_are_raised_and_not_left_to_it(name, choice, fallback):
    fallback(choice)
    call, words = VALUES[name]
    call(F)
    with pytest.raises(ValueError, match=words):
        call(ek)


def test_mistakes_stay_mistakes(no_fallback):
    with pytest.raises(RuntimeError, match="Given normalized_shape"):
        ek.layer_norm(tensor((4, 8)), (7,))


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_nothing_is_told_where_there_is_nothing_to_compute(op, no_fallback):
    norm = getattr(ek, op)
    y = norm(torch.empty(4, 8, device="meta"), (8,), torch.empty(8, device="meta"))
    assert y.is_meta and y.shape == (4, 8)
    assert norm(torch.empty(4, 0, device=DEVICE), (0,)).shape == (4, 0)


SCRIPT = """
import torch, warnings
warnings.simplefilter("error")
try:
    import evenkeel.torch as ek
    ek.rms_norm(torch.ones(2, 3, dtype=torch.complex64), (3,))
    print("silent")
except Exception as error:
    print(type(error).__name__, error)
"""
ANSWERS = {
    "warn": "RuntimeWarning evenkeel.torch.rms_norm left",
    "error": "NotImplementedError evenkeel.torch.rms_norm left",
    "silent": "silent",
    "loud": "ValueError EVENKEEL_FALLBACK is 'loud': it must be one of 'warn', 'error', 'silent'",
}


@pytest.mark.slow
@pytest.mark.parametrize("choice", ANSWERS)
def test_the_environment_may_choose(choice):
    assert run_python(SCRIPT, EVENKEEL_FALLBACK=choice).startswith(ANSWERS[choice])


# ---- errors inside evenkeel ----


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, NotImplementedError])
def test_an_error_of_evenkeel_s_own_is_raised_and_not_left_to_pytorch(error, recorded, fallback, monkeypatch):
    def failing(*call, **options):
        raise error("a defect")

    leave_calls_to_python(monkeypatch)
    monkeypatch.setattr(_kernels._core, "forward", failing)
    x = tensor((4, 8)).requires_grad_(recorded)
    if error is NotImplementedError and x.is_cuda:
        pytest.skip("a GPU that is too old raises it, and PyTorch computes")
    with pytest.raises(error, match="a defect"):
        ek.layer_norm(x, (8,))


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError])
def test_nor_is_a_failure_in_backward(error, monkeypatch):
    def failing(*args, **options):
        raise error("no such thing")

    y = ek.layer_norm(tensor((4, 8)).requires_grad_(), (8,))
    leave_calls_to_python(monkeypatch)
    monkeypatch.setattr(_kernels, "backward", failing)
    with pytest.raises(error, match="no such thing"):
        y.sum().backward()
