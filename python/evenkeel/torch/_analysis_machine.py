"""The roofline of a machine: how long a kernel takes at least, and what bounds it. SPDX-License-Identifier: MIT"""

import json
from pathlib import Path
from typing import NamedTuple

from evenkeel.torch._analysis_kernel import Kernel

PRODUCTS = "product", "attention"


class Machine(NamedTuple):
    name: str
    bytes_per_second: float  # of a large copy
    flops_per_second: float  # of fma in float32
    product_flops_per_second: float  # of matrix products of 16 bits

    def rate(self, kernel: Kernel, bits: int) -> float:
        return self.product_flops_per_second if kernel.kind in PRODUCTS and bits == 16 else self.flops_per_second

    def seconds(self, kernel: Kernel, bits: int) -> float:
        return max(self._moving(kernel), kernel.flops / self.rate(kernel, bits))

    def _moving(self, kernel: Kernel) -> float:
        return (kernel.read_bytes + kernel.write_bytes) / self.bytes_per_second

    def bound(self, kernel: Kernel, bits: int) -> str:
        return "compute" if kernel.flops / self.rate(kernel, bits) > self._moving(kernel) else "memory"


# Tensor cores do so many times the work of the fma units in a clock (NVIDIA's architecture white papers).
_TENSOR_CORES = {"sm_70": 8, "sm_75": 8, "sm_80": 16, "sm_86": 4, "sm_89": 4, "sm_90": 16, "sm_100": 32, "sm_120": 4}

# docs/results/machine-h200.json
H200 = Machine("NVIDIA H200", 4.271e12, 6.54e13, 16 * 6.54e13)


def read_machine(name: str) -> Machine:
    """ "h200", or a file from `evenkeel info --measure FILE`."""
    if name == "h200":
        return H200
    text = Path(name).read_text()
    try:
        found = json.loads(text)
        about = found["machine"]
        copy = max(found["copy"], key=lambda entry: entry["bytes"])["bytes_per_second"]
        flops = max(entry["flops_per_second"] for entry in found["flops"] if entry["dtype"] == "f32")
        is_gpu = about.get("device") == "cuda"
        times = _TENSOR_CORES.get(about.get("gpu_isa", ""), 1) if is_gpu else 1
        return Machine(about["gpu" if is_gpu else "cpu"], copy, flops, times * flops)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not a machine file ({error!r}); evenkeel info --measure FILE writes one"
        ) from error
