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
    devices: tuple[str, ...] = ("cpu", "cuda")


GPU = ("cuda",)
BACKENDS = {
    "evenkeel": Place("evenkeel", "Evenkeel"),
    "pytorch": Place("pytorch", "PyTorch"),
    "liger": Place("liger", "Liger", GPU),
    "quack": Place("quack", "Quack", GPU),
    "onednn": Place("onednn", "OneDNN", ("cpu",)),
    "evenkeel-dlpack": Place("evenkeel", "EvenkeelDLPack"),
    "compile": Place("pytorch", "Compiled"),
    "compile-max": Place("pytorch", "CompiledMost"),
    "flash-attn": Place("flash_attn", "FlashAttn", GPU),
    "apex": Place("apex", "Apex", GPU),
    "transformer-engine": Place("transformer_engine", "TransformerEngine", GPU),
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
