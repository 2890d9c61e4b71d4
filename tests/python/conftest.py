"""Fixtures of the tests of evenkeel.torch, left out where there is no PyTorch. SPDX-License-Identifier: MIT"""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["test_torch_*.py"]


@pytest.fixture
def kernels(monkeypatch):
    """How often evenkeel's kernels are called."""
    from torch_cases import Kernels

    return Kernels(monkeypatch)


@pytest.fixture
def threads():
    """torch.set_num_threads, until the test ends."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def fallback():
    """set_fallback with nothing told yet, until the test ends."""
    from evenkeel.torch import _fallback

    told, choice = set(_fallback._told), _fallback.set_fallback("warn")
    _fallback._told.clear()
    yield _fallback.set_fallback
    _fallback.set_fallback(choice)
    _fallback._told.update(told)
