"""from_hf: a block of _block.py from a decoder layer of a Hugging Face model. SPDX-License-Identifier: MIT"""

from typing import Any, NamedTuple, cast

import torch
from torch.nn import Linear, Module, Parameter

from evenkeel.torch._block import PreNormBlock, ReorderedNormBlock
from evenkeel.torch._block_options import PRODUCTS, rotation_of


class _Family(NamedTuple):
    """How a decoder layer becomes a block."""

    block: Any
    norms: dict[str, str]  # the names of the block, and those of the layer
    qk_norm: str | None = None
    weight_offset: float = 0.0
    options: dict[str, Any] = {}


_PRE_NORM = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
_OLMO2_NORMS = {"norm1": "post_attention_layernorm", "norm2": "post_feedforward_layernorm"}
_GEMMA3_NORMS = {**_OLMO2_NORMS, "input_norm1": "input_layernorm", "input_norm2": "pre_feedforward_layernorm"}
_FAMILIES = {
    "LlamaDecoderLayer": _Family(PreNormBlock, _PRE_NORM),
    "Qwen3DecoderLayer": _Family(PreNormBlock, _PRE_NORM, qk_norm="rms"),
    "Olmo2DecoderLayer": _Family(ReorderedNormBlock, _OLMO2_NORMS, qk_norm="rms_full"),
    "Gemma3DecoderLayer": _Family(
        ReorderedNormBlock, _GEMMA3_NORMS, qk_norm="rms", weight_offset=1.0, options={"input_norms": True}
    ),
}
_ACTIVATIONS = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
}
# What these layers may have and the blocks lack: the name of an attribute of attention, and its values that change
# nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "sliding_window": (None,),
    "attn_logit_softcapping": (None,),
    "attention_dropout": (None, 0, 0.0),
}


def _family_of(layer: Module) -> _Family:
    family = _FAMILIES.get(type(layer).__name__) if type(layer).__module__.startswith("transformers.") else None
    if family is None:
        shown = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise TypeError(f"from_hf: layer is a {shown}; expected one of {', '.join(_FAMILIES)}")
    return family


def _refuse(layer: Any) -> None:
    attention = layer.self_attn
    for name, harmless in _REFUSED.items():
        value = getattr(attention, name, None)
        if value not in harmless:
            raise NotImplementedError(f"from_hf: {name} of the layer is {value!r}, which the blocks do not have")


def _activation(config: Any) -> str:
    name = next(getattr(config, n) for n in ("hidden_activation", "hidden_act") if hasattr(config, n))
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        text = f"from_hf: the activation is {name!r}, which the blocks do not have; expected {known}"
        raise NotImplementedError(text)
    return _ACTIVATIONS[name]


def _rope(attention: Any) -> dict[str, Any]:
    """The options of RoPE; in transformers 4 a config has rope_theta and rope_scaling."""
    config = attention.config
    parameters = getattr(config, "rope_parameters", None)
    if parameters is None:
        parameters = {"rope_theta": config.rope_theta, **(getattr(config, "rope_scaling", None) or {})}
    parameters = parameters.get(getattr(attention, "layer_type", None), parameters)
    given = {key: value for key, value in parameters.items() if value is not None}
    length = config.max_position_embeddings
    try:
        rotation_of(attention.head_dim, None, False, None, given, length)
    except ValueError as error:
        text = f"from_hf: rope_parameters of the layer are {given}, which the blocks do not have: {error}"
        raise NotImplementedError(text) from None
    return {"rope_scaling": given, "max_position_embeddings": length}


def _sources(layer: Any, family: _Family) -> dict[str, tuple[Any, ...]]:
    """The modules of the layer from which each of the block has its parameters."""
    attention, mlp = layer.self_attn, layer.mlp
    products = {
        "qkv": (attention.q_proj, attention.k_proj, attention.v_proj),
        "out": (attention.o_proj,),
        "up": (mlp.gate_proj, mlp.up_proj),
        "down": (mlp.down_proj,),
    }
    for linear in sum(products.values(), ()):
        if not isinstance(linear, Linear) or type(linear.weight) is not Parameter:
            raise NotImplementedError(f"from_hf: a product of the layer is {linear}; expected a torch.nn.Linear")
    norms = {name: (getattr(layer, source),) for name, source in family.norms.items()}
    if family.qk_norm is not None:
        norms |= {"q_norm": (attention.q_norm,), "k_norm": (attention.k_norm,)}
    return products | norms


def _copy(block: Module, sources: dict[str, tuple[Any, ...]]) -> None:
    """The parameters of the modules, one behind the other, into those of the block."""
    for name, modules in sources.items():
        for kind, parameter in block.get_submodule(name).named_parameters():
            parts = [getattr(module, kind) for module in modules]
            parameter.copy_(torch.cat([part.to(parameter.dtype) for part in parts]))
            parameter.requires_grad_(any(part.requires_grad for part in parts))


def from_hf(layer: Module, *, fused: bool = True) -> PreNormBlock | ReorderedNormBlock:
    """A block with the parameters of a decoder layer of transformers: of Llama, Qwen3, OLMo 2 or Gemma 3.

    For training, without a cache: it takes x alone, and computes the angles of RoPE itself. The parameters are copies,
    as products are packed. What the blocks lack, such as a sliding window or a cap of the attention's logits, is a
    NotImplementedError that names it.
    """
    family = _family_of(layer)
    _refuse(layer)
    attention: Any = layer.self_attn
    sources = _sources(layer, family)
    weight, norm = sources["qkv"][0].weight, sources["norm1"][0]
    block = family.block(
        weight.shape[1],
        weight.shape[0] // attention.head_dim,
        sources["down"][0].in_features,
        kv_heads=sources["qkv"][1].out_features // attention.head_dim,
        head_dim=attention.head_dim,
        norm="rms",
        eps=norm.eps if hasattr(norm, "eps") else norm.variance_epsilon,
        weight_offset=family.weight_offset,
        bias=[name for name in PRODUCTS if sources[name][0].bias is not None],
        activation=_activation(attention.config),
        causal=attention.is_causal,
        scale=attention.scaling,
        qk_norm=family.qk_norm,
        fused=fused,
        device=weight.device,
        dtype=weight.dtype,
        **_rope(attention),
        **family.options,
    )
    with torch.no_grad():
        _copy(block, sources)
    block.train(layer.training)
    return cast(PreNormBlock | ReorderedNormBlock, block)
