"""Kernels that stream their tensors once, without a table of their own: activations, losses, look-ups, optimizers.

Backward passes of the operators that have a family are here too. Nothing is fitted but the share of the bandwidth,
which is that of the machine's plain streams. Liger-Kernel's fused kernels (@ ead96b618e5c) check it: `scripts/
liger_counts.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, Work, anywhere, maximum, minimum
from perfmodel.operators.base import Operator
from perfmodel.operators.ssm_scan import SsmScan
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ETA,
    FEED,
    FILL,
    FUSED,
    ISSUE,
    START,
    STREAM_TERMS,
    beside_math,
    fitting_share,
    issue_s,
    l2_bytes_per_s,
    stream_times,
)
from perfmodel.prediction.latency.terms import LAUNCH, Terms

SERVES = {
    "stream": (
        "add_rms_norm", "batch_norm", "cross_entropy", "dequantize", "dropout", "embedding_bag", "fft", "gather",
        "geglu", "group_norm", "index_select", "kv_write", "layer_norm", "muon", "optimizer", "optimizer_adamw",
        "pool2d", "pool3d", "resample", "rms_norm", "scatter_add", "softmax", "ssm_scan", "swiglu",
    ),
    "stream_backward": ("embedding", "layer_norm", "reduction", "rms_norm", "rope", "softmax"),
}  # fmt: skip

#: operators with a family of their own, for kernels that do more than stream
ROWS = ("layer_norm", "rms_norm", "softmax")
#: 0.88 of the datasheet's bandwidth: what Liger-Kernel's fused kernels reach on A100 and H100, without a fit (0.87 and
#: 0.93 by the bytes of `perfmodel.operators`)
CONSTANTS = (
    replace(ETA, default=0.88),
    replace(START, library=True),
    FEED,
    FILL,
    # kernels that load vectors of 16 B
    replace(ISSUE, default=0.02),
)
#: share of a matrix engine's peak that chunks of linear attention reach: their products are as small as 64 x 64 x 64
#: (assumed)
CHUNK_RATE = 0.3
#: threads of a block that has a channel: those of cuDNN's batch norms (bn_fw_tr_1C11_kernel_NCHW<float, float, 512>)
CHANNEL_THREADS = 512.0
#: lane instructions of mamba-ssm's selective scan for a token, a channel and a number of its state, fp32 arithmetic and
#: all. Counted in csrc/selective_scan/selective_scan_fwd_kernel.cuh and _bwd_kernel.cuh, 16 tokens a thread. Forward:
#: dt A, B dt x, two passes over the tokens of a thread 4, five steps of a warp 0.6, C h; casts of B and C 2, their
#: exchange 0.5, shuffles 0.6. Backward: dt A, dt x B, dy C, scans both ways 9.2, gradients of x 2, dt 5, A 2, B 2, C 1;
#: casts 2, exchanges 0.5 + 4, shuffles 1.2, sums with their bounds 4. The exponential is a unit's of its own
SCAN, SCAN_BACKWARD = (8.0, 12.0), (24.0, 37.0)
#: bytes that L2 reads and writes for an atomic sum in fp32
SUM_BYTES = 8.0
#: lanes of a warp
LANES = 32.0


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = kernels launch + ||math, hbm + l2||_6 [s].

    Reads that repeat what another pass of the kernel has read come from L2 as far as the rows, groups or channels that
    run at once fit there. math is the larger of the FLOP at the rate of the engine, the instructions of the elements,
    and the sums into one element, which follow one another, one in a clock. A selective scan has instructions and
    traffic of its own, see `SCAN`.
    """
    tensors, work = op.counted()
    traffic = work.bytes
    if anywhere(work.repeated_bytes):
        traffic = traffic - work.repeated_bytes * fitting_share(_between(op, tensors, machine), machine.l2_bytes)
    hbm, l2 = stream_times(traffic, work.working_set_bytes, machine, c, conditions)
    if isinstance(op, SsmScan) and not machine.is_cpu:
        l2 = l2 + _scan_l2_s(op, machine, c)
    terms = beside_math(_math(op, work, tensors, machine, c), hbm, l2, c)
    kernels = getattr(op, "kernels", None)
    if kernels is None:
        return terms
    return Terms({**terms.adds, LAUNCH: c["launch"] * kernels()}, terms.alone)


def _math(op: Operator, work: Work, tensors: tuple[Tensor, ...], machine: Machine, c: Values) -> Number:
    rate = machine.vector_flop_per_s / 2.0 / machine.packed
    if machine.engine == "tensor" and op.preferred_engine == "tensor":
        rate = CHUNK_RATE * machine.peak_flop_per_s
    elements = work.bytes_written / dtype_bytes(tensors[-1].dtype)
    math = maximum(work.flop / rate, issue_s(elements, machine, c))
    if isinstance(op, SsmScan) and not machine.is_cpu:
        math = maximum(math, _scan_issue_s(op, machine))
    repeats = getattr(op, "multiplicity", None)
    return math if repeats is None else maximum(math, repeats / machine.clock_hz)


def _scan_issue_s(op: SsmScan, machine: Machine) -> Number:
    """Return the time of a selective scan's instructions: of fp32 lanes, exponentials, or the schedulers [s]."""
    arithmetic, instructions = SCAN_BACKWARD if op.backward else SCAN
    clocks = machine.sm_count * machine.clock_hz
    lanes = machine.vector_flop_per_s / 2.0 / machine.packed
    each = max(
        arithmetic / lanes,
        1.0 / (machine.exponentials_per_clock * clocks),
        instructions / (LANES * machine.schedulers_per_sm * clocks),
    )
    return each * op.batch * op.seq * op.channels * op.state


def _scan_l2_s(op: SsmScan, machine: Machine, c: Values) -> Number:
    """Return the time of what a selective scan moves between SMs and L2 beyond its tensors [s].

    A block has a channel of a sequence, and reads B and C of the whole sequence. Backward it adds its share of their
    gradients to those of the other channels, an atomic sum in fp32 for each number.
    """
    numbers = 2.0 * op.batch * op.seq * op.channels * op.state
    moved = numbers * (dtype_bytes(op.dtype) + SUM_BYTES * op.backward)
    return moved / l2_bytes_per_s(machine, c)


def _between(op: Operator, tensors: tuple[Tensor, ...], machine: Machine) -> Number:
    """Return the bytes that pass between two reads of the same ones: what all SMs have at once [B].

    A block has a channel, or all of a tensor that has one scale; an SM holds as many blocks as it has threads for. With
    one block an SM, batch norms of ResNet-50 on a V100 come out 20 % too fast in the mean, with as many 12 % (Kineto).
    """
    size: Number = 0.0
    for tensor in tensors:
        if anywhere(tensor.repeated):
            size = size + tensor.size_bytes
    channels = getattr(op, "c", 1.0)
    return size * minimum(1.0, machine.threads_per_sm / CHANNEL_THREADS * machine.sm_count / channels)


def _streamed(op: Any, machine: Machine, library: str) -> bool:
    """Whether an operator has no family of its own, or its family's kernels are not the library's."""
    return op.op not in ROWS or (not op.backward and library in FUSED)


def _backward(op: Any, machine: Machine, library: str) -> bool:
    return bool(op.backward)


FAMILIES = (
    Family("stream", CONSTANTS, formula, STREAM_TERMS, _streamed, streams=True, by_dtype=False),
    Family("stream_backward", CONSTANTS, formula, STREAM_TERMS, _backward, streams=True, by_dtype=False),
)
