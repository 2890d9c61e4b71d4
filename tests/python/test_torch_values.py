"""The results of evenkeel.torch: y and the gradients against torch.nn.functional in float64, their bits against the C
reference, their strides against PyTorch, and the tensors that the extension reads. SPDX-License-Identifier: MIT"""

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import evenkeel
import evenkeel.torch as ek
import reference
from evenkeel import _core
from processes import run_python
from torch_cases import (
    DEVICE,
    DTYPES,
    LAYER,
    all_same,
    any_call,
    both_norms,
    close,
    cpu_only,
    every_dtype,
    every_norm,
    exchange_only,
    gradients,
    require_gradients,
    same_bits,
    tensor,
    wide,
)

# ---- values ----


def check(norm, x, shape, weight, bias, dy=None, eps=1e-5):
    """y, with autograd and without, and the gradients are those of float64, in the dtypes of what they belong to. No
    operand changes."""
    operands = [t for t in (x, weight, bias) if t is not None]
    dy = tensor(x.shape, seed=1).to(x.dtype) if dy is None else dy
    before = [t.clone() for t in (*operands, dy)]
    y = norm.ours(x, shape, weight, bias, eps)
    assert type(y) is torch.Tensor and y.dtype == x.dtype and y.device == x.device
    assert y.is_contiguous() or (norm.op == "rms_norm" and y.stride() == torch.empty_like(x).stride())  # channels_last
    close(y, norm.theirs(*wide(x), shape, *wide(weight, bias), eps))
    results = []
    for call, make in ((norm.ours, torch.Tensor.detach), (norm.theirs, lambda t: t.detach().double())):
        leaves = [None if t is None else make(t).requires_grad_() for t in (x, weight, bias)]
        recorded = call(leaves[0], shape, *leaves[1:], eps)
        results.append(torch.autograd.grad(recorded, [t for t in leaves if t is not None], dy.to(recorded.dtype)))
        assert call == norm.theirs or (recorded.requires_grad and same_bits(recorded, y))
    for found, expected, operand in zip(*results, operands, strict=True):
        assert found.dtype == operand.dtype
        close(found, expected)
    assert all(map(torch.equal, (*operands, dy), before))


PAIRS = [(dtype, dtype) for dtype in DTYPES] + [("f16", "f32"), ("bf16", "f32")]
SHAPES = [((5,), 1), ((3, 64), 1), ((2, 3, 100), 1), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), 4), ((1, 1), 1), ((1, 2049), 1)]


@pytest.mark.parametrize(("dtype", "weight_dtype"), PAIRS)
@every_norm
def test_any_operands_in_any_dtypes(norm, dtype, weight_dtype):
    check(norm, tensor((4, 3, 40), dtype), (40,), *norm.affine((40,), weight_dtype))


@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
@both_norms
def test_any_number_of_dimensions(norm, shape, dims):
    normalized = shape[len(shape) - dims :]
    check(norm, tensor(shape), normalized, *norm.affine(normalized))


@pytest.mark.parametrize("eps", [0.0, 1e-12, 0.5, 3], ids=str)
@both_norms
def test_any_eps(norm, eps):
    check(norm, tensor((6, 40)), (40,), *norm.affine((40,)), eps=eps)


@every_dtype
def test_rms_norm_without_eps_is_pytorch_s(dtype):
    x = tensor((3, 8), dtype, scale=1e-3 if dtype != "f64" else 1e-8)
    close(ek.rms_norm(x, (8,)), F.rms_norm(x, (8,)))


@pytest.mark.parametrize("kind", [list, tuple, torch.Size])
def test_the_shape_may_be_any_kind_of_list(kind):
    x = tensor((2, 3, 4))
    assert same_bits(ek.layer_norm(x, kind((3, 4))), ek.layer_norm(x, (3, 4)))


