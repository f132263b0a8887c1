"""The k largest: torch.topk, a whole sort, and numpy's partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, normal
from perfmodel.operators.topk import Topk


def _operator(size: float) -> Topk:
    return Topk(cols=size, k=min(50.0, size))


def _inputs(op: Topk, device: str, seed: int) -> Inputs:
    return {"x": normal((int(op.cols),), device, seed)}


def _topk(inputs: Inputs, op: Topk) -> Call:
    x, k = inputs["x"], int(op.k)
    return lambda: torch.topk(x, k).values


def _sort(inputs: Inputs, op: Topk) -> Call:
    x, k = inputs["x"], int(op.k)
    return lambda: torch.sort(x, descending=True).values[:k]


def _partition(inputs: Inputs, op: Topk) -> Call:
    x, k = inputs["x"].cpu().numpy(), int(op.k)
    return lambda: np.sort(np.partition(x, x.size - k)[x.size - k :])[::-1]


def _check(op: Topk, inputs: Inputs, output: Any, algorithm: str) -> str:
    found = np.asarray(output if isinstance(output, np.ndarray) else output.cpu())
    expected = np.sort(inputs["x"].cpu().numpy())[::-1][: int(op.k)]
    return "" if np.array_equal(found, expected) else "not the largest elements"


CONTEST = Contest(
    "topk",
    sizes=(256.0, 4096.0, 65536.0, 2.0**20),
    operator=_operator,
    inputs=_inputs,
    kernels={"heap": _topk, "sort": _sort, "partition": _partition},
    check=_check,
    cpu_only=("partition",),
    more_sizes=(2.0**23,),
)
