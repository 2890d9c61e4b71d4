"""memory_estimate, against what PyTorch's allocators really hand out. SPDX-License-Identifier: MIT"""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import evenkeel.torch as ek
from evenkeel.torch import _kernels, _ledger, _only_memory
from torch_cases import Wrapped, close, tensor

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning"),
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning"),
]

NORMS = {"evenkeel": ek.LayerNorm, "torch": nn.LayerNorm, "evenkeel rms": ek.RMSNorm, "torch rms": nn.RMSNorm}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, norm, width, heads, **options):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = norm(width, **options), norm(width, **options)
        self.qkv, self.out = nn.Linear(width, 3 * width, **options), nn.Linear(width, width, **options)
        self.up, self.down = nn.Linear(width, 4 * width, **options), nn.Linear(4 * width, width, **options)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class Pooled(nn.Module):
    """x comes to the norms transposed, the gradient expanded: from one number, or from one row."""

    def __init__(self, dims):
        super().__init__()
        self.dims, self.first, self.second = dims, ek.LayerNorm(64), ek.RMSNorm(64)

    def forward(self, x):
        return self.second(self.first(x.transpose(1, 2))).sum(self.dims)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(500, 64), ek.LayerNorm(64), nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.norm(self.embedding(tokens)))


def linears(norm, **options):
    layers = [(nn.Linear(128, 128, **options), norm(128, **options), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*(module for layer in layers for module in layer))


def blocks(norm, **options):
    return nn.Sequential(*(Block(norm, 64, 2, **options) for _ in range(2)))


def norms(norm, **options):
    return nn.Sequential(*(norm(512, **options) for _ in range(3)))


STACKS = {linears: (256, 128), blocks: (4, 64, 64), norms: (500, 512)}


def step(build, x):
    """What the estimate is of, from nothing to the end."""
    model = build()
    inputs = x()
    y = model(inputs)
    y.backward(torch.ones_like(y))
    return model, inputs, y


def measured_on_the_cpu(build, x):
    """The most that PyTorch's allocator has handed out at a time. oneDNN's scratch memory is turned off with oneDNN."""
    with torch.backends.mkldnn.flags(enabled=False):
        step(build, x)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            kept = step(build, x)
    del kept
    changes = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(changes, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def measured_on_a_gpu(build, x):
    step(build, x)  # from which on the process has what cuBLAS works in
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(build, x)
    return torch.cuda.max_memory_allocated() - before


def agrees(estimate, measured):
    assert abs(estimate - measured) <= 0.02 * measured, f"estimated {estimate!r}, measured {measured}"


# ---- the peak ----


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("stack", STACKS)
def test_the_estimate_agrees_with_what_was_measured(stack, norm, dtype):
    if stack is blocks and dtype.itemsize == 2 and torch.cpu._is_amx_tile_supported():
        pytest.skip("attention packs 16-bit numbers for AMX, in memory of its own")
    shape = STACKS[stack]
    estimate = ek.memory_estimate(stack(NORMS[norm], dtype=dtype), shape)
    agrees(
        estimate, measured_on_the_cpu(lambda: stack(NORMS[norm], dtype=dtype), lambda: torch.ones(shape, dtype=dtype))
    )


@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES[:3])
@pytest.mark.parametrize("norm", NORMS)
def test_the_estimate_of_norms_agrees_with_what_was_measured_on_a_gpu(norm, dtype):
    shape, options = (4096, 512), {"dtype": dtype, "device": "cuda"}
    estimate = ek.memory_estimate(norms(NORMS[norm], **options), shape)
    agrees(estimate, measured_on_a_gpu(lambda: norms(NORMS[norm], **options), lambda: torch.ones(shape, **options)))


class ChannelsLast(nn.Module):
    """The result of the norm is copied to the layout of x."""

    def __init__(self):
        super().__init__()
        self.norm = ek.RMSNorm(16)

    def forward(self, x):
        return self.norm(x.to(memory_format=torch.channels_last))


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: norms(ek.LayerNorm), (500, 512)),
        (lambda: Pooled((0, 1, 2)), (8, 64, 512)),
        (lambda: Pooled((0, 1)), (8, 64, 512)),
        (ChannelsLast, (2, 8, 16, 16)),
    ],
)
def test_evenkeels_norms_and_their_copies_are_followed_to_the_byte(build, shape):
    assert ek.memory_estimate(build(), shape) == measured_on_the_cpu(build, lambda: torch.ones(shape))


