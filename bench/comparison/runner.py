"""Runs a job of worker.py in a process of its own, which is ended when its time is over; what it found until then is
kept. Called by bench/compare.py. SPDX-License-Identifier: MIT"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

WORKER = Path(__file__).with_name("worker.py")
DESCRIBE_SECONDS = 120
SHUTDOWN_SECONDS = 10  # from the last line of a worker to its exit
RESTARTS = 3  # after crashes, each of which costs the unit at hand


class End(NamedTuple):
    """How a backend's run ended: "end", "missing" or "broken" where it does not load, "timeout", "crash", or "failed"
    before it began; and why."""

    how: str
    why: str
    unit: int  # the first that was not finished


class Child:
    """A worker, its lines as they come, and what it wrote for people."""

    def __init__(self, job: dict) -> None:
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # a library may write what is no text
        threads = str(job.get("threads", 1))
        environment = {**os.environ, "OMP_NUM_THREADS": threads}
        environment.setdefault("GOMP_SPINCOUNT", "20000")  # threads that spin longer slow what is timed next
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # its compilers end with it
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(json.dumps(job),), daemon=True).start()

    def _read(self, job: str) -> None:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(job)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; its exit status says why
        for line in self.process.stdout:
            if line.endswith("}\n"):  # not the half of one that a crash cut off
                self.lines.put(line)
        self.lines.put(None)

    def next(self, deadline: float) -> dict | None:
        """What it says next; None at its end. TimeoutError at the deadline."""
        try:
            line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def wait(self) -> None:
        """Lets a worker that has nothing more to say end by itself, so that its exit status is its own."""
        try:
            self.process.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # kill() ends it

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def last_words(self) -> str:
        """Why it ended: its signal, else the last line that it wrote."""
        status = self.process.wait()
        if status < 0:
            return f"ended by {signal.Signals(-status).name}"
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1][:200] if lines else f"ended with status {status}"


def _run_once(job: dict, deadline: float, limit: float, hear: Callable[[dict], Any]) -> End:
    child, unit, how = Child(job), 0, "failed"
    try:
        while (message := child.next(deadline)) is not None:
            if message["kind"] == "begin":
                unit, how = message["index"], "crash"  # unless it goes on
            if message["kind"] in ("end", "missing", "broken"):
                how = message["kind"]
            hear(message)
        child.wait()
    except TimeoutError:
        return End("timeout", f"not done within its {limit:.0f} s", unit)
    finally:
        child.kill()
    return End(how, child.last_words() if how in ("crash", "failed") else "", unit)


def run(job: dict, limit: float, hear: Callable[[dict], Any], lost: Callable[[int, End], Any]) -> End:
    """Runs the job's units within `limit` seconds. `hear` gets every message, `lost` every unit that was not finished:
    one that crashed, after which a new process does the rest, or all that time was not enough for."""
    deadline, units, done = time.monotonic() + limit, job["units"], 0
    for _ in range(1 + RESTARTS):
        end = _run_once({**job, "units": units[done:]}, deadline, limit, hear)
        done += end.unit
        if end.how != "crash":
            break
        lost(done, end)
        done += 1
        if done == len(units):
            break
    if end.how in ("timeout", "crash", "failed"):
        for unit in range(done, len(units)):
            lost(unit, end)
    return end


def describe() -> tuple[dict, str | None]:
    """The machine as PyTorch sees it, and evenkeel's version. RuntimeError where there is no PyTorch."""
    found: dict[str, dict] = {}

    def hear(message: dict) -> None:
        found[message.pop("kind")] = message

    end = _run_once({"describe": True}, time.monotonic() + DESCRIBE_SECONDS, DESCRIBE_SECONDS, hear)
    if "machine" not in found:
        raise RuntimeError(end.why)
    return found["machine"], found.get("evenkeel", {}).get("version")
