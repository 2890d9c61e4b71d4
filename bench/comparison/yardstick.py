"""The copy of `evenkeel bench` (cli/copy.c) as a library, so that on a CPU both hold the ops against the same one.
compare.py compiles it once, each worker opens it. SPDX-License-Identifier: MIT"""

import ctypes
import os
import shlex
import subprocess
from ctypes import c_int, c_size_t, c_void_p
from pathlib import Path

import comparison

CLI = Path(comparison.__file__).parents[2] / "cli"
SOURCES = ("copy.c", "team.c", "timing.c")
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread")
COMPILE_SECONDS = 60
BLOCK = 256  # of cli/copy.c, which copies whole ones
FUNCTIONS = {  # result, arguments: a team of threads; then team, target, source, a second source or NULL, bytes
    "team_create": (c_void_p, (c_int,)),
    "copy_prepare": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)),
    "copy_streams": (None, (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)),
}


def compile_copy(folder: Path) -> Path:
    """The library, in that folder. RuntimeError says why there is none."""
    compiler, library = os.environ.get("CC", "cc"), folder / "copy.so"
    command = [*shlex.split(compiler), *FLAGS, "-o", str(library), *(str(CLI / name) for name in SOURCES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except OSError as error:
        raise RuntimeError(f"{compiler}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{compiler}: not done within {COMPILE_SECONDS} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RuntimeError(f"{compiler}: {words[0][:200]}")
    return library


class Yardstick:
    """Copies on so many threads, past the caches. Targets lie at multiples of 64 bytes, as PyTorch's tensors do."""

    def __init__(self, library: str, threads: int) -> None:
        self.library = ctypes.CDLL(library)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        self.team = self.library.team_create(threads)
        if not self.team:
            raise RuntimeError(f"no memory for a team of {threads} threads")

    def prepare(self, to: int, source: int, size: int) -> None:
        """Finds the fastest way, on buffers far larger than the caches: it serves copies of every size."""
        self.library.copy_prepare(self.team, to, source, None, size)

    def copy(self, to: int, source: int, size: int) -> None:
        whole = size // BLOCK * BLOCK
        if whole:
            self.library.copy_streams(self.team, to, source, None, whole)
        if whole < size:
            ctypes.memmove(to + whole, source + whole, size - whole)
