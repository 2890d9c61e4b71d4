"""replace on RoPE and gated feed-forward layers of Hugging Face's models. SPDX-License-Identifier: MIT"""

import inspect
import weakref

import pytest
import torch
from torch import nn

import evenkeel.torch as ek
from evenkeel.torch._rope_spec import NAME
from replace_cases import COPIES, classes, copied, example

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "vocab_size": 60,
    "pad_token_id": 0,
}
# The options beside the sizes, and how many norms there are.
MODELS = {
    "Llama": ({}, 5),
    "Mistral": ({}, 5),
    "Qwen2": ({}, 5),
    "Qwen3": ({}, 9),
    "Gemma2": ({}, 9),
    "Gemma3": ({}, 13),
    "Olmo2": ({}, 9),
    "Phi3": ({"partial_rotary_factor": 0.5}, 5),
    "GptOss": ({"num_local_experts": 4, "num_experts_per_tok": 2}, 5),
    "Glm4": ({}, 9),
}
KINDS = "layer_norm", "rms_norm", "rope", "glu"
every_model = pytest.mark.parametrize("family", MODELS)


def model_of(family, **options):
    transformers = pytest.importorskip("transformers")
    name = next(n for n in (f"{family}TextConfig", f"{family}Config") if hasattr(transformers, n))
    torch.manual_seed(0)
    config = getattr(transformers, name)(**SIZES, **MODELS[family][0], **options)
    model = getattr(transformers, name.replace("Config", "Model"))(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0, 0.3)
    return model.train()


def results(model):
    """The hidden states, and the gradients of the parameters."""
    model.zero_grad()
    tokens = torch.arange(1, 21).view(2, 10)
    y = model(tokens, use_cache=False).last_hidden_state
    y.backward(example(y.shape, y.dtype))
    return {"y": y.detach(), **{name: p.grad for name, p in model.named_parameters() if p.grad is not None}}


def close(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        largest = max(1.0, expected[name].abs().max().item())
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5 * largest, msg=name)


def counts(calls):
    """How often each function was called, by name."""
    return {name: len(seen) for name, seen in calls.items()}


@pytest.fixture
def calls(monkeypatch):
    """The calls of evenkeel's rope and glu."""
    from evenkeel.torch import _glu_spec, _rope_spec

    seen = {"rope": [], "glu": []}
    for module, name in ((_rope_spec, "rope"), (_glu_spec, "glu")):
        own = getattr(module, name)

        def counted(*args, own=own, name=name, **options):
            seen[name].append(options)
            return own(*args, **options)

        monkeypatch.setattr(module, name, counted)
    return seen


@every_model
def test_a_model_computes_the_same_with_all_kinds(family, calls):
    model = model_of(family)
    names, expected = classes(model), results(model)
    count = MODELS[family][1] + 4  # the attention and the feed-forward layer of two layers
    assert ek.replace(model, KINDS) == count
    for seen in calls.values():
        seen.clear()  # the comparison of classes
    close(results(model), expected)
    assert counts(calls)["rope"] == 2 and counts(calls)["glu"] >= 2
    assert [cls.__name__ for cls in classes(model)] == [cls.__name__ for cls in names]
    assert ek.restore(model) == count and classes(model) == names
    close(results(model), expected)


@pytest.mark.parametrize(
    "kinds, count", [("rope", 2), ("glu", 2), (("rope", "glu"), 4), (("layer_norm", "rms_norm"), 5)]
)
def test_kinds_choose_parts(kinds, count):
    model = model_of("Llama")
    assert ek.replace(model, kinds) == count and ek.restore(model) == count


def test_norms_alone_are_the_default():
    model = model_of("Llama")
    assert ek.replace(model) == 5
    assert ek.replace(model, KINDS) == 4  # and the rest later


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "Gemma3", "GptOss", "Glm4"])
def test_a_replaced_model_generates_the_same(family):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_config(model_of(family).config).eval()
    tokens, options = torch.arange(1, 21).view(2, 10), {"max_new_tokens": 8, "do_sample": False}
    expected = model.generate(tokens, **options)
    ek.replace(model, KINDS)
    assert torch.equal(model.generate(tokens, **options), expected)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["eager", "batched_mm", "grouped_mm"])
def test_experts_by_every_implementation(implementation):
    model = model_of("GptOss")
    if not hasattr(model, "set_experts_implementation"):
        pytest.skip("this transformers has one implementation")
    model.set_experts_implementation(implementation)
    expected = results(model)
    assert ek.replace(model, "glu") == 2
    close(results(model), expected)


@pytest.mark.slow
def test_a_replaced_model_trains_with_checkpoints():
    model = model_of("Llama")
    ek.replace(model, KINDS)
    expected = results(model)
    model.gradient_checkpointing_enable()
    close(results(model), expected)


def test_a_bfloat16_model_stays_one():
    model = model_of("Llama").bfloat16()
    expected = results(model)
    ek.replace(model, ("rope", "glu"))
    found = results(model)
    for name in ("y", "layers.0.self_attn.q_proj.weight", "layers.0.mlp.up_proj.weight"):
        assert found[name].dtype is torch.bfloat16
        difference = (found[name] - expected[name]).float().norm() / expected[name].float().norm()
        assert difference < 3e-2


