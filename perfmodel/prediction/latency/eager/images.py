"""Norms and pools of images as PyTorch runs them, and the gradients of norms of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.work import Number
from perfmodel.operators.batch_norm import BatchNorm
from perfmodel.operators.group_norm import GroupNorm
from perfmodel.operators.pool2d import Pool2d
from perfmodel.prediction.latency.eager.passes import Kernels, Pass, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine

#: threads of a block of a norm (Normalization.cuh, MAX_BLOCK_SIZE; block_reduce.h, kCUDABlockReduceNumThreads), and the
#: sizes that those along the pixels of a channel have (getNumThreads)
THREADS = 512.0
WIDTHS = (32.0, 64.0, 128.0, 256.0, 512.0)
#: blocks of a batch norm's second kernel at most (Normalization.cuh, 256 * 1024)
MOST_BLOCKS = 262144.0
#: SM cycles of an element in the gradient of a sum, and of each of its bytes: 0.38 in 16 bits on an H100 (torch 2.11.0,
#: 2026-11-23), 0.58 and 0.61 in fp32 on an H200 (2026-11-27); one and two rows, all in view
EXPAND_CYCLES, EXPAND_BYTE_CYCLES = 0.16, 0.11
#: threads of a block of the gradient of a norm's rows, and elements that a thread takes in a step of its first pass
#: (layer_norm_kernel.cu: num_threads, compute_gI). The second pass takes as many where rows are whole vectors, else
#: one: 187 rows of 20,907 columns take 103 us on an H200, 49 by whole steps (own record, torch 2.11.0, 2026-11-27).
#: Rows of that record were in view of all that this module says of gradients
ROW_THREADS, ROW_UNROLL = 128.0, 4.0
#: rows that a block of the weights' gradient takes in a step (layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel)
STEP_ROWS = 256.0
#: columns up to which a warp keeps a row of softmax's gradient (SoftMax.cu, dim_size <= 1024), loads that each of its
#: lanes has under way (assumed), and the most threads of a block of longer rows
WARP_COLUMNS, WARP_LOADS, SOFTMAX_THREADS = 1024.0, 16.0, 1024.0
#: longest row of softmax's gradient that a block keeps: shared memory without an opt-in (SoftMax.cu,
#: can_use_smem of host_softmax_backward)
SOFTMAX_ROW_BYTES = 48.0 * 1024.0

#: an input of the gradient of a mean, and an element of its window, over those of a maximum: divisions, no comparison;
#: set on three rows of an H100 and an H200, torch 2.11.0, 2026-11-23
MEAN_INPUT, MEAN_TAP = 1.75, 0.5
#: cycles that a thread waits for an element of its window: what windows of 7 x 7 take where threads are few (H100)
TAP_WAIT = 600.0
#: blocks of a batch norm's gradient that an SM holds: with more than 32 registers a thread there is room for no fourth.
#: Three rows of 512 to 704 channels on an H200 say so (torch 2.11.0, 2026-11-23 and 2026-11-27), which were in view
GRADIENT_BLOCKS = 3.0
#: steps that joining the threads of a block takes, where they merge means and variances, and where they add sums
JOIN, JOIN_SUMS = 8.0, 4.0

WAIT = Constant("wait", "", 900.0, 200.0, 5000.0, 0.15, "cycles of a thread's step: a load, and what depends on it")
SHORT = Constant("short", "", 155.0, 10.0, 1000.0, 0.2, "SM cycles of one short block")
OPERAND = Constant("operand", "", 0.18, 0.02, 2.0, 0.2, "SM cycles of an element of each tensor of a broadcast kernel")
OUTPUT = Constant("output", "", 2.45, 0.1, 20.0, 0.2, "SM cycles of an output of a pool")
INPUT = Constant("input", "", 2.35, 0.1, 20.0, 0.2, "SM cycles of an input of a pool's gradient")
TAP = Constant("tap", "", 0.18, 0.02, 5.0, 0.2, "SM cycles of an element of a pool's window")
ROW = Constant("row", "", 900.0, 50.0, 10e3, 0.3, "SM cycles of a block that computes the gradient of a row")
PARTIAL = Constant("partial", "", 0.75, 0.05, 5.0, 0.3, "SM cycles of an element in the sums over rows of a gradient")


def _waves(blocks: Number, machine: Machine, threads: Number = THREADS) -> Number:
    return np.maximum(blocks / (machine.sm_count * machine.threads_per_sm / threads), 1.0)


def _batch_norm(op: BatchNorm, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the kernels without cuDNN, which runs with weights in fp32 and fp16, not in bf16 and not without weights.

    They are the statistics by one block a channel, their inverse, and scale and shift.

    The gradient is one kernel of a block a channel, which walks along it twice, and joins two sums once
    (Normalization.cuh).
    """
    n, channels, hw = (np.asarray(value, dtype=np.float64) for value in (op.n, op.c, op.hw))
    numel = n * channels * hw
    width = np.asarray(WIDTHS)[np.minimum(np.searchsorted(WIDTHS, hw), len(WIDTHS) - 1)]
    walked = np.ceil(hw / width) * np.ceil(n / (THREADS / width))
    if op.backward:
        steps = np.maximum(channels / (GRADIENT_BLOCKS * machine.sm_count), 1.0) * (2.0 * walked + JOIN_SUMS)
        return [Pass(1.0, 5.0 * numel * size, waited_s=steps * c["wait"] / machine.clock_hz)]
    waited = _waves(channels, machine) * (walked + JOIN) * c["wait"] / machine.clock_hz
    blocks = channels * np.minimum(n, np.maximum(np.floor(MOST_BLOCKS / channels), 1.0))
    scaled = Pass(1.0, 2.0 * numel * size, 1.0, 0.0, np.maximum(c["short"] * blocks, 4.0 * c["operand"] * numel))
    if not op.training:
        return [scaled]
    return [Pass(2.0, numel * size, 1.0, 0.0, 0.0, waited), scaled]


