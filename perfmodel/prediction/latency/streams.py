"""Physics of memory traffic that several families share: streams from device memory or L2, beside arithmetic.

Two curves say which share of some data lies in L2, and they differ on purpose. `surviving_share` is for a stream that
the call before has read too: a cyclic scan, which evicts what it needs next, with a fitted start of the decline.
`fitting_share` is for data that are used again and again within the call, or by every call, and simply fit or do not.
"""

from __future__ import annotations

from perfmodel.core.vocabulary import CacheState
from perfmodel.core.work import Number, clipped, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import CONTENTION, HBM, L2, LAUNCH, MATH, Terms, overlapped

ETA = Constant("eta", "", 0.84, 0.3, 1.0, 0.1, "share of the datasheet bandwidth that a long stream reaches")
START = Constant("launch", "s", 1.8e-6, 0.3e-6, 20e-6, 0.2, "start and drain of one kernel")
FEED = Constant("feed", "", 0.3, 0.03, 1.0, 0.4, "share of 64 B a clock and SM at which data in L2 stream")
FILL = Constant("fill", "", 0.9, 0.2, 1.0, 0.25, "share of L2 up to which data that are used again all stay in it")
ISSUE = Constant(
    "issue",
    "",
    0.5,
    0.02,
    8.0,
    0.6,
    "SM cycles of one element of a kernel that loads element by element",
    True,
    # kernels that load vectors of 16 B, as those of compilers and of libraries since 2025
    unmeasured=0.02,
    of_kernel=True,
)
LEFT = Constant(
    "left", "", 0.33, 0.02, 1.0, 0.05, "share of L2 that a serving kernel finds filled by the kernel before it", True
)
THRASH = Constant("thrash", "", 0.4, 0.01, 3.0, 1.0, "bytes read again for each byte that the call before left in L2")
#: terms of `beside_math`
STREAM_TERMS = (MATH, HBM, L2, CONTENTION, LAUNCH)

#: libraries with PyTorch's kernels of rows, and those whose kernels of rows read and write each element once: ours in
#: Triton, those that TorchInductor writes in it, and Liger-Kernel's
FRAMEWORKS, FUSED = ("torch",), ("triton", "inductor", "liger")
#: libraries that run a layer's kernels one after another; Vidur measured vLLM's so
LAYERED = (*Attention.WRITING, "vidur")

#: SM cycles of an element whose dtype PyTorch's kernels convert one by one (MemoryAccess.cuh, LoadWithCast): 2^26
#: elements from bf16 to fp32 take 207 us on an H100, 0.81 cycles each, and quantisation says 0.82 (torch 2.11.0).
#: From fp32 to 16 bits it has kernels of whole vectors (Copy.cu), and takes as long as its bytes
CONVERT_CYCLES = 0.82

#: SM cycles of an element whose address PyTorch's kernels compute by itself, since an operand has gaps or is broadcast
#: (CUDALoops.cuh, legacy elementwise kernels with an offset calculator). From 15 kernels of public profiles: 5 in fp32
#: on an A100 and 1 on an H100 (op graphs of sitar-lab/NeuSight @ 6945927d9afc), 1 in fp32 and 8 in bf16 on an H100
#: (trace of Qwen1.5 in AMD-AGI/TraceLens). Predictions are off by 11 % in the mean with it, 43 % without. The A100's
#: clock is taken as 1 / 1.5 of its nominal one there: its matrix products take 1.5 times as long in that graph as in
#: the same authors' table of operators
ADDRESS_CYCLES = 0.85

