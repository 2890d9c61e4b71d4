"""How far a run is, on standard error, once it has taken two seconds. SPDX-License-Identifier: MIT"""

import sys
import time


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Progress:
    PATIENCE, PAUSE = 2.0, 15.0  # seconds before the first line, and between lines where there is no terminal

    def __init__(self, backends: int, units: int) -> None:
        self.total, self.units, self.done, self.finished = backends * units, units, 0, 0
        self.began = self.told = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, backend: str, units: int = 1) -> None:
        self.done += units
        now = time.monotonic()
        elapsed = now - self.began
        if elapsed < self.PATIENCE or now - self.told < (0.2 if self.terminal else self.PAUSE):
            return
        self.told = now
        left = elapsed / max(1, self.done) * (self.total - self.done)
        text = f"{backend}: {self.done} of {self.total}, {_clock(elapsed)}, about {_clock(left)} left"
        print(
            f"\r{text:<78}" if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True
        )

    def finish(self) -> None:
        """A backend is done: what it left out counts too."""
        self.finished += 1
        self.done = self.finished * self.units

    def close(self) -> None:
        if self.terminal:
            print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)
