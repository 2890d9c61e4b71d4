"""The shares of a copy that the design set out to reach; documents.py holds results against them.
SPDX-License-Identifier: MIT"""

from .rows import Row

# On the CPU: shapes in the order of the tables; two threads, data from memory.
CPU_SHAPES = ((512, 768), (2048, 1024), (16384, 768), (2048, 4096), (4096, 8192), (333, 1000), (7, 131072))
CPU = {
    ("f32", "forward"): (0.90, 0.90, 0.90, 0.80, 0.80, 0.80, 0.60),
    ("f32", "backward"): (0.85, 0.85, 0.85, 0.75, 0.75, 0.60, 0.45),
    ("bf16", "forward"): (0.75, 0.75, 0.75, 0.70, 0.70, 0.60, 0.45),
    ("bf16", "backward"): (0.65, 0.65, 0.65, 0.60, 0.60, 0.45, 0.35),
    ("f16", "forward"): (0.75, 0.75, 0.75, 0.70, 0.70, 0.60, 0.45),
    ("f16", "backward"): (0.65, 0.65, 0.65, 0.60, 0.60, 0.45, 0.35),
}
# Calls whose data lies in the caches: microseconds to stay under, f32 forward.
SMALL = {(1, 1): 0.1, (8, 768): 1.3, (1, 4096): 0.9}

# On the GPU, LayerNorm in bf16: forward, backward. The smallest shapes have none.
GPU = {
    (32768, 4096): (0.97, 0.92), (4096, 32768): (0.92, 0.85), (1024, 131072): (0.90, 0.80),
    (4096, 8192): (0.95, 0.90), (4096, 16384): (0.95, 0.90), (65536, 512): (0.95, 0.90), (2048, 4096): (0.90, 0.78),
    (1024, 8192): (0.90, 0.78), (8192, 1024): (0.90, 0.85), (16384, 768): (0.90, 0.85), (32768, 256): (0.90, 0.85),
    (2048, 2048): (0.88, 0.65), (2048, 5120): (0.88, 0.65), (1000, 3333): (0.88, 0.65), (1000, 3336): (0.88, 0.65),
}  # fmt: skip
GPU_SHAPES = (*GPU, (128, 4096), (8, 8192), (1, 4096))


def target(row: Row) -> float | None:
    shape = (row.rows, row.cols)
    if row.device == "gpu":
        if shape in GPU and (row.op, row.dtype) == ("layer_norm", "bf16"):
            return GPU[shape][row.direction == "backward"]
        return None
    cells = CPU.get((row.dtype, row.direction))
    return cells[CPU_SHAPES.index(shape)] if cells and row.threads == 2 and shape in CPU_SHAPES else None


def in_order(rows: list[Row], shapes: tuple[tuple[int, int], ...]) -> list[Row]:
    """By the order of the shapes; one outside the list comes after, as it was measured."""
    place = {shape: i for i, shape in enumerate(shapes)}
    return sorted(rows, key=lambda r: place.get((r.rows, r.cols), len(shapes)))
