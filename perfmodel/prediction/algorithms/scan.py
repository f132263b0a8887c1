"""Prefix sums: decoupled look-back, reduce-then-scan, Blelloch's tree, and Hillis and Steele's steps."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.scan import ALGORITHMS, TILE, Scan
from perfmodel.prediction.algorithms.base import Cost, Problem, predicted


def costs(op: Scan, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a scan."""
    return [_cost(op.changed(algorithm=name), hardware) for name in ALGORITHMS]


def _cost(op: Scan, hardware: Hardware) -> Cost:
    elements = float(op.rows * op.cols)
    kept = elements / TILE if op.algorithm in ("look_back", "reduce_then_scan") else elements
    return predicted(op.algorithm, op, hardware, kernels=float(op.kernels()),
                     workspace_bytes=kept * dtype_bytes(op.dtype))  # fmt: skip


PROBLEM = Problem("scan", op="scan", size="cols", sizes=(64.0, 2.0**28), costs=costs, defaults={"cols": 2**20})