LAYOUTS = {  # the shape of a tensor, and a view of it
    "transposed": ((40, 6), torch.t),
    "leading dimensions swapped": ((5, 3, 40), lambda t: t.transpose(0, 1)),
    "channels last": ((2, 5, 3, 40), lambda t: t.to(memory_format=torch.channels_last)),
    "expanded rows": ((1, 40), lambda t: t.expand(7, 40)),
    "expanded columns": ((7, 1), lambda t: t.expand(7, 40)),
    "one number everywhere": ((1, 1), lambda t: t.expand(7, 40)),
    "columns of a wider matrix": ((7, 60), lambda t: t[:, 11:51]),
    "every other column": ((7, 80), lambda t: t[:, ::2]),
    "every third row": ((21, 40), lambda t: t[::3]),
    "rows from an odd element": ((281,), lambda t: t[1:].view(7, 40)),
    "windows that overlap": ((100,), lambda t: t.unfold(0, 40, 7)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@both_norms
def test_x_and_dy_of_any_layout(norm, layout):
    shape, view = LAYOUTS[layout]
    x, dy = (view(tensor(shape, seed=seed)) for seed in (0, 1))
    check(norm, x, (40,), *norm.affine((40,)), dy)
    assert same_bits(norm.ours(x, (40,)), norm.ours(x.contiguous(), (40,)))


def test_weights_and_biases_of_any_layout():
    x, weight, bias = tensor((4, 6, 8)), tensor((8, 6), seed=1).t(), tensor((6, 16), seed=2)[:, ::2]
    check(LAYER, x, (6, 8), weight, bias)
    check(LAYER, x, (6, 8), tensor((1, 1)).expand(6, 8), bias)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (0, 0, 8), (4, 0), (0, 0)], ids=str)
@every_norm
def test_nothing_in_nothing_out(norm, shape, recwarn):
    x, weight, bias = require_gradients(*norm.operands(shape))
    y = norm.rows(x, weight, bias)
    assert y.shape == shape and not recwarn.list
    y.sum().backward()
    assert x.grad.shape == shape
    assert all(not p.grad.any() and p.grad.shape == p.shape for p in (weight, bias) if p is not None)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_far_from_zero_as_exact_as_near_it(offset):
    check(LAYER, tensor((8, 1000), offset=offset), (1000,), *LAYER.affine((1000,)))


def test_rows_of_equal_numbers_have_no_variance():
    assert not ek.layer_norm(torch.full((3, 100), 1234.5, device=DEVICE), (100,)).any()


@both_norms
def test_nan_and_infinity_stay_in_their_row(norm):
    x = tensor((3, 16))
    expected = norm.rows(x)[::2]
    x[1, 3] = float("nan")
    assert same_bits(norm.rows(x)[::2], expected)
    assert norm.rows(x)[1].isnan().all()


@settings(max_examples=200, deadline=None)
@given(any_call(), st.sampled_from([lambda x: x.new_ones(()).expand(x.shape), lambda x: x.flip(0), torch.cos]))
def test_any_shape_strides_dtype_and_operands(call, make_dy):
    norm, x, *others = call
    check(norm, x, *others, make_dy(x), 0.5)  # short rows may vary little


# ---- bits ----

BITS_SHAPES = [(1, 1), (7, 33), (70, 129), (3, 4097), (5, 8192)]


def reference_results():
    """The bytes that the C reference computes from NumPy arrays; called in a process limited to the reference."""
    assert evenkeel.info()["level"] == "reference"
    cases = [(op, dtype, shape) for op in reference.OPS for dtype in DTYPES for shape in BITS_SHAPES]
    return {
        (op, dtype, shape): [a.tobytes() for a in reference.every_result(op, *reference.operands(shape, dtype, 2.0))]
        for op, dtype, shape in cases
    }