#: bytes that one SM reads from L2 in a clock at most
L2_BYTES_PER_CLOCK = 64.0
#: share of L2 up to which some part of a stream survives, at least: a cyclic scan of more than the capacity evicts what
#: it needs
SURVIVING_END = 1.1
#: share of L2 over which what survives falls from all to none, at least, since sets overflow one after another.
#: Assumed: so wide that a stream on an L4 takes less than three times as long for 5 % more; NeuSight's elementwise
#: rows (@ 6945927d9afc) are off by 3.1 % with it and without
OVERFLOW = 0.32
#: shares of L2 up to which data that are used again all fit, and from which on none of them is found there
ALL_FIT, NONE_FIT = 0.95, 1.15
#: latency of L2 over that of device memory: chosen on the rows of an RTX 4090, whose data lie in L2 (rope 0.34 cycles
#: an element, SwiGLU 0.39), against those of A100 and H100, whose do not (0.6, 0.84)
NEAR = 0.5
#: exponent of the smooth maximum of memory and arithmetic; 3 to 20 fit the measured rows about as well
POWER = 6.0
#: bytes that the resident rows read and write between the two reads of a row, over the size of the rows
BETWEEN = 2.0
#: over ``fill`` of L2: from this much traffic between two reads on, every second read misses
SPAN = 6.0
#: share of L2 that the rows fill where `thrash_bytes` begin, and where all of them occur
THRASH_FROM, THRASH_ALL = 0.3, 0.7


