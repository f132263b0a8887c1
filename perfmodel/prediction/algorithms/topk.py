"""The k largest: radix select in one block a row or in many, a heap, and a whole sort."""

from __future__ import annotations

from perfmodel.core.hardware import Hardware
from perfmodel.operators.topk import Topk
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, predicted
from perfmodel.prediction.latency.passes import STARTS

#: kernels of a digit where many blocks share a row: counts of each block, then their sum (PyTorch, TensorTopK.cu,
#: namespace mbtopk)
KERNELS_PER_READ = 2.0
#: most elements that heaps in registers keep (Faiss, GPU k-selection)
HEAP = 2048.0


def costs(op: Topk, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a selection."""
    names = ("radix_select", "heap", "sort")
    if hardware.kind == "cpu":
        return [predicted(name, op.changed(algorithm=name), hardware) for name in names]
    large = f"keeps at most {HEAP:g} in registers" if op.k > HEAP else ""
    one_block = [
        predicted(name, op.changed(algorithm=name), hardware, kernels=float(op.changed(algorithm=name).kernels()),
                  why_not=large if name == "heap" else "")
        for name in names
    ]  # fmt: skip
    return [*one_block, _multi_block(op.changed(algorithm="radix_select"), hardware)]


def _multi_block(op: Topk, hardware: Hardware) -> Cost:
    """Return a selection whose rows are shared by as many blocks as the machine holds, with kernels between digits."""
    rates = Rates.for_op(op, hardware)
    kernels, moved = KERNELS_PER_READ * op.reads(), float(op.work().bytes)
    time_s = STARTS * kernels * rates.start_s + moved / rates.bytes_per_s
    return counted("radix_select_multi", time_s, flop=float(op.flop()), moved_bytes=moved, kernels=kernels)


PROBLEM = Problem(
    "topk",
    op="topk",
    size="cols",
    sizes=(64.0, 2.0**26),
    costs=costs,
    resized=lambda op, size: op.changed(cols=max(size, op.k)),
    defaults={"cols": 128256, "k": 50},
)
