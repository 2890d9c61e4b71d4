"""evenkeel through evenkeel.torch, and through DLPack on arrays of another library. SPDX-License-Identifier: MIT"""

from typing import Any

import torch
from torch import Tensor

from comparison.backends.base import TORCH_DTYPES, Autograd, Backend, Done, Operands
from comparison.case import Case
from comparison.ops import OPS

GELU = {"gelu": "none", "gelu_tanh": "tanh"}


class Evenkeel(Autograd):
    """As a user of PyTorch calls it: evenkeel.torch, with autograd."""

    ops = tuple(OPS)

    def load(self, device: str, threads: int) -> str:
        import evenkeel
        import evenkeel.torch

        self.library = evenkeel.torch
        return evenkeel.__version__

    def call(self, case: Case, given: Operands) -> Any:
        x, weight, bias, residual, gate, x_bias, value, value_bias, k, k_weight, cos, sin = given
        if case.spec.form == "glu":
            return self.library.swiglu(x, value, x_bias, value_bias)
        if case.spec.form == "rope":
            weights = (weight, k_weight, case.eps) if case.norm else ()
            heads = (tensor.view(1, case.rows, -1, case.head_dim) for tensor in (x, k))
            made = getattr(self.library, case.op)(*heads, cos, sin, *weights, layout="bshd")
            return tuple(tensor.squeeze(0) for tensor in made)
        tensors = (x,) if residual is None and gate is None else (x, gate if residual is None else residual)
        columns = (weight, bias) if case.norm == "layer_norm" else (weight,)
        common = *tensors, (case.cols,), *columns, case.eps
        if case.spec.form == "act":
            return self.library.layer_norm_gelu(*common, GELU[case.spec.activation])
        function = getattr(self.library, case.op)
        return function(*common) if x_bias is None else function(*common, x_bias)

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        x, weight, bias = (None if tensor is None else tensor.detach() for tensor in done.kept[:3])
        if case.op == "rms_norm":
            return None, self.library.rms_norm_forward(x, weight, case.eps)[1]
        return self.library.layer_norm_forward(x, weight, bias, case.eps)[1:]


class EvenkeelDLPack(Backend):
    """The ops of `import evenkeel` on NumPy's arrays, on a GPU on CuPy's, without PyTorch in the way."""

    note = "arrays of NumPy, on a GPU of CuPy; no autograd"

    def load(self, device: str, threads: int) -> str:
        import evenkeel

        self.library, self.device, self.threads, self.stream = evenkeel, device, threads, -1
        if device == "cuda":
            import cupy

            self.arrays = cupy
            # From PyTorch's pool, so that a call can be captured in its graphs, and one allocator serves all rows.
            cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc)
        return evenkeel.__version__

    def adopt(self, tensor: Tensor, differentiable: bool) -> Any:
        if self.device == "cuda":
            return self.arrays.from_dlpack(tensor.detach())
        if tensor.dtype is torch.bfloat16:
            import ml_dtypes

            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    def restore(self, result: Any) -> Tensor | None:
        if result is None:
            return None
        if self.device == "cpu" and result.dtype.name == "bfloat16":
            return torch.from_numpy(result.view("int16")).view(TORCH_DTYPES["bf16"])
        return torch.from_dlpack(result)

    def _follow(self) -> None:
        """CuPy works on the stream of PyTorch."""
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else self.stream
        if stream != self.stream:
            self.external = self.arrays.cuda.ExternalStream(stream)  # kept: CuPy may hold it weakly
            self.external.use()
            self.stream = stream

    def forward(self, case: Case, given: Operands) -> Done:
        self._follow()
        x, weight, bias, *_ = given
        if case.op == "rms_norm":
            y, rstd = self.library.rms_norm_forward(x, weight, case.eps, threads=self.threads)
            return Done((y,), (x, weight, rstd))
        y, mean, rstd = self.library.layer_norm_forward(x, weight, bias, case.eps, threads=self.threads)
        return Done((y,), (x, weight, mean, rstd))

    def backward(self, case: Case, gradients: tuple[Any, ...], done: Done) -> Operands:
        self._follow()
        x, weight, *stats = done.kept
        known, threads = (*gradients, x, *stats, weight), self.threads
        if case.op == "rms_norm":
            return Operands(*self.library.rms_norm_backward(*known, threads=threads))
        return Operands(*self.library.layer_norm_backward(*known, need_dbias=case.bias, threads=threads))

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        return (None, done.kept[2]) if case.op == "rms_norm" else done.kept[2:]


def _allocate(size: int, device: int) -> int:
    return torch.cuda.caching_allocator_alloc(size, device, torch.cuda.current_stream())


def _free(pointer: int, device: int) -> None:
    torch.cuda.caching_allocator_delete(pointer)