def test_on_a_gpu_the_workspace_of_backward_is_counted(monkeypatch):
    monkeypatch.setattr(_only_memory, "stand_in", lambda t: None if t is None else torch.empty(()).expand(t.shape))
    with FakeTensorMode():
        x, weight = torch.empty(500, 512, device="cuda"), torch.empty(512, device="cuda")
        gradients = _kernels.empty_gradients(x, (512,), x.dtype, True, True, False)
        workspace = _only_memory._workspace(_kernels.RMS_NORM, x, (512,), weight, gradients, None, {"dy": x})
    rows, column = torch.empty(500, 512), torch.empty(512)
    size = _kernels.workspace_bytes(_kernels.RMS_NORM, rows, (512,), column, True, False, dx=True, dy=rows)
    assert workspace.is_cuda and workspace.nbytes == size


def test_on_a_gpu_sizes_are_those_of_its_blocks():
    ledger = _ledger.Ledger()
    with FakeTensorMode():
        tensors = [torch.empty(size, device="cuda", dtype=torch.uint8) for size in (1, 512, 513)]
        assert ledger.enter(tensors) == 512 + 512 + 1024
    del tensors
    assert ledger.live == 0 and ledger.peak == 2048


def test_a_model_of_tokens_takes_a_tensor_and_counts_tied_weights_once():
    tokens = torch.randint(500, (4, 64))
    estimate = ek.memory_estimate(Tied(), tokens)
    agrees(estimate, measured_on_the_cpu(Tied, tokens.clone))
    assert estimate.parameters == 4 * (500 * 64 + 2 * 64) == estimate.gradients


def test_the_dtype_of_the_input_is_that_of_the_model_or_the_one_given():
    model = norms(ek.LayerNorm, dtype=torch.bfloat16)
    estimates = [ek.memory_estimate(model, (9, 512), dtype) for dtype in (None, torch.bfloat16, torch.float32)]
    assert estimates[0] == estimates[1] < estimates[2]


def test_inputs_that_are_not_tensors_are_passed_on():
    class Repeated(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = ek.LayerNorm(64)

        def forward(self, x, count, others, scale=None):
            assert type(count) is int and scale is None and type(others["y"]) is type(x)
            for _ in range(count):
                x = self.norm(x)
            return x + others["y"]

    x, others = torch.empty(100, 64), {"y": torch.empty(64), "name": "y"}
    once, thrice = (ek.memory_estimate(Repeated(), (x, count, others, None)) for count in (1, 3))
    assert thrice.saved - once.saved == 2 * (x.nbytes + 3 * 4 * 100)
    assert torch.is_tensor(others["y"]) and type(others["y"]) is torch.Tensor


def test_an_input_that_needs_a_gradient_has_one():
    x = torch.empty(100, 64)
    with_one = ek.memory_estimate(nn.ReLU(), x.requires_grad_())
    assert with_one - ek.memory_estimate(nn.ReLU(), x.detach()) == 2 * x.nbytes  # dy and dx


@pytest.mark.slow
def test_a_replaced_hugging_face_model():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=200, use_cache=False, **sizes)

    class Logits(nn.Module):
        def __init__(self, replaces):
            super().__init__()
            self.model = transformers.LlamaForCausalLM(config)
            assert ek.replace(self.model, ("rms_norm",) if replaces else ()) == 7 * replaces

        def forward(self, tokens):
            return self.model(tokens).logits

    tokens = torch.randint(200, (2, 64))
    before, after = (ek.memory_estimate(Logits(replaces), tokens) for replaces in (False, True))
    agrees(after, measured_on_the_cpu(lambda: Logits(True), tokens.clone))
    assert after.saved < before.saved and after < before


