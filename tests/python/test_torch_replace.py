"""replace and restore: a model stays what it is, and evenkeel computes its norms. SPDX-License-Identifier: MIT"""

import copy
import gc
import pathlib
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import evenkeel.torch as ek
from processes import run_python
from replace_cases import COPIES, classes, copied, example

ROOT = pathlib.Path(__file__).parents[2]


class Named(nn.LayerNorm):
    """A subclass that inherits forward, and has things of its own."""

    def extra_repr(self):
        return "named"

    def __getstate__(self):
        return {**self.__dict__, "travelled": True}


class Residual(nn.LayerNorm):
    def forward(self, input):
        return input + super().forward(input)


def small_model():
    shared = nn.LayerNorm(12)
    model = nn.Sequential(shared, nn.Linear(12, 12), shared, Named(12), nn.RMSNorm(12), nn.GELU(), Residual(12))
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


# ---- what changes ----


def test_each_module_changes_once_and_gets_its_own_class_again():
    model = small_model()
    before = classes(model)
    assert ek.replace(model) == 3 and classes(model) != before
    assert ek.replace(model) == 0
    assert ek.restore(model) == 3 and classes(model) == before
    assert ek.restore(model) == 0


@pytest.mark.parametrize("ours, theirs", [(ek.LayerNorm, nn.LayerNorm), (ek.RMSNorm, nn.RMSNorm)])
def test_the_bits_are_those_of_evenkeels_module(ours, theirs):
    model, module, x = theirs(100), ours(100), example((7, 100)).requires_grad_()
    for parameter, other in zip(model.parameters(), module.parameters(), strict=True):
        other.data = nn.init.normal_(parameter).data
    assert model(x).grad_fn.name() != "NormBackward"
    ek.replace(model)
    assert isinstance(model, ours) and model(x).grad_fn.name() == "NormBackward"
    for inputs in (x, x * 1e3 + 1e5):
        assert torch.equal(model(inputs), module(inputs))
    results = [torch.autograd.grad(m(x).square().sum(), [x, *m.parameters()]) for m in (model, module)]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    "kinds, count", [("layer_norm", 2), (["rms_norm"], 1), ((), 0), (("layer_norm", "rms_norm"), 3)]
)
def test_kinds_choose(kinds, count):
    model = small_model()
    assert ek.replace(model, kinds) == count
    assert isinstance(model[0], ek.LayerNorm) == ("layer_norm" in kinds)
    assert isinstance(model[4], ek.RMSNorm) == ("rms_norm" in kinds)


def test_an_unknown_kind_is_refused_before_anything_changes():
    model = small_model()
    with pytest.raises(ValueError, match="kinds has 'batch_norm'; expected 'layer_norm', 'rms_norm', 'rope', 'glu'"):
        ek.replace(model, ("layer_norm", "batch_norm"))
    assert not any(issubclass(cls, ek.LayerNorm) for cls in classes(model))


# ---- what stays ----


def test_a_module_stays_the_object_it_is():
    model = small_model().eval()
    model[0].note = "kept"
    model[0].register_buffer("extra", torch.ones(2))
    modules, parameters, attributes = list(model.modules()), list(model.parameters()), dict(vars(model[0]))
    state, text = model.state_dict(), str(model)
    ek.replace(model)
    assert all(a is b for a, b in zip(modules, model.modules(), strict=True))
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert vars(model[0]) == attributes
    assert str(model) == text and not model[0].training and model[0] is model[2]
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state)


def test_modules_that_were_evenkeels_are_not_counted_and_not_restored():
    model = nn.Sequential(ek.LayerNorm(4), ek.RMSNorm(4))
    assert ek.replace(model) == 0 and ek.restore(model) == 0
    assert classes(model)[1:] == [ek.LayerNorm, ek.RMSNorm]


# ---- subclasses ----


def test_a_subclass_keeps_its_name_and_what_it_overrides():
    model = nn.Sequential(Named(12))
    ek.replace(model)
    assert isinstance(model[0], Named) and isinstance(model[0], ek.LayerNorm)
    assert type(model[0]).__name__ == "Named" and repr(model[0]) == "Named(named)"
    assert torch.equal(model(example()), ek.layer_norm(example(), (12,), model[0].weight, model[0].bias))


