"""Sorts of rows: torch.sort, which moves 64-bit indices with the keys."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.sort import Sort


def _supports(op: Sort, device: Device) -> str:
    if op.value_dtype:
        return "torch.sort takes no values; it moves indices of its own"
    return unsupported_dtype(device.kind, op.dtype)


def _library(op: Sort, inputs: Mapping[str, torch.Tensor]) -> Call:
    keys = inputs["keys"]
    return lambda: torch.sort(keys, -1).values


def _with_indices(op: Sort) -> Sort:
    """Return what torch does: on a GPU radix sorts long rows, and every key takes its index along."""
    return op.changed(value_dtype="int64")


KERNELS = (Kernel("torch.sort", "sort", "torch", _library, _supports, own_operator=_with_indices),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="cols=65536",
    cpu_full="cols=4096..262144",
    cuda_quick="cols=4194304",
    cuda_targets="cols=67108864",
    cuda_more="""
        cols=16384..4194304
        cols=4194304 dtype=fp64
    """,
)
