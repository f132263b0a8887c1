"""Elementwise operators: torch's own fused call, and the chain of simple calls it replaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.elementwise import FUNCTIONS, TWO_OPERANDS, operands
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.operators.elementwise import KINDS, Elementwise

Function = Callable[..., torch.Tensor]

#: kinds for which torch has one call that the reference spells as several, or writes without copying
_FUSED: Mapping[str, Function] = MappingProxyType(
    {
        "copy": torch.clone,
        "fma": lambda x, y, z: torch.addcmul(z, x, y),
        "silu_mul": lambda x, y: F.silu(x).mul_(y),
    }
)


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


#: kinds that are several simple operations, spelt out; each operation is a pass over memory
CHAINS: Mapping[str, Function] = MappingProxyType(
    {
        "gelu": lambda x: x * 0.5 * (torch.erf(x / math.sqrt(2.0)) + 1.0),
        "silu": _silu,
        "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
        "silu_mul": lambda x, y: _silu(x) * y,
        "fma": lambda x, y, z: x * y + z,
    }
)


def _supports(op: Elementwise, device: Device) -> str:
    if op.kind == "dropout":
        return "the output of dropout is random, so there is no reference to check it against"
    least = 1 if op.kind in TWO_OPERANDS else KINDS[op.kind].inputs
    if not least <= op.num_inputs <= KINDS[op.kind].inputs:
        return f"{op.kind} of {op.num_inputs} tensors is not one torch call"
    return unsupported_dtype(device.kind, op.dtype, op.out_dtype)


def _prepare(function: Function, op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    values, out = operands(op, inputs["x"]), TORCH_DTYPES[op.out_dtype]
    if op.kind == "cast":
        x = inputs["x"][0]
        return lambda: x.to(out, copy=True)
    if out == inputs["x"].dtype:
        return lambda: function(*values)
    return lambda: function(*values).to(out)


def _library(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The one torch call of the kind; silu_mul, which torch has not, as silu and a product in place."""
    return _prepare(_FUSED.get(op.kind, FUNCTIONS[op.kind]), op, inputs)


def _naive(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The kind spelt out in simple calls, each reading and writing memory."""
    return _prepare(CHAINS[op.kind], op, inputs)


def _is_chain(op: Elementwise) -> bool:
    return op.kind in CHAINS


def _workspace_bytes(op: Elementwise) -> float:
    return 2.0 * next(float(t.size_bytes) for t in op.tensors() if t.name == "y")


KERNELS = (
    Kernel("torch.elementwise", "elementwise", "torch", _library, _supports),
    Kernel("naive", "elementwise", "torch", _naive, _supports, applies=_is_chain, workspace_bytes=_workspace_bytes),
)
