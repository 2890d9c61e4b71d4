"""The results of evenkeel.torch: their values against torch.nn.functional in float64, their bits against the C
reference, their strides against PyTorch, and the tensors that the extension reads. SPDX-License-Identifier: MIT"""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import evenkeel
import evenkeel.torch as ek
import reference
from evenkeel import _core
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    any_call,
    both_norms,
    close,
    cpu_only,
    every_dtype,
    every_norm,
    exchange_only,
    gradients,
    require_gradients,
    run_python,
    same_bits,
    tensor,
    wide,
)

# ---- values ----

SHAPES = [((5,), 1), ((3, 64), 1), ((2, 3, 100), 1), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 4), ((1, 1), 1), ((1, 2049), 1)]


def check(norm, x, shape, weight, bias, eps=1e-5):
    """With autograd and without it, the result is that of float64."""
    expected = norm.theirs(wide(x)[0], shape, *wide(weight, bias), eps)
    y = norm.ours(x, shape, weight, bias, eps)
    assert type(y) is torch.Tensor and y.dtype == x.dtype and y.device == x.device
    assert y.is_contiguous() or (norm.op == "rms_norm" and y.stride() == x.stride())  # of channels_last
    close(y, expected)
    recorded = norm.ours(x.detach().requires_grad_(), shape, weight, bias, eps)
    assert recorded.requires_grad and same_bits(recorded, y)


@every_dtype
@every_norm
def test_any_operands_in_any_dtype(norm, dtype):
    check(norm, tensor((4, 3, 40), dtype), (40,), *norm.affine((40,), dtype))


@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
@both_norms
def test_any_number_of_dimensions(norm, shape, dims):
    normalized = shape[len(shape) - dims :]
    check(norm, tensor(shape), normalized, *norm.affine(normalized))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@every_norm
def test_f32_weights_go_with_16_bit_activations(norm, dtype):
    check(norm, tensor((6, 40), dtype), (40,), *norm.affine((40,), "f32"))


@pytest.mark.parametrize("eps", [0.0, 1e-12, 0.5, 3], ids=str)
@both_norms
def test_any_eps(norm, eps):
    check(norm, tensor((6, 40)), (40,), *norm.affine((40,)), eps)


@every_dtype
def test_rms_norm_without_eps_is_pytorch_s(dtype):
    x = tensor((3, 8), dtype, scale=1e-3 if dtype != "f64" else 1e-8)
    close(ek.rms_norm(x, (8,)), torch.nn.functional.rms_norm(x, (8,)))


@pytest.mark.parametrize("kind", [list, tuple, torch.Size])
def test_the_shape_may_be_any_kind_of_list(kind):
    x = tensor((2, 3, 4))
    assert same_bits(ek.layer_norm(x, kind((3, 4))), ek.layer_norm(x, (3, 4)))


LAYOUTS = {
    "transposed": lambda: tensor((40, 6)).t(),
    "leading dimensions swapped": lambda: tensor((5, 3, 40)).transpose(0, 1),
    "channels last": lambda: tensor((2, 5, 3, 40)).to(memory_format=torch.channels_last),
    "expanded rows": lambda: tensor((1, 40)).expand(7, 40),
    "expanded columns": lambda: tensor((7, 1)).expand(7, 40),
    "one number everywhere": lambda: tensor((1, 1)).expand(7, 40),
    "columns of a wider matrix": lambda: tensor((7, 60))[:, 11:51],
    "every other column": lambda: tensor((7, 80))[:, ::2],
    "every third row": lambda: tensor((21, 40))[::3],
    "rows from an odd element": lambda: tensor((281,))[1:].view(7, 40),
    "windows that overlap": lambda: tensor((100,)).unfold(0, 40, 7),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@both_norms
def test_any_layout(norm, layout):
    x = LAYOUTS[layout]()
    check(norm, x, (40,), *norm.affine((40,)))
    assert same_bits(norm.ours(x, (40,)), norm.ours(x.contiguous(), (40,)))


def test_weights_and_biases_of_any_layout():
    x, weight, bias = tensor((4, 6, 8)), tensor((8, 6), seed=1).t(), tensor((6, 16), seed=2)[:, ::2]
    check(LAYER, x, (6, 8), weight, bias)
    check(LAYER, x, (6, 8), tensor((1, 1)).expand(6, 8), bias)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (0, 0, 8), (4, 0), (0, 0)], ids=str)