def surviving_share(footprint_bytes: Number, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the share of a stream that still lies in L2 from the call before; 0 unless the caches are warm.

    All of it up to ``fill`` of the capacity, none of it from `SURVIVING_END` or ``fill`` + `OVERFLOW` on, linear
    between. Where L2 has two halves that copy each other's lines (A100, H100), the copies take room: there ``fill`` is
    about a half.
    """
    if conditions.cache != CacheState.WARM or not machine.l2_bytes:
        return 0.0 * footprint_bytes
    filled = footprint_bytes / machine.l2_bytes
    end = max(SURVIVING_END, c["fill"] + OVERFLOW)
    return clipped((end - filled) / (end - c["fill"]), 0.0, 1.0)


def left_share(traffic_bytes: Number, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the share of a serving kernel's traffic that stays in L2; 0 unless the caches are warm.

    (1 + x^2)^(-1/2), x = bytes / (left C), with the capacity C of one copy: the kernel before it wrote its input last,
    after it had read its weights through L2, which evicts all but the latest ``left`` C bytes, and of more than these
    some more. On an RTX 4090 with 72 MB, SwiGLU and rope run at L2's speed up to 10 MB, save half of 20 MB and 10 to
    15 MB of traffic beyond, at any size (LLMServingSim @ 5daddb21a545).

    >>> machine = Machine(100.0, 1e9, 1e14, "tensor", "bf16", 1e13, 1e12, 5e7, 400.0)
    >>> round(left_share(15e6, machine, {"left": 0.4}, Conditions(cache=CacheState.WARM)), 6)  # x = 3 / 4
    0.8
    """
    if conditions.cache != CacheState.WARM or not machine.l2_bytes:
        return 0.0 * traffic_bytes
    filled = traffic_bytes * machine.l2_copies / (c["left"] * machine.l2_bytes)
    return (1.0 + filled**2) ** -0.5


def runs_layers(library: str) -> bool:
    """Return whether a library's calls are those of a layer, between which other kernels fill the caches."""
    return library.partition("/")[0] in LAYERED


def fitting_share(used_bytes: Number, l2_bytes: float) -> Number:
    """Return the share of data, used again and again, that L2 holds.

    All of it up to 0.95 of the capacity, none of it from 1.15 on, linear between; none without an L2.

    >>> fitting_share(9e6, 1e7), round(fitting_share(10.5e6, 1e7), 6), fitting_share(12e6, 1e7)
    (1.0, 0.5, 0.0)
    """
    if not l2_bytes:
        return 0.0 * used_bytes
    return minimum(1.0, maximum(0.0, (NONE_FIT * l2_bytes - used_bytes) / ((NONE_FIT - ALL_FIT) * l2_bytes)))


def warm_bandwidth(
    bandwidth: Number, speedup: float, used_bytes: Number, machine: Machine, conditions: Conditions
) -> Number:
    """Return the bandwidth of data that may lie in L2 [B/s].

    Parameters
    ----------
    bandwidth : bandwidth from device memory [B/s].
    speedup : bandwidth from L2 over that.
    used_bytes : size of the data; `fitting_share` of them lies in L2 when the caches are warm [B].
    """
    if conditions.cache != CacheState.WARM or not machine.l2_bytes:
        return bandwidth
    return bandwidth * (1.0 + (speedup - 1.0) * fitting_share(used_bytes, machine.l2_bytes))


def stream_times(
    traffic_bytes: Number,
    footprint_bytes: Number,
    machine: Machine,
    c: Values,
    conditions: Conditions,
    held: Number | None = None,
) -> tuple[Number, Number]:
    """Return the times of streamed bytes [s]: of those from device memory, and of those from L2.

    hbm = bytes (1 - h) / (eta W) and l2 = bytes h / (feed 64 B SM f), with h ``held``, or else the `surviving_share`.
    L2 is not slower than device memory.
    """
    if held is None:
        held = surviving_share(footprint_bytes, machine, c, conditions)
    device = c["eta"] * machine.bandwidth_bytes_per_s
    return traffic_bytes * (1.0 - held) / device, traffic_bytes * held / l2_bytes_per_s(machine, c)


def l2_bytes_per_s(machine: Machine, c: Values) -> float:
    """Return the rate at which L2 feeds all SMs: feed 64 B a clock and SM, no less than device memory does [B/s]."""
    device = c["eta"] * machine.bandwidth_bytes_per_s
    return max(device, c["feed"] * L2_BYTES_PER_CLOCK * machine.sm_count * machine.clock_hz)


def issue_s(elements: Number, machine: Machine, c: Values, held: Number = 0.0) -> Number:
    """Return the time to issue the instructions for some elements [s]: ``issue`` SM cycles each.

    They are cycles of waiting, for as many loads as the threads have under way; the share ``held`` of data in L2 takes
    `NEAR` of them.

    Kernels that load 2 bytes at a time (serving libraries of 2024, torch's index_select) take 0.6 to 1.9 cycles an
    element on A100 and H100 alike, which neither a share of the bandwidth nor a number of passes is; those that load
    16 bytes take none worth counting (rows of Vidur @ 7d47513363ec).
    """
    waited = 1.0 - (1.0 - NEAR) * held
    return c["issue"] * waited * elements / (machine.sm_count * machine.clock_hz)


def beside_math(math_s: Number, hbm_s: Number, l2_s: Number, c: Values, power: float = POWER) -> Terms:
    """Return t = launch + ||math, hbm + l2||: arithmetic overlaps with the stream, the parts of the stream do not."""
    total = overlapped(power, {MATH: math_s, HBM: hbm_s + l2_s})
    shown = total.adds[HBM] > 0.0
    adds = {
        MATH: total.adds[MATH],
        HBM: where(shown, hbm_s, 0.0),
        L2: where(shown, l2_s, 0.0),
        CONTENTION: total.adds[CONTENTION],
        LAUNCH: c["launch"],
    }
    return Terms(adds, {MATH: math_s, HBM: hbm_s, L2: l2_s})


def resident_blocks(machine: Machine, threads: Number) -> Number:
    """Return how many blocks of so many threads a machine holds at once."""
    return machine.sm_count * machine.threads_per_sm / threads


def missed_share(resident_rows_bytes: Number, machine: Machine, c: Values) -> Number:
    """Return the share of the second read of rows that misses L2, for kernels that read a row twice.

    mu = clip((F / (fill C) - 1) / (span - 1), 0, 1): none while the bytes F that pass between the two reads fit.
    """
    fits = c["fill"] * max(machine.l2_bytes, 1.0)
    return clipped((BETWEEN * resident_rows_bytes / fits - 1.0) / (SPAN - 1.0), 0.0, 1.0)


def thrash_bytes(rows_bytes: Number, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the bytes that a kernel reads once more because of what the call before left in L2 [B].

    thrash min(S, C), with the bytes S of the rows and the capacity C of one copy: lines of the call before and rows
    that are still needed evict each other, until as much as L2 holds has passed. Nothing with cold caches, nor where
    the rows of both calls fit. Six of seven machines show it, for LayerNorm and softmax alike; kernels that read once
    do not.
    """
    capacity = max(machine.l2_bytes, 1.0) / machine.l2_copies
    if conditions.cache != CacheState.WARM:
        return 0.0 * rows_bytes
    full = clipped((rows_bytes / capacity - THRASH_FROM) / (THRASH_ALL - THRASH_FROM), 0.0, 1.0)
    return c["thrash"] * full * minimum(rows_bytes, capacity)
