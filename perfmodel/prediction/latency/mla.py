"""Latent attention in decode: rows of all heads against one cache, whose keys are split evenly over the SMs.

The constants are read off what others published of FlashMLA, FlashInfer and AITER (`examples/published`, in view); no
table of measurements has a row.
"""

from __future__ import annotations

import math
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, anywhere, ceil, clipped, maximum, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.mla import Mla
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.rates import EIGHT_BIT, EIGHT_BIT_TCGEN05
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.gemm.times import POWER_LIMIT
from perfmodel.prediction.latency.machine import AMD, Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY, s_per_flop
from perfmodel.prediction.latency.streams import ETA, FRAMEWORKS, L2_BYTES_PER_CLOCK, warm_bandwidth
from perfmodel.prediction.latency.terms import (
    BLOCK,
    CONTENTION,
    HBM,
    LAUNCH,
    MATH,
    TILE_WASTE,
    Terms,
    overlapped,
)

SERVES = {"mla": ("mla",)}

CONSTANTS = (
    Constant("launch", "s", 5e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernel, and of the one that joins", True),
    ETA,
    Constant("math", "", 0.86, 0.1, 1.0, 0.2, "share of the tensor peak in the two products", True),
    Constant("block", "s", 1e-6, 1e-7, 1e-4, 0.5, "start and end of a block, its traffic aside", True),
)
#: rows of a block by the instruction of the tensor engine: 16 to 64 query heads take an H20 as long, and 80 take twice
#: (FlashMLA issue 30); others multiply by tiles of 16 rows. Kernels for keys that an indexer chose have 128 with
#: tcgen05 (``prefill_padding`` in flashmla_sparse.py of vLLM, pull request 46189)
ROWS, OTHER_ROWS, OF_CHOSEN = {"wgmma": 64.0}, 16.0, {"wgmma": 64.0, "tcgen05": 128.0}
#: keys of a step, FlashMLA's and AITER's blocks of the cache, and steps that a block loads before it multiplies
STEP, STAGES = 64.0, 2.0
#: rate of kernels that widen chosen keys of 8 bits to multiply them: FlashMLA states 410 TFLOP/s for these, 660 for 16
#: bits. Others narrow the queries, and gain what other kernels of attention do (assumed)
WIDENED, NARROWED = 0.62, {"wgmma": 2.0 * EIGHT_BIT, "tcgen05": 2.0 * EIGHT_BIT_TCGEN05}
#: rate of AMD's products in 8 bits over that of its peak: no more than those in 16 (AITER pull request 3003)
AMD_8BIT = 0.5
#: most parts of the keys of a block of AITER's, and starts of its calls over others': one sequence takes an MI355X from
#: 16 us with 64 keys to 95 with 70000, as if sixteen units worked (AITER pull request 3003)
AMD_PARTS, AMD_STARTS = 16.0, 2.5
#: rate by mma.sync and on AMD's matrix cores, over that by wgmma: an A100 reaches 146 of 312 TFLOP/s (FlashMLA issue
#: 66), each of the sixteen units 0.4 of its peak
RATES = {"mma.sync": 0.52, "mfma": 0.45}
#: energy of the exponential, the sums and the operands of a score, as FLOP of the products: assumed for every width,
#: that of FlashAttention-3 for heads of 128 columns
SCORE_FLOP = 500.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return launch + || traffic, SMs ||_4 [s].

    With B = batch ceil(heads seq_q / rows) blocks of k keys (of chosen keys, each query has blocks of its own), parts
    p = SMs / B between 1 and k / step, and the FLOP rate r of an SM:

        key   = 2 rows (2 latent + rope_dim) / r
        SMs   = B p (block + k / p) key / min(SMs, B p)          [block in keys]

    A block whose rows are not all queries takes as long. The power limit holds the rate down as that of products.
    """
    call = cast(Mla, op)
    rows, blocks, keys = _blocks(call, machine)
    width = 1.0 * call.key_columns + call.latent
    amd = machine.hardware is not None and machine.hardware.vendor == AMD
    parts = clipped(machine.sm_count / blocks, 1.0, minimum(keys / STEP, AMD_PARTS if amd else math.inf))
    rate = c["math"] * RATES.get(machine.matrix_instruction, 1.0)
    if amd and dtype_bytes(call.dtype) == 1:
        rate = rate * AMD_8BIT
    if dtype_bytes(call.kv_dtype) < dtype_bytes(call.dtype):
        rate = rate * where(call.chosen > 0, WIDENED, NARROWED.get(machine.matrix_instruction, 1.0))
    s_a_key = 2.0 * rows * width / (rate * machine.peak_flop_per_s)
    limited = 2.0 * rows * width * s_per_flop(machine, TENSOR_ENERGY * (1.0 + SCORE_FLOP / (2.0 * width)))
    held = maximum(limited - s_a_key, 0.0)
    working = minimum(machine.sm_count, blocks * parts)
    # of the SMs that work, as if all did
    walked = blocks * keys * machine.sm_count / working
    useful = call.flop() / (2.0 * rows * width) * machine.sm_count / working
    loading = _first_bytes(call, rows, keys / parts) / _loading(machine, working)
    setup = blocks * parts / working * (c["block"] + loading)
    run = walked * (s_a_key + held) + setup
    traffic = call.work().bytes
    stream = warm_bandwidth(c["eta"] * machine.bandwidth_bytes_per_s, 1.0, traffic, machine, conditions)
    body = overlapped(4, {HBM: traffic / stream, MATH: run})
    shown = body.adds[MATH] / run
    adds = {
        MATH: shown * useful * s_a_key,
        TILE_WASTE: shown * maximum(walked - useful, 0.0) * s_a_key,
        BLOCK: shown * setup,
        POWER_LIMIT: shown * walked * held,
        HBM: body.adds[HBM],
        CONTENTION: body.adds[CONTENTION],
        LAUNCH: c["launch"] * (AMD_STARTS if amd else 1.0),
    }
    return Terms(adds, body.alone)


def _first_bytes(op: Mla, rows: Number, keys: Number) -> Number:
    """Return what a block moves while it does not multiply: its queries, their results, and the first keys [B]."""
    queries = minimum(1.0 * rows, op.rows) * (op.key_columns + op.latent) * dtype_bytes(op.dtype)
    return queries + minimum(STAGES * STEP, keys) * op.key_columns * dtype_bytes(op.kv_dtype)


def _loading(machine: Machine, working: Number) -> Number:
    """Return the bandwidth of one SM of those that work [B/s]."""
    return minimum(machine.bandwidth_bytes_per_s / working, L2_BYTES_PER_CLOCK * machine.clock_hz)


def _blocks(op: Mla, machine: Machine) -> tuple[Number, Number, Number]:
    """Return the rows of a block, the blocks, and the keys that each visits.

    A kernel visits as many keys as an indexer chooses, whether a query has them or not.
    """
    rows: Number = ROWS.get(machine.matrix_instruction, OTHER_ROWS)
    blocks: Number = 1.0 * op.batch * ceil(op.rows / rows)
    keys = maximum(1.0 * op.seq_kv, STEP)
    if not anywhere(op.chosen):
        return rows, blocks, keys
    own_rows, sparse = OF_CHOSEN.get(machine.matrix_instruction, OTHER_ROWS), op.chosen > 0
    own_blocks = 1.0 * op.batch * op.seq_q * ceil(op.heads / own_rows)
    own_keys = maximum(1.0 * op.chosen, STEP)
    return where(sparse, own_rows, rows), where(sparse, own_blocks, blocks), where(sparse, own_keys, keys)


def _by_hand(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether PyTorch's attention, or a kernel in Triton, stands for one of latent attention."""
    return conditions.caller in FRAMEWORKS or "triton" in conditions.library


def _of_chosen(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether an indexer chooses the keys."""
    return op.chosen > 0


#: deviation of ln(measured / predicted) beside what shapes differ by: FlashMLA, FlashInfer and AITER are 2 to 24 % off
#: on five machines, and one call in Gluon 2.5 times as long as AITER's (`examples/published/mla.csv`, all in view)
DEVIATION = (0.5, 0.3, 0.15)
#: one in Triton takes an H200 16 times as long as FlashMLA's (tilelang issue 1859), others hardly longer
BY_HAND = Doubt(ErrorSource.KERNEL, _by_hand, (0.4, 1.2, 1.2), lasting=True)
#: two libraries take 0.81 and 1.28 times the predicted time for keys that an indexer chose (vLLM pull request 33451)
CHOSEN = Doubt(ErrorSource.KERNEL, _of_chosen, (0.3, 0.3, 0.3), lasting=True)

FAMILIES = (
    Family(
        "mla",
        CONSTANTS,
        formula,
        (MATH, TILE_WASTE, BLOCK, POWER_LIMIT, HBM, CONTENTION, LAUNCH),
        streams=True,
        unmeasured=DEVIATION,
        doubts=(BY_HAND, CHOSEN),
    ),
)
