"""register: replace takes over a user's own norms, and the comparison before it does. SPDX-License-Identifier: MIT"""

import gc
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

import evenkeel.torch as ek
from processes import run_python
from replace_cases import COPIES, copied, example
from torch_cases import DEVICE, gpu_only

SIZE = 48


class Scaled(nn.Module):
    """RMSNorm with names of its own; counts the calls of forward, of copies too."""

    calls = 0
    eps = 1e-3

    def __init__(self, size=SIZE):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(size))
        self.seen = []

    def forward(self, x, times=1):
        type(self).calls += 1
        self.seen.append(x.dtype)
        wide = x.float()
        y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (y * (1 + self.gain.float())).to(x.dtype) * times


OPTIONS = {"weight": "gain", "weight_offset": 1.0}


def fresh(base=Scaled, **members):
    """A class that nothing is registered or remembered for: it inherits all but forward's owner."""
    return type("Scaled", (base,), {"calls": 0, "forward": base.forward, **members})


@pytest.fixture
def scaled():
    cls = fresh()
    ek.register(cls, "rms_norm", **OPTIONS)
    return cls


def random_norm(cls, *args):
    norm = cls(*args)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


# ---- what is replaced ----


def test_a_registered_class_is_replaced_and_restored(scaled):
    norm, x = random_norm(scaled), example((5, SIZE))
    expected = norm(x)
    assert ek.replace(norm) == 1 and isinstance(norm, scaled)
    assert torch.equal(norm(x), ek.rms_norm(x, (SIZE,), norm.gain, 1e-3, weight_offset=1.0))
    torch.testing.assert_close(norm(x), expected)
    assert norm(x).grad_fn.name() == "NormBackward"
    assert ek.restore(norm) == 1 and torch.equal(norm(x), expected)


def test_kinds_choose_among_registered_classes(scaled):
    assert ek.replace(scaled(), "layer_norm") == 0
    assert ek.replace(scaled(), "rms_norm") == 1


class Affine(nn.Module):
    """LayerNorm whose every operand has another name."""

    def __init__(self, *shape):
        super().__init__()
        self.dims, self.tiny = shape, 1e-4
        self.scale, self.shift = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, value):
        return F.layer_norm(value, self.dims, self.scale, self.shift, self.tiny)


@pytest.mark.parametrize("shape", [(SIZE,), (3, 16)], ids=str)
def test_operands_are_found_by_their_names(shape):
    cls = fresh(Affine)
    ek.register(cls, "layer_norm", weight="scale", bias="shift", eps="tiny", normalized_shape="dims")
    norm, x = random_norm(cls, *shape), example((5, *shape))
    expected = norm(x)
    assert ek.replace(norm) == 1
    torch.testing.assert_close(norm(x), expected)
    assert torch.equal(norm(x), ek.layer_norm(x, shape, norm.scale, norm.shift, 1e-4))
    assert torch.equal(norm(value=x), norm(x))


def test_an_offset_and_a_shape_may_be_attributes():
    class Centered(nn.LayerNorm):
        offset, width = 1.0, SIZE

        def forward(self, x):
            columns = self.weight.float() + self.offset, self.bias.float()
            return F.layer_norm(x.float(), (self.width,), *columns, self.eps).to(x.dtype)

    names = {"bias": "bias", "weight_offset": "offset", "normalized_shape": "width"}
    ek.register(Centered, "layer_norm", **names)
    norm, x = random_norm(Centered, SIZE), example((5, SIZE))
    expected = norm(x)
    assert ek.replace(norm) == 1
    torch.testing.assert_close(norm(x), expected)


def test_an_offset_that_evenkeel_does_not_have_is_the_class_s_own():
    class Shifted(Scaled):
        def __init__(self, offset):
            super().__init__()
            self.offset = offset

        def forward(self, x):
            wide = x.float()
            y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            return (y * (self.offset + self.gain.float())).to(x.dtype)

    ek.register(Shifted, "rms_norm", weight="gain", weight_offset="offset")
    model, x = nn.Sequential(Shifted(1.0), Shifted(0.5)), torch.randn(3, SIZE)
    expected = model(x)
    assert ek.replace(model) == 2
    torch.testing.assert_close(model(x), expected)


def test_a_norm_without_weights_needs_no_names():
    class Plain(nn.Module):
        def forward(self, x):
            return F.rms_norm(x, x.shape[-1:], eps=1e-2)

    ek.register(Plain, "rms_norm", weight=None, eps=1e-2)
    norm, x = Plain(), example((5, SIZE))
    assert ek.replace(norm) == 1
    assert torch.equal(norm(x), ek.rms_norm(x, (SIZE,), None, 1e-2))


