"""The norms as NumPy formulas in float64, and arrays to hold them against. SPDX-License-Identifier: MIT"""

import ml_dtypes
import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}

# Relative to the largest element: a few units of each dtype's precision.
TOLERANCE = {"f32": 3e-6, "f16": 4e-3, "bf16": 3e-2, "f64": 1e-14}


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


class Norm:
    """LayerNorm or RMSNorm of x over its last `dims` dimensions: y, the statistics, and what backward gives."""

    def __init__(self, kind, x, weight=None, bias=None, eps=1e-5, dims=1):
        x, weight, bias = wide(x, weight, bias)
        self.axes = tuple(range(-dims, 0))
        self.kind, self.weight = kind, 1.0 if weight is None else weight
        center = x.mean(self.axes, keepdims=True) if kind == "layer" else np.zeros_like(x[..., :1])
        variance = ((x - center) ** 2).mean(self.axes, keepdims=True)
        rstd = 1 / np.sqrt(variance + eps)
        self.xhat = (x - center) * rstd
        self.y = self.xhat * self.weight + (0.0 if bias is None else bias)
        self.mean, self.rstd = center.squeeze(self.axes) if kind == "layer" else None, rstd.squeeze(self.axes)
        self._rstd = rstd

    def backward(self, dy):
        """(dx, dweight, dbias)"""
        (dy,) = wide(dy)
        g = dy * self.weight
        rows = tuple(range(dy.ndim - len(self.axes)))
        mean_g = g.mean(self.axes, keepdims=True) if self.kind == "layer" else 0.0
        dx = (g - mean_g - self.xhat * (g * self.xhat).mean(self.axes, keepdims=True)) * self._rstd
        return dx, (dy * self.xhat).sum(rows), dy.sum(rows)
