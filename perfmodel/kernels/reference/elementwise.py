"""Every elementwise kind in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.elementwise import KINDS, Elementwise

#: the second operand of a kind with two operands when there is only one tensor
SCALAR = 1.5
FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "pow": lambda x, y: x**y,
        "maximum": lambda x, y: torch.clamp(x, min=y),
        "minimum": lambda x, y: torch.clamp(x, max=y),
        "silu_mul": lambda x, y: F.silu(x) * y,
        "chain4": lambda x, y, z: F.silu(F.gelu(x + y) * z),
        "fma": lambda x, y, z: x * y + z,
        "where": lambda x, y, z: torch.where(x > 0, y, z),
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "exp": torch.exp,
        "log": torch.log,
        "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt,
        "neg": torch.neg,
        "abs": torch.abs,
        "square": torch.square,
        "copy": lambda x: x,
        "cast": lambda x: x,
    }
)


def operands(op: Elementwise, x: torch.Tensor) -> list[torch.Tensor | float]:
    """Return the operands in the stack of inputs, and the scalar where the second operand is missing."""
    tensors: list[torch.Tensor | float] = list(x)
    return [*tensors, SCALAR] if op.kind in TWO_OPERANDS and len(tensors) == 1 else tensors


TWO_OPERANDS = tuple(kind for kind, rules in KINDS.items() if rules.inputs == 2)


def reference(op: Elementwise, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the result for some elements.

    Rounding an input within a chain of operations changes the result in proportion to the inputs, or to inputs times
    result (exp).
    """
    (elements,) = selection
    x = exact(inputs["x"][:, elements])
    value = FUNCTIONS[op.kind](*operands(op, x))
    size = x.abs().sum(0)
    rounded = value.abs() * (1 + size) + size
    return Reference(value, rounded, rounded, 1)
