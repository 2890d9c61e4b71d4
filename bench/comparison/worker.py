"""Measures one backend in a process of its own: reads a job as JSON, writes what it finds as lines of JSON, each as
soon as it is known. runner.py starts it, and ends it where it takes too long. SPDX-License-Identifier: MIT"""

import ctypes
import json
import os
import platform
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # bench/: this folder's file names are no modules of their own

import torch

from comparison import accuracy, memory
from comparison.backends import make
from comparison.backends.base import Backend
from comparison.case import PASSES, Case
from comparison.timing import Clock, Times, sets_for

Emit = Callable[..., None]
PR_SET_PDEATHSIG = 1  # of prctl: this process ends with the one that started it
BUFFERS = 6  # x, dy, y, dx, the copy's target, and what a library takes beside them


def rounded(value: Any) -> Any:
    """Times to six digits: no clock has more."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def first_line(error: BaseException) -> str:
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()  # some colour their messages
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def evenkeel_version() -> str | None:
    try:
        import evenkeel

        return str(evenkeel.__version__)
    except Exception:  # of whatever kind: its row among the backends says why, and the others are measured
        return None


def describe(emit: Emit) -> None:
    """The machine, then what is measured there, for the head of the results: evenkeel may end this process."""
    has_gpu = torch.cuda.is_available()
    values = {"cpu": cpu_name(), "gpu": torch.cuda.get_device_name() if has_gpu else None, "torch": torch.__version__}
    machine = {**values, "cuda": torch.version.cuda, "python": platform.python_version()}
    emit("machine", **machine)
    emit("evenkeel", version=evenkeel_version())


def free_bytes(device: str) -> int:
    if device == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return int(found.group(1)) * 1024 if found else sys.maxsize


class Worker:
    def __init__(self, backend: Backend, job: dict, emit: Emit) -> None:
        self.backend, self.name, self.emit = backend, job["name"], emit
        self.device, self.quick = job["device"], job["quick"]
        self.clock = Clock(self.device, job["threads"], self.quick, job["copy"])
        self.meter: Any = None

    def rows(self, case: Case, status: str, note: str, passes: tuple[str, ...] = ()) -> None:
        weight_dtype = self.backend.weight_dtype(case)
        for what in passes or case.passes:
            self.emit("results", **case.row(self.name, what, self.device, weight_dtype, status, note))

    def case(self, unit: dict) -> None:
        case = Case.from_json(unit["case"])
        refusal = self.backend.refuses(case)
        sets = sets_for(self.device, case.tensor_bytes, self.quick)
        needed, free = BUFFERS * sets * case.tensor_bytes, free_bytes(self.device)
        if refusal or needed > free:
            lacking = f"needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} are free"
            self.rows(case, "failed", refusal or lacking)
            return
        try:
            self._check_and_time(case, sets)
        except Exception as error:
            self.rows(case, "failed", first_line(error))
            self._still_works()

    def _still_works(self) -> None:
        """An error of the GPU may leave nothing that works; then this process ends, and another does the rest."""
        try:
            if self.device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError as error:
            print(first_line(error), file=sys.stderr, flush=True)
            os._exit(1)

    def _check_and_time(self, case: Case, sets: int) -> None:
        given = accuracy.operands(case, self.device, self.backend.weight_dtype(case))
        found, complaint = accuracy.check(self.backend, case, given)
        what = {"op": case.op, "dtype": case.dtype, "rows": case.rows, "cols": case.cols}
        self.emit("accuracy", backend=self.name, **what, **found)
        if complaint:
            self.rows(case, "wrong", complaint)
            return
        self._time(case, given, sets)

    def _time(self, case: Case, given: accuracy.Operands, sets: int) -> None:
        with self.clock.stream():
            sources = [given.x, *(given.x.clone() for _ in range(sets - 1))]
            targets = [torch.empty_like(given.x) for _ in range(sets)]
            dys = [self.backend.adopt(given.dy.clone(), False) for _ in range(sets)]
            xs = [self.backend.adopt(x, True) for x in sources]
            columns = [None if t is None else self.backend.adopt(t, True) for t in (given.weight, given.bias)]
        if self.device == "cuda":
            torch.cuda.synchronize()
        for what in case.passes:
            try:
                calls = self._calls(case, what, xs, columns, dys)
                self._result(case, what, self.clock.time(calls, sources, targets, self.backend.captured))
            except Exception as error:
                self.rows(case, "failed", first_line(error), (what,))
                self._still_works()

    def _result(self, case: Case, what: str, times: Times) -> None:
        copy = PASSES[what] * times.copy_seconds
        row = case.row(self.name, what, self.device, self.backend.weight_dtype(case), "ok", times.note)
        figures = {"seconds": times.seconds, "host_seconds": times.host_seconds, "copy_seconds": copy}
        self.emit("results", **{**row, **figures, "of_copy": copy / times.seconds})

    def _calls(self, case: Case, what: str, xs: list, columns: list, dys: list) -> list[Callable[[], Any]]:
        backend = self.backend
        if what == "forward":
            return [lambda x=x: backend.forward(case, x, *columns) for x in xs]
        if what == "both":
            return [lambda x=x, dy=dy: backend.step(case, x, *columns, dy) for x, dy in zip(xs, dys, strict=True)]
        with self.clock.stream():
            forwards = [backend.forward(case, x, *columns) for x in xs]
        return [lambda f=f, dy=dy: backend.backward(case, dy, f) for f, dy in zip(forwards, dys, strict=True)]

    def offsets(self, unit: dict) -> None:
        """Errors far from zero. What a backend cannot do is left out: the cases say why."""
        what = {"op": unit["op"], "dtype": unit["dtype"]}
        try:
            for offset in accuracy.OFFSETS:
                error = accuracy.offset_error(self.backend, unit["op"], unit["dtype"], offset, self.device)
                place = {"cols": accuracy.OFFSET_COLS, "offset": offset}
                self.emit("offsets", backend=self.name, **what, **place, error=error)
        except Exception:
            self._still_works()

    def memory(self, unit: dict) -> None:
        case = Case.from_json(unit["case"])
        if self.backend.refuses(case) or not self.backend.allocates:
            return
        self.meter = self.meter or memory.meter_for(self.device)
        if self.meter is None:
            return
        try:
            memory.measure(self.backend, case, self.device, self.meter, self._memory)
        except Exception:
            self._still_works()

    def _memory(self, found: dict) -> None:
        self.emit("memory", backend=self.name, **found)


def work(job: dict, emit: Emit) -> None:
    torch.set_num_threads(job["threads"])
    backend = make(job["backend"])
    try:
        version = backend.load(job["device"], job["threads"])
    except Exception as error:  # of whatever kind: a library of another version may raise any
        how = "missing" if isinstance(error, ImportError | OSError) else "broken"
        emit(how, install=job["install"] or backend.install, why=first_line(error))
        return
    emit("loaded", version=None if version is None else str(version), note=str(backend.note))
    worker = Worker(backend, job, emit)
    for index, unit in enumerate(job["units"]):
        emit("begin", index=index)
        getattr(worker, unit["do"])(unit)
    emit("end")


def main() -> None:
    job = json.load(sys.stdin)
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no result

    def emit(kind: str, **values: Any) -> None:
        print(
            json.dumps({"kind": kind, **{key: rounded(value) for key, value in values.items()}}), file=lines, flush=True
        )

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    describe(emit) if job.get("describe") else work(job, emit)


if __name__ == "__main__":
    main()
