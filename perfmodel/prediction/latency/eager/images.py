"""Norms and pools of images as PyTorch runs them, and the gradients of norms of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number
from perfmodel.operators.batch_norm import BatchNorm
from perfmodel.operators.group_norm import GroupNorm
from perfmodel.operators.pool2d import Pool2d
from perfmodel.operators.pool3d import Pool3d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
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

#: threads of a block of a pool of films along the width and the height of an output (AveragePool3d.cu and
#: DilatedMaxPool3d.cu, dim3 block(32, 8)): those beyond its edges are idle
FILM_BLOCK_WIDTH, FILM_BLOCK_HEIGHT = 32.0, 8.0

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


def _pool3d(op: Pool3d, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return a thread an output as in pools of images, in blocks of 32 x 8 that cover each picture of the output.

    Of one picture it is a pool of images, whose windows may differ by direction. In view of others' times: two means
    of an H200 take 1.9 and 1.3 times as long (github.com/tile-ai/TileOPs/pull/1687), maxima of 32 x 80 rows of 4096
    there 0.89 times (pull/2111), and maxima over 4 x 4 x 4 elements 0.83, 1.34 and 3.4 times as long on an RTX A6000 at
    strides of 1, 2 and 4 (github.com/pytorch/pytorch/pull/80748).
    """
    covered = (
        np.ceil(op.p / FILM_BLOCK_HEIGHT) * FILM_BLOCK_HEIGHT * np.ceil(op.q / FILM_BLOCK_WIDTH) * FILM_BLOCK_WIDTH
    )
    of_images = np.equal(op.d, 1) & np.equal(op.t, 1)
    threads = 1.0 * op.n * op.c * op.o * np.where(of_images, 1.0 * op.p * op.q, covered)
    window = 1.0 * op.t * op.r * op.s
    taps = c["tap"] * (MEAN_TAP if op.kind == "mean" else 1.0) * threads * window
    rounds = np.maximum(1.0, threads / (machine.sm_count * machine.threads_per_sm))
    waited = rounds * window * TAP_WAIT / machine.clock_hz
    return [Pass(1.0, op.work().bytes, 1.0, 0.0, c["output"] * threads + taps, waited)]


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


KERNELS: dict[str, Kernels] = {
    "batch_norm": _batch_norm, "group_norm": _group_norm, "pool2d": _pool2d, "pool3d": _pool3d,
}  # fmt: skip
NORMS = ("layer_norm", "rms_norm", "add_rms_norm", "softmax", "reduction")


#: those whose gradient is PyTorch's where no library is named, since their forward pass is, too
BY_PYTORCH = ("layer_norm", "softmax")


def _backward(op: Any, machine: Machine, library: str) -> bool:
    return bool(op.backward) and (is_eager(op, machine, library) or (not library and op.op in BY_PYTORCH))


def _applies(op: Any, machine: Machine, library: str) -> bool:
    """Whether PyTorch's kernels run, and not the gradient of a pool of films, which nobody described."""
    return is_eager(op, machine, library) and not (op.op == "pool3d" and op.backward)


def _is_of_films(op: Any, machine: Machine, conditions: Conditions) -> bool:
    return bool(op.op == "pool3d")


#: pools of films, of which no table has a row: a factor of two, as for every kind of kernel without rows
FILMS = Doubt(ErrorSource.KERNEL, _is_of_films, (0.54, 0.54, 0.54))

FAMILY = eager_family("eager_image", (WAIT, SHORT, OPERAND, OUTPUT, INPUT, TAP), KERNELS, _applies, (FILMS,))
NORM_BACKWARD = eager_family(
    "eager_norm_backward", (ROW, PARTIAL, WAIT), dict.fromkeys(NORMS, _norm_backward), _backward
)
