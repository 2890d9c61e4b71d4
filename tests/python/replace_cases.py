"""What the tests of replace and register share. SPDX-License-Identifier: MIT"""

import copy
import pickle

import torch


def example(shape=(5, 12), dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def classes(model):
    return [type(module) for module in model.modules()]


COPIES = {f"pickle {protocol}": protocol for protocol in range(pickle.HIGHEST_PROTOCOL + 1)} | {"copy": None}


def copied(model, protocol):
    return copy.deepcopy(model) if protocol is None else pickle.loads(pickle.dumps(model, protocol))
