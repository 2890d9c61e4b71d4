"""Call forms of other libraries, computed by evenkeel: a switch is one import line.

    evenkeel.compat.fused_layernorm     FusedLayerNorm(hidden_size) and fused_layer_norm, as in Apex and in the CUDA
                                        extensions that took its name
    evenkeel.compat.quack               layernorm, rmsnorm, their _fwd and _bwd, as in quack
    evenkeel.compat.cutedsl_layernorm   layernorm with a choice of backends, on any array with DLPack: kernels that were
                                        made from quack's

What a call asks for and evenkeel lacks is a NotImplementedError that names the argument, its value and a way around.
SPDX-License-Identifier: MIT
"""

from evenkeel.torch import _version as _version  # first: it says what to install where there is no PyTorch