@every_norm
def test_nothing_in_nothing_out(norm, shape, recwarn):
    x, weight, bias = require_gradients(tensor(shape), *norm.affine(shape[-1:]))
    y = norm.ours(x, shape[-1:], weight, bias)
    assert y.shape == shape and not recwarn.list
    y.sum().backward()
    assert x.grad.shape == shape
    assert all(not p.grad.any() and p.grad.shape == p.shape for p in (weight, bias) if p is not None)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_far_from_zero_as_exact_as_near_it(offset):
    x = tensor((8, 1000), offset=offset)
    check(LAYER, x, (1000,), None, None)


def test_rows_of_equal_numbers_have_no_variance():
    assert not ek.layer_norm(torch.full((3, 100), 1234.5, device=DEVICE), (100,)).any()


@both_norms
def test_nan_and_infinity_stay_in_their_row(norm):
    x = tensor((3, 16))
    expected = norm.ours(x, (16,))[::2]
    x[1, 3] = float("nan")
    assert same_bits(norm.ours(x, (16,))[::2], expected)
    assert norm.ours(x, (16,))[1].isnan().all()


def test_operands_are_not_changed():
    operands = tensor((4, 8)), tensor((8,), seed=1), tensor((8,), seed=2)
    before = [t.clone() for t in operands]
    ek.layer_norm(operands[0], (8,), *operands[1:])
    assert all(map(torch.equal, operands, before))


@settings(max_examples=200, deadline=None)
@given(any_call(), st.sampled_from([1e-5, 0.1]))
def test_any_shape_strides_dtype_and_operands(call, eps):
    norm, *operands = call
    check(norm, *operands, eps)


# ---- bits ----

BITS_SHAPES = [(1, 1), (7, 33), (70, 129), (3, 4097), (5, 8192)]


def reference_results():
    """The bytes that the C reference computes from NumPy arrays; called in a process limited to the reference."""
    assert evenkeel.info()["level"] == "reference"
    results = {}
    for dtype in DTYPES:
        for shape in BITS_SHAPES:
            x, dy = reference.array(shape, dtype, 1, offset=2.0), reference.array(shape, dtype, 2)
            w, b = reference.array(shape[-1:], dtype, 3), reference.array(shape[-1:], dtype, 4)
            y, mean, rstd, mean_lo = evenkeel.layer_norm_forward(x, w, b, return_mean_lo=True)
            layer = y, *evenkeel.layer_norm_backward(dy, x, mean, rstd, w, mean_lo=mean_lo)
            y, rstd = evenkeel.rms_norm_forward(x, w)
            rms = y, *evenkeel.rms_norm_backward(dy, x, rstd, w)
            results[dtype, shape] = [a.tobytes() for a in (*layer, *rms)]
    return results


