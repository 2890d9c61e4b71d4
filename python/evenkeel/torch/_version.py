"""Refuses a PyTorch that is too old; the first import of this package. SPDX-License-Identifier: MIT"""

import re

import torch

OLDEST = (2, 4)

if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST:
    raise ImportError(f"PyTorch is {torch.__version__}: evenkeel.torch needs {OLDEST[0]}.{OLDEST[1]} or newer")
