"""The shapes that are compared, in sets, each with what it stands for; plan.py makes cases of them.
SPDX-License-Identifier: MIT"""

from typing import NamedTuple


class Shape(NamedTuple):
    rows: int
    cols: int
    model: str = ""  # what it stands for


MODELS = (
    Shape(2048, 4096, "Llama 7B, Mistral 7B"),
    Shape(16384, 768, "GPT-2 small, BERT base"),
    Shape(1024, 8192, "Llama 70B"),
    Shape(8192, 1024, "GPT-2 medium, BERT large"),
    Shape(2048, 2048, "Llama 1B, OPT 1.3B"),
    Shape(2048, 5120, "Llama 13B"),
    Shape(512, 12288, "GPT-3 175B"),
    Shape(16384, 1024, "BERT large, long batch"),
    Shape(4096, 1280, "GPT-2 large"),
    Shape(2048, 1600, "GPT-2 XL"),
    Shape(2048, 6144, "GPT-NeoX 20B"),
)

EDGES = (
    *(Shape(1, cols, "edge") for cols in (1, 17, 4095, 4097, 32767, 32768, 65536, 100000)),
    *(Shape(rows, cols, "edge") for rows, cols in ((1000, 1), (13, 13), (17, 1023), (200, 10000))),
)

# A profiler's list for backward; its 4-D shapes have the first dimension as rows.
BACKWARD = (
    *(Shape(*shape) for shape in ((1502, 4096), (4000, 2000), (12288, 2048), (4096, 8192), (1024, 1024), (1024, 512))),
    *(Shape(*shape) for shape in ((4, 256), (8, 511), (9, 1032), (4, 2048), (1, 8192), (25, 16), (39, 777))),
    *(Shape(100, 200), Shape(1, 1, "1x1x1x1"), Shape(7, 343, "7x7x7x7"), Shape(256, 2048, "256x16x16x8")),
)

# The shapes of the published tables, and of the figures in quoted.json: (dtype, bias, shapes).
_F16 = ((4096, 8192), (4096, 16384), (4096, 4096))
_BF16 = (
    *((4096, 8192), (65536, 512), (32768, 4096), (4096, 16384), (4096, 32768), (1024, 131072), (1, 4096), (8, 8192)),
    *((128, 4096), (1000, 3333), (1000, 3336), (32768, 256)),
)
TABLES = tuple(
    (dtype, bias, tuple(Shape(*shape) for shape in listed))
    for dtype, bias, listed in (("f16", True, _F16), ("bf16", False, _BF16[:1]), ("bf16", True, _BF16))
)

WIDTHS = tuple(Shape(min(32768, (1 << 31) // cols), cols) for cols in (1 << power for power in range(8, 19)))
CPU_WIDTH_ELEMENTS = 1 << 24  # a tensor of the set `widths` on a CPU, where the GPU's would take gigabytes

QUICK = MODELS[:2]

# Where the fused ops are held against other libraries.
FUSED = MODELS[3], Shape(4096, 4096), Shape(8192, 8192)

# Tensors of 16, 64 and 256 MB from narrow to wide: a share of the copy that drops between neighbours is a dip.
SIZES_MB, SIZES_COLS = (16, 64, 256), (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)


def of_bytes(megabytes: int, cols: int, element: int) -> Shape:
    """About so large a tensor, its rows a multiple of 8."""
    return Shape(max(8, (megabytes << 20) // (cols * element) // 8 * 8), cols, f"{megabytes} MB")


# Inputs whose memory is measured: [batch, 4096] and [batch, 128, 4096].
MEMORY = (
    *(Shape(batch, 4096, f"batch {batch}") for batch in (32, 64, 128)),
    *(Shape(batch * 128, 4096, f"batch {batch} x 128 tokens") for batch in (32, 64, 128)),
)


def model_of(rows: int, cols: int) -> str:
    """What a shape that a user asks for stands for."""
    return next((shape.model for shape in MODELS if (shape.rows, shape.cols) == (rows, cols)), "")