@pytest.fixture(scope="module")
def reference_bits(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "results"
    script = f"import pickle, test_torch_values as t; pickle.dump(t.reference_results(), open({str(path)!r}, 'wb'))"
    run_python(script, EVENKEEL_ISA="reference")
    return pickle.loads(path.read_bytes())


def as_tensor(array, device=DEVICE):
    """Of the same bits; NumPy's bfloat16 is not PyTorch's."""
    name = next(name for name, dtype in reference.DTYPES.items() if array.dtype == dtype)
    return torch.from_numpy(array.view(np.uint8).reshape(-1)).view(DTYPES[name]).reshape(array.shape).to(device)


def memory(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("shape", BITS_SHAPES, ids=str)
@every_dtype
@both_norms
def test_forward_and_backward_have_the_bits_of_the_reference(norm, dtype, shape, reference_bits):
    expected = reference_bits[norm.op, dtype, shape]
    x, dy, *columns = map(as_tensor, reference.operands(shape, dtype, 2.0))
    explicit = reference.every_result(norm.op, x, dy, *columns, library=ek)
    assert list(map(memory, explicit)) == expected
    leaves = require_gradients(x, *columns[: 1 + norm.has_bias])
    y = norm.rows(*leaves)
    results = [y, *torch.autograd.grad(y, leaves, dy)]
    assert list(map(memory, results)) == [expected[0], *expected[1 + norm.statistics :]]


@pytest.mark.parametrize("cols", [1, 40, 1000, 5000])
@every_dtype
@both_norms
def test_a_row_alone_is_the_row_of_a_batch(norm, dtype, cols):
    x, dy = tensor((37, cols), dtype, offset=1.0), tensor((37, cols), dtype, seed=1)
    affine = norm.affine((cols,), dtype)

    def both(rows):
        return norm.rows(x[rows], *affine), *gradients(lambda x: norm.rows(x, *affine), [x[rows]], dy[rows])

    batch = both(slice(None))
    for rows in (slice(0, 1), slice(36, 37), slice(5, 8), slice(0, 20)):
        assert all_same(both(rows), [whole[rows] for whole in batch])


@cpu_only
@every_norm
def test_bits_do_not_depend_on_the_number_of_threads(norm, threads):
    operands, dy = norm.operands((300, 1000)), tensor((300, 1000), seed=1)

    def everything(count):
        threads(count)
        return norm.rows(*operands), *gradients(norm.rows, operands, dy)

    one = everything(1)
    assert all(all_same(everything(count), one) for count in (2, 3, 7))


@both_norms
def test_bits_do_not_depend_on_which_gradients_are_wanted(norm):
    operands, dy = [t for t in norm.operands((50, 300)) if t is not None], tensor((50, 300), seed=1)
    everything = gradients(norm.rows, operands, dy)
    for i, expected in enumerate(everything):
        leaves = [t.detach().requires_grad_(i == j) for j, t in enumerate(operands)]
        assert same_bits(torch.autograd.grad(norm.rows(*leaves), leaves[i], dy)[0], expected)


# ---- strides of results ----


def channels_last(shape):
    return torch.randn(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


SHAPES_LAST = [(2, 3, 4, 8), (2, 1, 4, 8), (2, 3, 1, 8), (2, 3, 4, 5, 8)]
LAID_OUT = [(op, channels_last(shape), dims) for op in reference.OPS for shape in SHAPES_LAST for dims in (1, 3)]
LAID_OUT += [("layer_norm", channels_last((4, 1, 1, 16)), 1), ("layer_norm", torch.randn(1, 8, 16).transpose(0, 1), 1)]
LAID_OUT += [("layer_norm", torch.randn(1, 16).as_strided((1, 16), (100, 1)), 1)]


@exchange_only
@pytest.mark.parametrize(("op", "x", "dims"), LAID_OUT)
def test_results_lie_as_pytorch_s_do(op, x, dims):
    x = x.detach().requires_grad_()
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            y, expected = (getattr(library, op)(x, x.shape[-dims:]) for library in (ek, F))
        assert y.stride() == expected.stride() and torch.allclose(y, expected, atol=1e-5)
    found, correct = (torch.autograd.grad(t, x, torch.ones_like(t))[0] for t in (y, expected))
    assert found.stride() == correct.stride() and torch.allclose(found, correct, atol=1e-5)


# ---- tensors that the extension reads through the C exchange API ----


def forward(x):
    """LayerNorm as the extension computes it."""
    return _core.forward(_core.LAYER_NORM, x, x.shape[-1], None, None, 1e-5, None, None, 1, None)


@exchange_only
@pytest.mark.parametrize("op", reference.OPS)
@every_dtype
def test_the_ops_take_tensors_parameters_and_slices(op, dtype):
    def cut(x, dy, *columns):
        return x[2:, 1:, 8:], dy[2:, 1:, 8:], *(c[8:] for c in columns)

    arrays = reference.operands((5, 4, 48), dtype)
    x, dy, *columns = cut(*(as_tensor(a, "cpu") for a in arrays))
    results = reference.every_result(op, x.requires_grad_(), dy, *map(torch.nn.Parameter, columns))
    for result, expected in zip(results, reference.every_result(op, *cut(*arrays)), strict=True):
        assert type(result) is torch.Tensor and not result.requires_grad and result.shape == expected.shape
        assert memory(result) == expected.tobytes()


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
