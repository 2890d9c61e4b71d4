"""replace on Hugging Face's norms: the table, the bits and the dtypes. SPDX-License-Identifier: MIT"""

import ast
import inspect
import pathlib
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import evenkeel.torch as ek
from evenkeel.torch import _huggingface
from evenkeel.torch._norm_spec import NormSpec
from evenkeel.torch._replace_check import ulp_apart
from replace_cases import COPIES, classes, copied, example

ROOT = pathlib.Path(__file__).parents[2]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float64: 1e-12}


@pytest.fixture(scope="module")
def llama():
    return pytest.importorskip("transformers.models.llama.modeling_llama")


@pytest.fixture
def llama_norm(llama):
    norm = llama.LlamaRMSNorm(32, eps=1e-3)
    nn.init.normal_(norm.weight)
    return norm


# ---- models ----


def small_model(family, **options):
    transformers = pytest.importorskip("transformers")
    if family == "T5":
        config = transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=60)
        return transformers.T5EncoderModel(config).eval()
    name, *_ = (n for n in (f"{family}TextConfig", f"{family}Config") if hasattr(transformers, n))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 60, "head_dim": 8}
    config = getattr(transformers, name)(num_hidden_layers=2, num_key_value_heads=2, pad_token_id=0, **sizes, **options)
    return getattr(transformers, name.replace("Config", "Model"))(config).eval()


def with_random_norms(model):
    for module in model.modules():
        if "Norm" in type(module).__name__:
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, 0.5)
    return model


@pytest.mark.parametrize(
    "family, count",
    [
        ("Llama", 5),
        ("Qwen3", 9),
        ("Olmo2", 9),
        ("T5", 5),
        ("Gemma", 5),
        ("Gemma2", 9),
        ("Gemma3", 13),
        ("Cohere", 3),
        ("Olmo", 5),
    ],
)
def test_the_norms_of_hugging_face_models(family, count):
    model, tokens = with_random_norms(small_model(family)), torch.arange(20).view(2, 10)
    before, names = model(tokens).last_hidden_state, classes(model)
    assert ek.replace(model) == count
    torch.testing.assert_close(model(tokens).last_hidden_state, before, rtol=1e-4, atol=1e-5)
    assert [cls.__name__ for cls in classes(model)] == [cls.__name__ for cls in names]
    assert ek.restore(model) == count and classes(model) == names


def test_weights_per_head_are_left_alone():
    model = small_model("Cohere", use_qk_norm=True)
    assert model.layers[0].self_attn.q_norm.weight.dim() == 2
    assert ek.replace(model) == 3 and isinstance(model.norm, type(model.layers[0].self_attn.q_norm))


# ---- bits ----


def bits_apart(norm, *inputs):
    """How many ulp evenkeel's results are from those of its own forward, and these."""
    with torch.no_grad():
        own = norm(*inputs)
        assert ek.replace(norm) == 1
        return ulp_apart(norm(*inputs), own), own


def check_bits(norm, x, most, *gate):
    """The bits of its own forward in 99.99 % of the elements, and at most so many ulp apart in the others."""
    apart, _ = bits_apart(norm, x, *gate)
    assert (apart != 0).float().mean() <= 1e-4 and apart.max() <= most


def check_layer_norm_bits(norm, x):
    """As documented: near x's mean, where results are near 0, they may be more than an ulp apart."""
    apart, own = bits_apart(norm, x)
    share = 3e-4 if x.dtype is torch.bfloat16 else 2e-3
    assert (apart != 0).float().mean() <= share and (apart > 1).float().mean() <= 2e-4
    assert apart[own.abs() > 0.01].max() <= 1


ROUND_TWICE = ["llama.LlamaRMSNorm", "llama4.Llama4TextRMSNorm", "t5.T5LayerNorm", "qwen3.Qwen3RMSNorm"]
ROUND_ONCE = ["gemma2.Gemma2RMSNorm", "olmo2.Olmo2RMSNorm", "gemma3n.Gemma3nRMSNorm"]


