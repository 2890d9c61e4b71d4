"""The norms as NumPy formulas in float64, and the ops of the library to hold against them.
SPDX-License-Identifier: MIT"""

import math

import ml_dtypes
import numpy as np

import evenkeel

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}

OPS = ("layer_norm", "rms_norm")

# Relative to the largest element: a few units of each dtype's precision.
TOLERANCE = {"f32": 3e-6, "f16": 4e-3, "bf16": 3e-2, "f64": 1e-14}


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _normal(t):
    """The distribution and its density."""
    return (1 + _erf(t / np.sqrt(2))) / 2, np.exp(-t * t / 2) / np.sqrt(2 * np.pi)


def _tanh_of_gelu(t):
    """tanh(u) as in GELU's form with it, and the derivative of u."""
    return np.tanh(np.sqrt(2 / np.pi) * (t + 0.044715 * t**3)), np.sqrt(2 / np.pi) * (1 + 0.134145 * t**2)


def _gelu_tanh_slope(t):
    tanh, inner = _tanh_of_gelu(t)
    return (1 + tanh) / 2 + t * (1 - tanh**2) * inner / 2


def _logistic(t):
    return (1 + np.tanh(t / 2)) / 2


ACTIVATIONS = {
    "sigmoid": _logistic,
    "silu": lambda t: t * _logistic(t),
    "gelu": lambda t: t * _normal(t)[0],
    "gelu_tanh": lambda t: t * (1 + _tanh_of_gelu(t)[0]) / 2,
}

# Of gated activations and feed-forwards alone.
GLU_ALONE = {
    "relu": lambda t: np.maximum(t, 0),
    "relu_squared": lambda t: np.maximum(t, 0) ** 2,
    "none": lambda t: t,
}

SLOPES = {
    "sigmoid": lambda t: _logistic(t) * _logistic(-t),
    "silu": lambda t: _logistic(t) + t * _logistic(t) * _logistic(-t),
    "gelu": lambda t: _normal(t)[0] + t * _normal(t)[1],
    "gelu_tanh": _gelu_tanh_slope,
}

GLU_ALONE_SLOPES = {
    "relu": lambda t: (t > 0) * 1.0,
    "relu_squared": lambda t: 2 * np.maximum(t, 0),
    "none": np.ones_like,
}


def array(shape, dtype="f32", seed=0, scale=1.0, offset=0.0):
    """Normal numbers, the same for the same arguments."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale + offset
    return values.astype(DTYPES[dtype])


def close(result, expected, dtype):
    """Is result what float64 says, within the precision of its dtype?"""
    result, expected = np.asarray(result).astype(np.float64), np.asarray(expected, np.float64)
    assert result.shape == expected.shape
    limit = TOLERANCE[dtype] * max(1.0, np.abs(expected).max(initial=0))
    worst = np.abs(result - expected).max(initial=0)
    assert worst <= limit, f"differs by {worst}, more than {limit}"


def wide(*arrays):
    return [None if a is None else np.asarray(a).astype(np.float64) for a in arrays]


def operands(shape, dtype="f32", offset=0.0, columns_dtype=None):
    """x, dy, weight and bias."""
    columns = [array(shape[-1:], columns_dtype or dtype, seed) for seed in (3, 4)]
    return array(shape, dtype, 1, offset=offset), array(shape, dtype, 2), *columns


def every_result(op, x, dy, weight, bias, eps=1e-5, library=evenkeel):
    """y, the statistics (mean, rstd, mean_lo; RMSNorm rstd) and the gradients that an op has."""
    forward, backward = getattr(library, f"{op}_forward"), getattr(library, f"{op}_backward")
    if op == "layer_norm":
        y, mean, rstd, mean_lo = forward(x, weight, bias, eps, return_mean_lo=True)
        return y, mean, rstd, mean_lo, *backward(dy, x, mean, rstd, weight, mean_lo=mean_lo)
    y, rstd = forward(x, weight, eps)
    return y, rstd, *backward(dy, x, rstd, weight)


class Norm:
    """An op on x over its last `dims` dimensions: y, the statistics, and what backward gives."""

    def __init__(self, op, x, weight=None, bias=None, eps=1e-5, dims=1):
        x, weight, bias = wide(x, weight, bias)
        self.axes = tuple(range(-dims, 0))
        self.op, self.weight = op, 1.0 if weight is None else weight
        center = x.mean(self.axes, keepdims=True) if op == "layer_norm" else np.zeros_like(x[..., :1])
        variance = ((x - center) ** 2).mean(self.axes, keepdims=True)
        rstd = 1 / np.sqrt(variance + eps)
        self.xhat = (x - center) * rstd
        self.y = self.xhat * self.weight + (0.0 if bias is None else bias)
        self.mean, self.rstd = center.squeeze(self.axes) if op == "layer_norm" else None, rstd.squeeze(self.axes)
        self._rstd = rstd

    def backward(self, dy):
        """(dx, dweight, dbias)"""
        (dy,) = wide(dy)
        g = dy * self.weight
        rows = tuple(range(dy.ndim - len(self.axes)))
        mean_g = g.mean(self.axes, keepdims=True) if self.op == "layer_norm" else 0.0
        dx = (g - mean_g - self.xhat * (g * self.xhat).mean(self.axes, keepdims=True)) * self._rstd
        return dx, (dy * self.xhat).sum(rows), dy.sum(rows)

    def every_result(self, dy):
        """As every_result has them; None for mean_lo."""
        if self.op == "layer_norm":
            return self.y, self.mean, self.rstd, None, *self.backward(dy)
        return self.y, self.rstd, *self.backward(dy)[:2]