@pytest.fixture(scope="module")
def reference_bits(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "results"
    script = f"import pickle, test_torch_values as t; pickle.dump(t.reference_results(), open({str(path)!r}, 'wb'))"
    run_python(script, EVENKEEL_ISA="reference")
    return pickle.loads(path.read_bytes())


def operand(shape, dtype, seed, offset=0.0):
    """reference.array(), as a tensor."""
    values = reference.array(shape, dtype, seed, offset=offset)
    return torch.from_numpy(values.view(np.uint8).reshape(-1)).view(DTYPES[dtype]).reshape(shape).to(DEVICE)


@pytest.mark.parametrize("shape", BITS_SHAPES, ids=str)
@every_dtype
def test_forward_and_backward_have_the_bits_of_the_reference(dtype, shape, reference_bits):
    x, dy = operand(shape, dtype, 1, 2.0).requires_grad_(), operand(shape, dtype, 2)
    w, b = (operand(shape[-1:], dtype, seed).requires_grad_() for seed in (3, 4))
    y = ek.layer_norm(x, shape[-1:], w, b)
    results = [y, *torch.autograd.grad(y, (x, w, b), dy)]
    y = ek.rms_norm(x, shape[-1:], w)
    results += [y, *torch.autograd.grad(y, (x, w), dy)]
    for result, expected in zip(results, reference_bits[dtype, shape], strict=True):
        assert result.detach().cpu().view(torch.uint8).numpy().tobytes() == expected


@pytest.mark.parametrize("cols", [1, 40, 1000, 5000])
@every_dtype
@both_norms
def test_a_row_alone_is_the_row_of_a_batch(norm, dtype, cols):
    x, dy = tensor((37, cols), dtype, offset=1.0), tensor((37, cols), dtype, seed=1)
    weight, bias = norm.affine((cols,), dtype)

    def both(rows):
        leaf = x[rows].detach().requires_grad_()
        y = norm.ours(leaf, (cols,), weight, bias)
        y.backward(dy[rows])
        return y, leaf.grad

    batch = both(slice(None))
    for rows in (slice(0, 1), slice(36, 37), slice(5, 8), slice(0, 20)):
        assert all(same_bits(part, whole[rows]) for part, whole in zip(both(rows), batch, strict=True))


@cpu_only
@every_norm
def test_bits_do_not_depend_on_the_number_of_threads(norm, threads):
    x, dy = tensor((300, 1000)), tensor((300, 1000), seed=1)
    weight, bias = norm.affine((1000,))

    def everything(count):
        threads(count)
        y = norm.ours(x, (1000,), weight, bias)
        found = gradients(lambda x, w, b: norm.ours(x, (1000,), w, b), (x, weight, bias), dy)
        return [y, *(t for t in found if t is not None)]

    one = everything(1)
    for count in (2, 3, 7):
        assert all(map(same_bits, everything(count), one))


@both_norms
def test_bits_do_not_depend_on_which_gradients_are_wanted(norm):
    x, dy = tensor((50, 300)), tensor((50, 300), seed=1)
    weight, bias = norm.affine((300,))
    operands = [t for t in (x, weight, bias) if t is not None]

    def wanted(indices):
        leaves = [t.detach().requires_grad_(i in indices) for i, t in enumerate(operands)]
        y = norm.ours(leaves[0], (300,), *leaves[1:])
        return torch.autograd.grad(y, [leaves[i] for i in indices], dy)

    everything = wanted(range(len(operands)))
    for i in range(len(operands)):
        assert same_bits(wanted([i])[0], everything[i])


def test_bits_do_not_change_from_run_to_run():
    operands, dy = (tensor((500, 700)), tensor((700,), seed=1), tensor((700,), seed=2)), tensor((500, 700), seed=3)

    def run():
        return gradients(lambda x, w, b: ek.layer_norm(x, (700,), w, b), operands, dy)

    first = run()
    assert all(all(map(same_bits, run(), first)) for _ in range(5))


# ---- strides of results ----


@exchange_only
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
    y, expected = ek.layer_norm(x, (16,)), torch.nn.functional.layer_norm(x, (16,))
    assert y.stride() == expected.stride()
    if recorded:
        results = [torch.autograd.grad(t, x, torch.ones_like(t))[0] for t in (y, expected)]
        assert results[0].stride() == results[1].stride()


@exchange_only
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (2, 1, 4, 8), (2, 3, 1, 8), (2, 3, 4, 5, 8)], ids=str)
@pytest.mark.parametrize("dims", [1, 3])
def test_results_of_channels_last_lie_as_pytorch_s_do(op, shape, dims):
    x = torch.randn(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    x.requires_grad_()
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            y, expected = (getattr(n, op)(x, shape[-dims:]) for n in (ek, torch.nn.functional))
        assert y.stride() == expected.stride() and torch.allclose(y, expected, atol=1e-5)
    found, correct = (torch.autograd.grad(t, x, torch.ones_like(t))[0] for t in (y, expected))
    assert found.stride() == correct.stride() and torch.allclose(found, correct, atol=1e-5)


# ---- tensors that the extension reads through the C exchange API ----


def cpu_tensor(*arguments, **options):
    return tensor(*arguments, **options).cpu()


def forward(x, weight=None):
    """LayerNorm as the extension computes it."""
    return _core.forward(_core.LAYER_NORM, x, x.shape[-1], weight, None, 1e-5, None, None, 1, None)


@exchange_only
@every_dtype
def test_forward_and_backward(dtype):
    x, dy = (cpu_tensor((3, 5, 40), dtype, seed) for seed in (0, 1))
    w, b = (cpu_tensor((40,), dtype, seed) for seed in (2, 3))
    y, stats = _core.forward(_core.LAYER_NORM, x, (40,), w, b, 1e-5, True, None, 0, None)
    assert y.dtype == x.dtype and y.is_contiguous() and stats.shape == (3, 15)
    norm = reference.Norm("layer_norm", x.double(), w.double(), b.double())
    reference.close(y.double(), norm.y, dtype)
    results = _core.backward(_core.LAYER_NORM, dy, x, (40,), w, stats, 0.0, True, True, True, None, 0, None)
    for result, expected in zip(results, norm.backward(dy.double()), strict=True):
        assert result.dtype == x.dtype
        reference.close(result.double(), expected, dtype)


@exchange_only
def test_the_ops_take_tensors_too():
    x = cpu_tensor((4, 6, 8)).transpose(0, 1)
    y, rstd = evenkeel.rms_norm_forward(x, eps=1e-5)
    assert isinstance(y, torch.Tensor) and rstd.shape == (6, 4)
    reference.close(y, reference.Norm("rms_norm", x).y, "f32")


@exchange_only
def test_parameters_and_tensors_with_gradients_are_read():
    x = cpu_tensor((4, 8)).requires_grad_()
    weight = torch.nn.Parameter(cpu_tensor((8,), seed=1))
    y = forward(x, weight)
    assert type(y) is torch.Tensor and not y.requires_grad
    reference.close(y, reference.Norm("layer_norm", x.detach(), weight.detach()).y, "f32")


@exchange_only
def test_a_slice_starts_where_it_starts():
    x = cpu_tensor((9, 20))
    y = forward(x[3:, 5:13])
    reference.close(y, reference.Norm("layer_norm", x[3:, 5:13]).y, "f32")


@exchange_only
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.bool], ids=str)
def test_dtypes_that_the_library_lacks_are_refused(dtype):
    with pytest.raises(TypeError, match=rf"x is {str(dtype).removeprefix('torch.')}\d*: it must be f32, f16"):
        forward(torch.ones(2, 3, dtype=dtype))


