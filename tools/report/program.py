"""Asks the built program for what the files lack: measurements of this machine's CPU, costs, support. __main__.py calls
it. SPDX-License-Identifier: MIT"""

import json
import os
import pathlib
import subprocess
from typing import Any

from .rows import Row

SECONDS = 60  # for an answer that measures nothing
KNOWN = {"gpu": "h200"}  # the machine whose limits stand in for a device's that no file measures
ANY_CPU = pathlib.Path(__file__).resolve().parents[2] / "docs/results/machine-cpu.json"  # for its work, which all have
LIMITS = ("machine", "bound", "roofline_seconds")  # what an answer says of a machine


def measure(program: pathlib.Path, path: pathlib.Path, libraries: pathlib.Path) -> str | None:
    """Runs the whole speed list into a file; what went wrong. `libraries` is where make has put the peer's."""
    environment = dict(os.environ)
    folders = [str(libraries), environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    try:
        status = subprocess.run([program, "bench", "--json", path], env=environment).returncode
    except OSError as error:
        return f"{program} cannot be run ({error.strerror}): make build makes it"
    return f"{program} bench ended with status {status}" if status else None


def _answer(program: pathlib.Path, *arguments: str) -> dict[str, Any] | None:
    """What a command writes as JSON, or None where the program or the command is not there."""
    try:
        done = subprocess.run([program, *arguments, "--json", "-"], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    start = done.stdout.find("{")
    if done.returncode or start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(done.stdout, start)[0]
    except ValueError:
        return None


def _without_limits(answer: Any) -> Any:
    """The work alone, which is the same on every machine."""
    if isinstance(answer, dict):
        return {key: _without_limits(value) for key, value in answer.items() if key not in LIMITS}
    return [_without_limits(value) for value in answer] if isinstance(answer, list) else answer


def explain(program: pathlib.Path, row: Row, machine: pathlib.Path | None) -> Any:
    """The cost of a row's op, dtype and shape on its device, with the limits of the machine that a file measures.
    Without a file nothing is measured: the limits are those of a machine that is known, or there are none."""
    limits = str(machine) if machine else KNOWN.get(row.device)
    where = ("--device", "cuda" if row.device == "gpu" else "cpu", "--machine", limits or str(ANY_CPU))
    size = ("--rows", str(row.rows), "--cols", str(row.cols))
    answer = _answer(program, "explain", row.op, "--pass", row.direction, "--dtype", row.dtype, *size, *where)
    return answer if limits else _without_limits(answer)


def block(program: pathlib.Path, order: str) -> Any:
    """The kernels of a training step of a block, on the GPU that is known."""
    answer = _answer(program, "explain", "block", "--order", order, "--pass", "step", "--machine", KNOWN["gpu"])
    return answer if answer and answer.get("op") == "block" else None


def support(program: pathlib.Path) -> Any:
    return _answer(program, "info")
