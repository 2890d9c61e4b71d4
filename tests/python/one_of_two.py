"""What test_torch_process.py runs twice: `one_of_two.py RANK STORE`, a process of a group of two on gloo, which trains
on its half of a batch and prints the gradients. SPDX-License-Identifier: MIT"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import evenkeel.torch as ek


def model(layer_norm, rms_norm):
    torch.manual_seed(0)
    layers = nn.Linear(8, 32), layer_norm(32), nn.GELU(), rms_norm(32), nn.Linear(32, 4)
    return nn.Sequential(*layers).double()


def batch():
    return torch.randn(10, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def steps(model, x):
    """The gradients of the last of three steps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [p.grad.tolist() for p in model.parameters()]


def main(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    parallel = DistributedDataParallel(model(ek.LayerNorm, ek.RMSNorm))
    print(json.dumps(steps(parallel, batch().chunk(2)[rank])))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
