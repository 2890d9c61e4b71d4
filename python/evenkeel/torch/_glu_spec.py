"""How a class computes a gated feed-forward layer: the names of its products and of its activation, and its forward by
evenkeel from them.

_huggingface_glu.py has the specifications; _replace.py puts forward in front of the classes.
SPDX-License-Identifier: MIT
"""

from copy import copy
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch._C import _len_torch_dispatch_stack
from torch.nn import Linear, Module
from torch.nn.utils import skip_init

from evenkeel.torch._autocast import without_autocast
from evenkeel.torch._glu import glu
from evenkeel.torch._replace_check import difference_of_results, random_tensor

# The classes of modules that are an activation, of torch.nn and of transformers.
_ACTIVATIONS = {
    "SiLU": "silu",
    "SiLUActivation": "silu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh",
    "ReLU": "relu",
    "ReLUSquaredActivation": "relu_squared",
    "Sigmoid": "sigmoid",
}
_COLUMNS = 24  # of what the comparison is of


class GluSpec(NamedTuple):
    """Where a class keeps its products: the names of modules. Numbers are names of attributes, or themselves."""

    gate: str | None = None  # without a value it has both, the gate first
    value: str | None = None
    down: str = "down_proj"
    activation: str = "act_fn"  # the name of an attribute, or that of an activation
    limit: str | None = None
    alpha: str | float = 1.0
    value_offset: float = 0.0
    interleaved: bool = False
    method: Literal["forward", "_apply_gate"] = "forward"  # _apply_gate has the activation alone, of one tensor
    kind: Literal["glu"] = "glu"

    # ---- which modules ----

    @property
    def spec(self) -> "GluSpec":
        return self

    def can_change(self, module: Module) -> bool:
        return self.options_of(module) is not None and self.method not in vars(module)

    def can_be_compared(self, module: Module) -> bool:
        return not _len_torch_dispatch_stack()

    def base_of(self, original: type[Module]) -> type[Module]:
        return _BASES[self.method]

    def options_of(self, module: Module) -> dict[str, Any] | None:
        """The keywords of glu; None where evenkeel has no such activation."""
        name = self.activation
        if name not in _ACTIVATIONS.values():
            function = getattr(module, self.activation, None)
            name = _ACTIVATIONS.get(type(function).__name__, "") if isinstance(function, Module) else ""
        limit, alpha = (getattr(module, a) if isinstance(a, str) else a for a in (self.limit, self.alpha))
        options = {"limit": limit, "alpha": alpha, "value_offset": self.value_offset, "interleaved": self.interleaved}
        return {"activation": name, **options} if name else None

    # ---- the comparison ----

    def difference(self, module: Module, made: type[Module]) -> str | None:
        """How the class's own method differs from evenkeel's, with small products on the CPU; None: it does not."""
        for dtype in (torch.float32, torch.bfloat16):
            generator = torch.Generator().manual_seed(0)
            twin = self._twin(module, dtype, generator)
            x = (random_tensor((7, 2 * _COLUMNS), generator) * 2).to(dtype)
            try:
                with torch.no_grad(), without_autocast(x):
                    own = getattr(type(module), self.method)(twin, x.clone())
                    twin.__class__ = made
                    text = difference_of_results(own, getattr(made, self.method)(twin, x))
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            if text is not None:
                return text
        return None

    def _twin(self, module: Module, dtype: torch.dtype, generator: torch.Generator) -> Module:
        """A module of the same class and attributes with small products."""
        twin = object.__new__(type(module))
        twin.__dict__.update(vars(module))
        twin.__dict__["_modules"] = modules = copy(module._modules)
        columns = {self.gate: _COLUMNS * (1 if self.value else 2), self.value: _COLUMNS, self.down: 2 * _COLUMNS}
        for name, outputs in columns.items():
            if name is not None and self.method == "forward":
                inputs = _COLUMNS if name == self.down else 2 * _COLUMNS
                modules[name] = linear = skip_init(Linear, inputs, outputs)  # type: ignore[no-untyped-call]
                for parameter in linear.parameters():
                    parameter.data = random_tensor(parameter.shape, generator)
                linear.to(dtype)
        return twin


class _Gated(Module):
    """forward of x."""

    _spec: ClassVar[GluSpec]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        spec = self._spec
        options = spec.options_of(self)
        if options is None or len(args) + len(kwargs) != 1:
            return super().forward(*args, **kwargs)
        (x,) = args or kwargs.values()
        modules = self._modules
        gate: Any = modules[spec.gate](x)  # type: ignore[index, misc]
        value: Any = None if spec.value is None else modules[spec.value](x)  # type: ignore[misc]
        return modules[spec.down](glu(gate, value, **options))  # type: ignore[misc]


class _GatedExperts(Module):
    """_apply_gate of the products of an expert."""

    _spec: ClassVar[GluSpec]

    def _apply_gate(self, *args: Any, **kwargs: Any) -> Any:
        options = self._spec.options_of(self)
        if options is None or len(args) + len(kwargs) != 1:
            return super()._apply_gate(*args, **kwargs)  # type: ignore[misc]
        (packed,) = args or kwargs.values()
        return glu(packed, None, **options)


_BASES: dict[str, type[Module]] = {"forward": _Gated, "_apply_gate": _GatedExperts}