def test_the_class_of_a_replaced_module_has_the_arguments_of_the_module_s_own():
    class Square(nn.LayerNorm):
        def __init__(self, side):
            super().__init__((side, side), eps=0.5)

    model = nn.Sequential(Square(3), nn.LayerNorm(4))
    ek.replace(model)
    assert type(model[0])(side=2).normalized_shape == (2, 2) and type(model[0])(2).eps == 0.5
    assert type(model[1])(4, bias=False).bias is None


def test_a_subclass_with_a_forward_of_its_own_is_left_alone():
    class Grandchild(Residual):
        pass

    model = nn.Sequential(Residual(12), Grandchild(12))
    assert ek.replace(model) == 0 and classes(model)[1:] == [Residual, Grandchild]


def test_a_module_whose_object_has_a_forward_is_left_alone():
    norm = nn.LayerNorm(12)
    norm.forward = lambda x: x
    assert ek.replace(norm) == 0 and norm(example()).equal(example())


def test_a_parametrized_norm_is_left_alone_until_it_is_none():
    norm = parametrizations.weight_norm(nn.LayerNorm(12), dim=None)
    assert ek.replace(norm) == 0
    parametrize.remove_parametrizations(norm, "weight")
    assert ek.replace(norm) == 1


def test_the_class_made_for_a_subclass_goes_with_its_modules():
    class Passing(nn.LayerNorm):
        pass

    norm = Passing(4)
    ek.replace(norm)
    other = Passing(4)
    ek.replace(other)
    assert type(other) is type(norm)
    made = weakref.ref(type(norm))
    del norm, other, Passing
    gc.collect()
    assert made() is None


# ---- modules that something wrapped after replace ----


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight

    def right_inverse(self, weight):
        return weight / 2


def two_norms():
    model = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.RMSNorm(12))
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


def test_restore_reaches_norms_that_fully_shard_wrapped(process_group):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no torch.distributed.fsdp.fully_shard")
    model, x = two_norms(), example()
    expected = model(x)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    ek.replace(model)
    for module in (model[0], model[2], model):
        fsdp.fully_shard(module, mesh=mesh)
    assert ek.replace(model) == 0
    assert ek.restore(model) == 2 and ek.restore(model) == 0
    for norm, cls in ((model[0], nn.LayerNorm), (model[2], nn.RMSNorm)):
        assert type(norm).__mro__[1:3] == (fsdp.FSDPModule, cls)  # where FSDPModule looks for the module's own class
    assert torch.equal(model(x), expected)
    model(x).sum().backward()
    assert model[0].weight.grad is not None
    assert ek.replace(model) == 2 and ek.restore(model) == 2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda norm: parametrizations.weight_norm(norm, dim=None),
        lambda norm: parametrize.register_parametrization(norm, "weight", Doubled()),
    ],
    ids=["weight_norm", "register_parametrization"],
)
def test_restore_reaches_norms_that_were_parametrized(wrap):
    model, x = two_norms(), example()
    expected = model(x)
    ek.replace(model)
    wrap(model[0])
    assert model[0](x).grad_fn.name() == "NormBackward"
    assert ek.restore(model) == 2 and ek.restore(model) == 0
    assert parametrize.is_parametrized(model[0], "weight") and type(model[0]).__name__ == "ParametrizedLayerNorm"
    assert parametrize.type_before_parametrizations(model[0]) is nn.LayerNorm
    assert model[0](x).grad_fn.name() != "NormBackward"
    torch.testing.assert_close(model(x), expected)
    parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.LayerNorm and ek.replace(model) == 2
    torch.testing.assert_close(model(x), expected)


