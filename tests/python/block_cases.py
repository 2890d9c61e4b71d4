"""What the tests of blocks share. SPDX-License-Identifier: MIT"""

import copy

import torch

import evenkeel.torch as ek
from torch_cases import DEVICE

# Every choice at least once; a name is that of the test.
FORMS = {
    "reordered": (ek.ReorderedNormBlock, {}),
    "reordered rms without biases": (ek.ReorderedNormBlock, {"norm": "rms", "bias": False, "qk_norm": "rms_full"}),
    "input norms": (
        ek.ReorderedNormBlock,
        {"norm": "rms", "weight_offset": 1.0, "input_norms": True, "qk_norm": "rms", "activation": "geglu_tanh"},
    ),
    "pre-norm": (ek.PreNormBlock, {}),
    "pre-norm rms": (ek.PreNormBlock, {"norm": "rms", "bias": False, "qk_norm": "rms", "kv_heads": 2}),
    "some biases": (ek.PreNormBlock, {"norm": "rms", "bias": ("qkv", "down"), "kv_heads": 1}),
    "qk layer norm": (ek.PreNormBlock, {"qk_norm": "layer", "activation": "geglu"}),
    "qk layer norm of all heads": (ek.ReorderedNormBlock, {"qk_norm": "layer_full", "head_dim": 12}),
    "all heads with an offset": (ek.PreNormBlock, {"norm": "rms", "qk_norm": "rms_full", "weight_offset": 1.0}),
    "norms without rope": (ek.PreNormBlock, {"norm": "rms", "rope": False, "qk_norm": "rms", "weight_offset": 1.0}),
    "not gated": (ek.PreNormBlock, {"activation": "gelu", "rope": False, "causal": False, "scale": 0.2}),
    "gelu tanh": (ek.ReorderedNormBlock, {"activation": "gelu_tanh", "interleaved": True}),
    "part of a head": (ek.PreNormBlock, {"rotary_dim": 4, "interleaved": True, "activation": "silu"}),
    "scaled angles": (ek.PreNormBlock, {"rope_theta": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
}


def block_of(form, dtype=torch.float32, seed=0, **options):
    """A block whose norms and biases are not those that it starts with."""
    cls, chosen = FORMS[form]
    torch.manual_seed(seed)
    block = cls(32, 4, 48, **{**chosen, **options})
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0, 0.2) if parameter.dim() == 2 else parameter.add_(0.2 * torch.randn_like(parameter))
    return block.to(DEVICE, dtype)


def twin(block, fused, dtype=None):
    """A copy that is fused or not, in another dtype."""
    other = copy.deepcopy(block).to(dtype)
    other.fused = fused
    return other


def example(shape=(2, 9, 32), dtype=torch.float32, seed=1):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(DEVICE, dtype)


def step(block, x, dy, **options):
    """out, dx, and the gradients of the parameters by their names."""
    x = x.detach().clone().requires_grad_()
    block.zero_grad()
    out = block(x, **options)
    out.backward(dy)
    return {"out": out.detach(), "x": x.grad, **{name: p.grad for name, p in block.named_parameters()}}
