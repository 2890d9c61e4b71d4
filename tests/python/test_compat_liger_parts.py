"""evenkeel.compat.liger: RoPE and gated feed-forward layers, with Liger's signatures. SPDX-License-Identifier: MIT"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from compat_cases import DTYPES, bare_signature, check, check_both, tensor
from evenkeel.compat import liger

pytestmark = pytest.mark.usefixtures("no_fallback")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)

ROPE = "(q, k, cos, sin, position_ids=None, unsqueeze_dim=1)"
# As in liger_kernel/transformers: rope.py, swiglu.py, geglu.py and functional.py; of functions of autograd, `apply`.
SIGNATURES = {
    "LigerGEGLUMLP": "(config)",
    "LigerGELUMulFunction": "(a, b)",
    "LigerPhi3SwiGLUMLP": "(config)",
    "LigerRopeFunction": ROPE,
    "LigerSiLUMulFunction": "(a, b, gate_multiplier=1.0, down_multiplier=1.0)",
    "LigerSwiGLUMLP": "(config)",
    "liger_geglu": "(a, b)",
    "liger_rope": ROPE,
    "liger_rotary_pos_emb": ROPE,
    "liger_swiglu": "(a, b)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_liger_s(name):
    given = getattr(liger, name)
    assert bare_signature(given.apply if name.endswith("Function") else given) == SIGNATURES[name]


# ---- RoPE ----


def turned(x, cos, sin):
    """As in transformers' Llama."""
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-b, a), -1) * sin[:, None]


def rope_operands(dtype, table_dtype, batch):
    """q, k, cos and sin; q and k as attention has them, transposed views."""
    q, k = (tensor((2, 5, heads, 8), dtype, heads).transpose(1, 2).requires_grad_() for heads in (4, 2))
    angles = tensor((batch, 5, 4), seed=7)
    tables = (torch.cat((t, t), -1).to(DTYPES[table_dtype]) for t in (angles.cos(), angles.sin()))
    return q, k, *tables


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("table_dtype", ["f32", None])
@every_dtype
def test_liger_rotary_pos_emb(dtype, table_dtype, batch):
    q, k, cos, sin = rope_operands(dtype, table_dtype or dtype, batch)
    exact = cos.double(), sin.double()

    def theirs(q, k):
        return turned(q, *exact), turned(k, *exact)

    results = check_both(lambda q, k: liger.liger_rotary_pos_emb(q, k, cos, sin), theirs, (q, k), dtype)
    assert results[0].dtype is q.dtype and results[0].shape == q.shape
    for other in (liger.liger_rope, liger.LigerRopeFunction.apply):
        again = other(q, k, cos, sin, torch.arange(5)[None], 1)
        assert all(torch.equal(a, b) for a, b in zip(again, results, strict=True))


def test_rope_leaves_q_and_k_as_they_are():
    q, k, cos, sin = rope_operands("f32", "f32", 1)
    before = q.detach().clone(), k.detach().clone()
    liger.liger_rotary_pos_emb(q, k, cos, sin)
    assert torch.equal(q, before[0]) and torch.equal(k, before[1])


def test_tables_of_another_16_bit_dtype_are_widened():
    q, k, cos, sin = rope_operands("f16", "bf16", 1)
    y, _ = liger.liger_rotary_pos_emb(q, k, cos, sin)
    assert y.dtype is torch.float16
    check(y, turned(q.double(), cos.double(), sin.double()), "f16")


# ---- gated feed-forward layers ----


@every_dtype
def test_silu_and_gelu_times_a_value(dtype):
    a, b = (tensor((3, 5, 24), dtype, seed, grad=True) for seed in (1, 2))
    for call in (liger.liger_swiglu, liger.LigerSiLUMulFunction.apply):
        assert check_both(call, lambda a, b: F.silu(a) * b, (a, b), dtype).dtype is a.dtype
    for call in (liger.liger_geglu, liger.LigerGELUMulFunction.apply):
        check_both(call, lambda a, b: F.gelu(a, approximate="tanh") * b, (a, b), dtype)


def test_multipliers_of_falcon_h1():
    a, b = (tensor((3, 24), seed=seed, grad=True) for seed in (1, 2))
    check_both(
        lambda a, b: liger.LigerSiLUMulFunction.apply(a, b, 0.5, 3.0), lambda a, b: 3 * F.silu(a / 2) * b, (a, b)
    )


CONFIG = SimpleNamespace(hidden_size=16, intermediate_size=24, hidden_act="silu")
ACTIVATIONS = {
    "LigerSwiGLUMLP": F.silu,
    "LigerGEGLUMLP": lambda t: F.gelu(t, approximate="tanh"),
    "LigerPhi3SwiGLUMLP": F.silu,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_module_is_its_formula(name):
    module, x = getattr(liger, name)(CONFIG), tensor((3, 5, 16))
    names = ["gate_up_proj"] if "Phi3" in name else ["gate_proj", "up_proj"]
    assert list(module.state_dict()) == [f"{n}.weight" for n in (*names, "down_proj")]
    assert (module.hidden_size, module.intermediate_size, module.config) == (16, 24, CONFIG)
    weights = [getattr(module, n).weight.double() for n in names]
    gate, value = (x.double() @ torch.cat(weights).T).chunk(2, -1)
    check(module(x), ACTIVATIONS[name](gate) * value @ module.down_proj.weight.double().T)


@pytest.mark.parametrize("name", ["LigerSwiGLUMLP", "LigerPhi3SwiGLUMLP"])
def test_another_activation_is_refused(name):
    config = SimpleNamespace(**{**vars(CONFIG), "hidden_act": "gelu"})
    with pytest.raises(ValueError, match=f"{name}: config.hidden_act is 'gelu'; expected 'silu' or 'swish'"):
        getattr(liger, name)(config)
    liger.LigerSwiGLUMLP(SimpleNamespace(**{**vars(CONFIG), "hidden_act": "swish"}))
