"""The examples run, and print what their comments say. SPDX-License-Identifier: MIT"""

import os
import pathlib
import subprocess
import sys

import pytest

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


def run(*arguments):
    command = [sys.executable, "-W", "error", EXAMPLES / "train_block.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


SHORT = "--quick", "--steps", "8", "--batch", "2", "--seq", "32"


@pytest.mark.parametrize("block", ["pre-norm", pytest.param("reordered", marks=pytest.mark.slow)])
def test_train_block_trains_the_same_fused_and_not(block, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "losses.svg"
    result = run(*SHORT, "--block", block, "--plot", plot)
    assert result.returncode == 0, result.stderr
    losses = [float(line.split()[-1]) for line in result.stdout.splitlines() if " loss " in line]
    assert len(losses) == 16 and losses[7] < losses[0]  # unfused, then fused
    assert losses[:8] == pytest.approx(losses[8:], abs=2e-4)
    assert "fused and unfused losses differ by at most" in result.stdout and plot.read_text().startswith("<?xml")


@pytest.mark.slow
def test_train_block_says_what_it_does_and_what_is_wrong():
    text = run("--help").stdout
    assert "fused and not" in text and "--plot" in text and "pip install matplotlib" in text
    result = run("--steps", "0")
    assert result.returncode == 2 and "--steps: 0 is not a positive number" in result.stderr


@pytest.mark.slow
def test_train_block_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    command = [sys.executable, EXAMPLES / "train_block.py", *SHORT, "--steps", "2", "--block", "pre-norm"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert result.returncode == 0 and "no plot: matplotlib is not installed" in result.stdout
