"""What the tests of evenkeel.torch share: the norms beside PyTorch's own, operands, comparisons.
Tensors are on $EVENKEEL_TEST_DEVICE, by default the CPU. SPDX-License-Identifier: MIT"""

import os
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch.utils._pytree import tree_map_only

import evenkeel.torch as ek
from evenkeel.torch import _autograd, _functional, _kernels
from reference import TOLERANCE, array

DEVICE = os.environ.get("EVENKEEL_TEST_DEVICE", "cpu")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Norm(NamedTuple):
    """One of the norms with one choice of what is affine; bias is None for RMSNorm."""

    op: str
    has_weight: bool
    has_bias: bool

    def _call(self, library, x, shape, weight, bias, eps):
        function = getattr(library, self.op)
        operands = (weight, bias) if self.op == "layer_norm" else (weight,)
        return function(x, shape, *operands, eps)

    def ours(self, x, shape, weight=None, bias=None, eps=1e-5):
        return self._call(ek, x, shape, weight, bias, eps)

    def theirs(self, x, shape, weight=None, bias=None, eps=1e-5):
        return self._call(F, x, shape, weight, bias, eps)

    def rows(self, x, weight=None, bias=None, eps=1e-5):
        """ours, over the last dimension."""
        return self.ours(x, x.shape[-1:], weight, bias, eps)

    def operands(self, shape, dtype="f32"):
        """(x, weight, bias) for rows."""
        return tensor(shape, dtype), *self.affine(shape[-1:], dtype)

    def affine(self, shape, dtype="f32"):
        """(weight, bias), each None where this norm has none."""
        weight = tensor(shape, dtype, seed=11) if self.has_weight else None
        return weight, tensor(shape, dtype, seed=12) if self.has_bias else None

    @property
    def statistics(self):
        """Of a row."""
        return 3 if self.op == "layer_norm" else 1

    def __str__(self):
        words = [word for word, there in (("weight", self.has_weight), ("bias", self.has_bias)) if there]
        return " ".join([self.op, *words])


LAYER, RMS = Norm("layer_norm", True, True), Norm("rms_norm", True, False)
NORMS = [Norm("layer_norm", *has) for has in ((False, False), (True, False), (False, True), (True, True))]
NORMS += [Norm("rms_norm", False, False), RMS]

every_norm = pytest.mark.parametrize("norm", NORMS, ids=str)
both_norms = pytest.mark.parametrize("norm", [LAYER, RMS], ids=str)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
cpu_only = pytest.mark.skipif(DEVICE != "cpu", reason="about the CPU")
gpu_only = pytest.mark.skipif(DEVICE == "cpu", reason="about a GPU")
exchange_only = pytest.mark.skipif(not _kernels.HAS_EXCHANGE, reason="this PyTorch has no C exchange API")


def tensor(shape, dtype="f32", seed=0, scale=1.0, offset=0.0):
    """Normal numbers, the same for the same arguments."""
    return torch.from_numpy(array(shape, "f64", seed, scale, offset)).to(DEVICE, DTYPES[dtype])


