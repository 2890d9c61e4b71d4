"""What torch.compile launches, estimated from the operations of eager by the rules of inductor's fusion.

SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.torch._analysis_kernel import Kernel


@dataclass
class _Group:
    kernels: list[Kernel]
    is_open: bool

    @property
    def phase(self) -> str:
        return self.kernels[0].phase

    def joined(self, readers: dict[int, list[Kernel]]) -> Kernel:
        """As one kernel, which writes what others read, or nobody: a result. What forward leaves for elementwise
        operations of backward is computed there again."""
        if len(self.kernels) == 1:
            return self.kernels[0]
        own = {id(kernel) for kernel in self.kernels}
        made = {storage for kernel in self.kernels for storage, _ in kernel.outputs}
        read = {key: size for kernel in self.kernels for key, size in kernel.inputs.items() if key[0] not in made}
        written = 0
        for kernel in self.kernels:
            for key, size in kernel.outputs.items():
                used = readers.get(key[0], [])
                is_kept = any(id(k) not in own and (k.phase == self.phase or k.kind in _APART) for k in used)
                written += size if is_kept or not used else 0
        name = "fused_" + "_".join(dict.fromkeys(kernel.name.partition("/")[0] for kernel in self.kernels))
        flops = sum(kernel.flops for kernel in self.kernels)
        return Kernel(name, "fused", flops, sum(read.values()), written, self.phase)


_APART = ("product", "attention")


def _group_for(kernel: Kernel, groups: list[_Group], producer: dict[int, int]) -> int:
    """Which group it may join: that of its latest input, or a later one that reads the same; -1: none."""
    latest = max((producer.get(storage, -1) for storage, _ in kernel.inputs), default=-1)
    if latest >= 0 and groups[latest].is_open and groups[latest].phase == kernel.phase:
        return latest
    storages = {storage for storage, _ in kernel.inputs}
    for number in range(len(groups) - 1, latest, -1):
        group = groups[number]
        shares = any(storage in storages for other in group.kernels for storage, _ in other.inputs)
        if group.is_open and group.phase == kernel.phase and shares:
            return number
    return -1


def fuse(kernels: Sequence[Kernel]) -> list[Kernel]:
    """An estimate of what torch.compile launches, by the rules of inductor's fusion.

    Elementwise operations, copies and reductions within rows join the kernel that computes their latest input, or one
    that reads the same; sums over rows are two kernels of their own; products and attention stay as they are.
    """
    groups: list[_Group] = []
    producer: dict[int, int] = {}
    readers: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        joins = kernel.kind not in _APART and not kernel.is_column_sum and bool(kernel.inputs)
        number = _group_for(kernel, groups, producer) if joins else -1
        if number < 0:
            groups.append(_Group([], joins))
            number = len(groups) - 1
        groups[number].kernels.append(kernel)
        producer |= dict.fromkeys((storage for storage, _ in kernel.outputs), number)
        for storage, _ in kernel.inputs:
            readers.setdefault(storage, []).append(kernel)
    result = []
    for group in groups:
        result.append(group.joined(readers))
        if group.kernels[0].is_column_sum:
            size = result[-1].write_bytes
            result.append(Kernel("sum_of_partial_sums", "reduction", 0, size, size, group.phase))
    return result
