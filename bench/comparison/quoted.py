"""Figures of peers from quoted.json, for those that are not installed, on the GPU that they were measured on.
SPDX-License-Identifier: MIT"""

import json
from pathlib import Path

from comparison.case import Case

FILE = Path(__file__).parents[1] / "quoted.json"


class Quoted:
    def __init__(self, gpu: str | None, path: Path = FILE) -> None:
        kept = json.loads(path.read_text())
        self.date, self.source = kept["date"], f"{kept['gpu']}, CUDA {kept['cuda']}, torch {kept['torch']}"
        self.tables = kept["tables"] if gpu == kept["gpu"] else []

    def has(self, backend: str) -> bool:
        return any(backend in table["backends"] for table in self.tables)

    def rows(self, backend: str, cases: list[Case], device: str) -> list[dict]:
        """The backend's figures for those of the cases that there are figures for."""
        return [row for case in cases for what in case.passes for row in self._find(backend, case, what, device)]

    def _find(self, backend: str, case: Case, what: str, device: str) -> list[dict]:
        where = {"op": case.op, "pass": what, "dtype": case.dtype, "bias": int(case.bias)}
        for table in self.tables:
            if backend not in table["backends"] or any(table[key] != value for key, value in where.items()):
                continue
            copy, *figures = table["microseconds"].get(f"{case.rows}x{case.cols}", [None])
            found = dict(zip(table["backends"], figures, strict=False)).get(backend)
            if found is not None:
                weight_dtype = table["weight_dtype"].get(backend, case.dtype)
                return [self._row(case, (backend, what, device, weight_dtype), found, copy)]
        return []

    def _row(self, case: Case, head: tuple[str, str, str, str], found: float | str, copy: float) -> dict:
        if isinstance(found, str):
            return case.row(*head, "failed", f"quoted, {self.date}: {found}")
        row = case.row(*head, "quoted", f"quoted, {self.date}")
        return {**row, "seconds": found * 1e-6, "copy_seconds": copy * 1e-6, "of_copy": copy / found}
