"""What the tests of evenkeel.compat share: operands and references in float64. SPDX-License-Identifier: MIT"""

import inspect

import torch
import torch.nn.functional as F

from reference import array, close

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def tensor(shape, dtype="f32", seed=0, grad=False):
    return torch.from_numpy(array(shape, "f64", seed)).to(DTYPES[dtype]).requires_grad_(grad)


def operands(shape, dtype="f32", weight_dtype="f32", has_weight=True, has_bias=True):
    """x, weight and bias, which need gradients; the last two None where there is none."""
    x = tensor(shape, dtype, grad=True)
    weight = tensor(shape[-1:], weight_dtype, 1, grad=True) if has_weight else None
    return x, weight, tensor(shape[-1:], weight_dtype, 2, grad=True) if has_bias else None


def layer_norm(eps):
    """PyTorch's, of (x, weight, bias): over the shape of weight, else the last dimension."""
    return lambda x, w=None, b=None: F.layer_norm(x, x.shape[-1:] if w is None else w.shape, w, b, eps)


def rms_norm(eps):
    return lambda x, w=None, b=None: F.rms_norm(x, x.shape[-1:], w, eps) + (0 if b is None else b)


def check(result, expected, dtype="f32"):
    close(result.detach().double(), expected.detach(), dtype)


def rounded(tensor, dtype):
    """A float64 tensor with the values that the dtype has; the gradient passes as if it did nothing."""
    return tensor + (tensor.detach().to(dtype).double() - tensor.detach())


def bare_signature(function):
    """Without types."""
    parameters = inspect.signature(function).parameters.values()
    return str(inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters]))


def check_both(ours, theirs, tensors, dtype="f32", *gradient_dtypes):
    """The results of ours and their gradients are those of theirs in float64, within the precision of the dtypes (one
    for all where no others are given); a gradient has the dtype of what it is for. Returns the results."""
    references = [None if t is None else t.detach().double().requires_grad_() for t in tensors]
    results, exact = ours(*tensors), theirs(*references)
    outs, expected = (r if isinstance(r, tuple) else (r,) for r in (results, exact))
    gradients = [tensor(out.shape, "f32", 9 + i).to(out.dtype) for i, out in enumerate(outs)]
    for out, reference in zip(outs, expected, strict=True):
        check(out, reference, dtype)
    torch.autograd.backward(outs, gradients)
    torch.autograd.backward(expected, [g.double() for g in gradients])
    for given, reference, gradient_dtype in zip(
        tensors, references, gradient_dtypes or [dtype] * len(tensors), strict=True
    ):
        if given is not None:
            assert given.grad.dtype is given.dtype
            check(given.grad, reference.grad, gradient_dtype)
            given.grad = None
    return results
