"""Matrix product: naive, tiled in shared memory, blocked in registers, the library's kernel, and Strassen's algorithm.

A thread that keeps r x r outputs loads 2 numbers for each r products along a side, so that t >= 2 m n k s /
(r 128 B SM f): at r = 1, naive or tiled, an eighth of the fp32 peak. Tiling puts the same loads into shared memory,
which answers at the rate of the L1 cache; what it saves is misses, and those cost only once B outgrows the L2.

One level of Strassen's algorithm (1969) does 7 products of half the size instead of 8, and 18 additions of quarters.
"""

from __future__ import annotations

import math

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.algorithms.base import Cost, Problem, Rates, counted, in_sequence, predicted
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.machine import Machine

#: bytes that an SM loads from L1 or shared memory in a clock (CUDA C++ programming guide: 32 banks of 4 B)
LOAD_BYTES = 128.0
#: share of that rate that hand-written kernels reach: naive 2.04 of 3.9 TFLOP/s at 2048 (RTX 5070, the table of fp32
#: products of m k = 512 to 4096 named olajide_rtx5070_kernel_timing; fp32 peak 30.9 TFLOP/s)
LOADS = 0.53
#: barriers of a tiled kernel: 1.19 to 1.23 times the naive one's time at 512 to 2048 in the same table
BARRIERS = 1.2
#: clocks of a load from L1, which a step along k of kernels by hand waits for at least once (assumed)
L1_CLOCKS = 30.0
#: outputs along a side that a thread keeps, of the kernel blocked in registers (4 x 4; assumed)
REGISTER_SIDE = 4.0
#: rows of outputs that a block of the naive kernel has, between two of which B passes through the cache again
BLOCK_ROWS = 16.0
#: products of half the size, additions of quarters, and passes over memory of an addition, in one level of Strassen's
PRODUCTS, ADDITIONS = 7.0, 18.0


def costs(op: Gemm, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for a product."""
    library = predicted("library", op, hardware)
    odd = any(size % 2 for size in (op.m, op.n, op.k))
    why_not = "an odd size has no halves" if odd or min(op.m, op.n, op.k) < 2 else ""
    return [library, *_by_hand(op, hardware), _strassen(op, hardware, why_not) if not why_not else
            Cost("strassen", why_not=why_not)]  # fmt: skip


def _strassen(op: Gemm, hardware: Hardware, why_not: str) -> Cost:
    """Return one level with temporaries: each addition reads two quarters and writes one."""
    half = op.changed(m=op.m / 2, n=op.n / 2, k=op.k / 2)
    product = predicted("half", half, hardware)
    sums = [(count, predicted("addition", Elementwise(numel=op.batch * numel / 4, kind="add", dtype=dtype), hardware))
            for count, numel, dtype in ((5.0, op.m * op.k, op.dtype), (5.0, op.k * op.n, op.dtype),
                                        (8.0, op.m * op.n, op.out_dtype))]  # fmt: skip
    quarters = [numel / 4.0 * dtype_bytes(op.dtype) for numel in (op.m * op.k, op.k * op.n, op.m * op.n)]
    workspace = float(op.batch * (quarters[0] + quarters[1] + PRODUCTS * quarters[2]))
    assert sum(count for count, _ in sums) == ADDITIONS
    return in_sequence("strassen", [(PRODUCTS, product), *sums], workspace_bytes=workspace, why_not=why_not)


def _by_hand(op: Gemm, hardware: Hardware) -> list[Cost]:
    """Return the kernels that are written by hand, on the vector engine of a GPU."""
    names = ("naive", "tiled", "register_blocked")
    if hardware.kind == "cpu":
        return [Cost(name, why_not="a CUDA kernel") for name in names]
    rates = Rates.for_op(op, hardware)
    machine = Machine.of(hardware, resolve_peak(op, hardware))
    size, work = dtype_bytes(op.dtype), op.work()
    flop, compulsory = float(work.flop), float(work.bytes)
    loads = (
        float(op.batch * 2.0 * op.m * op.n * op.k) * size / (LOADS * LOAD_BYTES * machine.sm_count * machine.clock_hz)
    )
    factor = float(op.k * op.n) * size
    missed = max(0.0, 1.0 - machine.l2_bytes / factor) if machine.l2_bytes else 1.0
    again = float(op.batch) * missed * factor * max(0.0, float(op.m) / BLOCK_ROWS - 1.0)
    vector = machine.vector_flop_per_s

    def cost(name: str, time_s: float, moved: float, side: float = BLOCK_ROWS) -> Cost:
        blocks = float(op.batch) * math.ceil(op.m / side) * math.ceil(op.n / side)
        time_s *= max(1.0, machine.sm_count / blocks)  # the other SMs have nothing to do
        time_s = max(time_s + float(op.k) * L1_CLOCKS / machine.clock_hz, flop / vector, compulsory / rates.bytes_per_s)
        return counted(name, rates.start_s + time_s, flop=flop, moved_bytes=moved, kernels=1.0)

    return [
        cost("naive", loads + again / rates.bytes_per_s, compulsory + again),
        cost("tiled", BARRIERS * loads, compulsory),
        cost("register_blocked", BARRIERS * loads / REGISTER_SIDE, compulsory, BLOCK_ROWS * REGISTER_SIDE),
    ]


def _resized(op: Gemm, size: float) -> Gemm:
    """Return the product of square matrices of an even size."""
    even = max(2.0, 2.0 * (size // 2.0))
    return op.changed(m=even, n=even, k=even)


PROBLEM = Problem(
    "product",
    op="gemm",
    size="m = n = k",
    sizes=(64.0, 65536.0),
    costs=costs,
    resized=_resized,
    defaults={"m": 4096, "n": 4096, "k": 4096},
    note="Sizes are square products. Strassen's sums round more: its error grows by a factor with each level.",
)