def test_subclasses_go_by_who_wrote_forward(scaled):
    inherits = type("Inherits", (scaled,), {})
    overrides = type("Overrides", (scaled,), {"forward": lambda self, x: x})
    assert ek.replace(nn.Sequential(inherits(), overrides())) == 1


def test_a_class_that_inherits_forward_can_be_registered():
    cls = type("Inherits", (fresh(),), {})
    ek.register(cls, "rms_norm", **OPTIONS)
    assert ek.replace(nn.Sequential(cls(), cls.__mro__[1]())) == 1


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_replaced_too(name):
    norm, x = random_norm(Registered), example((3, SIZE))
    assert ek.replace(norm) == 1
    twin = copied(norm, COPIES[name])
    assert type(twin) is type(norm) and torch.equal(twin(x), norm(x))


class Registered(Scaled):
    """At the top of a module, where pickle finds it."""

    forward = Scaled.forward


ek.register(Registered, "rms_norm", **OPTIONS)


def test_a_registered_class_goes_with_its_modules():
    cls = fresh()
    ek.register(cls, "rms_norm", **OPTIONS)
    ek.replace(cls())
    gone = weakref.ref(cls)
    del cls
    gc.collect()  # the class that stands in for it
    gc.collect()
    assert gone() is None


def test_the_example_of_the_documentation_runs():
    text = ek.register.__doc__
    example, call = text[text.index("    class ") :].split("\n\n    kind is")[0], "assert evenkeel.torch.replace"
    code = "\n".join(line[4:] for line in example.splitlines())
    lines = (
        "import torch, evenkeel.torch",
        code,
        f"{call}(torch.nn.Sequential(ScaledNorm(8))) == 1",
        "print('replaced')",
    )
    assert run_python("\n".join(lines)) == "replaced"


# ---- gated norms ----


class Gated(nn.Module):
    """LayerNorm of groups with an activation that is an attribute."""

    def __init__(self, first=False, activation="sigmoid", width=12):
        super().__init__()
        self.first, self.kind_of_gate, self.width = first, activation, width
        self.weight, self.bias = nn.Parameter(torch.ones(SIZE)), nn.Parameter(torch.zeros(SIZE))

    def forward(self, x, z=None, times=1):
        factor = 1 if z is None else {"sigmoid": torch.sigmoid, "silu": F.silu}[self.kind_of_gate](z.float())
        h = x.float() * factor if self.first else x.float()
        y = F.layer_norm(h.unflatten(-1, (-1, self.width)), (self.width,)).flatten(-2)
        y = y * self.weight.float() + self.bias.float()
        return ((y if self.first else y * factor) * times).to(x.dtype)


GATE = {"bias": "bias", "eps": 1e-5, "gate": "z", "activation": "kind_of_gate", "group_cols": "width"}


@pytest.mark.parametrize("first", [False, True], ids=["gated result", "gated x"])
@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_a_gated_class_is_replaced(activation, first, kernels):
    cls = fresh(Gated)
    ek.register(cls, "layer_norm", gate_first=first, **GATE)
    norm, x, z = random_norm(cls, first, activation), example((5, SIZE)), example((5, SIZE), seed=1)
    expected, others = norm(x, z), (norm(x), norm(x, z, 2), norm(x=x, z=z))
    assert ek.replace(norm) == 1
    before = kernels.forward
    torch.testing.assert_close(norm(x, z=z), expected)
    assert kernels.forward == before + 1
    assert all(map(torch.equal, (norm(x), norm(x, z, 2), norm(x=x, z=z)), others)) and kernels.forward == before + 1
    options = {"activation": activation, "gate_first": first, "group_cols": 12}
    assert torch.equal(norm(x, z), ek.layer_norm_gated(x, z, (SIZE,), norm.weight, norm.bias, 1e-5, **options))
    assert ek.restore(norm) == 1 and torch.equal(norm(x, z), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"gate_first": True},
        {"activation": "gelu"},
        {"group_cols": 24},
        {"gate": None, "activation": "silu", "group_cols": None},
    ],
)
def test_a_gated_class_with_another_formula_is_left_alone(options):
    cls = fresh(Gated)
    ek.register(cls, "layer_norm", **GATE | options)
    with pytest.warns(RuntimeWarning, match="replace left"):
        assert ek.replace(random_norm(cls)) == 0


