"""Two processes that share the work of one, by DistributedDataParallel. SPDX-License-Identifier: MIT"""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import one_of_two
from torch_cases import cpu_only

pytestmark = [
    pytest.mark.slow,
    cpu_only,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo"),
]


def test_gradients_are_averaged_as_with_pytorch_s_norms(tmp_path):
    command = [sys.executable, one_of_two.__file__]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen([*command, str(rank), tmp_path / "store"], stdout=subprocess.PIPE, text=True, env=environment)
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    first, second = map(json.loads, outputs)
    assert first == second
    expected = one_of_two.steps(one_of_two.model(nn.LayerNorm, nn.RMSNorm), one_of_two.batch())
    for found, correct in zip(first, expected, strict=True):
        assert torch.allclose(torch.tensor(found), torch.tensor(correct), rtol=1e-9, atol=1e-12)
