"""What a kernel holds beside its inputs and outputs is stated in multiples of one of its tensors."""

from __future__ import annotations

from perfmodel.operators import Operator


def tensor_bytes(op: Operator, name: str) -> float:
    """Return the size of one tensor of an operator [B]."""
    return next(float(tensor.size_bytes) for tensor in op.tensors() if tensor.name == name)
