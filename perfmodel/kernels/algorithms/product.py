"""Matrix products: the library's, and one level of Strassen's algorithm over it."""

from __future__ import annotations

from typing import Any

import torch

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, beyond, normal
from perfmodel.operators.gemm import Gemm

#: rows and columns of the result that are compared with float64
_COMPARED = 64


def _operator(size: float) -> Gemm:
    return Gemm(m=size, n=size, k=size)


def _inputs(op: Gemm, device: str, seed: int) -> Inputs:
    shapes = {"a": (int(op.m), int(op.k)), "b": (int(op.k), int(op.n))}
    return {name: normal(shape, device, seed + place) for place, (name, shape) in enumerate(shapes.items())}


def _library(inputs: Inputs, op: Gemm) -> Call:
    a, b = inputs["a"], inputs["b"]
    return lambda: a @ b


def strassen(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a b by 7 products of halves and 18 additions of quarters (Strassen 1969)."""
    m, k, n = a.shape[0] // 2, a.shape[1] // 2, b.shape[1] // 2
    a11, a12, a21, a22 = a[:m, :k], a[:m, k:], a[m:, :k], a[m:, k:]
    b11, b12, b21, b22 = b[:k, :n], b[:k, n:], b[k:, :n], b[k:, n:]
    m1, m2 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11
    m3, m4 = a11 @ (b12 - b22), a22 @ (b21 - b11)
    m5, m6, m7 = (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    out = a.new_empty(2 * m, 2 * n)
    torch.add(m1 + m4 - m5, m7, out=out[:m, :n])
    torch.add(m3, m5, out=out[:m, n:])
    torch.add(m2, m4, out=out[m:, :n])
    torch.add(m1 - m2 + m3, m6, out=out[m:, n:])
    return out


def _strassen(inputs: Inputs, op: Gemm) -> Call:
    a, b = inputs["a"], inputs["b"]
    return lambda: strassen(a, b)


def _check(op: Gemm, inputs: Inputs, output: Any, algorithm: str) -> str:
    rows, cols = inputs["a"][-_COMPARED:].double(), inputs["b"][:, :_COMPARED].double()
    return beyond(output[-_COMPARED:, :_COMPARED], rows @ cols, 1e-4)


CONTEST = Contest(
    "product",
    sizes=(256.0, 512.0, 1024.0, 2048.0),
    operator=_operator,
    inputs=_inputs,
    kernels={"library": _library, "strassen": _strassen},
    check=_check,
    more_sizes=(4096.0, 8192.0),
)
