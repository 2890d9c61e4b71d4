"""Call forms of other libraries, computed by evenkeel: a switch is one import line.

    evenkeel.compat.apex                the modules and functions of apex.normalization, with Apex's eps and dtypes
    evenkeel.compat.fused_layernorm     FusedLayerNorm(hidden_size) and fused_layer_norm, as in the CUDA extensions
                                        named after Apex's, with PyTorch's eps and dtypes
    evenkeel.compat.liger               norms, the fused add, RoPE and gated layers of liger_kernel.transformers
    evenkeel.compat.quack               layernorm, rmsnorm, their _fwd and _bwd, as in quack
    evenkeel.compat.cutedsl_layernorm   layernorm with a choice of backends, on any array with DLPack: kernels that were
                                        made from quack's

What a call asks for and evenkeel lacks is a NotImplementedError that names the argument, its value and a way around.
SPDX-License-Identifier: MIT
"""

from evenkeel.torch import _version as _version  # first: it says what to install where there is no PyTorch
