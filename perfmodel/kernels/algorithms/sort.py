"""Sorts on the host: torch's stable sort with indices, and numpy's quicksort, which has AVX-512 where the CPU has."""

from __future__ import annotations

import numpy as np
import torch

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, normal
from perfmodel.operators.sort import Sort


def _operator(size: float) -> Sort:
    return Sort(cols=size)


def _inputs(op: Sort, device: str, seed: int) -> Inputs:
    return {"keys": normal((int(op.cols),), device, seed)}


def _torch(inputs: Inputs, op: Sort) -> Call:
    keys = inputs["keys"]
    return lambda: torch.sort(keys, stable=True).values


def _numpy(inputs: Inputs, op: Sort) -> Call:
    keys = inputs["keys"].cpu().numpy()
    return lambda: np.sort(keys)


def _check(op: Sort, inputs: Inputs, output: object, algorithm: str) -> str:
    """Check that the result rises and is a permutation: equal to the keys sorted in float64."""
    found = torch.as_tensor(np.asarray(output if isinstance(output, np.ndarray) else output.cpu()))  # type: ignore[attr-defined]
    expected = np.sort(inputs["keys"].cpu().numpy().astype(np.float64))
    return "" if np.array_equal(found.numpy().astype(np.float64), expected) else "not the sorted keys"


CONTEST = Contest(
    "sort",
    sizes=(256.0, 4096.0, 65536.0, 2.0**20),
    operator=_operator,
    inputs=_inputs,
    kernels={"host_stable": _torch, "host_avx512": _numpy},
    check=_check,
    cpu_only=("host_stable", "host_avx512"),
    more_sizes=(2.0**23,),
)
