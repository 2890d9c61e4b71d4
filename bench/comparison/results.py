"""What a run found: kept, and written as JSON and CSV. Called by bench/compare.py. SPDX-License-Identifier: MIT"""

import csv
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

FORMAT = 1
LISTS = ("results", "accuracy", "offsets", "memory")


@dataclass
class Results:
    evenkeel: str | None
    date: str
    command: str
    machine: dict
    backends: list[dict] = field(default_factory=list)
    results: list[dict] = field(default_factory=list)
    accuracy: list[dict] = field(default_factory=list)
    offsets: list[dict] = field(default_factory=list)
    memory: list[dict] = field(default_factory=list)

    def hear(self, message: dict) -> None:
        """Keeps what a worker found."""
        kind = message.pop("kind")
        if kind in LISTS:
            getattr(self, kind).append(message)

    def rows_of(self, backend: str) -> list[dict]:
        return [row for row in self.results if row["backend"] == backend]

    def to_json(self) -> str:
        """A line for each row, so that two files can be compared by eye."""
        head = {"evenkeel": self.evenkeel, "format": FORMAT, "kind": "compare", "date": self.date}
        head |= {"command": self.command, "machine": self.machine}
        parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        for key in ("backends", *LISTS):
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in getattr(self, key))
            parts.append(f'"{key}": [\n  {rows}]' if rows else f'"{key}": []')
        return "{" + ",\n ".join(parts) + "}\n"


def _opened(path: str) -> Any:
    """`-` is standard output."""
    return nullcontext(sys.stdout) if path == "-" else open(path, "w", newline="")


def write_json(results: Results, path: str) -> None:
    with _opened(path) as file:
        file.write(results.to_json())


def _write_rows(rows: list[dict], file: IO[str]) -> None:
    if rows:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_csv(results: Results, path: str) -> None:
    with _opened(path) as file:
        _write_rows(results.results, file)


def write_folder(results: Results, folder: Path) -> None:
    """compare.json, and a CSV file for each list."""
    write_json(results, str(folder / "compare.json"))
    for name in ("backends", *LISTS):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            _write_rows(getattr(results, name), file)