# ---- RoPE ----


def test_another_model_of_the_same_file_keeps_its_function(calls):
    module = pytest.importorskip("transformers.models.llama.modeling_llama")
    own = module.apply_rotary_pos_emb
    replaced, other = model_of("Llama"), model_of("Llama")
    ek.replace(replaced, "rope")
    assert module.apply_rotary_pos_emb is own and inspect.getmodule(own) is module
    calls["rope"].clear()
    results(other)
    assert not calls["rope"]
    results(replaced)
    assert len(calls["rope"]) == 2


def test_forward_of_a_replaced_class_is_the_same_code():
    model = model_of("Llama")
    own = type(model.layers[0].self_attn).forward
    ek.replace(model, "rope")
    forward = type(model.layers[0].self_attn).forward
    assert forward.__code__ is own.__code__ and inspect.signature(forward) == inspect.signature(own)
    ours, theirs = forward.__globals__[NAME], own.__globals__[NAME]
    assert ours is not theirs and ours.__wrapped__ is theirs


def test_what_rope_lacks_is_the_file_s_own_function(calls):
    model = model_of("Llama")
    function = type(model.layers[0].self_attn).forward.__globals__[NAME]
    ek.replace(model, "rope")
    ours = type(model.layers[0].self_attn).forward.__globals__[NAME]
    calls["rope"].clear()
    q, k, cos, sin = (example(shape) for shape in [(2, 4, 5, 8), (2, 2, 5, 8), (2, 5, 8), (2, 5, 8)])
    cos, sin = (torch.cat((t[..., :4], t[..., :4]), -1) for t in (cos, sin))
    for arguments in ((q[0], k[0], cos[0], sin[0], 0), (q, k, cos[0], sin[0], 0)):
        assert all(torch.equal(a, b) for a, b in zip(ours(*arguments), function(*arguments), strict=True))
    assert not calls["rope"]
    for layout in (1, 2):
        given = (q, k) if layout == 1 else (q.transpose(1, 2), k.transpose(1, 2))
        torch.testing.assert_close(ours(*given, cos, sin, layout), function(*given, cos, sin, unsqueeze_dim=layout))
    wide = ours(q.bfloat16(), k.bfloat16(), cos, sin)
    assert wide[0].dtype is function(q.bfloat16(), k.bfloat16(), cos, sin)[0].dtype is torch.float32
    assert len(calls["rope"]) == 3


# ---- gated feed-forward layers ----


def mlp_of(activation):
    transformers = pytest.importorskip("transformers")
    module = pytest.importorskip("transformers.models.llama.modeling_llama")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4}
    return module.LlamaMLP(transformers.LlamaConfig(**sizes, hidden_act=activation))


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "sigmoid"])
def test_every_activation_that_glu_has(activation):
    mlp, x = mlp_of(activation), example((3, 16))
    before = mlp(x)
    assert ek.replace(mlp, "glu") == 1
    torch.testing.assert_close(mlp(x), before, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mlp(x=x), before, rtol=1e-5, atol=1e-5)


def test_an_activation_that_glu_lacks_is_left_alone():
    assert ek.replace(mlp_of("mish"), "glu") == 0


def test_hooks_and_wrappers_of_products_stay():
    mlp, x = mlp_of("silu"), example((3, 16))
    mlp.up_proj.register_forward_hook(lambda module, args, y: 2 * y)
    mlp.down_proj = nn.Sequential(mlp.down_proj, nn.ReLU())
    before = mlp(x)
    assert ek.replace(mlp, "glu") == 1
    torch.testing.assert_close(mlp(x), before, rtol=1e-5, atol=1e-5)


def test_a_class_that_computes_something_else_is_left_with_a_warning():
    mlp = mlp_of("silu")
    members = {"forward": lambda self, x: self.down_proj(self.gate_proj(x) * self.up_proj(x))}
    mlp.__class__ = type("LlamaMLP", (type(mlp),), {"__module__": "transformers.of_a_test", **members})
    with pytest.warns(RuntimeWarning, match="replace left .*LlamaMLP as it is: the largest difference is"):
        assert ek.replace(mlp, "glu") == 0


def test_the_comparison_leaves_the_random_state_alone(monkeypatch):
    monkeypatch.setattr("evenkeel.torch._replace._verdicts", weakref.WeakKeyDictionary())  # nothing is compared yet
    mlp, state = mlp_of("silu"), torch.get_rng_state()
    assert ek.replace(mlp, "glu") == 1
    assert torch.equal(torch.get_rng_state(), state)


# ---- copies ----


@pytest.mark.parametrize("name", ["copy", "pickle 2"])
def test_a_copy_is_replaced_too(name):
    model = model_of("Llama")
    ek.replace(model, KINDS)
    twin = copied(model, COPIES[name])
    assert classes(twin) == classes(model)
    close(results(twin), results(model))
    assert ek.restore(twin) == 9


@pytest.mark.slow
def test_a_compiled_model_gives_the_same():
    model = model_of("Llama").eval()
    tokens = torch.arange(1, 21).view(2, 10)
    ek.replace(model, KINDS)
    expected = model(tokens, use_cache=False).last_hidden_state
    found = torch.compile(model, backend="eager")(tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