def test_a_gated_call_of_what_is_no_tensor_is_the_class_s_own():
    cls = fresh(Gated, forward=lambda self, x, z: x if isinstance(x, list) else Gated.forward(self, x, z))
    ek.register(cls, "layer_norm", **GATE)
    norm = random_norm(cls)
    assert ek.replace(norm) == 1
    assert norm([1.0], example((5, SIZE))) == [1.0]


def test_an_activation_that_evenkeel_does_not_have_is_the_class_s_own():
    cls = fresh(Gated)
    ek.register(cls, "layer_norm", **GATE)
    norm, x = random_norm(cls), example((5, SIZE))
    assert ek.replace(norm) == 1
    norm.kind_of_gate = "tanh"
    with pytest.raises(KeyError, match="tanh"):
        norm(x, x)


# ---- calls that the class computes itself ----


def test_a_call_with_more_arguments_is_the_class_s_own(scaled):
    norm, x = random_norm(scaled), example((5, SIZE))
    expected = norm(x, 3), norm(x, times=2)
    ek.replace(norm)
    before = scaled.calls
    assert torch.equal(norm(x, 3), expected[0]) and torch.equal(norm(x, times=2), expected[1])
    made = type(norm)
    assert made.calls - before == 2


@pytest.mark.slow
def test_compiled_code_calls_the_same(scaled):
    norm, x = random_norm(scaled), example((5, SIZE), torch.bfloat16)
    norm.bfloat16()
    ek.replace(norm)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(norm, backend="eager")(x), norm(x))


@pytest.mark.parametrize("weight", [torch.float32, torch.float16], ids=str)
def test_without_a_result_dtype_mixed_dtypes_are_the_class_s_own(scaled, weight):
    norm, x = random_norm(scaled).to(weight), example((5, SIZE), torch.bfloat16).requires_grad_()
    expected = norm(x)
    ek.replace(norm)
    assert torch.equal(norm(x), expected) and norm(x).grad_fn.name() != "NormBackward"


def promoted(self, x):
    wide = x.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
    return ((1 + self.gain.float()) * y.to(x.dtype)).to(torch.promote_types(x.dtype, self.gain.dtype))


@pytest.mark.parametrize(
    "forward, rounding, result_dtype, expected",
    [(Scaled.forward, "once", "x", torch.bfloat16), (promoted, "each", "promoted", torch.float32)],
    ids=["x", "promoted"],
)
def test_the_result_dtype_is_that_of_float32_weights_with_16_bit_x(forward, rounding, result_dtype, expected):
    cls = fresh(forward=forward)
    ek.register(cls, "rms_norm", rounding=rounding, result_dtype=result_dtype, **OPTIONS)
    norm, x = random_norm(cls), example((5, SIZE), torch.bfloat16).requires_grad_()
    before = norm(x)
    assert ek.replace(norm) == 1
    y = norm(x)
    assert y.dtype is before.dtype is expected and y.grad_fn.name() == "NormBackward"
    torch.testing.assert_close(y, before, rtol=2**-7, atol=0)


def test_a_weight_that_is_broadcast_is_left_alone(scaled):
    norm = scaled()
    norm.gain = nn.Parameter(torch.zeros(3, SIZE))
    assert ek.replace(norm) == 0


def test_a_weight_that_becomes_broadcast_later_is_the_class_s_own(scaled):
    norm, x = random_norm(scaled), example((5, 3, SIZE))
    ek.replace(norm)
    norm.gain = nn.Parameter(example((3, SIZE)))
    assert torch.equal(norm(x), scaled.forward(norm, x))


# ---- the comparison ----


@pytest.mark.parametrize(
    "members, options",
    [
        ({}, {"weight_offset": 0.0}),
        ({"eps": 1e-6}, {"eps": 2e-6}),  # shows where x is small alone
        ({"forward": lambda self, x: x * (x.square().mean(-1, keepdim=True).sqrt() + self.eps).reciprocal()}, {}),
        ({"forward": lambda self, x: F.layer_norm(x, x.shape[-1:], 1 + self.gain, eps=self.eps)}, {}),
    ],
    ids=["offset", "eps", "where eps is added", "kind"],
)
def test_a_class_that_computes_something_else_is_named_and_left_alone(members, options):
    cls = fresh(**members)
    ek.register(cls, "rms_norm", **OPTIONS | options)
    model = nn.Sequential(cls(), nn.RMSNorm(SIZE), cls())
    words = r"replace left test_torch_register.Scaled as it is: the largest difference is [\d.e-]+, of results up to"
    with pytest.warns(RuntimeWarning, match=words) as warned:
        assert ek.replace(model) == 1
    assert len(warned) == 1 and warned[0].filename == __file__
    assert type(model[0]) is cls and isinstance(model[1], ek.RMSNorm)


