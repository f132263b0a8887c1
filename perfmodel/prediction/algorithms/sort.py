"""Sorting: radix (onesweep), merge and bitonic on the device, and a sort on the host."""

from __future__ import annotations

import math

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.memcpy import Memcpy
from perfmodel.operators.sort import Sort
from perfmodel.prediction.algorithms.base import Cost, Problem, counted, in_sequence, predicted
from perfmodel.prediction.latency.host import AVX512_S, CALL_S, STABLE_S


def costs(op: Sort, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a sort."""
    names = ("radix", "merge", "bitonic")
    if hardware.kind == "cpu":
        on_device = [Cost(name, why_not="a GPU kernel") for name in names]
    else:
        on_device = [_on_device(op.changed(algorithm=name), hardware) for name in names]
    return [*on_device, *(_on_host(name, op, hardware) for name in ("host_stable", "host_avx512"))]


def _on_device(op: Sort, hardware: Hardware) -> Cost:
    moved = dtype_bytes(op.dtype) + (dtype_bytes(op.value_dtype) if op.value_dtype else 0.0)
    return predicted(op.algorithm, op, hardware, kernels=float(op.kernels()),
                     workspace_bytes=float(op.rows * op.cols) * moved)  # fmt: skip


def _on_host(name: str, op: Sort, hardware: Hardware, *, copied: bool = True) -> Cost:
    """Return a sort on one core of the host, with the copies to it and back where the keys lie on a GPU."""
    keys, depth = float(op.rows * op.cols), max(1.0, math.log2(op.cols))
    level_s = STABLE_S if name == "host_stable" else AVX512_S
    why_not = "sorts keys alone" if name == "host_avx512" and op.value_dtype else ""
    size = dtype_bytes(op.dtype) + (dtype_bytes(op.value_dtype) if op.value_dtype else 0.0)
    copies, basis = 0.0, "c n log2 n on one core"
    if copied and hardware.kind != "cpu" and any(link.name == "pcie" for link in hardware.links):
        copies = math.fsum(copy.time_s for copy in _copies(op, hardware))
        basis = f"{basis}, and copies over PCIe"
    time_s = CALL_S + level_s * keys * depth + copies
    return counted(name, time_s, flop=keys * depth, moved_bytes=2.0 * keys * size, kernels=0.0, why_not=why_not,
                   basis=basis)  # fmt: skip


def costs_on_host(op: Sort, hardware: Hardware) -> list[Cost]:
    """Return what it takes to sort keys that lie on the host: there, or on the GPU with the copies to it and back."""
    costs = [_on_host(name, op, hardware, copied=False) for name in ("host_stable", "host_avx512")]
    names = ("radix", "merge")
    if hardware.kind == "cpu" or not any(link.name == "pcie" for link in hardware.links):
        return [*costs, *(Cost(f"{name}_over_pcie", why_not="needs a GPU behind PCIe") for name in names)]
    copy = [(1.0, one) for one in _copies(op, hardware)]
    return [*costs, *(
        in_sequence(f"{name}_over_pcie", [*copy, (1.0, _on_device(op.changed(algorithm=name), hardware))])
        for name in names
    )]  # fmt: skip


def _copies(op: Sort, hardware: Hardware) -> list[Cost]:
    """Return the copies of all keys and values to the other side of PCIe and back."""
    size = dtype_bytes(op.dtype) + (dtype_bytes(op.value_dtype) if op.value_dtype else 0.0)
    keys = float(op.rows * op.cols)
    return [predicted(way, Memcpy(bytes=keys * size, direction=way), hardware) for way in ("d2h", "h2d")]


PROBLEM = Problem("sort", op="sort", size="cols", sizes=(64.0, 2.0**28), costs=costs, defaults={"cols": 2**20})