# ---- the parts ----


def test_the_parts_of_an_estimate():
    model, x = nn.Sequential(ek.LayerNorm(64), nn.BatchNorm1d(64, affine=False)), 4 * 100 * 64
    estimate = ek.memory_estimate(model, (100, 64))
    assert estimate.parameters == estimate.gradients == 4 * 2 * 64
    assert estimate.buffers == 4 * 2 * 64 + 8
    assert estimate.saved == 2 * x + 4 * 3 * 100 + 4 * 2 * 64  # both outputs; three floats a row; two a column
    assert estimate.peak == int(estimate) > estimate.parameters + estimate.saved + x


def test_it_is_a_number_that_explains_itself():
    estimate = ek.memory_estimate(ek.LayerNorm(64), (100, 64))
    assert isinstance(estimate, int) and isinstance(estimate, ek.MemoryEstimate)
    assert repr(estimate) == f"MemoryEstimate({int(estimate)}, parameters=512, buffers=0, gradients=512, saved=26800)"
    assert str(estimate) == (
        "77.17 KiB at the peak (parameters 512 bytes, buffers 0 bytes, gradients 512 bytes, saved 26.17 KiB)"
    )
    for twin in (copy.copy(estimate), pickle.loads(pickle.dumps(estimate))):
        assert repr(twin) == repr(estimate)


def test_large_models_are_estimated_without_their_memory():
    with torch.device("meta"):
        model = linears(ek.LayerNorm)
        giant = nn.Linear(1_000_000, 1_000_000, bias=False)
    assert ek.memory_estimate(model, (256, 128)) == ek.memory_estimate(linears(ek.LayerNorm), (256, 128))
    assert "TiB" in str(ek.memory_estimate(giant, (10, 1_000_000)))


def test_without_parameters_to_train_there_is_no_backward():
    model = ek.LayerNorm(64).requires_grad_(False)
    estimate = ek.memory_estimate(model, (100, 64))
    assert estimate.gradients == 0 and estimate.peak < 4 * (2 * 100 * 64 + 2 * 64 + 3 * 100) + 1


# ---- what stays ----


class Seeds(nn.Module):
    def forward(self, x):
        torch.manual_seed(7)
        return x * torch.rand(())