def in_float32(self, x):
    return Scaled.forward(self, x).float()


def coarse(self, x):
    y = Scaled.forward(self, x)
    return y if x.dtype is torch.float32 else y * 1.012


def in_bfloat16(self, x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.gain)


def clamped(self, x):
    y = Scaled.forward(self, x)
    return y.clamp(max=5 * y.std()) if x.dtype is torch.bfloat16 else y  # less than 1 % of the elements


SHARE = r"[\d.]+% of the results for a bfloat16 x differ, by up to \d+ ulp"


@pytest.mark.parametrize(
    "forward, words",
    [
        (in_float32, r"its own forward returns torch.float32 of shape .*, evenkeel's torch.bfloat16"),
        (coarse, SHARE + "$"),
        (in_bfloat16, SHARE + "$"),
        (clamped, r"0\.\d+% of the results for a bfloat16 x differ"),
        (promoted, SHARE + "; rounding='each' matches"),
        (lambda self, x: (x,), "its own forward returns a tuple"),
        (lambda self, x: x.missing, "AttributeError: .*missing"),
    ],
    ids=["dtype", "bfloat16 alone", "in bfloat16", "few elements", "rounding", "no tensor", "an error"],
)
def test_what_differs_is_said(forward, words):
    cls = fresh(forward=forward)
    ek.register(cls, "rms_norm", **OPTIONS)
    with pytest.warns(RuntimeWarning, match=words):
        assert ek.replace(cls()) == 0


@pytest.mark.parametrize("forward, right, wrong", [(promoted, "each", "once"), (Scaled.forward, "once", "each")])
@pytest.mark.parametrize("size", [4, SIZE, 2048])
def test_a_class_registered_with_the_wrong_rounding_is_left_alone(forward, right, wrong, size):
    cls = fresh(forward=forward)
    ek.register(cls, "rms_norm", rounding=wrong, **OPTIONS)
    with pytest.warns(RuntimeWarning, match=f"{SHARE}; rounding='{right}' matches"):
        assert ek.replace(cls(size)) == 0
    ek.register(cls, "rms_norm", rounding=right, **OPTIONS)
    assert ek.replace(cls(size)) == 1


def test_a_difference_is_said_where_the_other_rounding_cannot_be_compared():
    def forward(self, x):
        if x.abs().max() < 1:
            raise ArithmeticError("x is small")
        return promoted(self, x)

    cls = fresh(forward=forward)
    ek.register(cls, "rms_norm", **OPTIONS)
    with pytest.warns(RuntimeWarning, match=f"{SHARE}$"):
        assert ek.replace(cls()) == 0


def test_a_class_is_compared_once(scaled):
    assert ek.replace(nn.Sequential(scaled(), scaled())) == 2
    count = scaled.calls
    assert count > 0
    assert ek.replace(scaled()) == 1 and scaled.calls == count


def test_a_difference_is_remembered_until_the_class_is_registered_again():
    cls = fresh()
    ek.register(cls, "rms_norm", weight="gain")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="replace left"):
            assert ek.replace(cls()) == 0
        count = cls.calls
    assert cls.calls == count
    ek.register(cls, "rms_norm", **OPTIONS)
    assert ek.replace(cls()) == 1


def test_a_class_registered_again_computes_in_the_new_way():
    cls, x = fresh(), example((5, SIZE), torch.bfloat16)
    norms = []
    for rounding, forward in (("once", Scaled.forward), ("each", promoted)):
        cls.forward = forward
        ek.register(cls, "rms_norm", rounding=rounding, **OPTIONS)
        norms.append(random_norm(cls).bfloat16())
        assert ek.replace(norms[-1]) == 1
    for norm, rounding in zip(norms, ("once", "each"), strict=True):
        expected = ek.rms_norm(x, (SIZE,), norm.gain, 1e-3, weight_offset=1.0, rounding=rounding)
        assert torch.equal(norm(x), expected)


def test_the_comparison_disturbs_nothing(scaled):
    norm, ran = random_norm(scaled), []
    norm.register_forward_hook(lambda *_: ran.append("the module's"))
    norm.register_forward_pre_hook(lambda *_: ran.append("the module's"))
    everyone = nn.modules.module.register_module_forward_hook(lambda *_: ran.append("everyone's"))
    gain, state = norm.gain.detach().clone(), torch.get_rng_state()
    attributes = dict(vars(norm))
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.float16):
            assert ek.replace(norm) == 1
            assert torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") is torch.float16
    finally:
        everyone.remove()
    assert scaled.calls > 0 and ran == [] and norm.seen == []
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(norm.gain, gain) and norm.gain.grad is None
    assert vars(norm) == attributes


