"""What evenkeel cannot compute and PyTorch can: PyTorch does, with one warning, or an error where that is asked for.
SPDX-License-Identifier: MIT"""

import warnings

import pytest
import torch
import torch.nn.functional as F

import evenkeel.torch as ek
from evenkeel.torch import _kernels
from torch_cases import DEVICE, close, gradients, leave_calls_to_python, run_python, tensor


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
def test_it_is_an_error_where_that_is_asked_for(name, fallback):
    fallback("error")
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


def test_what_was_set_before_is_returned(fallback):
    assert fallback("error") == "warn" and fallback("silent") == "error" and fallback("warn") == "silent"


def test_another_choice_is_refused_and_changes_nothing(fallback):
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("recorded", [False, True], ids=["no gradient", "gradient"])
@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError, NotImplementedError])
def test_an_error_of_evenkeel_s_own_is_raised_and_not_left_to_pytorch(error, recorded, fallback, monkeypatch):
    def failing(*call):
        raise error("a defect")

    leave_calls_to_python(monkeypatch)
    monkeypatch.setattr(_kernels._core, "forward", failing)
    x = torch.ones(4, 8).requires_grad_(recorded)
    with pytest.raises(error, match="a defect"):
        ek.layer_norm(x, (8,))


def test_mistakes_stay_mistakes(fallback):
    fallback("error")
    with pytest.raises(RuntimeError, match="Given normalized_shape"):
        ek.layer_norm(tensor((4, 8)), (7,))


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_nothing_is_told_where_there_is_nothing_to_compute(op, fallback):
    fallback("error")
    norm = getattr(ek, op)
    y = norm(torch.empty(4, 8, device="meta"), (8,), torch.empty(8, device="meta"))
    assert y.is_meta and y.shape == (4, 8)
    assert norm(torch.empty(4, 0, device=DEVICE), (0,)).shape == (4, 0)


def test_watched_calls_are_no_fallback(fallback):
    fallback("error")
    close(torch.func.vmap(lambda x: ek.layer_norm(x, (8,)))(tensor((4, 8))), F.layer_norm(tensor((4, 8)), (8,)))


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
