"""How the attention of a class turns q and k: its forward with evenkeel's function in place of apply_rotary_pos_emb.

That function is a global of the file of the class, which its forward refers to by name. evenkeel leaves the file as it
is. The class that stands in for a replaced one has a forward of the same code that looks up its globals in a dictionary
of its own, a copy of the file's with one function exchanged. So a model is replaced and not all of its kind, and
restore brings back the file's own function with the class.

_huggingface_rope.py has the specifications; _replace.py makes the classes. SPDX-License-Identifier: MIT
"""

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.nn import Module

from evenkeel.torch._autocast import without_autocast
from evenkeel.torch._call import DTYPES, NARROW
from evenkeel.torch._replace_check import difference_of_results, random_tensor
from evenkeel.torch._rope import rope

NAME = "apply_rotary_pos_emb"
_Pair = tuple[Tensor, Tensor]


class RopeSpec(NamedTuple):
    """What the function of a file computes: apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1)."""

    interleaved: bool = False  # pairs are neighbours, not halves
    has_half_tables: bool = False  # cos and sin have a column for each pair, else two
    result_dtype: Literal["x", "promoted"] = "promoted"  # where cos and sin are float32 and q has 16 bits
    kind: Literal["rope"] = "rope"

    # ---- which modules ----

    @property
    def spec(self) -> "RopeSpec":
        return self

    def can_change(self, module: Module) -> bool:
        return True

    def can_be_compared(self, module: Module) -> bool:
        return not _len_torch_dispatch_stack()

    def base_of(self, original: type[Module]) -> type[Module]:
        """What stands in front of the class: its forward with another global."""
        own: Any = original.forward
        space = {**own.__globals__, NAME: function_of(own.__globals__[NAME], self)}
        space.pop("__name__")  # by which torch.compile would find the file, and its function
        forward = FunctionType(own.__code__, space, own.__name__, own.__defaults__, own.__closure__)
        forward.__kwdefaults__ = own.__kwdefaults__
        forward.__dict__.update(own.__dict__)
        return type("Rotating", (Module,), {"__module__": __name__, "forward": wraps(own)(forward)})

    # ---- the comparison ----

    def difference(self, module: Module, made: type[Module]) -> str | None:
        """How the file's function differs from evenkeel's on the CPU; None: it does not."""
        own = type(module).forward.__globals__[NAME]
        ours = function_of(own, self)
        for dtype, table_dtype in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32)):
            try:
                arguments = self._example(dtype, table_dtype)
                with torch.no_grad(), without_autocast(arguments[0]):
                    expected, found = own(*arguments), ours(*arguments)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            for a, b in zip(expected, found, strict=True):
                text = difference_of_results(a, b)
                if text is not None:
                    return text
        return None

    def _example(self, dtype: torch.dtype, table_dtype: torch.dtype) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        q, k = (random_tensor((2, heads, 5, 16), generator).to(dtype) for heads in (4, 2))
        angles = random_tensor((2, 5, 8), generator) * 3
        tables = (function(angles).to(table_dtype) for function in (torch.cos, torch.sin))
        cos, sin = (table if self.has_half_tables else torch.cat((table, table), -1) for table in tables)
        return q, k, cos, sin


def calls_rope(cls: type) -> bool:
    """Whether forward of the class is a plain function of its file that refers to the function by its name."""
    forward = vars(cls).get("forward")
    if not isinstance(forward, FunctionType) or NAME not in forward.__code__.co_names:
        return False
    return forward.__module__ == cls.__module__ and isinstance(forward.__globals__.get(NAME), FunctionType)


def function_of(own: Callable[..., _Pair], spec: RopeSpec) -> Callable[..., _Pair]:
    """The file's function by evenkeel; what evenkeel lacks goes to `own`."""

    @wraps(own)
    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> _Pair:
        if unsqueeze_dim not in (1, 2) or not _are_served(q, k, cos, sin):
            return own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        dtype = q.dtype if spec.result_dtype == "x" else torch.promote_types(q.dtype, cos.dtype)
        q, k = (x.to(dtype).transpose(1, 2) if unsqueeze_dim == 1 else x.to(dtype) for x in (q, k))
        layout = "bhsd" if unsqueeze_dim == 1 else "bshd"
        rotary_dim = cos.shape[-1] * (2 if spec.has_half_tables else 1)
        return rope(q, k, cos, sin, interleaved=spec.interleaved, rotary_dim=rotary_dim, layout=layout)

    return apply_rotary_pos_emb


def _are_served(q: Any, k: Any, cos: Any, sin: Any) -> bool:
    """Tensors of the shapes and dtypes that rope takes."""
    tensors = q, k, cos, sin
    if not all(isinstance(t, Tensor) and t.dtype in DTYPES for t in tensors):
        return False
    if q.dim() != 4 or k.dim() != 4 or cos.dim() != 3 or cos.shape != sin.shape or q.dtype is not k.dtype:
        return False
    return cos.dtype is sin.dtype and (cos.dtype is q.dtype or {q.dtype, cos.dtype} <= {torch.float32, *NARROW})
