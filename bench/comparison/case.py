"""What is measured: a case is one op on one shape, in one or more passes. Made by plan.py, sent to worker.py as JSON.
SPDX-License-Identifier: MIT"""

from dataclasses import asdict, dataclass, replace

from comparison.ops import EPS, OPS, Op

DTYPES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}  # and the bytes of an element
SETS = ("models", "backward", "tables", "widths", "fused", "sizes")
# What is held against float64; out and h are outputs.
PARTS = ("out", "h", "mean", "rstd", "dx", "dweight", "dbias", "dresidual", "dgate", "dx_bias")


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
        """The names of those that there are, in the order of backends.base.Operands."""
        spec = self.spec
        there = {"bias": self.bias, "residual": spec.second == "residual", "gate": spec.second == "gate"}
        there["x_bias"] = spec.x_bias
        return ("x", "weight", *(name for name, is_there in there.items() if is_there))

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
