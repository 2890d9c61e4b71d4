"""Processes and threads: leaks over many steps, threads, a fork, DistributedDataParallel, and a process whose PyTorch
has no C exchange API. SPDX-License-Identifier: MIT"""

import gc
import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import evenkeel.torch as ek
import one_of_two
from evenkeel.torch import _kernels
from evenkeel.torch._call import LAYER_NORM, Call, Inputs
from processes import in_threads, resident_bytes, run_python
from torch_cases import (
    DEVICE,
    LAYER,
    all_same,
    both_norms,
    cpu_only,
    exchange_only,
    gradients,
    leave_calls_to_python,
    require_gradients,
    tensor,
)

# ---- leaks ----


def a_step(x, layer, rms):
    """Everything that a training step may do with the norms, mistakes included."""
    y = rms(layer(x))
    y.square().mean().backward()
    y, h = ek.add_layer_norm(x, y.detach(), (64,), layer.weight, layer.bias, x_bias=rms.weight)
    torch.autograd.backward((y, h), (x.detach(), x.detach().expand_as(h)))
    ek.add_rms_norm(x, x, (64,), rms.weight, rounding="each", out_dtype=torch.bfloat16)[0].sum().backward()
    ek.layer_norm_residual(x, x, (64,), layer.weight, layer.bias, x_bias=rms.weight).backward(x.detach())
    ek.rms_norm_residual(x.detach(), x, (64,)).sum().backward()
    ek.rms_norm_residual(x.bfloat16(), x, (64,), rms.weight, out_dtype=torch.bfloat16).sum().backward()
    ek.layer_norm_act(x, (64,), layer.weight, layer.bias, x_bias=rms.weight).backward(x.detach())
    ek.rms_norm_act(x, (64,), activation="silu", rounding="each").sum().backward()
    ek.layer_norm_gated(x, x.bfloat16(), (64,), layer.weight, layer.bias).backward(x.detach())
    ek.layer_norm_gated(x, x.detach(), (64,), layer.weight, layer.bias, gate_first=True).sum().backward()
    with torch.no_grad():
        layer(x.t()[:, :4].t())
        ek.add_rms_norm(x, x, (64,))
    (dx,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    dx.square().sum().backward()
    ek.layer_norm(torch.empty(4, 64, device="meta"), (64,))
    for wrong in ((7,), 64, ()):
        with pytest.raises((RuntimeError, TypeError)):
            ek.layer_norm(x, wrong)
        with pytest.raises((RuntimeError, TypeError)):
            ek.add_layer_norm(x, x, wrong)
        with pytest.raises((RuntimeError, TypeError)):
            ek.layer_norm_residual(x, x, wrong)
        with pytest.raises((RuntimeError, TypeError)):
            ek.layer_norm_act(x, wrong)
        with pytest.raises(ValueError):
            ek.layer_norm_act(x, (64,), activation=wrong)
        with pytest.raises((RuntimeError, TypeError)):
            ek.rms_norm_gated(x, x, wrong)
        with pytest.raises(TypeError):
            ek.rms_norm_gated(x, wrong, (64,))
    for leaf in (x, *layer.parameters(), *rms.parameters()):
        leaf.grad = None


@pytest.mark.slow
def test_a_thousand_steps_leave_nothing():
    (x,) = require_gradients(tensor((16, 64)))
    layer, rms = ek.LayerNorm(64, device=DEVICE), ek.RMSNorm(64, device=DEVICE)
    watched = [x, layer, rms, layer.weight, layer.bias, rms.weight]

    def count():
        gc.collect()
        return [sys.getrefcount(thing) for thing in watched], len(gc.get_objects())

    for _ in range(50):
        a_step(x, layer, rms)
    (references, objects), memory = count(), resident_bytes()
    for _ in range(1000):
        a_step(x, layer, rms)
    references_after, objects_after = count()
    assert references_after == references
    assert objects_after - objects < 50  # what tests before this one left may go meanwhile
    assert resident_bytes() - memory < 4 << 20


def test_results_are_freed_with_their_last_reference():
    x = tensor((1024, 1024)).requires_grad_()

    def steps(count):
        for _ in range(count):
            x.grad = None
            ek.layer_norm(x, (1024,)).sum().backward()
        return resident_bytes()

    before = steps(20)
    assert steps(100) - before < 200 << 20  # of 800 MB that were made


# ---- threads and forks ----


def test_threads_train_side_by_side():
    operands, dy = LAYER.operands((50, 300)), tensor((50, 300), seed=1)
    expected = gradients(LAYER.rows, operands, dy)

    def work():
        assert all(all_same(gradients(LAYER.rows, operands, dy), expected) for _ in range(30))

    in_threads(work)


AFTER_A_FORK = """
import os, torch
import evenkeel.torch as ek
from torch_cases import tensor, same_bits, gradients
x, dy = tensor((300, 1000)), tensor((300, 1000), seed=1)
expected = ek.layer_norm(x, (1000,)), ek.rms_norm(x, (1000,))  # the parent's threads have started
child = os.fork()
if child == 0:
    torch.set_num_threads(1)  # PyTorch's own threads do not survive a fork
    found = ek.layer_norm(x, (1000,)), ek.rms_norm(x, (1000,))
    leaf = x.requires_grad_()
    (dx,) = torch.autograd.grad(ek.layer_norm(leaf, (1000,)), leaf, dy)
    os._exit(0 if all(map(same_bits, found, expected)) and dx.isfinite().all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@cpu_only
def test_a_child_after_a_fork_computes_too():
    assert run_python(AFTER_A_FORK) == "0"


THREADS_USED = """
import os, torch
import evenkeel.torch as ek
torch.set_num_threads({threads})
x, dy, weight = torch.ones(2000, 1000), torch.ones(2000, 1000), torch.ones(1000)  # filled by the calling thread
before = len(os.listdir("/proc/self/task"))
y, mean, rstd = ek.layer_norm_forward(x, weight)
ek.layer_norm_backward(dy, x, mean, rstd, weight)
ek.layer_norm(x, (1000,), weight)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.slow
@cpu_only
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_no_more_threads_are_used_than_pytorch_may(threads):
    started = int(run_python(THREADS_USED.format(threads=threads)))
    assert started == 0 if threads == 1 else 1 <= started <= threads - 1


# ---- two processes that share a batch ----

HAS_GLOO = torch.distributed.is_available() and torch.distributed.is_gloo_available()


@pytest.mark.slow
@cpu_only
@pytest.mark.skipif(not HAS_GLOO, reason="this PyTorch has no gloo")
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


# ---- PyTorch without the C exchange API ----

# PyTorch 2.10 and newer have the attribute, and the extension reads it.
WITHOUT = "import torch, sys, pytest; del torch.Tensor.__dlpack_c_exchange_api__; sys.exit(pytest.main(sys.argv[1:]))"
FILES = [f"test_torch_{subject}.py" for subject in ("values", "gradients", "calls", "errors", "explicit")]


@exchange_only
@pytest.mark.slow
def test_everything_else_is_as_with_it():
    folder = os.path.dirname(__file__)
    command = [sys.executable, "-c", WITHOUT, "-q", "-p", "no:cacheprovider", *FILES]
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stdout
    assert "passed" in result.stdout and "failed" not in result.stdout


@pytest.fixture
def way_of_python(monkeypatch):
    """A function: after its call, tensors are read as if PyTorch had no exchange API, and C computes no call whole."""

    def take():
        monkeypatch.setattr(_kernels, "HAS_EXCHANGE", False)
        leave_calls_to_python(monkeypatch)

    return take


@exchange_only
@both_norms
def test_bits_are_the_same_in_both_ways(norm, way_of_python):
    operands, dy = norm.operands((60, 40)), tensor((60, 40), seed=1)

    def both():
        return norm.rows(*operands), *gradients(norm.rows, operands, dy)

    expected = both()
    way_of_python()
    assert all_same(both(), expected)


@exchange_only
def test_no_gradient_is_recorded_on_the_way(way_of_python):
    way_of_python()
    x, weight = require_gradients(tensor((6, 40)), tensor((40,), seed=1))
    y, _, stats = _kernels.forward(Call(LAYER_NORM, Inputs(x, weight), (40,), 1e-5), True)
    assert not y.requires_grad and not stats.requires_grad and torch.isfinite(y).all()


@exchange_only
def test_explicit_functions_read_tensors_that_need_gradients(way_of_python):
    way_of_python()
    x, w, dy = require_gradients(tensor((6, 40)), tensor((40,), seed=1), tensor((6, 40), seed=2))
    _, mean, rstd = ek.layer_norm_forward(x, w)
    found = ek.layer_norm_backward(dy, x, mean.requires_grad_(), rstd.requires_grad_(), w)
    assert all(gradient is not None and not gradient.requires_grad for gradient in found)


@exchange_only
def test_a_gradient_without_memory_of_its_own_is_refused(way_of_python):
    way_of_python()
    x = tensor((6, 40))
    _, mean, rstd = ek.layer_norm_forward(x)
    batched = torch._vmap_internals._vmap(lambda dy: ek.layer_norm_backward(dy, x, mean, rstd).dx)
    with pytest.raises(TypeError, match="it has no memory of its own"):
        batched(tensor((2, 6, 40)))


@exchange_only
@pytest.mark.slow
def test_one_that_is_too_old_is_refused():
    script = "import torch; torch.__version__ = '2.3.1+cpu'; import evenkeel.torch"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "ImportError: PyTorch is 2.3.1+cpu: evenkeel.torch needs 2.4 or newer" in result.stderr
