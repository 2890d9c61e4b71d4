"""The examples run, and print what their comments say. SPDX-License-Identifier: MIT"""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def test_quick_start():
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "quick_start.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert list(lines) == ["module", "function", "backward", "statistics", "NumPy"]
    assert lines["function"].endswith("True") and lines["NumPy"].endswith("True")
    assert float(lines["backward"].rsplit(maxsplit=1)[1]) < 1e-6
    assert "mean (4, 16) in torch.float32; dx in torch.bfloat16, dweight in torch.float32" in lines["statistics"]
