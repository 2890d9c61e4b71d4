"""What a module computes, kernel by kernel: it runs as memory_estimate runs one, on tensors without memory.

evenkeel.torch.analyze calls it. SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from evenkeel.torch._analysis_calls import cost_of_call, launches_of_norm
from evenkeel.torch._analysis_kernel import BACKWARD, FORWARD, Kernel, kernel_of
from evenkeel.torch._ledger import Ledger


class Recorder(Ledger):  # type: ignore[no-untyped-call]
    """The kernels of what runs under it."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.phase = FORWARD
        self._alive: list[Any] = []  # a storage that ends gives its number to another

    def _add(self, kernel: Kernel) -> None:
        kernel.phase = self.phase
        self.kernels.append(kernel)

    def called(self, function: str, tensors: Sequence[Any], others: Sequence[Any]) -> None:
        for kernel in cost_of_call(function, tensors, others):
            self._add(kernel)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._alive += [t.untyped_storage() for t in tree_leaves(result) if isinstance(t, Tensor)]
        kernel = kernel_of(func, args, kwargs or {}, result)
        if kernel is not None:
            self._add_all(kernel, args)
        return result

    def _add_all(self, kernel: Kernel, args: Any) -> None:
        """The launches of an operation: the first has its inputs and outputs."""
        launches = launches_of_norm(kernel.name, args)
        if not launches:
            self._add(kernel)
            return
        first, *others = launches
        first.inputs, first.outputs = kernel.inputs, kernel.outputs
        for each in (first, *others):
            self._add(each)


def record(module: Module, inputs: Sequence[Tensor], step: bool) -> list[Kernel]:
    """Of a forward, or of a forward and a backward; nothing is computed, and the module stays as it is."""
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

    from evenkeel.torch._memory import _copied

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.inference_mode(False), FakeCopyMode(fake):
        twin = _copied(module)
    recorder = Recorder()
    threads = torch.autograd.set_multithreading_enabled(False)
    with torch.random.fork_rng([]), torch.inference_mode(False), torch.set_grad_enabled(step), threads, fake:
        given = [torch.empty(t.shape, dtype=t.dtype, requires_grad=step and t.is_floating_point()) for t in inputs]
        with recorder:
            result = twin(*given)
            made = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
            if step and made:
                gradients = [torch.empty_like(t) for t in made]
                recorder.phase = BACKWARD
                torch.autograd.backward(made, gradients)
    return recorder.kernels