def _group_norm(op: GroupNorm, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the moments of each group by a block, the scale and shift of each channel, and a broadcast kernel.

    The gradient sums dy and dy x of each channel of each image by a block, joins these (small kernels), and computes dx
    from five tensors (group_norm_kernel.cu).
    """
    n, channels, hw = (np.asarray(value, dtype=np.float64) for value in (op.n, op.c, op.hw))
    numel = n * channels * hw
    rows = n * (channels if op.backward else op.groups)
    steps = np.ceil(numel / rows / THREADS) + JOIN_SUMS
    waited = _waves(rows, machine) * steps * c["wait"] / machine.clock_hz
    if op.backward:
        return [Pass(5.0, 2.0 * numel * size, 1.0, 0.0, 0.0, waited),
                Pass(1.0, 3.0 * numel * size, 1.0, 0.0, 6.0 * c["operand"] * numel)]  # fmt: skip
    return [Pass(2.0, numel * size, 1.0, 0.0, 0.0, waited),
            Pass(1.0, 2.0 * numel * size, 1.0, 0.0, 4.0 * c["operand"] * numel)]  # fmt: skip


def _pool2d(op: Pool2d, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return a thread an output, which walks over its window; backward an input, over the windows that it is in.

    The gradient is set to zero before, in a kernel of its own: seven rows of an H100 and an H200, of which four were
    drawn at random (2026-11-27), come out 5 % off with it and 20 % without.
    """
    outputs, inputs = 1.0 * op.n * op.c * op.p * op.q, 1.0 * op.n * op.c * op.h * op.w
    window = 1.0 * op.k * op.k
    mean = op.kind == "mean"
    each = c["input"] * (MEAN_INPUT if mean else 1.0) * inputs if op.backward else c["output"] * outputs
    taps = c["tap"] * (MEAN_TAP if mean else 1.0) * outputs * window
    rounds = np.maximum(1.0, (inputs if op.backward else outputs) / (machine.sm_count * machine.threads_per_sm))
    waited = rounds * (1.0 if op.backward else window) * TAP_WAIT / machine.clock_hz
    zeros = [Pass(1.0, inputs * size)] if op.backward else []
    return [*zeros, Pass(1.0, op.work().bytes, 1.0, 0.0, each + taps, waited)]


def _norm_backward(op: Any, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return dx, a block a row, and the gradients of the weights, which read dy and x again by columns.

    A block walks along its row twice, and waits for each step; so does a block of some columns along the rows.
    """
    numel = 1.0 * op.rows * op.cols
    if op.op == "reduction":  # a copy of the expanded column, element by element (Copy.cu)
        return [Pass(1.0, op.work().bytes, cycles=(EXPAND_CYCLES + EXPAND_BYTE_CYCLES * size) * numel)]
    if op.op == "softmax":
        return _softmax_backward(op, size, c, machine)
    step = ROW_THREADS * ROW_UNROLL
    whole = np.asarray(op.cols) % ROW_UNROLL == 0.0
    steps = np.ceil(op.cols / step) + np.ceil(op.cols / np.where(whole, step, ROW_THREADS))
    waited = _waves(1.0 * op.rows, machine, ROW_THREADS) * steps * c["wait"] / machine.clock_hz
    walked = np.ceil(op.rows / STEP_ROWS) * c["wait"] / machine.clock_hz
    return [
        Pass(1.0, 3.0 * numel * size, 1.0, 0.0, c["row"] * op.rows, waited),
        Pass(1.0, 2.0 * numel * size, 1.0, 0.0, c["partial"] * numel, walked),
    ]


def _softmax_backward(op: Any, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the product of y and dy in a kernel of its own, whose result it writes, and dx from it and y (SoftMax.cu).

    The gradient of the logarithm has no such product: its dx is of dy and y. A warp keeps a row of few columns, padded
    to a power of two, in registers; a block walks along a longer one twice. Where shared memory has no room for the
    row, it reads what it sums twice, which takes as long as from memory. One row of an H100 and eleven of an H200 of
    `cross_entropy`, which were in view, are 9 % off so (torch 2.11.0), and 44 % with the product.
    """
    cols = np.asarray(1.0 * op.cols)
    moved = 3.0 * op.rows * cols * size
    again = np.where(cols * size > SOFTMAX_ROW_BYTES, moved / 3.0, 0.0)
    padded = 2.0 ** np.ceil(np.log2(np.maximum(cols, 1.0)))
    of_warp = np.ceil(2.0 * padded / 32.0 / WARP_LOADS)
    threads = np.clip(padded * size / 16.0, 32.0, SOFTMAX_THREADS)
    of_block = _waves(1.0 * op.rows, machine, threads) * (2.0 * np.ceil(cols * size / 16.0 / threads) + JOIN_SUMS)
    waited = np.where(cols <= WARP_COLUMNS, of_warp, of_block) * c["wait"] / machine.clock_hz
    gradient = Pass(1.0, moved + again, waited_s=waited)
    return [gradient] if op.log else [Pass(1.0, moved), gradient]


KERNELS: dict[str, Kernels] = {"batch_norm": _batch_norm, "group_norm": _group_norm, "pool2d": _pool2d}
NORMS = ("layer_norm", "rms_norm", "add_rms_norm", "softmax", "reduction")


#: those whose gradient is PyTorch's where no library is named, since their forward pass is, too
BY_PYTORCH = ("layer_norm", "softmax")


def _backward(op: Any, machine: Machine, library: str) -> bool:
    return bool(op.backward) and (is_eager(op, machine, library) or (not library and op.op in BY_PYTORCH))


FAMILY = eager_family("eager_image", (WAIT, SHORT, OPERAND, OUTPUT, INPUT, TAP), KERNELS)
NORM_BACKWARD = eager_family(
    "eager_norm_backward", (ROW, PARTIAL, WAIT), dict.fromkeys(NORMS, _norm_backward), _backward
)
