"""Which cases a run has, the most important first: where time is short, the last are left out. Called by
bench/compare.py. SPDX-License-Identifier: MIT"""

from dataclasses import dataclass

from comparison import shapes
from comparison.case import Case
from comparison.shapes import Shape

DEFAULT_DTYPES = {"cpu": ("f32", "bf16"), "cuda": ("bf16", "f32")}
DEFAULT_SETS = {"cpu": ("models",), "cuda": ("models", "tables", "widths", "backward")}
RANKS = {"models": 0, "tables": 1, "widths": 3, "backward": 4}
OFFSET_DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class Wishes:
    """What the options ask for; empty is the default."""

    device: str
    ops: tuple[str, ...]
    passes: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    quick: bool = False
    full: bool = False

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        chosen = self.dtypes or DEFAULT_DTYPES[self.device]
        return chosen[:1] if self.quick and not self.dtypes else chosen


def _models(wishes: Wishes) -> list[Case]:
    """Both ops in every dtype; also the shapes that a user asks for."""
    listed = shapes.MODELS + (shapes.EDGES if wishes.full else ())
    chosen = wishes.shapes or (shapes.QUICK if wishes.quick else listed)
    return [
        Case(op, dtype, *shape[:2], op == "layer_norm", wishes.passes, "models", shape.model)
        for op in wishes.ops
        for dtype in wishes.default_dtypes
        for shape in chosen
    ]


def _tables(wishes: Wishes) -> list[Case]:
    return [
        Case("layer_norm", dtype, *shape[:2], bias, wishes.passes, "tables", shape.model)
        for dtype, bias, table in shapes.TABLES
        for shape in table
        if "layer_norm" in wishes.ops and (not wishes.dtypes or dtype in wishes.dtypes)
    ]


def _widths(wishes: Wishes) -> list[Case]:
    def rows(shape: Shape) -> int:
        return shape.rows if wishes.device == "cuda" else shapes.CPU_WIDTH_ELEMENTS // shape.cols

    passes = tuple(what for what in wishes.passes if what != "both") or wishes.passes
    return [
        Case(op, dtype, rows(shape), shape.cols, op == "layer_norm", passes, "widths")
        for op in wishes.ops
        for dtype in wishes.dtypes or DEFAULT_DTYPES[wishes.device][:1]
        for shape in shapes.WIDTHS
    ]


def _backward(wishes: Wishes) -> list[Case]:
    if "layer_norm" not in wishes.ops or "backward" not in wishes.passes:
        return []
    return [
        Case("layer_norm", dtype, *shape[:2], True, ("backward",), "backward", shape.model)
        for dtype in wishes.dtypes or ("f16", "f32")
        for shape in shapes.BACKWARD
    ]


MAKERS = {"models": _models, "tables": _tables, "widths": _widths, "backward": _backward}


def _rank(case: Case, wishes: Wishes) -> int:
    """LayerNorm, and the first dtype, before the rest."""
    first = case.set != "models" or case.dtype == wishes.default_dtypes[0]
    return RANKS[case.set] + (0 if first else 2) + (0 if case.op == "layer_norm" else 2)


def cases(wishes: Wishes) -> list[Case]:
    sets = ("models",) if wishes.shapes or wishes.quick and not wishes.sets else wishes.sets
    made = [case for name in sets or DEFAULT_SETS[wishes.device] for case in MAKERS[name](wishes)]
    chosen: dict[tuple, Case] = {}
    for case in sorted(made, key=lambda case: _rank(case, wishes)):
        key = case.op, case.dtype, case.rows, case.cols, case.bias
        if key not in chosen or not set(case.passes) <= set(chosen[key].passes):
            chosen.setdefault((*key, case.set) if key in chosen else key, case)
    return list(chosen.values())


LIMITS = {  # of the sets that not every option leaves something of
    "tables": f"layer_norm in {', '.join(dict.fromkeys(dtype for dtype, _, _ in shapes.TABLES))}",
    "backward": "layer_norm backward",
}


def why_nothing(wishes: Wishes) -> str:
    """Why the options leave no case to measure; "" where they leave one."""
    if cases(wishes):
        return ""
    limits = "; ".join(f"{name} is {LIMITS[name]}" for name in wishes.sets)
    asked = {"ops": wishes.ops, "pass": wishes.passes, "dtypes": wishes.dtypes}
    words = " ".join(f"--{name} {','.join(values)}" for name, values in asked.items() if values)
    return f"argument --sets: nothing to measure: {limits}; asked for is {words}"


def memory_cases(wishes: Wishes) -> list[Case]:
    """LayerNorm where it is asked for, in the first dtype: the memory of the other op and dtypes follows from it."""
    if wishes.shapes:
        chosen = wishes.shapes
    else:
        chosen = shapes.MEMORY[:1] if wishes.quick else shapes.MEMORY + shapes.MODELS
    op = "layer_norm" if "layer_norm" in wishes.ops else wishes.ops[0]
    dtype = wishes.default_dtypes[0]
    return [Case(op, dtype, *shape[:2], op == "layer_norm", ("both",), "models", shape.model) for shape in chosen]


def units(wishes: Wishes, planned: list[Case]) -> list[dict]:
    """What a worker does, in order. Memory is last: it changes how the C library allocates."""
    dtypes = [dtype for dtype in OFFSET_DTYPES if not wishes.dtypes or dtype in wishes.dtypes]
    return [
        *({"do": "offsets", "op": op, "dtype": dtype} for op in wishes.ops for dtype in dtypes),
        *({"do": "case", "case": case.to_json()} for case in planned),
        *({"do": "memory", "case": case.to_json()} for case in memory_cases(wishes)),
    ]
