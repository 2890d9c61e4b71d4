"""The backends by name, most important first: where time is short, the last are left out. SPDX-License-Identifier: MIT

A class is imported when it is asked for, since that imports PyTorch; the front has no need of it.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from comparison.backends.base import Backend


class Place(NamedTuple):
    module: str
    attribute: str
    needs: str = ""  # the package without which there is no use in starting it
    install: str = ""
    devices: tuple[str, ...] = ("cpu", "cuda")

    def is_installed(self) -> bool:
        return not self.needs or importlib.util.find_spec(self.needs) is not None


GPU = ("cuda",)
EVENKEEL = "pip install . (in the folder of evenkeel)"
CUPY = "on a GPU also cupy-cuda12x or cupy-cuda13x"
APEX = "build github.com/NVIDIA/apex with APEX_CPP_EXT=1 APEX_CUDA_EXT=1"
FLASH = "pip install --no-build-isolation flash-attn"
MAMBA = "pip install --no-build-isolation mamba-ssm"
ENGINE = "pip install --no-build-isolation transformer-engine[pytorch]"
ONEDNN = "pip install onednn-cpu-gomp, or set EVENKEEL_DNNL to a libdnnl.so.3"

BACKENDS = {
    "evenkeel": Place("evenkeel", "Evenkeel", "evenkeel", EVENKEEL),
    "pytorch": Place("pytorch", "PyTorch"),
    "liger": Place("liger", "Liger", "liger_kernel", "pip install liger-kernel", GPU),
    "quack": Place("quack", "Quack", "quack", "pip install quack-kernels", GPU),
    "onednn": Place("onednn", "OneDNN", "", ONEDNN, ("cpu",)),
    "evenkeel-dlpack": Place("evenkeel", "EvenkeelDLPack", "evenkeel", f"{EVENKEEL}; {CUPY}"),
    "compile": Place("pytorch", "Compiled"),
    "compile-max": Place("pytorch", "CompiledMost"),
    "flash-attn": Place("flash_attn", "FlashAttn", "flash_attn", FLASH, GPU),
    "mamba": Place("mamba", "Mamba", "mamba_ssm", MAMBA, GPU),
    "apex": Place("apex", "Apex", "fused_layer_norm_cuda", APEX, GPU),
    "transformer-engine": Place("transformer_engine", "TransformerEngine", "transformer_engine", ENGINE, GPU),
}


def make_from_file(path: str) -> "Backend":
    """The class Backend of a file outside this folder."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Backend()


def make(name: str) -> "Backend":
    """One of BACKENDS, or of the file NAME.py."""
    if name.endswith(".py"):
        return make_from_file(name)
    place = BACKENDS[name]
    return getattr(importlib.import_module(f"comparison.backends.{place.module}"), place.attribute)()
