"""PyTorch without DLPack's C exchange API, or as if it had none: tensors are read through __dlpack__.

SPDX-License-Identifier: MIT
"""

import pytest

from reference import array

torch = pytest.importorskip("torch")

import evenkeel  # noqa: E402
import evenkeel.torch  # noqa: E402
from evenkeel.torch import _kernels  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def tensor(shape, dtype=torch.float32, seed=0):
    return torch.from_numpy(array(shape, "f64", seed)).to(dtype).requires_grad_()


def results(dtype, norm):
    """y and all gradients of a norm of rows with gaps."""
    x, w, b = tensor((3, 5, 48), dtype), tensor((40,), dtype, 1), tensor((40,), dtype, 2)
    rows = x[..., :40]
    if norm == "layer_norm":
        y = evenkeel.torch.layer_norm(rows, (40,), w, b)
    else:
        y = evenkeel.torch.rms_norm(rows, (40,), w, 1e-5)
    y.backward(tensor((5, 3, 40), dtype, 3).detach().transpose(0, 1))
    return [t for t in (y, x.grad, w.grad, b.grad) if t is not None]


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_way_of_python_gives_the_same_bits(monkeypatch, dtype, norm):
    expected = results(dtype, norm)
    monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
    for result, same in zip(results(dtype, norm), expected, strict=True):
        assert torch.equal(result, same)


def test_explicit_functions_read_tensors_that_need_gradients(monkeypatch):
    monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
    x, w, dy = tensor((6, 40)), tensor((40,), seed=1), tensor((6, 40), seed=2)
    _, mean, rstd = evenkeel.torch.layer_norm_forward(x, w)
    gradients = evenkeel.torch.layer_norm_backward(dy, x, mean.requires_grad_(), rstd.requires_grad_(), w)
    assert all(gradient is not None and not gradient.requires_grad for gradient in gradients)


@pytest.mark.skipif(_kernels.HAS_EXCHANGE, reason="this PyTorch has the C exchange API")
def test_tensors_that_only_the_torch_half_can_take_are_said_to_be_so():
    with pytest.raises(TypeError, match=r"tensors of PyTorch 2\..* are for evenkeel.torch"):
        evenkeel.layer_norm(torch.ones(2, 3))


def test_a_gradient_without_memory_of_its_own_is_refused(monkeypatch):
    monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
    x = tensor((6, 40)).detach()
    _, mean, rstd = evenkeel.torch.layer_norm_forward(x)
    batched = torch._vmap_internals._vmap(lambda dy: evenkeel.torch.layer_norm_backward(dy, x, mean, rstd).dx)
    with pytest.raises(TypeError, match="it has no memory of its own"):
        batched(torch.ones(2, 6, 40))
