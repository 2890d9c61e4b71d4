"""Over a thousand steps, in threads, after a fork: nothing grows, nothing is shared that should not be.
SPDX-License-Identifier: MIT"""

import gc
import os
import sys
import threading

import pytest
import torch

import evenkeel.torch as ek
from torch_cases import DEVICE, LAYER, cpu_only, gradients, require_gradients, run_python, same_bits, tensor


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def a_step(x, layer, rms):
    """Everything that a training step may do with the norms, mistakes included."""
    y = rms(layer(x))
    y.square().mean().backward()
    with torch.no_grad():
        layer(x.t()[:, :4].t())
    (dx,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    dx.square().sum().backward()
    ek.layer_norm(torch.empty(4, 64, device="meta"), (64,))
    for wrong in ((7,), 64, ()):
        with pytest.raises((RuntimeError, TypeError)):
            ek.layer_norm(x, wrong)
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
    assert abs(objects_after - objects) < 50
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


def test_threads_train_side_by_side():
    operands, dy = (tensor((50, 300)), *LAYER.affine((300,))), tensor((50, 300), seed=1)

    def step():
        return gradients(lambda *o: ek.layer_norm(o[0], (300,), *o[1:]), operands, dy)

    expected, wrong = step(), []

    def work():
        for _ in range(30):
            if not all(map(same_bits, step(), expected)):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


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
