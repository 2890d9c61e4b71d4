"""The modules are PyTorch's own in everything but who computes. SPDX-License-Identifier: MIT"""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, skip_init

import evenkeel.torch as ek
from processes import run_python
from torch_cases import DEVICE, DTYPES, close, cpu_only, same_bits, tensor

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


def filled(module):
    """The module with parameters that are not what they start as."""
    for i, parameter in enumerate(module.parameters()):
        parameter.data = tensor(parameter.shape, seed=20 + i).to(parameter.dtype)
    return module.to(DEVICE)


@both
def test_arguments_and_representation_are_the_same(ours, theirs):
    assert inspect.signature(ours.__init__) == inspect.signature(theirs.__init__)
    for options in options_of(theirs):
        for shape in (40, (4, 10), [40], torch.Size([40])):
            one, other = ours(shape, **options), theirs(shape, **options)
            assert repr(one) == repr(other) and one.extra_repr() == other.extra_repr()
            assert one.normalized_shape == other.normalized_shape and one.eps == other.eps
            assert [(n, p.shape, p.dtype) for n, p in one.named_parameters()] == [
                (n, p.shape, p.dtype) for n, p in other.named_parameters()
            ]
            assert all(map(torch.equal, one.parameters(), other.parameters()))


@both
def test_instances_are_instances_of_pytorch_s(ours, theirs):
    assert isinstance(ours(8), theirs) and issubclass(ours, theirs)
    assert ours(8).__constants__ == theirs(8).__constants__


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


@both
def test_states_go_both_ways(ours, theirs):
    for source, target in ((filled(ours(40)), theirs(40)), (filled(theirs(40)), ours(40))):
        target.to(DEVICE)
        assert list(source.state_dict()) == list(target.state_dict())
        assert str(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
        assert all(map(torch.equal, target.parameters(), source.parameters()))
        target.load_state_dict(theirs(40).state_dict(), assign=True)
        with pytest.raises(RuntimeError, match="size mismatch for weight"):
            target.load_state_dict(theirs(41).state_dict())


@both
def test_copies_are_whole_and_apart(ours, theirs):
    module, x = filled(ours(40, eps=0.5)), tensor((6, 40))
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(twin) is ours and repr(twin) == repr(module)
        assert same_bits(twin(x), module(x))
        twin.weight.data.add_(1)
        assert not torch.equal(twin.weight, module.weight)
    shallow = copy.copy(module)
    assert shallow.weight is module.weight


@both
def test_a_module_survives_torch_save(ours, theirs):
    module, file = filled(ours(40)), io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    assert type(twin) is ours and same_bits(twin(tensor((6, 40))), module(tensor((6, 40))))


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
def test_reset_parameters_starts_anew(ours, theirs):
    module = filled(ours(40))
    module.reset_parameters()
    assert all(torch.equal(p.cpu(), q) for p, q in zip(module.parameters(), theirs(40).parameters(), strict=True))


@both
def test_parameters_may_be_left_as_they_are(ours, theirs):
    module = skip_init(ours, 40, eps=0.5)
    assert type(module) is ours and module.eps == 0.5 and not module.weight.is_meta


@both
def test_the_meta_device_comes_first_and_memory_later(ours, theirs):
    with torch.device("meta"):
        module = ours(40)
    assert module.weight.is_meta and module(torch.empty(6, 40, device="meta")).is_meta
    module.to_empty(device=DEVICE)
    module.reset_parameters()
    close(module(tensor((6, 40))), theirs(40).to(DEVICE)(tensor((6, 40))))


@pytest.mark.parametrize("dtype", DTYPES)
@both
def test_dtypes_change_as_with_pytorch_s(ours, theirs, dtype):
    module = filled(ours(40)).to(DTYPES[dtype])
    y = module(tensor((6, 40), dtype))
    assert module.weight.dtype == y.dtype == DTYPES[dtype]
    assert ours(40).half().weight.dtype == torch.float16


@both
def test_training_and_evaluation_are_the_same(ours, theirs):
    module, x = filled(ours(40)), tensor((6, 40))
    assert same_bits(module.train()(x), module.eval()(x))
    assert not module.requires_grad_(False)(x).requires_grad


@both
def test_one_module_may_be_in_two_places(ours, theirs):
    module = filled(ours(40))
    model = nn.Sequential(module, nn.ReLU(), module)
    assert len(list(model.parameters())) == len(list(module.parameters()))
    model(tensor((6, 40))).sum().backward()
    assert module.weight.grad is not None


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
        assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


@both
def test_optimizers_of_many_tensors_at_once(ours, theirs):
    module, x = filled(ours(40)), tensor((6, 40))
    before = module.weight.detach().clone()
    optimizer = torch.optim.AdamW(module.parameters(), foreach=True)
    module(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, module.weight)
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1e-3)
    assert torch.linalg.vector_norm(module.weight.grad) <= 1.001e-3