@exchange_only
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


@exchange_only
@pytest.mark.slow
def test_memory_that_is_not_there_is_an_exception():
    assert run_python(OUT_OF_MEMORY).startswith("refused: ")


@exchange_only
def test_a_negation_of_rows_of_one_element_is_carried_out():
    z = torch.randn(4, 1, dtype=torch.cfloat).conj().imag
    assert torch.equal(evenkeel.rms_norm(z, eps=1e-3), evenkeel.rms_norm(z.resolve_neg(), eps=1e-3))
    assert torch.equal(*(ek.rms_norm_forward(t)[0] for t in (z, z.resolve_neg())))


@exchange_only
def test_a_tensor_without_memory_is_said_to_be_one():
    with FakeTensorMode():
        x = torch.empty(4, 8)
    with pytest.raises(TypeError, match="x (has no memory of its own|cannot be read)"):
        ek.layer_norm_forward(x)


@exchange_only
def test_arrays_of_two_kinds_are_each_copied_in_their_own_way():
    a = np.arange(12, dtype="f4").reshape(4, 3)
    result = evenkeel.layer_norm(torch.tensor(a).t(), np.ones(4, "f4"))
    assert torch.equal(result, evenkeel.layer_norm(torch.tensor(a).t().contiguous(), torch.ones(4)))
