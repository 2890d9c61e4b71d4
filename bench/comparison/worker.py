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
from comparison.backends.base import Backend, Operands
from comparison.case import DTYPES, Case
from comparison.timing import Clock, Times, sets_for

Emit = Callable[..., None]
PR_SET_PDEATHSIG = 1  # of prctl: this process ends with the one that started it


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


def buffers_of(case: Case) -> int:
    """Tensors of rows x cols for one set: inputs, outputs and their gradients, and a copy's two."""
    return 2 * (1 + len(case.spec.beside) + len(case.spec.outputs)) + 2


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
        if case.op not in self.backend.ops:
            return
        refusal = self.backend.refuses(case)
        sets = sets_for(self.device, case.tensor_bytes, self.quick)
        needed, free = buffers_of(case) * sets * case.tensor_bytes, free_bytes(self.device)
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
        given = accuracy.make(case, self.device, self.backend.weight_dtype(case))
        found, complaint = accuracy.check(self.backend, case, given)
        what = {"op": case.op, "dtype": case.dtype, "rows": case.rows, "cols": case.cols}
        self.emit("accuracy", backend=self.name, **what, **found)
        if complaint:
            self.rows(case, "wrong", complaint)
            return
        self._time(case, given, sets)

    def _sets(self, case: Case, given: accuracy.Given, sets: int) -> list[tuple[Operands, tuple[Any, ...]]]:
        """Operands and gradients of outputs, so often: tensors each with memory of their own, columns shared."""
        adopt, columns = self.backend.adopt, accuracy.adopt(self.backend, case, given.operands)

        def once() -> tuple[Operands, tuple[Any, ...]]:
            tensors = {
                name: adopt(tensor.clone(), name in case.differentiable)
                for name, tensor in given.operands._asdict().items()
                if tensor is not None and tensor.dim() == 2
            }
            return columns._replace(**tensors), tuple(adopt(t.clone(), False) for t in given.gradients)

        return [once() for _ in range(sets)]

    def _time(self, case: Case, given: accuracy.Given, sets: int) -> None:
        with self.clock.stream():
            made = self._sets(case, given, sets)
        if self.device == "cuda":
            torch.cuda.synchronize()
        for what in case.passes:
            try:
                calls = self._calls(case, what, made)
                self._result(case, what, self.clock.time(calls, self._copies(case, what, given), self.backend.captured))
            except Exception as error:
                self.rows(case, "failed", first_line(error), (what,))
                self._still_works()

    def _copies(self, case: Case, what: str, given: accuracy.Given) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Pairs of a tensor so large that copying it moves the bytes of the pass."""
        elements = -(-case.bytes(what) // (2 * DTYPES[case.dtype]))
        with self.clock.stream():
            pairs = self.clock.pairs(
                given.operands.x, elements, sets_for(self.device, elements * DTYPES[case.dtype], self.quick)
            )
        if self.device == "cuda":
            torch.cuda.synchronize()
        return pairs

    def _result(self, case: Case, what: str, times: Times) -> None:
        row = case.row(self.name, what, self.device, self.backend.weight_dtype(case), "ok", times.note)
        figures = {"seconds": times.seconds, "host_seconds": times.host_seconds, "copy_seconds": times.copy_seconds}
        self.emit("results", **{**row, **figures, "of_copy": times.copy_seconds / times.seconds})

    def _calls(self, case: Case, what: str, made: list[tuple[Operands, tuple[Any, ...]]]) -> list[Callable[[], Any]]:
        backend = self.backend
        if what == "forward":
            return [lambda given=given: backend.forward(case, given) for given, _ in made]
        if what == "both":
            return [lambda given=given, d=d: backend.step(case, given, d) for given, d in made]
        with self.clock.stream():
            forwards = [backend.forward(case, given) for given, _ in made]
        return [lambda f=f, d=d: backend.backward(case, d, f) for f, (_, d) in zip(forwards, made, strict=True)]

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
        if case.op not in self.backend.ops or self.backend.refuses(case) or not self.backend.allocates:
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
    emit("loaded", version=None if version is None else str(version), note=str(backend.note), ops=list(backend.ops))
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
