"""The inputs of a kernel: made from the tensors that the operator declares, random normal with a seed."""

from __future__ import annotations

import zlib
from typing import Any

import torch

from perfmodel.kernels.torch._precision import TORCH_DTYPES
from perfmodel.operators import Operator


def make_inputs(op: Operator, device_kind: str, seed: int) -> dict[str, torch.Tensor]:
    """Return the operator's inputs on a device, by the names that it declares them under.

    Standard normal, drawn in float32 (fp64: in float64) on the CPU or GPU itself and rounded to the dtype.
    Random data matters: zeros let a GPU clock higher than any real data would (arXiv 2501.12084).

    Parameters
    ----------
    op : the operator; its dimensions are numbers, not arrays.
    device_kind : "cpu" or "cuda".
    seed : the same seed gives the same inputs, on the same kind of device.
    """
    made: dict[str, torch.Tensor] = {}
    for tensor in op.tensors():
        if not tensor.reads or tensor.writes:
            continue
        generator = torch.Generator(device=device_kind)
        generator.manual_seed(seed ^ zlib.crc32(f"{op.op} {tensor.name}".encode()))
        dtype = TORCH_DTYPES[tensor.dtype]
        drawn = torch.float64 if dtype is torch.float64 else torch.float32
        shape = tuple(int(size) for size in tensor.shape)
        made[tensor.name] = torch.randn(shape, generator=generator, dtype=drawn, device=device_kind).to(dtype)
    return _into_domain(op, made)


def _into_domain(op: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Make the inputs positive where the operation is only defined there."""
    if getattr(op, "kind", "") in ("log", "sqrt", "rsqrt", "pow"):
        inputs["x"] = inputs["x"].abs_().add_(0.125)
    return inputs
