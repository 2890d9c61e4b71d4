"""Refuses a PyTorch that is missing or too old; the first import of this package. SPDX-License-Identifier: MIT"""

import re

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":  # PyTorch is installed, and lacks something itself
        raise
    raise ModuleNotFoundError(
        "evenkeel.torch needs PyTorch, which is not installed: pip install torch", name="torch"
    ) from None

OLDEST = (2, 4)

if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST:
    raise ImportError(f"PyTorch is {torch.__version__}: evenkeel.torch needs {OLDEST[0]}.{OLDEST[1]} or newer")