@st.composite
def strided(draw, dtype):
    """A tensor of any shape, its dimensions permuted, some expanded, some read in steps."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    steps = [draw(st.integers(1, 3)) for _ in sizes]
    order = draw(st.permutations(range(len(sizes))))
    expanded = [draw(st.booleans()) and draw(st.booleans()) for _ in sizes]
    base = [1 if is_wide else size * step for size, step, is_wide in zip(sizes, steps, expanded, strict=True)]
    x = tensor(base, dtype, seed=draw(st.integers(0, 99)))
    x = x[tuple(slice(None, None, 1 if is_wide else step) for step, is_wide in zip(steps, expanded, strict=True))]
    return x.expand(sizes).permute(order)


@st.composite
def any_call(draw):
    """(norm, x, normalized shape, weight, bias): a norm with operands of any dtype that go together, x strided."""
    dtype, norm = draw(st.sampled_from(sorted(DTYPES))), draw(st.sampled_from(NORMS))
    x = draw(strided(dtype))
    shape = tuple(x.shape[-draw(st.integers(1, x.dim())) :])
    has_f32_weights = dtype in ("f16", "bf16") and draw(st.booleans())
    return norm, x, shape, *norm.affine(shape, "f32" if has_f32_weights else dtype)


def wide(*tensors):
    """The same values in float64, without history."""
    return [None if t is None else t.detach().double() for t in tensors]


def close(result, expected, dtype=None):
    """Is result what float64 says, within the precision of its dtype (or of the one given)?"""
    assert result.shape == expected.shape
    limit = TOLERANCE[dtype or NAMES[result.dtype]] * max([1.0, *expected.detach().double().abs().flatten().tolist()])
    worst = max([0.0, *(result.detach().double() - expected.detach().double()).abs().flatten().tolist()])
    assert worst <= limit, f"differs by {worst}, more than {limit}"


def bits(tensor):
    """A copy, as a tensor of one element may be contiguous with any strides, and then cannot be viewed as bytes."""
    return tensor.detach().cpu().resolve_neg().clone(memory_format=torch.contiguous_format).view(torch.uint8)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def all_same(found, expected):
    """Are both lists the same tensors to the bit, with None at the same places?"""
    return all(a is b is None or same_bits(a, b) for a, b in zip(found, expected, strict=True))


def require_gradients(*tensors):
    """Copies of the tensors, as leaves."""
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def gradients(call, operands, dy):
    """The gradients of call(*operands), None for what is None."""
    leaves = require_gradients(*operands)
    call(*leaves).backward(dy)
    return [None if leaf is None else leaf.grad for leaf in leaves]


class Wrapped(torch.Tensor):
    """A tensor that has another one in place of memory; it notes the operations that PyTorch shows it."""

    seen = []

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), requires_grad=inner.requires_grad, **layout)

    def __init__(self, inner):
        self.inner = inner.detach()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(function)
        args, kwargs = tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, function(*args, **kwargs))


EAGER = "eager_forward", "eager_add_forward", "eager_after_forward", "eager_act_forward", "eager_gated_forward"


class Kernels:
    """Counts how often evenkeel's kernels compute, called from Python or by the eager calls in C, and keeps the name of
    the last."""

    def __init__(self, monkeypatch):
        self.forward = self.backward = 0
        self._left = []  # for each call that is under way: was it left to Python?
        for module, function, name in (
            (_kernels, "forward", "forward"),
            (_kernels, "backward", "backward"),
            *((_functional, forward, "forward") for forward in EAGER),
        ):
            monkeypatch.setattr(module, function, self._counting(name, getattr(module, function)))
        for op, compute in _functional._COMPUTE.items():
            monkeypatch.setitem(_functional._COMPUTE, op, self._counting("forward", compute))
        self._note_what_is_left(monkeypatch)
        self._count_eager_backward(monkeypatch)
        monkeypatch.setattr(_kernels, "run", self._counting_runs(_kernels.run))

    def _note_what_is_left(self, monkeypatch):
        """A call that C leaves to Python asks this first. A compiled one may not have come by a function of ours."""
        is_seen = _functional.has_torch_function_variadic

        def noted(*given):
            self._left[-1:] = [True]
            return is_seen(*given)

        monkeypatch.setattr(_functional, "has_torch_function_variadic", noted)

    def _counting(self, name, function):
        def counted(*args, **options):
            self._left.append(False)
            served = False
            try:
                result = function(*args, **options)
                served = result is not None  # else an eager call that left it to others
            except torch.utils.checkpoint._StopRecomputationError:  # raised once y is there
                served = True
                raise
            finally:
                if not self._left.pop() and served:
                    self._count(name, function.__name__)
            return result

        return counted

    def _counting_runs(self, run):
        """Of ops that recompute, whose kernels are functions of the extension."""

        def counted(function, *given):
            run(function, *given)
            self._count(function.__name__.rpartition("_")[2], function.__name__)

        return counted

    def _count(self, name, function):
        setattr(self, name, getattr(self, name) + 1)
        self.last = function

    def _count_eager_backward(self, monkeypatch):
        """It calls Python for what it leaves to others: then they count, and it does not."""
        way_of_python, left = _autograd._in_python, []
        monkeypatch.setattr(_autograd, "_in_python", lambda *call: left.append(1) or way_of_python(*call))

        def counting(eager):
            def counted(ctx, *gradients):
                left.clear()
                result = eager(ctx, *gradients)
                if not left:
                    self._count("backward", eager.__name__)
                return result

            return staticmethod(counted)

        for node in _autograd.NODES.values():
            monkeypatch.setattr(node, "backward", counting(node.backward))


def leave_calls_to_python(monkeypatch):
    """No call is served in C: all go the way of those that the extension leaves to evenkeel.torch."""
    for name, op in zip(EAGER, _functional.OPS, strict=True):
        monkeypatch.setattr(_functional, name, partial(_functional._leave, op))
        monkeypatch.setitem(_functional._COMPUTE, op, lambda *call: None)
    for op, node in _autograd.NODES.items():
        monkeypatch.setattr(node, "backward", staticmethod(partial(_autograd.backward_in_python, op)))
