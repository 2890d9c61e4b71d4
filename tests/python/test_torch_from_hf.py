"""from_hf: a decoder layer of a Hugging Face model as a block. SPDX-License-Identifier: MIT"""

import functools

import pytest
import torch
from torch import nn

import evenkeel.torch as ek
from replace_cases import example as example_of

example = functools.partial(example_of, (2, 9, 32), torch.float32)
FAMILIES = ["Llama", "Qwen3", "Olmo2", "Gemma3"]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def layer_of(family, **options):
    """(a decoder layer with random parameters, its cos and sin for 9 tokens)"""
    transformers = pytest.importorskip("transformers")
    module = pytest.importorskip(f"transformers.models.{family.lower()}.modeling_{family.lower()}")
    name = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    if family == "Gemma3":
        options = {"layer_types": ["full_attention"], **options}
    config = getattr(transformers, name)(**{**SIZES, "num_hidden_layers": 1, **options})
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    layer = getattr(module, f"{family}DecoderLayer")(config, 0).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            nn.init.normal_(parameter, 0, 0.3)
    rotary = getattr(module, f"{family}RotaryEmbedding")(config)
    which = {"layer_type": config.layer_types[0]} if family == "Gemma3" else {}
    return layer, rotary(example(), torch.arange(9)[None], **which)


def results(module, x, dy, **options):
    x = x.clone().requires_grad_()
    y = module(x, **options)
    y.backward(dy)
    return y.detach(), x.grad


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_block_is_the_layer(family, fused):
    layer, embeddings = layer_of(family)
    block, x, dy = ek.from_hf(layer, fused=fused), example(), example(seed=2)
    expected = results(layer, x, dy, position_embeddings=embeddings, attention_mask=None)
    torch.testing.assert_close(results(block, x, dy), expected, rtol=1e-5, atol=1e-5)
    gradients = {name: p.grad for name, p in layer.named_parameters()}
    packed = [gradients[f"self_attn.{name}_proj.weight"] for name in "qkv"]
    torch.testing.assert_close(block.qkv.weight.grad, torch.cat(packed), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(block.down.weight.grad, gradients["mlp.down_proj.weight"], rtol=1e-5, atol=1e-5)
    assert sum(p.numel() for p in block.parameters()) == sum(p.numel() for p in layer.parameters())


OPTIONS = {
    "biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "attention biases": ("Qwen3", {"attention_bias": True}),
    "gelu": ("Llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "angles of Llama 3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "scale": ("Gemma3", {"query_pre_attn_scalar": 20}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_config_come_along(name):
    family, options = OPTIONS[name]
    layer, embeddings = layer_of(family, **options)
    expected = layer(example(), position_embeddings=embeddings, attention_mask=None)
    torch.testing.assert_close(ek.from_hf(layer)(example()), expected, rtol=1e-5, atol=1e-5)


def test_dtype_mode_and_frozen_parameters_come_along():
    layer, _ = layer_of("Llama")
    layer.bfloat16().train().mlp.requires_grad_(False)
    block = ek.from_hf(layer)
    assert block.training and {p.dtype for p in block.parameters()} == {torch.bfloat16}
    assert not block.up.weight.requires_grad and block.qkv.weight.requires_grad


REFUSED = {
    "sliding_window of the layer is 4096": ("Gemma3", {"layer_types": ["sliding_attention"]}),
    "attn_logit_softcapping of the layer is 50.0": ("Gemma3", {"attn_logit_softcapping": 50.0}),
    "attention_dropout of the layer is 0.1": ("Llama", {"attention_dropout": 0.1}),
    "the activation is 'relu'": ("Llama", {"hidden_act": "relu"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_block_lacks_is_refused_by_name(message):
    family, options = REFUSED[message]
    with pytest.raises(NotImplementedError, match=f"from_hf: {message}, which the blocks do not have"):
        ek.from_hf(layer_of(family, **options)[0])


def test_angles_that_a_block_lacks_are_refused():
    layer, _ = layer_of("Llama")
    layer.self_attn.config.rope_parameters = {"rope_type": "longrope", "rope_theta": 10000.0}
    with pytest.raises(NotImplementedError, match="rope_parameters of the layer are .*longrope.* not have: rope_type"):
        ek.from_hf(layer)


def test_products_that_are_not_linear_are_refused():
    layer, _ = layer_of("Llama")
    layer.mlp.up_proj = nn.Sequential(layer.mlp.up_proj)
    with pytest.raises(NotImplementedError, match="a product of the layer is Sequential"):
        ek.from_hf(layer)


def test_another_layer_is_a_type_error():
    with pytest.raises(TypeError, match="layer is a torch.nn.*Linear; expected one of LlamaDecoderLayer, Qwen3"):
        ek.from_hf(nn.Linear(2, 2))
