"""Exchange of gradients: uncompressed, in fp8, the largest 1 % (top-k), PowerSGD of rank 4, and 1-bit.

S bytes over n devices at B bytes a second. Those that can be added on the way are all-reduced and move 2 (n - 1) / n of
what they send; top-k and 1-bit are gathered from all, (n - 1) S / r, and each device decodes n parts. Encoding and
decoding take passes over memory and, because gradients come layer by layer, a few kernels for each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.prediction.algorithms.all_reduce import chosen, ring_of
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted
from perfmodel.prediction.latency import collectives
from perfmodel.prediction.latency.machine import Machine

#: layers whose gradients are compressed one by one, and a host's time for one kernel of such a sequence [s]: a model of
#: 24 blocks of 6 matrices, and the usual dispatch of an operator; assumed
LAYERS, HOST_S = 144.0, 10e-6
#: share of the gradients that top-k keeps, and PowerSGD's rank (Vogels et al. 2019, arXiv 1905.13727)
KEPT, RANK = 0.01, 4.0
#: side of the square matrix that a layer's gradient is taken for by PowerSGD
SIDE = 1024.0


@dataclass(frozen=True)
class _Method:
    """How one method compresses.

    Attributes
    ----------
    ratio : bytes of the gradient over what is sent of it.
    passes : passes over the gradient to encode and decode, in fp32 [4 B an element].
    kernels : kernels of a layer.
    gathered : whether all parts are gathered and decoded by each device.
    flop : elements of the gradient -> FLOP of encoding and decoding.
    """

    ratio: float
    passes: float
    kernels: float
    gathered: bool = False
    flop: Callable[[float], float] = lambda elements: 2.0 * elements


METHODS = {
    "none": _Method(1.0, 0.0, 0.0),  # NCCL's all-reduce, which a switch may add up
    # read 4 write 1, then read 1 write 4; the maximum before it reads once more
    "fp8": _Method(4.0, 3.5, 3.0),
    # values and 32-bit indices of 1 %; a selection reads 5 times, the error that is kept is read and written, and the
    # parts are scattered into a gradient
    "top_k": _Method(4.0 / (KEPT * 8.0), 5.0 + 2.0 + 1.0, 6.0, gathered=True),
    # two factors of side x rank for a matrix of side x side; two products read it, one writes it, the error twice
    "power_sgd": _Method(SIDE / (2.0 * RANK), 5.0, 8.0, flop=lambda elements: 6.0 * RANK * elements),
    # signs and one scale; encoding reads and writes the error; every part is read and added
    "one_bit": _Method(32.0, 4.0, 5.0, gathered=True),
}


def costs(op: AllReduce, hardware: Hardware) -> list[Cost]:
    """Return what each method takes for gradients of ``op.bytes`` in ``op.dtype``."""
    machine = Machine.of(hardware, None)
    line, _ = ring_of(op, machine, hardware)
    rates, plain = Rates.for_op(op, hardware), replace(chosen(op, hardware), algorithm="none")
    return [plain if name == "none" else _cost(name, method, op, line, rates) for name, method in METHODS.items()]


def _cost(name: str, method: _Method, op: AllReduce, line: collectives.Line, rates: Rates) -> Cost:
    """Return what a method takes; a switch adds up numbers, and no codes."""
    n, size = float(op.num_gpus), float(op.bytes)
    elements = size / dtype_bytes(op.dtype)
    share = (n - 1.0) / n
    moved = (n - 1.0) * size / method.ratio if method.gathered else 2.0 * share * size / method.ratio
    steps = (1.0 if method.gathered else 2.0) * (n - 1.0)
    exchange = line.start_s + steps * line.step_s + moved / line.rate
    passes = method.passes * size + (n * size / method.ratio if method.gathered else 0.0)
    flop = method.flop(elements)
    compress = max(flop / rates.flop_per_s, passes / rates.bytes_per_s)
    started = LAYERS * method.kernels * max(HOST_S, rates.start_s)
    held = size / method.ratio * (n if method.gathered else 1.0)
    error = size if method.passes > METHODS["fp8"].passes else 0.0
    return counted(name, exchange + max(compress, started), flop=flop + float(np.asarray(op.flop())), moved_bytes=moved,
                   kernels=1.0 + LAYERS * method.kernels, workspace_bytes=held + error)  # fmt: skip


PROBLEM = Problem(
    "gradient_compression",
    op="all_reduce",
    size="bytes",
    sizes=(2.0**20, 2.0**36),
    costs=costs,
    defaults={"bytes": 2**30, "num_gpus": 8, "dtype": "fp32"},
    main=False,
    note="Gradients that are exchanged while others are computed hide their exchange, and gain less than is said here.",
)
