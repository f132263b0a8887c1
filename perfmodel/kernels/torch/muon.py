"""One step of Muon: momentum, five iterations of Newton and Schulz, and the step."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.muon import LR, MOMENTUM, orthogonal
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.muon import Muon


def _supports(op: Muon, device: Device) -> str:
    if op.dtype not in ("fp32", "fp64") or op.state_dtype != op.dtype:
        return "products in 16 bits differ by more than a check of orthogonal matrices can tell: dtype=fp32"
    return unsupported_dtype(device.kind, op.dtype, op.state_dtype)


def _step(op: Muon, inputs: Mapping[str, torch.Tensor]) -> Call:
    weights, gradient, momentum = inputs["weights"], inputs["gradient"], inputs["momentum"]

    def call() -> torch.Tensor:
        momentum.mul_(MOMENTUM).add_(gradient)
        return weights.sub_(orthogonal(momentum), alpha=LR)

    return call


def _composition(op: Muon) -> tuple[Operator, ...]:
    return op.composition()


def _workspace_bytes(op: Muon) -> float:
    return 3.0 * tensor_bytes(op, "weights")


KERNELS = (
    Kernel(
        "torch.muon",
        "muon",
        "torch",
        _step,
        _supports,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
        in_place=True,
    ),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="rows=512 cols=1024 dtype=fp32",
    cuda_more="""
        rows=4096 cols=4096 dtype=fp32
        rows=1024 cols=4096 matrices=8 dtype=fp32
    """,
)
