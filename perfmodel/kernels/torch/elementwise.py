"""Elementwise operators: torch's own fused call, the chain of simple calls it replaces, and the compiled chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.elementwise import FUNCTIONS, TWO_OPERANDS, operands
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._passes import streamed
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import KINDS, Elementwise

Function = Callable[..., torch.Tensor]

#: kinds that are one call in torch, but several in the reference, or no copy there
_FUSED: Mapping[str, Function] = MappingProxyType({"copy": torch.clone, "fma": lambda x, y, z: torch.addcmul(z, x, y)})


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


#: kinds as chains of simple operations, each of which is a pass over memory
CHAINS: Mapping[str, Function] = MappingProxyType(
    {
        "gelu": lambda x: x * 0.5 * (torch.erf(x / math.sqrt(2.0)) + 1.0),
        "silu": _silu,
        "sigmoid": lambda x: torch.reciprocal(1 + torch.exp(-x)),
        "silu_mul": lambda x, y: _silu(x) * y,
        "fma": lambda x, y, z: x * y + z,
        "chain4": lambda x, y, z: F.silu(F.gelu(x + y) * z),
    }
)
_SILU = ("neg", "exp", "add")
#: the passes of each chain over one tensor (erf costs one operation, as tanh does), and those over two
_PASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "gelu": (("mul", "div", "tanh", "add"), ("mul",)),
        "silu": (_SILU, ("div",)),
        "sigmoid": ((*_SILU, "div"), ()),
        "silu_mul": (_SILU, ("div", "mul")),
        "fma": ((), ("mul", "add")),
        "chain4": (("gelu", "silu"), ("add", "mul")),
    }
)


def _supports(op: Elementwise, device: Device) -> str:
    if op.kind == "dropout":
        return "the output of dropout is random and cannot be checked against a reference"
    if op.kind == "fill":
        return "a constant is written without a call of its own"
    least = 1 if op.kind in TWO_OPERANDS else KINDS[op.kind].inputs
    if not least <= op.num_inputs <= KINDS[op.kind].inputs:
        return f"torch has no single call for {op.kind} of {op.num_inputs} tensors"
    return unsupported_dtype(device.kind, op.dtype, op.out_dtype)


def _prepare(function: Function, op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    values, out = operands(op, inputs["x"]), TORCH_DTYPES[op.out_dtype]
    if op.kind == "cast":
        x = inputs["x"][0]
        return lambda: x.to(out, copy=True)
    if out == inputs["x"][0].dtype:
        return lambda: function(*values)
    return lambda: function(*values).to(out)


def _library(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The one torch call of the kind."""
    return _prepare(_FUSED.get(op.kind, FUNCTIONS[op.kind]), op, inputs)


def _silu_mul(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Two calls, the product in place: torch has no single call."""
    return _prepare(lambda x, y: F.silu(x).mul_(y), op, inputs)


def _naive(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The kind as a chain of simple calls, each of which reads and writes memory."""
    return _prepare(CHAINS[op.kind], op, inputs)


def _compiled(op: Elementwise, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The chain of simple calls, compiled into one pass."""
    return _prepare(compiled(CHAINS[op.kind]), op, inputs)


def _is_chain(op: Elementwise) -> bool:
    return op.kind in CHAINS


def _has_call(op: Elementwise) -> bool:
    """Return whether torch has a single call for the kind."""
    return op.kind not in ("silu_mul", "chain4")


def _is_silu_mul(op: Elementwise) -> bool:
    return op.kind == "silu_mul"


def _silu_mul_passes(op: Elementwise) -> tuple[Operator, ...]:
    passes = (*streamed(op.numel, op.dtype, "silu"), *streamed(op.numel, op.dtype, "mul", tensors=2))
    return passes if op.out_dtype == op.dtype else (*passes, _cast(op))


def _composition(op: Elementwise) -> tuple[Operator, ...]:
    """The passes over one tensor and over two tensors; a missing operand is a scalar."""
    single, double = _PASSES[op.kind]
    passes = (*streamed(op.numel, op.dtype, *single), *streamed(op.numel, op.dtype, *double, tensors=2))
    return passes if op.out_dtype == op.dtype else (*passes, _cast(op))


def _cast(op: Elementwise) -> Elementwise:
    return Elementwise(numel=op.numel, kind="cast", dtype=op.dtype, out_dtype=op.out_dtype)


def _workspace_bytes(op: Elementwise) -> float:
    return 2.0 * tensor_bytes(op, "y")


def _passes_on(op: Elementwise, device: Device) -> str:
    same = op.kind == "copy" or (op.kind == "cast" and op.out_dtype == op.dtype)
    return "autograd hands the gradient of a copy on, without a kernel" if same else ""


def _gradient_passes(op: Elementwise) -> tuple[Operator, ...]:
    """The gradients of the product and of silu, each a pass."""
    return tuple(Elementwise(numel=op.numel, kind=kind, dtype=op.dtype, backward=True) for kind in ("mul", "silu"))


_FORWARD = (
    Kernel("torch.elementwise", "elementwise", "torch", _library, _supports, applies=_has_call),
    Kernel(
        "torch.silu_mul",
        "elementwise",
        "torch",
        _silu_mul,
        _supports,
        applies=_is_silu_mul,
        composition=_silu_mul_passes,
    ),
    Kernel(
        "naive",
        "elementwise",
        "torch",
        _naive,
        _supports,
        applies=_is_chain,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
    ),
    compiled_kernel("elementwise", _compiled, _supports, applies=_is_chain, workspace_bytes=_workspace_bytes),
)
KERNELS = (
    *_FORWARD,
    gradient_kernel(_FORWARD[0], supports=_passes_on),
    gradient_kernel(_FORWARD[1], _gradient_passes),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="""
        kind=add numel=16384/1048576/{beyond}
        kind=gelu numel=1048576/{beyond}
        kind=silu_mul numel=1048576
    """,
    cpu_full="""
        kind=add numel=1024..16777216
        kind=add numel={beyond}
        kind=add numel=16777216 dtype=fp64
        kind=add numel=16777216 dtype=bf16
        kind=copy numel=1048576/{beyond}
        kind=gelu numel=16384/1048576/{beyond}
        kind=silu numel=1048576/{beyond}
        kind=silu_mul numel=1048576/{beyond}
        kind=silu_mul numel=1048576/{beyond} dtype=bf16
        kind=chain4 numel=1048576/{beyond}
        kind=gelu numel=1048576 backward=true
        kind=mul numel=1048576 backward=true
        kind=silu_mul numel=1048576 backward=true
    """,
    cuda_quick="""
        kind=add numel=1048576/16777216/{beyond} dtype=bf16
        kind=gelu numel={beyond} dtype=bf16
        kind=silu_mul numel=67108864 dtype=bf16
        kind=chain4 numel=67108864 dtype=bf16
    """,
    cuda_targets="""
        kind=copy numel=268435456 dtype=bf16
        kind=add numel=134217728 dtype=bf16
        kind=gelu numel=134217728 dtype=bf16
        kind=silu_mul numel=134217728 dtype=bf16
        kind=chain4 numel=134217728 dtype=bf16
    """,
    cuda_sweep="""
        kind=add numel=4096..268435456 dtype=bf16
        kind=gelu numel=65536..67108864 dtype=bf16
        kind=add numel=4096..268435456 dtype=fp32
        kind=copy numel=1048576..134217728 dtype=fp32
    """,
    cuda_more="""
        kind=add numel=1048576/{beyond} dtype=fp32
        kind=silu_mul numel=4194304 dtype=bf16
        kind=gelu numel=67108864 dtype=bf16 backward=true
    """,
)
