"""An array library as CuPy is: NumPy's functions, arrays on a GPU (here NumPy's memory), __dlpack__ and no C exchange
API. SPDX-License-Identifier: MIT"""

import numpy as np

from frameworks import CUDA, Exporter, aligned

float32, float64 = np.float32, np.float64


class ndarray(Exporter):  # noqa: N801
    __cuda_array_interface__ = {"version": 3}

    def __init__(self, array):
        super().__init__(array, (CUDA, 0))
        self.shape, self.dtype = array.shape, array.dtype

    def reshape(self, shape):
        return ndarray(self.array.reshape(shape))

    def __iter__(self):
        return (ndarray(row) for row in self.array)


def empty(shape, dtype):
    return ndarray(aligned(shape, dtype))


def ascontiguousarray(array):
    return ndarray(np.ascontiguousarray(array.array))
