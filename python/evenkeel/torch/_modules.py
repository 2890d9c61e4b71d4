"""The modules: those of PyTorch with another forward. SPDX-License-Identifier: MIT"""

import torch
from torch import Tensor

from evenkeel.torch._functional import layer_norm, rms_norm


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm, computed by evenkeel: the same parameters, state and representation."""

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm, computed by evenkeel: the same parameters, state and representation."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)
