"""Processes, threads and memory, for the tests of all parts. SPDX-License-Identifier: MIT"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def run_python(script, *arguments, **environment):
    """The output of a script in a process of its own, in the folder of the tests."""
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=os.path.dirname(__file__),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


def in_threads(call, count=6):
    """Calls in several threads at once; what one of them raises is raised here."""
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(call) for _ in range(count)]:
            future.result()


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
