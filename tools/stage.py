"""One stage of the tests: runs commands into a log, counts what they report, and shows how far it is. test.py lists
the stages. SPDX-License-Identifier: MIT"""

import os
import re
import subprocess
import sys
import threading
import time

from build import ROOT, commands, ctest, jobs

LOGS = ROOT / "build" / "logs"
IN_CI = bool(os.environ.get("CI"))
HEARTBEAT_SECONDS = 60  # between lines of progress where the output is not a terminal

# Ninja's [3/188], ctest's 3/27 Test, pytest's [ 42%].
DONE_OF_ALL = re.compile(r"^\[(\d+)/(\d+)\]|^\s*(\d+)/(\d+) Test +#|\[ *(\d+)%\]$")


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Display:
    """The line of the running stage: what it does, how far it is, what is left."""

    def __init__(self, started):
        self.started, self.head, self.left, self.shown = started, "", "", 0.0
        self.terminal = sys.stdout.isatty()

    def clock(self):
        return f"[{time.monotonic() - self.started:4.0f} s]"

    def begin(self, head, left):
        self.head, self.left, self.shown = head, left, time.monotonic()
        print(f"{self.clock()} {head}{'' if self.terminal else ' ...'}", end="" if self.terminal else "\n", flush=True)

    def show(self, progress):
        now = time.monotonic()
        if now - self.shown < (1 if self.terminal else HEARTBEAT_SECONDS):
            return
        self.shown = now
        if self.terminal:
            print(f"\r\033[K{self.clock()} {self.head}: {progress}; {self.left}", end="", flush=True)
        else:
            print(f"{self.clock()}   {progress}; {self.left}", flush=True)

    def end(self, text):
        print(f"\r\033[K{self.clock()} {self.head}: {text}" if self.terminal else f"{self.clock()}   {text}", flush=True)


class Stage:
    """The counts of a stage, and the file its output goes to."""

    def __init__(self, name, display):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name, self.path, self.display = name, LOGS / f"{name}.log", display
        self.log = open(self.path, "w")
        self.passed, self.failed, self.skipped, self.why = 0, 0, 0, ""
        self.progress = "starting"

    def fail(self, why):
        self.failed += 1
        self.why += f"{why}; "

    def skip(self, why):
        """A stage that cannot run here: continuous integration must run them all."""
        if IN_CI:
            self.fail(f"{why}; with CI set, a skipped stage is a failure")
        else:
            self.skipped += 1
            self.why += f"skipped: {why}; "

    def _heartbeat(self, process):
        while process.poll() is None:
            self.display.show(self.progress)
            time.sleep(0.5)

    def _note(self, line):
        found = DONE_OF_ALL.search(line)
        if found:
            numbers = [number for number in found.groups() if number]
            self.progress = f"{numbers[0]} of {numbers[1]}" if len(numbers) == 2 else f"{numbers[0]} %"

    def run(self, command, env=None, cwd=ROOT):
        """Runs a command into the log; returns its exit status and its output."""
        command = list(map(str, command))
        print("$", *command, file=self.log, flush=True)
        lines = []
        with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", env={**os.environ, **(env or {})}) as process:
            threading.Thread(target=self._heartbeat, args=(process,), daemon=True).start()
            for line in process.stdout:
                lines.append(line)
                self._note(line)
                self.log.write(line)
        self.log.flush()
        return process.returncode, "".join(lines)

    def build(self, folder, *definitions, targets=()):
        definitions = (f"-DEVENKEEL_WERROR={'ON' if IN_CI else 'OFF'}", *definitions)
        for command in commands(ROOT / folder, definitions, targets):
            if self.run(command)[0]:
                self.fail("the build failed")
                return False
        return True

    def ctest(self, folder, *selection, env=None):
        """The tests of a folder, counted by the sentence. A program that fails without naming a sentence counts once."""
        status, text = self.run([ctest(), "-V", "-j", jobs(), *selection], env, ROOT / folder)
        outcomes = re.findall(r"^\s*(\d+)/\d+ Test +#(\d+): (\S+) \.*\**\s*(\S+)", text, re.M)
        for _, number, name, outcome in outcomes:
            lines = re.findall(rf"^{number}: (ok|FAILED|skipped) \S", text, re.M)
            self.passed += lines.count("ok")
            self.failed += lines.count("FAILED")
            self.skipped += lines.count("skipped")
            if outcome == "Passed" and not lines:
                self.passed += 1
            if outcome != "Passed" and "FAILED" not in lines:
                self.failed += 1
            if outcome != "Passed":
                self.why += f"{name} {outcome.lower()}; "
        if not outcomes or (status and not self.failed):
            self.fail("" if self.why else "ctest ran nothing")

    def checks(self, command, env=None):
        """A script that prints `ok NAME`, `FAIL[ED] NAME` or `skipped NAME: why`, a line for each check."""
        status, text = self.run(command, env)
        outcomes = re.findall(r"^(ok|FAILED|FAIL|skipped) +(.+)$", text, re.M)
        for outcome, name in outcomes:
            self.passed += outcome == "ok"
            self.failed += outcome.startswith("FAIL")
            self.skipped += outcome == "skipped"
            if outcome != "ok":
                self.why += f"{outcome} {name}; "
        if not outcomes or (status and not self.failed):
            self.fail(f"{' '.join(map(str, command[-2:]))} ended with status {status}")

    def pytest(self, python, *arguments, env=None):
        """Python tests, counted by pytest."""
        status, text = self.run([python, "-m", "pytest", "-q", *arguments], env)
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b",
                                                                   text.strip().rpartition("\n")[2])}
        self.passed += counts.get("passed", 0)
        self.failed += counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
        self.skipped += counts.get("skipped", 0)
        if not counts or (status and not self.failed):
            self.fail(f"pytest ended with status {status}")

    def finish(self, seconds):
        self.log.close()
        text = f"{self.passed} passed, {self.failed} failed"
        if self.skipped:
            text += f", {self.skipped} skipped"
        if self.why:
            text += f" ({self.why.rstrip('; ')})"
        self.display.end(f"{text}, {seconds:.0f} s")
        if self.failed:
            self._show_failure()

    def _show_failure(self):
        lines = self.path.read_text().splitlines()
        telling = [i for i, line in enumerate(lines) if re.search(r"FAIL|error:|ERROR:|Error\b|fuzz_norm:", line)]
        first = max(0, telling[0] - 5) if telling else 0
        for line in lines[first:first + 60] + (["..."] + lines[-25:] if len(lines) > first + 85 else []):
            print(f"    | {line}")
        print(f"    the whole log: {self.path.relative_to(ROOT)}", flush=True)
