"""Fixtures of the tests of evenkeel.torch; what needs PyTorch is left out where there is none.
SPDX-License-Identifier: MIT"""

import os
from importlib.util import find_spec

import pytest

NEED_PYTORCH = ["test_torch_*.py", "test_compat*.py", "test_bench_compare.py", "test_examples.py"]
collect_ignore_glob = [] if find_spec("torch") else NEED_PYTORCH


def pytest_collection_modifyitems(items):
    """EVENKEEL_TEST_SLICE=I/N: every Nth test from the Ith on, so that the slices of a file can run at once."""
    first, _, count = os.environ.get("EVENKEEL_TEST_SLICE", "0/1").partition("/")
    items[:] = items[int(first) :: int(count)]


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


@pytest.fixture
def no_fallback(fallback):
    """A call that is left to PyTorch is an error."""
    fallback("error")


@pytest.fixture
def casting(monkeypatch):
    """As where autocast computes LayerNorm in float32: that is so on GPUs."""
    from evenkeel.torch import _functional

    monkeypatch.setattr(_functional, "_casts", lambda op, device: op == "layer_norm")


@pytest.fixture
def process_group(tmp_path):
    """torch.distributed with this process alone."""
    import torch

    if not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
