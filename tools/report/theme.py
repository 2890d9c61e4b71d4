"""Names and colours: what ops and libraries are called, and the two palettes of page and pictures. A colour is known by
its name here and becomes a CSS variable on the page. SPDX-License-Identifier: MIT"""

import re
from dataclasses import dataclass

OPS = {"layer_norm": "LayerNorm", "rms_norm": "RMSNorm"}
PASSES = ("forward", "backward", "both", "step")
PASS_NAMES = {"forward": "forward", "backward": "backward", "both": "forward + backward", "step": "training step"}
DTYPES = ("bf16", "f16", "f32", "f64")
DEVICES = {"gpu": "GPU", "cpu": "CPU"}

LIGHT = {
    "back": "#ffffff", "panel": "#f6f8fa", "text": "#1f2328", "soft": "#59636e", "faint": "#d1d9e0",
    "ours": "#0969da", "torch": "#bc4c00", "compiled": "#9a6700", "autotuned": "#c69026", "liger": "#1a7f37",
    "quack": "#8250df", "flash": "#cf222e", "apex": "#6e7781", "engine": "#bf3989", "onednn": "#1b7c83",
    "good": "#1a7f37", "bad": "#cf222e",
}  # fmt: skip
DARK = {
    "back": "#0d1117", "panel": "#161b22", "text": "#e6edf3", "soft": "#9198a1", "faint": "#30363d",
    "ours": "#58a6ff", "torch": "#f0883e", "compiled": "#d29922", "autotuned": "#e3b341", "liger": "#3fb950",
    "quack": "#a371f7", "flash": "#f85149", "apex": "#8b949e", "engine": "#db61a2", "onednn": "#39c5cf",
    "good": "#3fb950", "bad": "#f85149",
}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """How a library is named and drawn. Markers differ too, for those who see colours alike."""

    pattern: str
    label: str
    colour: str
    marker: str
    default: str = ""  # the label of the form that it is another setting of


# The first pattern that matches names the library; the order is that of legends.
LIBRARIES = (
    Library(r"evenkeel", "evenkeel", "ours", "o"),
    Library(r"evenkeel.*", "", "ours", "."),
    Library(r"(py)?torch(?!.*(compile|autotune)).*|eager", "PyTorch", "torch", "s"),
    Library(r".*compile(?!.*(autotune|max)).*", "torch.compile", "compiled", "^"),
    Library(r".*(autotune|compile.max).*", "torch.compile (max-autotune)", "autotuned", "v", "torch.compile"),
    Library(r"liger.*", "Liger", "liger", "D"),
    Library(r"quack.*", "quack", "quack", "P"),
    Library(r"flash.*", "flash-attn", "flash", "X"),
    Library(r"apex.*", "Apex", "apex", "p"),
    Library(r"te|transformer.?engine.*", "Transformer Engine", "engine", "*"),
    Library(r"one.?dnn.*|dnnl", "oneDNN", "onednn", "s"),
)
_OTHER = Library("", "", "soft", "h")


def library(backend: str) -> Library:
    return next((known for known in LIBRARIES if re.fullmatch(known.pattern, backend.lower())), _OTHER)


def label(backend: str) -> str:
    return library(backend).label or backend


def place(backend: str) -> tuple[int, str]:
    """Where a library stands in a legend or table."""
    known = library(backend)
    return LIBRARIES.index(known) if known in LIBRARIES else len(LIBRARIES), backend


def is_ours(backend: str) -> bool:
    return library(backend).colour == "ours"


def css_variables(palette: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())
