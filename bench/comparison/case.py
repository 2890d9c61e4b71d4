"""What is measured: a case is one op on one shape, in one or more passes. Made by plan.py, sent to worker.py as JSON.
SPDX-License-Identifier: MIT"""

import math
from dataclasses import asdict, dataclass, replace

from comparison.ops import EPS, OPERANDS, OPS, TABLES, Op

DTYPES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}  # and the bytes of an element
SETS = ("models", "backward", "tables", "widths", "fused", "block", "sizes")
# What is held against float64: outputs, statistics, gradients.
PARTS = ("out", "h", "out_k", "mean", "rstd", *(f"d{name}" for name in OPERANDS if name not in TABLES))


@dataclass(frozen=True)
class Case:
    op: str
    dtype: str
    rows: int
    cols: int
    bias: bool
    passes: tuple[str, ...]
    set: str
    model: str = ""

    @property
    def spec(self) -> Op:
        return OPS[self.op]

    @property
    def norm(self) -> str:
        return self.spec.norm

    @property
    def eps(self) -> float:
        return EPS[self.norm]

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of those that there are."""
        there = ("x", *self.spec.beside, *self.columns, *(TABLES if self.spec.has_heads else ()))
        return tuple(name for name in OPERANDS if name in there)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.spec.columns + (("bias",) if self.bias else ())

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The operands that have gradients."""
        return tuple(name for name in self.operands if name not in TABLES)

    @property
    def head_dim(self) -> int:
        """As models have it: 64 of 1024 columns, 128 of 4096; less where that does not divide the columns."""
        return math.gcd(self.cols, 128 if self.cols >= 2048 else 64)

    @property
    def tensor_bytes(self) -> int:
        return self.rows * self.cols * DTYPES[self.dtype]

    def bytes(self, what: str) -> int:
        """What a pass must at least read and write: the activations; weights and statistics are little beside them."""
        return self.spec.moved(what) * self.tensor_bytes

    def one_pass(self, what: str) -> "Case":
        return replace(self, passes=(what,))

    def row(self, backend: str, what: str, device: str, weight_dtype: str, status: str, note: str = "") -> dict:
        """A result that says what was measured, without figures."""
        figures = dict.fromkeys(("seconds", "host_seconds", "copy_seconds", "of_copy"))
        return {
            "backend": backend,
            "op": self.op,
            "pass": what,
            "dtype": self.dtype,
            "weight_dtype": weight_dtype,
            "weight": 1,
            "bias": int(self.bias),
            "rows": self.rows,
            "cols": self.cols,
            "model": self.model,
            "set": self.set,
            "device": device,
            "bytes": self.bytes(what),
            **figures,
            "status": status,
            "note": note,
        }

    def to_json(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_json(values: dict) -> "Case":
        return Case(**{**values, "passes": tuple(values["passes"])})

    def __str__(self) -> str:
        return f"{self.op} {self.rows}x{self.cols} {self.dtype}"