def test_the_model_and_the_random_state_stay_as_they_are():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), ek.LayerNorm(8), Seeds()).eval()
    state, parameters = copy.deepcopy(model.state_dict()), list(model.parameters())
    model[0].weight.grad = torch.ones(8, 8)
    random = torch.get_rng_state()
    ek.memory_estimate(model, (16, 8))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert torch.equal(parameters[0].grad, torch.ones(8, 8)) and parameters[1].grad is None
    assert not any(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert type(model(torch.ones(2, 8))) is torch.Tensor


def hooked(seen):
    """A model with every kind of hook. They note their calls, and what they belong to cannot be copied."""

    class Hook:
        lock = threading.Lock()

        def __init__(self, name):
            self.name = name

        def __call__(self, *_):
            seen.append(self.name)

        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    model = nn.Sequential(nn.Linear(8, 8), ek.LayerNorm(8))
    for module in model.modules():
        module.register_forward_pre_hook(Hook("forward_pre_hook"))
        module.register_forward_hook(Hook("forward_hook"), always_call=True)
        module.register_full_backward_pre_hook(Hook("full_backward_pre_hook"))
        module.register_full_backward_hook(Hook("full_backward_hook"))
    for parameter in model.parameters():
        parameter.register_hook(Hook("hook"))
        parameter.register_post_accumulate_grad_hook(Hook("post_accumulate_grad_hook"))
    everywhere = torch.nn.modules.module
    handles = [
        everywhere.register_module_forward_pre_hook(Hook("module_forward_pre_hook")),
        everywhere.register_module_forward_hook(Hook("module_forward_hook")),
        everywhere.register_module_full_backward_pre_hook(Hook("module_full_backward_pre_hook")),
        everywhere.register_module_full_backward_hook(Hook("module_full_backward_hook")),
    ]
    return model, handles


def test_no_hook_of_the_user_runs():
    seen = []
    model, handles = hooked(seen)
    expected = nn.Sequential(nn.Linear(8, 8), ek.LayerNorm(8))
    try:
        estimate = ek.memory_estimate(model, (16, 8))
        assert not seen
        model(torch.ones(16, 8, requires_grad=True)).sum().backward()
        assert len(set(seen)) == 10
    finally:
        for handle in handles:
            handle.remove()
    assert repr(estimate) == repr(ek.memory_estimate(expected, (16, 8)))


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_hooks_that_compute_a_parameter_do():
    model = nn.utils.weight_norm(nn.Linear(8, 8))
    estimate = ek.memory_estimate(model, (16, 8))
    assert estimate.parameters == estimate.gradients == 4 * (8 * 8 + 8 + 8)


# ---- other threads ----


class Paused(nn.Module):
    """A norm that waits for another thread. The events belong to the class: the module is copied."""

    inside, go_on = threading.Event(), threading.Event()

    def __init__(self):
        super().__init__()
        self.norm = ek.LayerNorm(40)

    def forward(self, x):
        self.inside.set()
        assert self.go_on.wait(60)
        return self.norm(x)


def beside_an_estimate(call):
    """Calls while another thread is in the middle of an estimate, which it returns."""
    Paused.inside.clear()
    Paused.go_on.clear()
    with ThreadPoolExecutor(1) as others:
        estimate = others.submit(ek.memory_estimate, Paused(), (6, 40))
        try:
            assert Paused.inside.wait(60)
            call()
        finally:
            Paused.go_on.set()
        return estimate.result()


def test_norms_of_other_threads_compute_meanwhile():
    x, weight, dy = tensor((6, 40)).requires_grad_(), tensor((40,), seed=1), tensor((6, 40), seed=2)
    expected = F.layer_norm(x, (40,), weight)
    (correct,) = torch.autograd.grad(expected, x, dy)

    def call():
        close(ek.layer_norm(Wrapped(x.detach()), (40,), weight).inner, expected)
        with FlopCounterMode(display=False):
            y = ek.layer_norm(x, (40,), weight)
        close(y, expected)
        close(torch.autograd.grad(y, x, dy)[0], correct)

    beside_an_estimate(call)


def test_estimates_of_several_threads_do_not_disturb_each_other():
    alone = ek.memory_estimate(ek.LayerNorm(40), (6, 40))
    found = []
    assert beside_an_estimate(lambda: found.append(ek.memory_estimate(ek.LayerNorm(40), (6, 40)))) == alone
    assert found == [alone]


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_mode_around_it_does_not_matter(context):
    expected = ek.memory_estimate(linears(ek.RMSNorm), (64, 128))
    model = linears(ek.RMSNorm)
    with context():
        assert ek.memory_estimate(model, (64, 128)) == expected


# ---- what is refused ----


def test_wrong_shapes_raise_as_the_model_would():
    with pytest.raises(RuntimeError, match=r"Given normalized_shape=\[64\], expected input with shape"):
        ek.memory_estimate(nn.Sequential(ek.LayerNorm(64)), (3, 65))
    assert ek.layer_norm(torch.ones(2, 4), (4,)).equal(torch.zeros(2, 4))  # and the norms compute again


def test_a_model_that_looks_at_values_is_refused():
    class Looks(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(NotImplementedError, match="the model looks at the values of tensors"):
        ek.memory_estimate(Looks(), (3,))


def test_a_dtype_beside_a_tensor_is_refused():
    with pytest.raises(ValueError, match=r"dtype \(torch.float16\) is for an input_shape of numbers"):
        ek.memory_estimate(nn.ReLU(), torch.empty(3), torch.float16)