def test_replace_works_where_gradients_and_defaults_are_others(scaled):
    with torch.inference_mode():
        assert ek.replace(scaled()) == 1
    cls = fresh()
    ek.register(cls, "rms_norm", **OPTIONS)
    with torch.device("meta"):
        norm = cls()
    norm.gain = nn.Parameter(torch.zeros(SIZE))
    with torch.device("meta"):
        assert ek.replace(norm) == 1
    assert cls.calls > 0


@gpu_only
def test_a_forward_that_needs_a_gpu_is_compared_there():
    def on_a_gpu(self, x):
        assert x.is_cuda
        return Scaled.forward(self, x)

    cls = fresh(forward=on_a_gpu)
    ek.register(cls, "rms_norm", **OPTIONS)
    assert ek.replace(cls().to(DEVICE)) == 1 and cls.calls > 0


# ---- tensors that are elsewhere ----


@pytest.fixture
def different():
    """A class whose comparison would fail."""
    cls = fresh(forward=lambda self, x: x)
    ek.register(cls, "rms_norm", **OPTIONS)
    return cls


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_modules_on_the_meta_device_go_by_what_is_registered(different, no_warning):
    assert ek.replace(different().to("meta")) == 1
    with FakeTensorMode():
        assert ek.replace(different()) == 1


def test_sharded_modules_go_by_what_is_registered(different, no_warning, process_group):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no torch.distributed.fsdp.fully_shard")
    norm = different()
    fsdp.fully_shard(norm, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    assert ek.replace(norm) == 1


def test_a_module_that_went_unseen_does_not_speak_for_its_class(different):
    assert ek.replace(different().to("meta")) == 1
    with pytest.warns(RuntimeWarning, match="replace left"):
        assert ek.replace(different()) == 0


# ---- arguments ----


@pytest.mark.parametrize(
    "cls, kind, options, exception, words",
    [
        (3, "rms_norm", {}, TypeError, "cls is 3; expected a subclass of torch.nn.Module"),
        (int, "rms_norm", {}, TypeError, "cls is <class 'int'>; expected a subclass"),
        (Scaled, "batch_norm", {}, ValueError, "kind is 'batch_norm'; expected 'layer_norm' or 'rms_norm'"),
        (Scaled, "rms_norm", {"bias": "b"}, ValueError, "bias is 'b'; expected None"),
        (Scaled, "rms_norm", {"weight": 2}, TypeError, "weight is 2; expected the name of an attribute, or None"),
        (Scaled, "rms_norm", {"eps": None}, TypeError, "eps is None; expected the name of an attribute, or a number"),
        (Scaled, "rms_norm", {"weight_offset": True}, TypeError, "weight_offset is True; expected the name"),
        (Scaled, "rms_norm", {"normalized_shape": 8}, TypeError, "normalized_shape is 8; expected the name"),
        (Scaled, "rms_norm", {"result_dtype": "y"}, ValueError, "result_dtype is 'y'; expected None or 'x' or"),
        (Scaled, "rms_norm", {"rounding": "twice"}, ValueError, "rounding"),
        (Scaled, "rms_norm", {"weight_offset": 2.0}, ValueError, "weight_offset"),
        (Scaled, "rms_norm", {"gate": 2}, TypeError, "gate is 2; expected the name of an argument of forward, or None"),
        (Scaled, "rms_norm", {"gate": "z", "activation": None}, TypeError, "activation is None; expected the name"),
        (Scaled, "rms_norm", {"gate": "z", "group_cols": 2.0}, TypeError, "group_cols is 2.0; expected the name"),
        (Scaled, "rms_norm", {"gate": "z", "gate_first": 2}, ValueError, "gate_first is 2; expected False or True"),
        (Scaled, "rms_norm", {"gate": "z", "group_cols": 0}, ValueError, "group_cols is 0; expected a positive number"),
        (Scaled, "rms_norm", {"activation": "gelu"}, ValueError, "activation is 'gelu' and gate is None; expected a g"),
        (Scaled, "rms_norm", {"gate_first": True}, ValueError, "gate_first is True and gate is None; expected a gate"),
        (Scaled, "rms_norm", {"group_cols": 8}, ValueError, "group_cols is 8 and gate is None; expected a gate"),
    ],
)
def test_wrong_arguments_are_named(cls, kind, options, exception, words):
    with pytest.raises(exception, match=words):
        ek.register(cls, kind, **options)
    assert ek.replace(Scaled()) == 0
