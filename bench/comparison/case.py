"""What is measured: a case is one op on one shape, in one or more passes. Made by plan.py, sent to worker.py as JSON.
SPDX-License-Identifier: MIT"""

from dataclasses import asdict, dataclass

OPS = ("layer_norm", "rms_norm")
DTYPES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}  # and the bytes of an element
PASSES = {"forward": 1.0, "backward": 1.5, "both": 2.5}  # and the copies of a tensor that move the same bytes
SETS = ("models", "backward", "tables", "widths")
PARTS = ("out", "mean", "rstd", "dx", "dweight", "dbias")  # what is held against float64
EPS = {"layer_norm": 1e-5, "rms_norm": 1e-6}


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
    def eps(self) -> float:
        return EPS[self.op]

    @property
    def tensor_bytes(self) -> int:
        return self.rows * self.cols * DTYPES[self.dtype]

    def bytes(self, what: str) -> int:
        """What a pass must at least read and write: the activations; weights and statistics are little beside them."""
        return int(2 * PASSES[what] * self.tensor_bytes)

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