def made(cls, size):
    """An instance of that width; 8 groups, where it has groups."""
    return cls(size, size // 8) if "group_size" in inspect.signature(cls).parameters else cls(size)


def norm_of(path, size):
    module, name = path.split(".")
    return made(getattr(pytest.importorskip(f"transformers.models.{module}.modeling_{module}"), name), size)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("path", ROUND_TWICE + ROUND_ONCE)
def test_a_16_bit_norm_keeps_its_bits(path, dtype):
    x = example((256, 4096), dtype)
    weight = 1 + 0.1 * example((4096,), seed=1)
    norm = norm_of(path, 4096).to(dtype)
    check_bits(norm, x, 1)  # with the weights that it starts with
    ek.restore(norm)
    norm.weight.data = weight.to(dtype)
    check_bits(norm, x, 2 if path in ROUND_TWICE else 1)  # one place of the normalized value can be two of the product


GATED_NORMS = ["qwen3_next.Qwen3NextRMSNormGated", "mamba2.MambaRMSNormGated", "zamba2.Zamba2RMSNormGated"]


@pytest.mark.parametrize("path", [*GATED_NORMS, "kimi_linear.KimiLinearRMSNormGated"])
def test_a_gated_norm_keeps_its_bits(path, kernels):
    norm = norm_of(path, 4096).bfloat16()
    norm.weight.data = (1 + 0.1 * example((4096,), seed=1)).bfloat16()
    x, gate = example((256, 4096), torch.bfloat16), example((256, 4096), torch.bfloat16, seed=2)
    check_bits(norm, x, 2, gate)
    before = kernels.forward
    assert torch.equal(norm(x, gate), norm(x, gate=gate)) and kernels.forward == before + 2


@pytest.mark.parametrize("path", GATED_NORMS)
def test_gated_calls_that_evenkeel_lacks_are_the_class_s_own(path):
    """Without a gate, with one of another dtype, and with names of both arguments."""
    norm, x, gate = norm_of(path, 64), example((5, 64), torch.bfloat16), example((5, 64), seed=1)
    calls = [lambda: norm(x, gate), lambda: norm(hidden_states=x, gate=gate.bfloat16())]
    calls += [] if "qwen" in path else [lambda: norm(x), lambda: norm(x, None)]
    before = [call() for call in calls]
    assert ek.replace(norm) == 1
    assert all(torch.equal(call(), y) and call().dtype is y.dtype for call, y in zip(calls, before, strict=True))


def test_a_gated_norm_has_gradients(kernels):
    norm, inputs = norm_of("mamba2.MambaRMSNormGated", 64), [example((5, 64), seed=s).requires_grad_() for s in (0, 1)]
    expected = torch.autograd.grad(norm(*inputs).sum(), [*inputs, norm.weight])
    ek.replace(norm)
    found = torch.autograd.grad(norm(*inputs).sum(), [*inputs, norm.weight])
    torch.testing.assert_close(found, expected)
    assert kernels.backward == 1


def layer_norm_of(path, dtype):
    norm = norm_of(path, 4096).to(dtype)
    if norm.state_dict():
        norm.weight.data = (1 + 0.1 * example((4096,), seed=1)).to(dtype)
    return norm


@pytest.mark.parametrize("mean", [0, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("path", ["cohere.CohereLayerNorm", "olmo.OlmoLayerNorm"])
def test_a_16_bit_layer_norm_keeps_its_bits(path, dtype, mean):
    x = (example((256, 4096)) + mean).to(dtype)
    check_layer_norm_bits(layer_norm_of(path, dtype), x)


def test_a_llama_norm_that_rounded_once_would_have_other_bits(llama):
    x, norm = example((64, 4096), torch.bfloat16), llama.LlamaRMSNorm(4096).bfloat16()
    norm.weight.data = (1 + 0.1 * example((4096,), seed=1)).bfloat16()
    once = ek.rms_norm(x, (4096,), norm.weight, norm.variance_epsilon)
    assert (ulp_apart(once, norm(x)) != 0).float().mean() > 0.05


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_llama_norm_becomes_rms_norm(llama_norm, dtype):
    norm, x = llama_norm.to(dtype), example((3, 4, 32), dtype)
    before = norm(x)
    assert ek.replace(norm) == 1
    expected = ek.rms_norm(x, (32,), norm.weight, 1e-3, rounding="each")
    assert torch.equal(norm(x), expected) and norm(x).dtype is before.dtype
    torch.testing.assert_close(norm(x), before, rtol=max(TOLERANCE[dtype], 1e-5), atol=max(TOLERANCE[dtype], 1e-5))


def test_a_norm_without_a_weight():
    modeling = pytest.importorskip("transformers.models.gemma3n.modeling_gemma3n")
    norm, x = modeling.Gemma3nRMSNorm(32, with_scale=False), example((3, 32))
    before = norm(x)
    assert ek.replace(norm) == 1
    torch.testing.assert_close(norm(x), before)
    assert torch.equal(norm(x), ek.rms_norm(x, (32,), None, norm.eps))


# ---- dtypes ----


@pytest.mark.parametrize("path", ["llama.LlamaRMSNorm", "t5.T5LayerNorm", "gemma2.Gemma2RMSNorm"])
@pytest.mark.parametrize(
    "weight, x",
    [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)],
    ids=str,
)
def test_where_dtypes_differ_the_result_has_the_dtype_it_had(path, weight, x):
    norm, x = norm_of(path, 32).to(weight), example((30, 32), x)
    nn.init.normal_(norm.weight)
    before = norm(x)
    assert ek.replace(norm) == 1 and norm(x).dtype is before.dtype
    torch.testing.assert_close(norm(x), before, rtol=1e-6, atol=1e-6)  # of llama, xhat rounds to bfloat16 in both


def test_a_llama_norm_with_float32_weights_is_evenkeels(llama_norm):
    x = example((3, 32), torch.bfloat16).requires_grad_()
    assert llama_norm(x).grad_fn.name() != "NormBackward"
    ek.replace(llama_norm)
    y = llama_norm(x)
    assert y.dtype is torch.float32 and y.grad_fn.name() == "NormBackward"


def test_autocast_does_not_change_a_llama_norm(llama_norm, casting, monkeypatch):
    monkeypatch.setattr("evenkeel.torch._functional._casts", lambda op, device: True)  # as where rms_norm is cast
    norm, x = llama_norm.bfloat16(), example((3, 32), torch.bfloat16)
    ek.replace(norm)
    expected = norm(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert ek.rms_norm(x, (32,)).dtype is torch.float32
        assert norm(x).dtype is torch.bfloat16 and torch.equal(norm(x), expected)


# ---- classes ----


def test_subclasses_of_a_llama_norm_go_by_who_wrote_forward(llama):
    class Inherits(llama.LlamaRMSNorm):
        pass

    class Doubles(llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return 2 * super().forward(hidden_states)

    assert ek.replace(nn.Sequential(Inherits(4), Doubles(4))) == 1


def test_a_class_of_the_same_name_elsewhere_is_left_alone():
    class LlamaRMSNorm(nn.Module):
        def forward(self, x):
            return x

    assert ek.replace(LlamaRMSNorm()) == 0


@pytest.mark.parametrize("name", COPIES)
def test_a_replaced_llama_norm_is_copied_and_pickled(llama_norm, name):
    ek.replace(llama_norm)
    twin, x = copied(llama_norm, COPIES[name]), example((3, 32))
    assert type(twin) is type(llama_norm) and torch.equal(twin(x), llama_norm(x))


# ---- the table ----


TO_FLOAT32 = "input_dtype = hidden_states.dtype; hidden_states = hidden_states.to(torch.float32)"
VARIANCE = "variance = hidden_states.pow(2).mean(-1, keepdim=True)"
NORMALIZED = "hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)"
RSQRT = "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)"
POWER = (
    "mean_squared = hidden_states.pow(2).mean(-1, keepdim=True) + self.eps; "
    "return hidden_states * torch.pow(mean_squared, -0.5)"
)
ONCE = NormSpec("rms_norm", eps="variance_epsilon", result_dtype="x")
GATED = (
    "hidden_states = hidden_states * ACT2FN[self.activation](gate.to(torch.float32)); "
    "return hidden_states.to(input_dtype)"
)
GATE_FIRST = "if gate is not None: hidden_states = hidden_states * nn.functional.silu(gate.to(torch.float32))"
QWEN_GATED = NormSpec("rms_norm", eps="variance_epsilon", rounding="each", gate="gate", activation="activation")
MAMBA_GATED = QWEN_GATED._replace(activation="silu", result_dtype="promoted", gate_first=True)
# forward, and _norm where it calls one: what each formula is in evenkeel.
FORMULAS = {
    f"{TO_FLOAT32}; {VARIANCE}; {NORMALIZED}; return self.weight * hidden_states.to(input_dtype)": NormSpec(
        "rms_norm", eps="variance_epsilon", rounding="each", result_dtype="promoted"
    ),
    f"{TO_FLOAT32}; {VARIANCE}; {NORMALIZED}; return (self.weight * hidden_states).to(input_dtype)": ONCE,
    f"{TO_FLOAT32}; {VARIANCE}; {NORMALIZED}; "
    "return (self.weight.to(torch.float32) * hidden_states).to(input_dtype)": ONCE,
    f"variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True); {NORMALIZED}; "
    "if self.weight.dtype in [torch.float16, torch.bfloat16]: hidden_states = hidden_states.to(self.weight.dtype); "
    "return self.weight * hidden_states": NormSpec("rms_norm", eps="variance_epsilon", rounding="each"),
    f"{RSQRT}; output = self._norm(x.float()); output = output * self.weight.float(); "
    "return output.type_as(x)": NormSpec("rms_norm", result_dtype="x"),
    f"{RSQRT}; output = self._norm(x.float()).type_as(x); return output * self.weight": NormSpec(
        "rms_norm", rounding="each", result_dtype="promoted"
    ),
    f"{POWER}; normed_output = self._norm(hidden_states.float()); if self.with_scale: "
    "normed_output = normed_output * self.weight.float(); return normed_output.type_as(hidden_states)": NormSpec(
        "rms_norm", result_dtype="x"
    ),
    f"{RSQRT}; output = self._norm(x.float()); output = output * (1.0 + self.weight.float()); "
    "return output.type_as(x)": NormSpec("rms_norm", weight_offset=1.0, result_dtype="x"),
    f"{TO_FLOAT32}; mean = hidden_states.mean(-1, keepdim=True); "
    "variance = (hidden_states - mean).pow(2).mean(-1, keepdim=True); "
    "hidden_states = (hidden_states - mean) * torch.rsqrt(variance + self.variance_epsilon); "
    "hidden_states = self.weight.to(torch.float32) * hidden_states; "
    "return hidden_states.to(input_dtype)": NormSpec("layer_norm", eps="variance_epsilon", result_dtype="x"),
    "orig_dtype = hidden_states.dtype; return F.layer_norm(hidden_states.to(dtype=torch.float32), "
    "self.normalized_shape, None, None, eps=1e-05).to(orig_dtype)": NormSpec(
        "layer_norm", weight=None, eps=1e-5, normalized_shape="normalized_shape"
    ),
    f"{TO_FLOAT32}; {VARIANCE}; {NORMALIZED}; hidden_states = self.weight * hidden_states.to(input_dtype); "
    f"{GATED}": QWEN_GATED,
    f"{TO_FLOAT32}; {VARIANCE}; {NORMALIZED}; "
    f"hidden_states = self.weight.to(torch.float32) * hidden_states; {GATED}": QWEN_GATED._replace(
        rounding="once", result_dtype="x"
    ),
    f"{TO_FLOAT32}; {GATE_FIRST}; {VARIANCE}; {NORMALIZED}; "
    "return self.weight * hidden_states.to(input_dtype)": MAMBA_GATED,
    f"{TO_FLOAT32}; {GATE_FIRST}; *prefix_dims, last_dim = hidden_states.shape; "
    "group_count = last_dim // self.group_size; "
    "hidden_states_group = hidden_states.view(*prefix_dims, group_count, self.group_size); "
    "variance = hidden_states_group.pow(2).mean(-1, keepdim=True); "
    "hidden_states_group = hidden_states_group * torch.rsqrt(variance + self.variance_epsilon); "
    "hidden_states = hidden_states_group.view(*prefix_dims, group_count * self.group_size); "
    "return self.weight * hidden_states.to(input_dtype)": MAMBA_GATED._replace(group_cols="group_size"),
}


def formula_of(source):
    """The statements of _norm and forward in one line, without comments, types and documentation."""
    (cls,) = ast.parse(source).body
    functions = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
    lines = []
    for name in ("_norm", "forward"):
        for node in functions[name].body if name in functions else ():
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                lines.append(re.sub(r":\s+", ": ", ast.unparse(node)))
    return "; ".join(lines)


def sources():
    """(name, source) of the norms of transformers, of the version that the table is made for."""
    transformers = pytest.importorskip("transformers")
    pinned = re.search(r"^transformers==(\S+)", (ROOT / "requirements.txt").read_text(), re.M).group(1)
    if transformers.__version__ != pinned:
        pytest.skip(f"transformers is {transformers.__version__}, the table is of {pinned}")
    for path in pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py"):
        for source in re.findall(
            r"^class \w+Norm\w*\((?:torch\.)?nn\.Module\):\n(?:(?:[ ]+.*)?\n)+", path.read_text(), re.M
        ):
            yield source[len("class ") : source.index("(")], source


@pytest.mark.slow
def test_the_table_has_the_classes_with_the_formulas_and_no_others():
    found, others = {}, set()
    for name, source in sources():
        spec = FORMULAS.get(formula_of(source))
        if spec is None:
            others.add(name)
        else:
            assert found.setdefault(name, spec) == spec  # a name stands for one formula
    assert not found.keys() & others
    assert found == _huggingface.TABLE


@pytest.mark.slow
def test_every_class_of_the_table_keeps_its_bits_in_bfloat16():
    x, weight = example((128, 4096), torch.bfloat16), (1 + 0.1 * example((4096,), seed=1)).bfloat16()
    checked = set()
    for name, source in sources():
        spec = _huggingface.TABLE.get(name)
        if spec is None or name in checked:
            continue
        functions = pytest.importorskip("transformers.activations").ACT2FN
        space = {"torch": torch, "nn": nn, "F": F, "ACT2FN": functions, "__name__": "transformers.of_a_test"}
        exec(source, space)  # without the imports of a whole model
        norm = made(space[name], 4096).bfloat16()
        if spec.weight is not None:
            norm.weight.data = weight
        if spec.kind == "layer_norm":
            check_layer_norm_bits(norm, x)
        else:
            gate = () if spec.gate is None else (example(x.shape, x.dtype, seed=2),)
            check_bits(norm, x, 2 if spec.rounding == "each" else 1, *gate)
        checked.add(name)
    assert checked == _huggingface.TABLE.keys()
