"""The k largest: radix select in one block a row or in many, a heap, and a whole sort."""

from __future__ import annotations

import math
from dataclasses import replace

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.topk import Topk
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, predicted
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.eager.selections import shared_kernels
from perfmodel.prediction.latency.host import CALL_S, HEAP_S, PARTITION_S, STABLE_S
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.passes import STARTS, alone_s
from perfmodel.prediction.usual_figures import completed

#: most elements that heaps in registers keep (Faiss, wiki page "Faiss on the GPU": k up to 1024)
HEAP = 1024.0


def costs(op: Topk, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a selection."""
    names = ("radix_select", "heap", "sort")
    if hardware.kind == "cpu":
        return _on_cpu(op)
    large = f"keeps at most {HEAP:g} in registers" if op.k > HEAP else ""
    one_block = [
        predicted(name, op.changed(algorithm=name), hardware, kernels=float(op.changed(algorithm=name).kernels()),
                  why_not=large if name == "heap" else "")
        for name in names
    ]  # fmt: skip
    select = op.changed(algorithm="radix_select")
    return [*_selections(one_block[0], select, hardware), *one_block[1:]]


def _selections(found: Cost, op: Topk, hardware: Hardware) -> tuple[Cost, Cost]:
    """Return the costs of a selection by one block a row, and by as many as the machine holds.

    The prediction lets several blocks share a row where that takes less. It is the cost of these then, and one block
    reads a row at 30 B a clock; elsewhere it is the cost of one block, and kernels start between the digits of several.
    """
    rates, kernels = Rates.for_op(op, hardware), float(shared_kernels(dtype_bytes(op.dtype)))
    alone = float(alone_s(op, Machine.of(hardware, resolve_peak(op, completed(hardware)))))
    if alone > found.time_s:
        one = replace(found.slower((alone + rates.start_s) / found.time_s), basis="one block a row, 30 B a clock")
        return one, replace(found, algorithm="radix_select_multi", kernels=kernels)
    moved = float(op.work().bytes)
    time_s = STARTS * kernels * rates.start_s + moved / rates.bytes_per_s
    return found, counted("radix_select_multi", time_s, flop=float(op.flop()), moved_bytes=moved, kernels=kernels)


def _on_cpu(op: Topk) -> list[Cost]:
    """Return torch's heap, torch's stable sort and numpy's partition, on one core; the last finds no indices."""
    elements = float(op.rows * op.cols)
    depth = max(1.0, math.log2(op.cols))
    moved, flop = elements * dtype_bytes(op.dtype), {"sort": elements * depth}
    times = {"heap": HEAP_S * elements, "sort": STABLE_S * elements * depth, "partition": PARTITION_S * elements}
    return [
        counted(name, CALL_S + time_s, flop=flop.get(name, elements), moved_bytes=moved, kernels=1.0,
                basis="a time for each element, on one core")
        for name, time_s in times.items()
    ] + [Cost(name, why_not="a GPU kernel") for name in ("radix_select", "radix_select_multi")]  # fmt: skip


PROBLEM = Problem(
    "topk",
    op="topk",
    size="cols",
    sizes=(64.0, 2.0**26),
    costs=costs,
    resized=lambda op, size: op.changed(cols=max(size, op.k)),
    defaults={"cols": 128256, "k": 50},
)
