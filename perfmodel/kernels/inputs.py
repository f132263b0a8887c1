"""The inputs of a kernel: made from the tensors that the operator declares, random normal with a seed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch

from perfmodel.errors import UsageError
from perfmodel.kernels.precision import TORCH_DTYPES
from perfmodel.operators import Operator

#: elementwise kinds that are only defined for positive inputs
_POSITIVE = ("log", "sqrt", "rsqrt", "pow")


def make_inputs(op: Operator, device_kind: str, seed: int) -> dict[str, torch.Tensor]:
    """Return the operator's inputs on a device, by the names that it declares them under.

    Standard normal, drawn in float32 (fp64: in float64) on the CPU or GPU itself and rounded to the dtype.
    Random data matters: zeros let a GPU clock higher than any real data would (arXiv 2501.12084). The second operand
    of an 8-bit product lies column by column, the only order in which Hopper's tensor cores take it.

    Parameters
    ----------
    op : the operator; its dimensions are numbers, not arrays.
    device_kind : "cpu" or "cuda".
    seed : the same seed gives the same inputs, on the same kind of device.

    Raises
    ------
    UsageError
        When torch has no such dtype.
    """
    made: dict[str, torch.Tensor] = {}
    for tensor in op.tensors():
        if not tensor.reads or tensor.writes:
            continue
        if tensor.dtype not in TORCH_DTYPES:
            raise UsageError(f"torch has no tensors in {tensor.dtype}.", remedy=f"It has {', '.join(TORCH_DTYPES)}.")
        shape = tuple(int(size) for size in tensor.shape)
        by_columns = op.op == "gemm" and tensor.name == "b" and tensor.dtype == "fp8"
        stored = (*shape[:-2], shape[-1], shape[-2]) if by_columns else shape
        empty = torch.empty(stored, dtype=TORCH_DTYPES[tensor.dtype], device=device_kind)
        made[tensor.name] = empty.mT if by_columns else empty
    fill_inputs(op, made, seed)
    return made


def fill_inputs(op: Operator, inputs: Mapping[str, torch.Tensor], seed: int) -> None:
    """Write the inputs of a seed into tensors that are there already, as `make_inputs` would make them."""
    for name, tensor in inputs.items():
        tensor.copy_(_drawn(op, name, tensor, seed))


def changed_inputs(op: Operator, inputs: Mapping[str, torch.Tensor], seed: int) -> list[str]:
    """Return the names of the inputs that are no longer what `fill_inputs` has written with this seed."""
    return [
        name
        for name, tensor in inputs.items()
        if not torch.equal(*map(_comparable, (tensor, _drawn(op, name, tensor, seed).to(tensor.dtype))))
    ]


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch compares: numbers of 8 bits as bytes, since it compares no float8."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _drawn(op: Operator, name: str, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the random values of one input, before they are rounded to its dtype."""
    generator = torch.Generator(device=like.device)
    generator.manual_seed(seed ^ zlib.crc32(f"{op.op} {name}".encode()))
    drawn = torch.float64 if like.dtype is torch.float64 else torch.float32
    values = torch.randn(like.shape, generator=generator, dtype=drawn, device=like.device)
    # positive where the operation is only defined there
    return values.abs_().add_(0.125) if getattr(op, "kind", "") in _POSITIVE and name == "x" else values
