"""evenkeel in Python, in five steps: a module, a function, gradients, statistics, NumPy. On the CPU, in seconds.

python examples/quick_start.py        SPDX-License-Identifier: MIT
"""

import numpy as np
import torch

import evenkeel
import evenkeel.torch

torch.manual_seed(0)
x = torch.randn(4, 16, 768, requires_grad=True)

# 1. The module: torch.nn.LayerNorm with another import.
norm = evenkeel.torch.LayerNorm(768)
y = norm(x)
print(f"module      {norm} -> {tuple(y.shape)}, {y.dtype}")

# 2. The function, on the same parameters: the same bits, for one row as for all of them.
row = evenkeel.torch.layer_norm(x[2, 3], (768,), norm.weight, norm.bias)
print(f"function    a row alone has the bits it has in the batch: {torch.equal(row, y[2, 3])}")

# 3. Gradients, held against PyTorch's in double precision.
y.pow(3).sum().backward()
exact = x.detach().double().requires_grad_()
torch.nn.functional.layer_norm(exact, (768,)).pow(3).sum().backward()
difference = (x.grad - exact.grad).abs().max() / exact.grad.abs().max()
print(f"backward    dx differs from float64, over the largest element, by {difference:.0e}")

# 4. Forward and backward with explicit statistics, 16-bit activations with float32 weights.
half = x.detach().bfloat16()
y, mean, rstd = evenkeel.torch.layer_norm_forward(half, norm.weight, norm.bias)
dx, dweight, dbias = evenkeel.torch.layer_norm_backward(y, half, mean, rstd, norm.weight)
print(f"statistics  mean {tuple(mean.shape)} in {mean.dtype}; dx in {dx.dtype}, dweight in {dweight.dtype}")

# 5. NumPy, or any other array with DLPack or the buffer protocol: no PyTorch is needed.
array = x.detach().numpy()
same = np.array_equal(evenkeel.layer_norm(array), evenkeel.torch.layer_norm(x, (768,)).detach().numpy())
print(f"NumPy       the same bits as with PyTorch: {same}")
