"""The modules are PyTorch's own in everything but who computes. SPDX-License-Identifier: MIT"""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import evenkeel.torch as ek
from evenkeel.torch import _modules
from processes import run_python
from torch_cases import DEVICE, close, cpu_only, same_bits, tensor

PAIRS = [(ek.LayerNorm, nn.LayerNorm), (ek.RMSNorm, nn.RMSNorm)]
OPTIONS = [
    {},
    {"eps": 0.5},
    {"elementwise_affine": False},
    {"bias": False},
    {"dtype": torch.bfloat16},
    {"eps": 1e-3, "dtype": torch.float64},
]

both = pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["LayerNorm", "RMSNorm"])


def options_of(theirs):
    return [o for o in OPTIONS if theirs is nn.LayerNorm or "bias" not in o]


@both
def test_arguments_are_pytorch_s_and_then_the_flavours(ours, theirs):
    own, given = (list(inspect.signature(m).parameters.values()) for m in (ours, theirs))
    *shared, weight_offset, rounding = own
    assert [(p.name, p.default, p.kind) for p in shared] == [(p.name, p.default, p.kind) for p in given]
    assert weight_offset.kind is rounding.kind is inspect.Parameter.KEYWORD_ONLY
    assert (weight_offset.name, weight_offset.default) == ("weight_offset", 0.0)
    assert (rounding.name, rounding.default) == ("rounding", "once")


@both
def test_arguments_may_be_positional(ours, theirs):
    given = (4, 10), 0.5, True, *((False,) if theirs is nn.LayerNorm else ()), "meta", torch.bfloat16
    one, other = ours(*given), theirs(*given)
    assert repr(one) == repr(other)
    for name, parameter in other.named_parameters():
        own = one.get_parameter(name)
        assert (own.shape, own.dtype, own.device) == (parameter.shape, parameter.dtype, parameter.device)
    assert ours(40, None if ours is ek.RMSNorm else 1e-5, False).weight is None
    with pytest.raises(TypeError, match="positional"):
        ours(*given, 1.0)


@both
def test_skip_init_leaves_the_parameters_as_memory_has_them(ours, theirs, monkeypatch):
    filled = []
    monkeypatch.setattr(nn.init, "ones_", lambda tensor: filled.append(tensor.device.type))
    module = nn.utils.skip_init(ours, 40, device=DEVICE)
    assert type(module) is ours and module.weight.device.type == torch.device(DEVICE).type and filled == ["meta"]


def filled(module):
    """The module with parameters that are not what they start as."""
    for i, parameter in enumerate(module.parameters()):
        parameter.data = tensor(parameter.shape, seed=20 + i).to(parameter.dtype)
    return module.to(DEVICE)


@both
def test_a_module_is_pytorch_s_own_but_for_forward(ours, theirs):
    """So its parameters, states, copies and representation are PyTorch's, tested there."""
    flavoured, base = ours.__bases__
    assert base is theirs and flavoured is _modules._Flavoured
    assert [name for name, member in vars(ours).items() if callable(member)] == ["__init__", "forward"]
    assert repr(ours(40)) == repr(theirs(40)) and list(vars(ours(40)).keys() - vars(theirs(40))) == []


@both
def test_results_are_those_of_pytorch_s_module(ours, theirs):
    for options in options_of(theirs):
        one = filled(ours((4, 10), **options))
        other = filled(theirs((4, 10), **options))
        x = tensor((3, 4, 10), seed=1).to(options.get("dtype", torch.float32))
        close(one(x), other(x))


def test_the_modules_compute_what_the_functions_do():
    x = tensor((6, 40))
    for module in (ek.LayerNorm(40, device=DEVICE), ek.RMSNorm(40, device=DEVICE)):
        torch.nn.init.normal_(module.weight)
        function = ek.layer_norm if isinstance(module, ek.LayerNorm) else ek.rms_norm
        operands = (module.weight, module.bias) if isinstance(module, ek.LayerNorm) else (module.weight,)
        assert same_bits(module(x), function(x, (40,), *operands, module.eps))


@pytest.mark.slow
@cpu_only
def test_another_process_loads_a_module(tmp_path):
    model, x = nn.Sequential(filled(ek.LayerNorm(40)), filled(ek.RMSNorm(40))), tensor((6, 40))
    path = tmp_path / "model"
    torch.save((model, x, model(x).detach()), path)
    script = f"""
import torch
model, x, y = torch.load({str(path)!r}, weights_only=False)
print(type(model[0]).__module__, type(model[1]).__qualname__, torch.equal(model(x), y))
"""
    assert run_python(script) == "evenkeel.torch._modules RMSNorm True"


@both
def test_the_meta_device_comes_first_and_memory_later(ours, theirs):
    with torch.device("meta"):
        module = ours(40)
    assert module.weight.is_meta and module(torch.empty(6, 40, device="meta")).is_meta
    module.to_empty(device=DEVICE)
    module.reset_parameters()
    close(module(tensor((6, 40))), theirs(40).to(DEVICE)(tensor((6, 40))))


@both
def test_parametrized_weights(ours, theirs):
    class Doubled(nn.Module):
        def forward(self, weight):
            return weight * 2

    module, x = filled(ours(40)), tensor((6, 40))
    expected = module(x) * 2 if ours is ek.RMSNorm else (module(x) - module.bias) * 2 + module.bias
    parametrize.register_parametrization(module, "weight", Doubled())
    close(module(x), expected)
    module(x).sum().backward()
    assert module.parametrizations.weight.original.grad is not None


@both
def test_subclasses_may_build_on_forward(ours, theirs):
    class Shifted(ours):
        def forward(self, input):
            return super().forward(input) + 1

    x = tensor((6, 40))
    assert same_bits(Shifted(40, device=DEVICE)(x), ours(40, device=DEVICE)(x) + 1)


@both
def test_the_input_may_be_named(ours, theirs):
    (name,) = list(inspect.signature(theirs.forward).parameters)[1:]
    x = tensor((6, 40))
    assert same_bits(ours(40, device=DEVICE)(**{name: x}), ours(40, device=DEVICE)(x))


def test_functions_have_pytorch_s_arguments():
    for name in ("layer_norm", "rms_norm"):
        ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (ek, nn.functional))
        shared = [p for p in ours.values() if p.kind is not p.KEYWORD_ONLY]
        assert [(p.name, p.default) for p in shared] == [(p.name, p.default) for p in theirs.values()]
