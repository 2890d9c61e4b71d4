"""The extension on a GPU that is not there: the stand-ins of the C tests run its kernels on the CPU. They are in
build/tests/ after the C tests, or where $EVENKEEL_STANDINS says. SPDX-License-Identifier: MIT"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
STANDINS = pathlib.Path(os.environ.get("EVENKEEL_STANDINS") or HERE.parent.parent / "build" / "tests")

NAMES = re.findall(r"^def (\w+)\(\):$", (HERE / "on_a_gpu.py").read_text().partition("# ---- tests ----")[2], re.M)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    driver, compiler = STANDINS / "libstandin_cuda.so", STANDINS / "libstandin_nvrtc.so"
    if not driver.exists() or not compiler.exists():
        pytest.skip("the stand-ins for a GPU are not built: make test-c builds them")
    return {
        **os.environ,
        "EVENKEEL_LIBCUDA": str(driver),
        "EVENKEEL_NVRTC": str(compiler),
        "EVENKEEL_CACHE": str(tmp_path_factory.mktemp("kernels")),
        "EVENKEEL_STANDIN_PAGEABLE": "1",
        "EVENKEEL_STANDIN_DEVICES": "2",
    }


@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name, environment):
    command = [sys.executable, str(HERE / "on_a_gpu.py"), name]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
