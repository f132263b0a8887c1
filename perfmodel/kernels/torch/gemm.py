"""Matrix products: torch.matmul and its relatives, and a product built up panel by panel in memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.reference.gemm import ACTIVATIONS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.operators.gemm import Gemm

#: columns of A and rows of B in one panel of the naive product
PANEL = 256


def _supports(op: Gemm, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.out_dtype)


def _library(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch.matmul, or torch.addmm and torch.baddbmm with a bias; then the activation as its own call."""
    a, b, out = inputs["a"], inputs["b"], TORCH_DTYPES[op.out_dtype]
    bias = inputs.get("bias")
    activate = ACTIVATIONS[op.activation]
    if bias is None:
        return _finished(lambda: torch.matmul(a, b), out, op.activation)
    if bias.dtype != a.dtype:
        return lambda: activate(torch.matmul(a, b).to(out) + bias)
    if int(op.batch) == 1:
        left, right = a[0], b[0]
        return _finished(lambda: torch.addmm(bias, left, right)[None], out, op.activation)
    return _finished(lambda: torch.baddbmm(bias, a, b), out, op.activation)


def _finished(product: Call, out: torch.dtype, activation: str) -> Call:
    """Return the product followed by the cast and the activation, where there are any."""
    if activation == "none":
        return lambda: product().to(out)
    activate = ACTIVATIONS[activation]
    return lambda: activate(product().to(out))


def _naive(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """C is built up in memory from panels of 256 columns of A; bias and activation are passes of their own."""
    a_panels = torch.split(inputs["a"], PANEL, dim=2)
    b_panels = torch.split(inputs["b"], PANEL, dim=1)
    bias, activate, out = inputs.get("bias"), ACTIVATIONS[op.activation], TORCH_DTYPES[op.out_dtype]

    def call() -> torch.Tensor:
        c = torch.matmul(a_panels[0], b_panels[0]).to(out)
        for a, b in zip(a_panels[1:], b_panels[1:], strict=True):
            c += torch.matmul(a, b)
        if bias is not None:
            c += bias
        return activate(c)

    return call


def _differs(op: Gemm) -> bool:
    return bool(op.k > PANEL or op.bias)


def _workspace_bytes(op: Gemm) -> float:
    return 2.0 * next(float(t.size_bytes) for t in op.tensors() if t.name == "c")


KERNELS = (
    Kernel("torch.matmul", "gemm", "torch", _library, _supports),
    Kernel("naive", "gemm", "torch", _naive, _supports, applies=_differs, workspace_bytes=_workspace_bytes),
)
