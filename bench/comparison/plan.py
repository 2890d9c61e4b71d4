"""Which cases a run has, the most important first: where time is short, the last are left out. Called by
bench/compare.py. SPDX-License-Identifier: MIT"""

import random
from dataclasses import dataclass

from comparison import shapes
from comparison.case import DTYPES, Case
from comparison.ops import BLOCK, FUSED, OPS, PASSES, PLAIN
from comparison.shapes import Shape

DEFAULT_DTYPES = {"cpu": ("f32", "bf16"), "cuda": ("bf16", "f32")}
DEFAULT_SETS = {"cpu": ("models",), "cuda": ("models", "tables", "widths", "backward")}
RANKS = {"models": 0, "tables": 1, "widths": 3, "backward": 4, "fused": 0, "block": 0, "sizes": 5}
DEFAULT_OPS = {"fused": FUSED, "block": BLOCK, "sizes": tuple(OPS)}  # of the other sets: the plain norms
DRAWN_DTYPES = ("bf16", "f16", "f32")
OFFSET_DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class Wishes:
    """What the options ask for; empty is the default."""

    device: str
    ops: tuple[str, ...] = ()
    passes: tuple[str, ...] = PASSES
    dtypes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    quick: bool = False
    full: bool = False
    draw: int = 0  # so many cells, a pass of a case each
    seed: int = 0

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        chosen = self.dtypes or DEFAULT_DTYPES[self.device]
        return chosen[:1] if self.quick and not self.dtypes else chosen

    @property
    def chosen_sets(self) -> tuple[str, ...]:
        if self.shapes or self.quick and not self.sets:
            return ("models",)
        return self.sets or (("fused",) if self.draw else DEFAULT_SETS[self.device])

    @property
    def draws_freely(self) -> bool:
        """Whether cells are drawn from all ops and the shapes of two sets, not from those that the options name."""
        return bool(self.draw) and self.chosen_sets == ("fused",) and not self.sets

    def ops_of(self, name: str) -> tuple[str, ...]:
        """What a set is measured in."""
        return self.ops or (tuple(OPS) if self.draws_freely else DEFAULT_OPS.get(name, PLAIN))

    @property
    def all_ops(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(op for name in self.chosen_sets for op in self.ops_of(name)))

    @property
    def single_passes(self) -> tuple[str, ...]:
        """Without both, unless it is all that is asked for."""
        return tuple(what for what in self.passes if what != "both") or self.passes


def _case(op: str, dtype: str, shape: Shape, passes: tuple[str, ...], name: str) -> Case:
    """With every operand that the op has."""
    return Case(op, dtype, *shape[:2], OPS[op].norm == "layer_norm", passes, name, shape.model)


def _models(wishes: Wishes) -> list[Case]:
    """Each op in every dtype; also the shapes that a user asks for."""
    listed = shapes.MODELS + (shapes.EDGES if wishes.full else ())
    chosen = wishes.shapes or (shapes.QUICK if wishes.quick else listed)
    return [
        _case(op, dtype, shape, wishes.passes, "models")
        for op in wishes.ops_of("models")
        for dtype in wishes.default_dtypes
        for shape in chosen
    ]


def _fused(wishes: Wishes, name: str = "fused") -> list[Case]:
    """By shape, so that a run that is short of time has all ops at the first ones."""
    first, freely = DEFAULT_DTYPES[wishes.device][:1], wishes.draws_freely
    many = tuple(dict.fromkeys((*shapes.FUSED, *shapes.MODELS)))
    return [
        _case(op, dtype, shape, wishes.single_passes, name)
        for dtype in wishes.dtypes or (DRAWN_DTYPES if freely else first)
        for shape in (many if freely else shapes.FUSED)
        for op in wishes.ops_of(name)
    ]


def _block(wishes: Wishes) -> list[Case]:
    return _fused(wishes, "block")


def _sizes(wishes: Wishes) -> list[Case]:
    return [
        _case(op, dtype, shapes.of_bytes(megabytes, cols, DTYPES[dtype]), wishes.single_passes, "sizes")
        for op in wishes.ops_of("sizes")
        for dtype in wishes.dtypes or DEFAULT_DTYPES[wishes.device][:1]
        for megabytes in shapes.SIZES_MB
        for cols in shapes.SIZES_COLS
    ]


def _tables(wishes: Wishes) -> list[Case]:
    return [
        Case("layer_norm", dtype, *shape[:2], bias, wishes.passes, "tables", shape.model)
        for dtype, bias, table in shapes.TABLES
        for shape in table
        if "layer_norm" in wishes.ops_of("tables") and (not wishes.dtypes or dtype in wishes.dtypes)
    ]