def test_restore_reaches_a_norm_that_was_wrapped_twice():
    norm = Named(12)
    ek.replace(norm)
    parametrize.register_parametrization(norm, "weight", Doubled())
    norm.__class__ = type("Outer", (type(norm),), {"mark": 1})
    assert ek.restore(norm) == 1
    assert [cls.__name__ for cls in type(norm).__mro__[:3]] == ["Outer", "ParametrizedNamed", "Named"]
    assert type(norm).__mro__[2] is Named and norm.mark == 1 and parametrize.is_parametrized(norm)


def test_modules_of_one_wrapper_class_keep_one_class():
    shared = nn.LayerNorm(12)
    model = nn.Sequential(shared, nn.LayerNorm(12), shared)
    ek.replace(model)
    wrapper = type("Wrapper", (type(shared),), {})
    model[0].__class__ = model[1].__class__ = wrapper
    assert ek.restore(model) == 2
    assert type(model[0]) is type(model[1]) and type(model[0]).__bases__ == (nn.LayerNorm,)
    assert model[0] is model[2] is shared and issubclass(wrapper, ek.LayerNorm)  # others may use it still


def test_a_wrapper_that_restore_cannot_rebuild_is_named():
    model = two_norms()
    ek.replace(model)

    class Calls(type(model[0])):
        def forward(self, input):
            return super().forward(input)  # refers to this class, which a rebuilt one does not derive from

    model[0].__class__ = Calls
    words = r"restore left 1 module\(s\) replaced; .*: 0 \(Calls\): Calls.forward calls super\(\)"
    with pytest.warns(RuntimeWarning, match=words) as warned:
        assert ek.restore(model) == 1
    assert warned[0].filename == __file__
    assert type(model[0]) is Calls and type(model[2]) is nn.RMSNorm
    model(example())


def test_a_forward_set_on_a_replaced_module_is_named():
    norm = nn.LayerNorm(12)
    ek.replace(norm)
    norm.forward = norm.forward  # as hooks of other libraries do: it stays evenkeel's
    with pytest.warns(RuntimeWarning, match=r"the model \(LayerNorm\): forward is set on the module"):
        assert ek.restore(norm) == 0
    del norm.forward
    assert ek.restore(norm) == 1 and type(norm) is nn.LayerNorm


def test_a_copy_of_a_wrapped_norm_keeps_the_wrapper():
    norm = nn.LayerNorm(12)
    ek.replace(norm)
    norm.__class__ = type("Wrapper", (type(norm),), {})
    assert type(copy.deepcopy(norm)) is type(norm)


# ---- copies ----


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_replaced_too_and_its_own(name):
    model = small_model()
    ek.replace(model)
    twin = copied(model, COPIES[name])
    assert classes(twin) == classes(model) and twin[0] is twin[2] and twin[0].weight is not model[0].weight
    assert name in ("pickle 0", "pickle 1") or twin[3].travelled
    assert torch.equal(twin(example()), model(example()))
    assert ek.restore(twin) == 3 and isinstance(model[0], ek.LayerNorm)


def test_a_pickle_of_a_class_that_has_a_forward_of_its_own_by_now(monkeypatch):
    norm = Named(12)
    ek.replace(norm)
    data = pickle.dumps(norm)
    monkeypatch.setattr(Named, "forward", lambda self, input: input)
    assert type(pickle.loads(data)) is Named


LOADS = """
import torch
model, x, y = torch.load({path!r}, weights_only=False)
import evenkeel.torch
print(torch.equal(model(x), y), evenkeel.torch.restore(model))
"""


@pytest.mark.slow
def test_another_process_reads_a_replaced_model(tmp_path):
    model, x = small_model(), example()
    ek.replace(model)
    torch.save((model, x, model(x)), tmp_path / "model.pt")
    assert run_python(LOADS.format(path=str(tmp_path / "model.pt"))) == "True 3"


# ---- what others do with modules ----


@pytest.mark.slow
def test_a_compiled_model_gives_the_same():
    model = small_model()
    ek.replace(model)
    assert torch.equal(torch.compile(model, backend="eager")(example()), model(example()))


# ---- the example ----


@pytest.mark.slow
def test_the_example_runs():
    pytest.importorskip("transformers")
    assert "5 norms" in run_python((ROOT / "examples" / "replace_norms.py").read_text())
