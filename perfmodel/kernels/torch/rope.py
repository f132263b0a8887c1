"""Rotary position embedding: a composition of torch calls over the halves of each head, and the same compiled."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.reference.rope import width
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.kernels.torch._passes import streamed
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.rope import Rope


def _primitives(qk: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Look up the angles, rotate the halves of each head, and join them."""
    angles = table[positions][:, None, :]
    cos, sin = angles.chunk(2, -1)
    heads = qk.reshape(qk.shape[0], -1, table.shape[-1])
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)


def _naive(op: Rope, inputs: Mapping[str, torch.Tensor]) -> Call:
    qk, table, positions = inputs["qk"], inputs["cos_sin"], inputs["positions"]
    return lambda: _primitives(qk, table, positions)


def _composition(op: Rope) -> tuple[Operator, ...]:
    """The look-up; four products, a difference and a sum over halves of the heads; the join. All read views."""
    half = op.tokens * op.rotated / 2

    def passes(kind: str, count: int, inputs: int) -> Elementwise:
        return Elementwise(numel=half, kind=kind, num_inputs=inputs, strided=True, dtype=op.dtype, count=count)

    return (
        IndexSelect(rows=op.tokens, cols=width(op), table=op.tokens, dtype=op.dtype),
        passes("mul", 4, 1),
        *streamed(half, op.dtype, "sub", "add", tensors=2),
        *streamed(2 * half, op.dtype, "copy"),
    )


def _workspace_bytes(op: Rope) -> float:
    return 4.0 * tensor_bytes(op, "qk")


def _compiled(op: Rope, inputs: Mapping[str, torch.Tensor]) -> Call:
    qk, table, positions = inputs["qk"], inputs["cos_sin"], inputs["positions"]
    function = compiled(_primitives)
    return lambda: function(qk, table, positions)


_FORWARD = (
    Kernel(
        "naive", "rope", "torch", _naive, supports_dtype, workspace_bytes=_workspace_bytes, composition=_composition
    ),
    compiled_kernel("rope", _compiled, supports_dtype, workspace_bytes=_workspace_bytes),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        tokens=64..4096 heads=8 kv_heads=2 head_dim=64
        tokens=2048 heads=8 head_dim=128 rotary=64 dtype=bf16
        tokens=2048 heads=8 kv_heads=2 head_dim=64 backward=true
    """,
    cuda_sweep="tokens=128..65536 heads=32 kv_heads=8 dtype=bf16",
    cuda_more="""
        tokens=8192 heads=32 kv_heads=8 dtype=bf16
        tokens=8192 heads=32 kv_heads=8 dtype=bf16 backward=true
    """,
)