def _widths(wishes: Wishes) -> list[Case]:
    def rows(shape: Shape) -> int:
        return shape.rows if wishes.device == "cuda" else shapes.CPU_WIDTH_ELEMENTS // shape.cols

    return [
        _case(op, dtype, Shape(rows(shape), shape.cols), wishes.single_passes, "widths")
        for op in wishes.ops_of("widths")
        for dtype in wishes.dtypes or DEFAULT_DTYPES[wishes.device][:1]
        for shape in shapes.WIDTHS
    ]


def _backward(wishes: Wishes) -> list[Case]:
    if "layer_norm" not in wishes.ops_of("backward") or "backward" not in wishes.passes:
        return []
    return [
        Case("layer_norm", dtype, *shape[:2], True, ("backward",), "backward", shape.model)
        for dtype in wishes.dtypes or ("f16", "f32")
        for shape in shapes.BACKWARD
    ]


MAKERS = {"models": _models, "tables": _tables, "widths": _widths, "backward": _backward}
MAKERS |= {"fused": _fused, "block": _block, "sizes": _sizes}


def _rank(case: Case, wishes: Wishes) -> int:
    """Of the plain norms LayerNorm, and the first dtype, before the rest; the other sets as they were made."""
    if case.set in DEFAULT_OPS:
        return RANKS[case.set]
    first = case.set != "models" or case.dtype == wishes.default_dtypes[0]
    return RANKS[case.set] + (0 if first else 2) + (0 if case.norm == "layer_norm" else 2)


def cases(wishes: Wishes) -> list[Case]:
    made = [case for name in wishes.chosen_sets for case in MAKERS[name](wishes)]
    chosen: dict[tuple, Case] = {}
    for case in sorted(made, key=lambda case: _rank(case, wishes)):
        key = case.op, case.dtype, case.rows, case.cols, case.bias
        if key not in chosen or not set(case.passes) <= set(chosen[key].passes):
            chosen.setdefault((*key, case.set) if key in chosen else key, case)
    return _drawn(list(chosen.values()), wishes) if wishes.draw else list(chosen.values())


def _drawn(pool: list[Case], wishes: Wishes) -> list[Case]:
    """So many cells, the same for one seed; all of them where there are fewer."""
    cells = [case.one_pass(what) for case in pool for what in case.passes]
    return random.Random(wishes.seed).sample(cells, min(wishes.draw, len(cells)))


LIMITS = {  # of the sets that not every option leaves something of
    "tables": f"layer_norm in {', '.join(dict.fromkeys(dtype for dtype, _, _ in shapes.TABLES))}",
    "backward": "layer_norm backward",
}


def why_nothing(wishes: Wishes) -> str:
    """Why the options leave no case to measure; "" where they leave one."""
    if cases(wishes):
        return ""
    limits = "; ".join(f"{name} is {LIMITS[name]}" for name in wishes.sets)
    asked = {"ops": wishes.all_ops, "pass": wishes.passes, "dtypes": wishes.dtypes}
    words = " ".join(f"--{name} {','.join(values)}" for name, values in asked.items() if values)
    return f"argument --sets: nothing to measure: {limits}; asked for is {words}"


def memory_cases(wishes: Wishes) -> list[Case]:
    """LayerNorm where it is asked for, in the first dtype: the memory of the other op and dtypes follows from it."""
    if wishes.shapes:
        chosen = wishes.shapes
    else:
        chosen = shapes.MEMORY[:1] if wishes.quick else shapes.MEMORY + shapes.MODELS
    ops = wishes.ops_of("models")
    op = "layer_norm" if "layer_norm" in ops else ops[0]
    dtype = wishes.default_dtypes[0]
    return [_case(op, dtype, shape, ("both",), "models") for shape in chosen]


def units(wishes: Wishes, planned: list[Case]) -> list[dict]:
    """What a worker does, in order. Memory is last: it changes how the C library allocates. The sets fused and sizes,
    and cells that are drawn, are about times alone."""
    if wishes.draw or set(wishes.chosen_sets) <= set(DEFAULT_OPS):
        return [{"do": "case", "case": case.to_json()} for case in planned]
    dtypes = [dtype for dtype in OFFSET_DTYPES if not wishes.dtypes or dtype in wishes.dtypes]
    plain = [op for op in wishes.all_ops if op in PLAIN]
    return [
        *({"do": "offsets", "op": op, "dtype": dtype} for op in plain for dtype in dtypes),
        *({"do": "case", "case": case.to_json()} for case in planned),
        *({"do": "memory", "case": case.to_json()} for case in memory_cases(wishes)),
    ]
