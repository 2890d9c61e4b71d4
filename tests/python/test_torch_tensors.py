"""PyTorch's tensors through its C exchange API, as the extension reads and makes them. SPDX-License-Identifier: MIT"""

import subprocess
import sys

import numpy as np
import pytest

import evenkeel
from evenkeel import _core
from reference import Norm, array, close

torch = pytest.importorskip("torch")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this PyTorch has no C exchange API", allow_module_level=True)

import evenkeel.torch  # noqa: E402

TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def tensor(shape, dtype="f32", seed=0):
    return torch.from_numpy(array(shape, "f64", seed)).to(TORCH_DTYPES[dtype])


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_forward_and_backward(dtype):
    x, dy, w, b = (
        tensor((3, 5, 40), dtype),
        tensor((3, 5, 40), dtype, 1),
        tensor((40,), dtype, 2),
        tensor((40,), dtype, 3),
    )
    y, stats = _core.forward(_core.LAYER_NORM, x, (40,), w, b, 1e-5, True, None, 0, None)
    assert y.dtype == x.dtype and y.is_contiguous() and stats.shape == (3, 15)
    norm = Norm("layer", x.double(), w.double(), b.double())
    close(y.double(), norm.y, dtype)
    results = _core.backward(_core.LAYER_NORM, dy, x, (40,), w, stats, 0.0, True, True, True, None, 0, None)
    for result, expected in zip(results, norm.backward(dy.double()), strict=True):
        assert result.dtype == x.dtype
        close(result.double(), expected, dtype)


def test_the_ops_take_tensors_too():
    x = tensor((4, 6, 8)).transpose(0, 1)
    y, rstd = evenkeel.rms_norm_forward(x, eps=1e-5)
    assert isinstance(y, torch.Tensor) and rstd.shape == (6, 4)
    close(y, Norm("rms", x).y, "f32")


def test_parameters_and_tensors_with_gradients_are_read():
    x = tensor((4, 8)).requires_grad_()
    weight = torch.nn.Parameter(tensor((8,), seed=1))
    y = _core.forward(_core.LAYER_NORM, x, 8, weight, None, 1e-5, None, None, 1, None)
    assert type(y) is torch.Tensor and not y.requires_grad
    close(y, Norm("layer", x.detach(), weight.detach()).y, "f32")


def test_a_slice_starts_where_it_starts():
    x = tensor((9, 20))
    y = _core.forward(_core.LAYER_NORM, x[3:, 5:13], 8, None, None, 1e-5, None, None, 1, None)
    close(y, Norm("layer", x[3:, 5:13]).y, "f32")


def forward(x):
    return _core.forward(_core.LAYER_NORM, x, 3, None, None, 1e-5, None, None, 1, None)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool], ids=str)
def test_dtypes_that_the_library_lacks_are_refused(dtype):
    with pytest.raises(TypeError, match=rf"x is {str(dtype).removeprefix('torch.')}\d*: it must be f32, f16"):
        forward(torch.ones(2, 3, dtype=dtype))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, 3, device="meta"),
        lambda: torch.ones(2, 3).to_sparse(),
        lambda: torch.ones(2, 3).to_sparse_csr(),
        lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8),
    ],
    ids=["meta", "sparse", "sparse rows", "quantized"],
)
def test_what_pytorch_cannot_export_is_refused_in_its_words(make):
    with pytest.raises(TypeError, match="^x cannot be read: [^\n]+$") as refusal:
        forward(make())
    assert isinstance(refusal.value.__cause__, RuntimeError)


OUT_OF_MEMORY = """
import resource, torch, evenkeel
x = torch.ones(1 << 26, 4)  # 1 GiB
evenkeel.layer_norm(x[:4])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), resource.RLIM_INFINITY))
try:
    evenkeel.layer_norm(x)
except MemoryError as error:
    print("refused:", str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_memory_that_is_not_there_is_an_exception():
    result = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], stdout=subprocess.PIPE, text=True)
    assert result.stdout.startswith("refused: ")


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(1, 8, 16).transpose(0, 1),
        torch.randn(4, 1, 1, 16).to(memory_format=torch.channels_last),
        torch.randn(1, 16).as_strided((1, 16), (100, 1)),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_results_lie_as_pytorch_s_do(x, recorded):
    x = x.detach().requires_grad_(recorded)
    y, expected = evenkeel.torch.layer_norm(x, (16,)), torch.nn.functional.layer_norm(x, (16,))
    assert y.stride() == expected.stride()
    if recorded:
        results = [torch.autograd.grad(t, x, torch.ones_like(t))[0] for t in (y, expected)]
        assert results[0].stride() == results[1].stride()


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (2, 1, 4, 8), (2, 3, 1, 8), (2, 3, 4, 5, 8)], ids=str)
@pytest.mark.parametrize("dims", [1, 3])
def test_results_of_channels_last_lie_as_pytorch_s_do(op, shape, dims):
    x = torch.randn(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    x.requires_grad_()
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            y, expected = (getattr(n, op)(x, shape[-dims:]) for n in (evenkeel.torch, torch.nn.functional))
        assert y.stride() == expected.stride() and torch.allclose(y, expected, atol=1e-5)
    found, correct = (torch.autograd.grad(t, x, torch.ones_like(t))[0] for t in (y, expected))
    assert found.stride() == correct.stride() and torch.allclose(found, correct, atol=1e-5)


def test_a_negation_of_rows_of_one_element_is_carried_out():
    z = torch.randn(4, 1, dtype=torch.cfloat).conj().imag
    assert torch.equal(evenkeel.rms_norm(z, eps=1e-3), evenkeel.rms_norm(z.resolve_neg(), eps=1e-3))
    assert torch.equal(*(evenkeel.torch.rms_norm_forward(t)[0] for t in (z, z.resolve_neg())))


def test_a_tensor_without_memory_is_said_to_be_one():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 8)
    with pytest.raises(TypeError, match="x (has no memory of its own|cannot be read)"):
        evenkeel.torch.layer_norm_forward(x)


def test_arrays_of_two_kinds_are_each_copied_in_their_own_way():
    a = np.arange(12, dtype="f4").reshape(4, 3)
    result = evenkeel.layer_norm(torch.tensor(a).t(), np.ones(4, "f4"))
    assert torch.equal(result, evenkeel.layer_norm(torch.tensor(a).t().contiguous(), torch.ones(4)))
