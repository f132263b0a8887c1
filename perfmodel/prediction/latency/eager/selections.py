"""Sorts, selections, scans and draws as PyTorch runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number
from perfmodel.operators.sampling import Sampling
from perfmodel.operators.scan import Scan
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.eager.passes import Kernels, Pass, among, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.reduction import WARP

#: bytes of the index that moves with each key (int64)
INDEX_BYTES = 8.0
#: keys of a row that one block sorts alone; keys from which on each row is a sort of its own; rows from which on a
#: block has a row (Sort.cpp, should_use_small_sort; SortStable.cu, launch_stable_sort_kernel)
SMALL, LONG, MANY = 4096.0, 1e6, 128.0
#: keys up to which one thread pairs, and one warp, sort a row; a block pads longer rows to a power of two, at least
#: PADDED (Sort.cu, sortKeyValueInplace)
IN_PAIRS, IN_WARP, PADDED = 32.0, 128.0, 1024.0
#: bits of a digit: of onesweep, of a segmented sort (CUB, DeviceRadixSortPolicy), of a block's sort
DIGIT, SEGMENTED_DIGIT, BLOCK_DIGIT = 8.0, 6.0, 4.0
#: SM cycles of a padded key in a block's sort, and more for each digit; those of a key padded to 128 in a warp's merge
#: sort, set on six rows of an H100 and an H200, torch 2.11.0, 2026-11-23; and the cycles that a lone warp takes: a load
#: and five merges of four keys a lane, as 16 rows of 1643 elements of which 50 are selected leave (H200, the same day)
BLOCK_CYCLES, BLOCK_DIGIT_CYCLES, WARP_CYCLES, MERGE_CYCLES = 4.0, 0.28, 12.0, 3e3
#: cycles that a lone block takes for its sort: what 30 rows of 277 and 77 of 964 keys in bf16 take on an H200 beside
#: three starts, and selections of 170 to 226 of a row (own records, torch 2.11.0, 2026-11-27; all were in view)
ALONE_CYCLES = 20e3
#: bits of a digit of a selection by several blocks, and by one (TensorTopK.cu)
BLOCKS_DIGIT, ONE_DIGIT = 8.0, 2.0
#: (rows up to, elements from which on several blocks share a row) (TensorTopK.cu, should_use_multiblock)
SHARED_ROWS = ((20.0, 20000.0), (40.0, 10000.0), (80.0, 8000.0), (199.0, 5000.0), (799.0, 3000.0), (4000.0, 800.0),
               (np.inf, 400.0))  # fmt: skip
#: such blocks: threads, blocks of an SM, least and most elements of a thread (TensorTopK.cu, get_items_per_thread), and
#: the cycles that the counts of one take when they are added up block by block; set on one row of the same record
BLOCK_THREADS, BLOCKS_PER_SM, LEAST_ITEMS, MOST_ITEMS, COUNT_CYCLES = 256.0, 6.0, 4.0, 64.0, 42.0
#: releases from and before which each block reads the counts of all blocks of its row, a short for each of 256 digits
#: (github.com/pytorch/pytorch/pull/145536; pull/164459, whose first release is assumed). 128 rows of 8,000,000 in fp16
#: on an L20 take 1.0 times as long (issues/167462, in view; 1.7 without), and one row of 1e6, 1e8 and 1e9 on an H20, of
#: no table, 0.55, 0.61 and 0.60 times (pull/164459, looked at after; 1.1, 6.5 and 60 without)
FIRST_BY_ALL, LAST_BY_ALL, COUNT_BYTES = (2, 7), (2, 10), 2.0
#: share of a digit's first step that each further step takes: elements, without the joining of the threads' counts.
#: Some 40 instructions of 32 warps and a load from L2, 600 cycles (SortingRadixSelect.cuh, countRadixUsingMask); one
#: block then takes 0.96 of the time of several in the geometric mean at the limits above
STEP_SHARE = 0.45
#: start of a short kernel of a sequence over that of a lone one: it waits for the one before to drain. For those of a
#: selection by several blocks 1.5, of 1.3 to 1.7, leaves least of 14 rows of an H100 and an H200 (2026-11-23) and of 14
#: others that were drawn (in view); kernels over the few elements that were selected start like lone ones
STARTS, SHARED_STARTS, FEW_STARTS = 1.7, 1.5, 1.0
#: kernels of a selection by several blocks: three a digit, which count, add up and compare, and the fill of the ranks,
#: the counts of what is selected, two scans by key of two kernels each, the gathering (TensorTopK.cu, mbtopk::launch)
DIGIT_KERNELS, OTHER_KERNELS = 3.0, 7.0
#: SM cycles of an element of CUB's scan as torch.cumsum calls it: twice those of NVBench's (`LOOK_BACK_CLOCKS`)
SCAN_CYCLES = 1.0
#: a block that scans rows: its threads, and the instructions of a warp in a step and in each of its rounds of sums in
#: shared memory (ScanUtils.cuh, tensor_kernel_scan_innermost_dim_impl; nvcc 13.0 for compute capability 9.0)
SCAN_THREADS, SCAN_STEP_ISSUED, SCAN_ROUND_ISSUED = 512.0, 60.0, 21.0
#: share of its cycles that the first step of a block takes beside the start of its kernel, which waits for a load, too:
#: three scans of one step take 2.7 us on an H200, of which 2.5 are the start (own records, torch 2.11.0, 2026-11-27; in
#: view); four of 6 to 10 steps come out 10 % too slow with a whole step more
FIRST_STEP = 0.15
#: share of the issue slots of an SM that such blocks fill: that of LayerNorm's 16-bit vectors on an H100, 114
#: instructions for 128 columns in 44 cycles. With it 1993 rows of 94733 columns take the 1.02 ms that an H200 measured
SLOTS = 0.65
#: kernels of torch.multinomial that check the probabilities (Distributions.cpp), and how often the host waits for what
#: they found
CHECKS, SYNCS = 7.0, 2.0
#: threads of a block of softmax, elements of each in a step, and reads of the row (SoftMax.cu)
SOFTMAX_THREADS, SOFTMAX_VECTOR, SOFTMAX_READS = 1024.0, 4.0, 3.0

SWEEP = Constant("sweep", "", 3.3, 0.5, 20.0, 0.2, "SM cycles of a key with its index in one pass of a radix sort")
PASS_START = Constant("pass_start", "s", 13e-6, 2e-6, 60e-6, 0.2, "reset, start, look-back and drain of a sort's pass")
SELECT = Constant("select", "", 0.65, 0.1, 5.0, 0.2, "SM cycles of an element in one pass of a selection")
STEP = Constant("step", "", 1300.0, 200.0, 10e3, 0.3, "cycles of a digit's first step of a block with a row")
SCAN_STEP = Constant("scan_step", "", 3000.0, 300.0, 20e3, 0.3, "cycles of a step of a block that scans its row")
SYNC = Constant("sync", "s", 12e-6, 3e-6, 200e-6, 0.3, "host that reads a check and dispatches what follows")


def _of_sort(rows: Number, cols: Number, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the kernels of torch.sort: keys of ``size`` bytes, with their indices.

    One row, or rows of 10^6 keys: the indices are written, then one onesweep a row. Below 128 rows: all rows are sorted
    as one with (row, index), then by row, and gathered. Else a segmented sort, a block a row in each pass, which reads
    keys twice. Up to 4096 keys: copies of keys and indices, which one block sorts in shared memory.
    """
    rows, cols = np.asarray(rows, dtype=np.float64), np.asarray(cols, dtype=np.float64)
    keys, bits, pair = rows * cols, 8.0 * size, size + INDEX_BYTES
    small = cols <= SMALL
    single = ~small & ((rows == 1) | (cols >= LONG))
    joint = ~small & ~single & (rows < MANY)
    digits, by_row = bits / DIGIT, np.ceil(np.log2(np.maximum(rows, 2.0)) / DIGIT)
    segmented = np.ceil(bits / SEGMENTED_DIGIT)
    start = c["pass_start"] / c["launch"]
    # indices and the histogram; then a pass for each digit
    first = Pass(1.0 + 3.0 * np.where(joint, 1.0, rows), keys * (INDEX_BYTES + size))
    sweeps = Pass(start * rows * digits, 2.0 * keys * pair * digits, cycles=c["sweep"] * keys * digits)
    rows_too = Pass(
        start * (digits + by_row),
        2.0 * keys * (pair * digits + INDEX_BYTES * by_row),
        cycles=c["sweep"] * keys * (digits + by_row),
    )
    gathered = Pass(5.0, keys * (2.0 * INDEX_BYTES + 2.0 * pair))
    walked = np.ceil(rows / machine.sm_count) * cols * segmented * c["sweep"] / machine.clock_hz
    blocks = Pass(2.0 + segmented, keys * (INDEX_BYTES + segmented * (2.0 * pair + size)), waited_s=walked)
    copied = Pass(2.0, keys * (INDEX_BYTES + 2.0 * size))
    kinds = (
        (single | joint, first), (single, sweeps), (joint, rows_too), (joint, gathered),
        (~(small | single | joint), blocks), (small, copied),
    )  # fmt: skip
    return [*(among(mask, one) for mask, one in kinds), among(small, _in_block(rows, cols, size, machine))]


def _in_block(rows: Number, cols: Number, size: float, machine: Machine) -> Pass:
    """Return the sort of short rows, each by one block or warp, or by threads in pairs."""
    padded = np.maximum(2.0 ** np.ceil(np.log2(cols)), PADDED)
    of_block = padded * (BLOCK_CYCLES + BLOCK_DIGIT_CYCLES * 8.0 * size / BLOCK_DIGIT)
    in_warp = (cols > IN_PAIRS) & (cols <= IN_WARP)
    cycles = rows * np.where(in_warp, IN_WARP * WARP_CYCLES, np.where(cols > IN_WARP, of_block, 0.0))
    waited = np.where(in_warp, MERGE_CYCLES, np.where(cols > IN_WARP, ALONE_CYCLES, 0.0)) / machine.clock_hz
    return Pass(1.0, 2.0 * rows * cols * (size + INDEX_BYTES), 1.0, 0.0, cycles, waited)


def shares_rows(rows: Number, cols: Number) -> NDArray[np.bool_]:
    """Return where several blocks share a row of a selection."""
    limits = [limit for limit, _ in SHARED_ROWS]
    return np.asarray(cols) >= np.array([least for _, least in SHARED_ROWS])[np.searchsorted(limits, rows)]


def shared_kernels(size: float) -> float:
    """Return the kernels of a selection by several blocks a row, of elements of ``size`` bytes."""
    return DIGIT_KERNELS * 8.0 * size / BLOCKS_DIGIT + OTHER_KERNELS


def _blocks_of_row(rows: Number, cols: Number, machine: Machine) -> Number:
    """Return how many blocks share a row of a selection."""
    items = np.ceil(rows * cols / (machine.sm_count * BLOCKS_PER_SM * BLOCK_THREADS))
    return np.ceil(cols / (np.clip(items, LEAST_ITEMS, MOST_ITEMS) * BLOCK_THREADS))


def _of_topk_by_all(op: Topk, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the kernels of torch.topk in the releases in which each block adds up the counts of a row's blocks."""
    kernels = _of_any_topk(op, size, c, machine)
    if op.algorithm == "sort":
        return kernels
    rows, cols = np.asarray(op.rows, dtype=np.float64), np.asarray(op.cols, dtype=np.float64)
    counts = COUNT_BYTES * 2.0**BLOCKS_DIGIT * _blocks_of_row(rows, cols, machine) ** 2
    added = Pass(0.0, cached=8.0 * size / BLOCKS_DIGIT * rows * counts)
    return [*kernels, among(shares_rows(rows, cols), added)]


def _of_any_topk(op: Topk, size: float, c: Values, machine: Machine) -> list[Pass]:
    if op.algorithm == "sort":
        return _of_sort(op.rows, op.cols, size, c, machine)
    return _of_topk(op.rows, op.cols, op.k, size, c, machine)


def _of_topk(
    rows: Number, cols: Number, k: Number, size: float, c: Values, machine: Machine, ordered: bool = True
) -> list[Pass]:
    """Return the kernels of torch.topk: a read a digit, one that gathers, and the sort of what was found.

    Several blocks share long rows: three kernels a digit of 8 bits, the second of which adds up the counts of a row's
    blocks, and seven others. One block of up to 1024 threads has a short row, and digits of 2 bits.
    """
    rows, cols = np.asarray(rows, dtype=np.float64), np.asarray(cols, dtype=np.float64)
    elements, bits = rows * cols, 8.0 * size
    shared = shares_rows(rows, cols)
    digits = bits / BLOCKS_DIGIT
    of_row = _blocks_of_row(rows, cols, machine)
    starts = SHARED_STARTS * (shared_kernels(size) - digits)
    counted = Pass(starts, waited_s=digits * of_row * COUNT_CYCLES / machine.clock_hz)
    reads = digits + 1.0
    several = Pass(SHARED_STARTS * digits, elements * size * reads, 1.0, 0.0, elements * c["select"] * reads)
    threads = np.clip(np.ceil(cols / 32.0) * 32.0, 32.0, 1024.0)
    held = machine.sm_count * np.minimum(machine.threads_per_sm / threads, 32.0)
    steps = (bits / ONE_DIGIT + 2.0) * (1.0 + STEP_SHARE * (np.ceil(cols / threads) - 1.0))
    waited = np.maximum(rows / held, 1.0) * steps * c["step"] / machine.clock_hz
    alone = Pass(1.0, elements * size, 1.0, 0.0, 0.0, waited)
    found = [among(shared, several), among(shared, counted), among(~shared, alone)]
    if not ordered:
        return found
    short = np.asarray(k) <= SMALL
    return [*found, among(short, _in_block(rows, np.minimum(k, SMALL), size, machine))]


def _of_scan(rows: Number, cols: Number, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the kernels of torch.cumsum: CUB's look-back for a single row, else blocks that walk along rows.

    A block of 512 threads has 16 to 512 of them side by side, which take two columns each in a step (ScanUtils.cuh,
    get_log_num_threads_x_inner_scan). The difference there is of unsigned numbers: with over 512 times more rows than
    columns it wraps, and a block of 512 threads has a short row to itself. A lone block waits in each step; the blocks
    of a full SM issue one after another.
    """
    rows, cols = np.asarray(rows, dtype=np.float64), np.asarray(cols, dtype=np.float64)
    elements, single = rows * cols, rows == 1
    twice = 9.0 + np.ceil(np.log2(cols)) - np.ceil(np.log2(rows))
    wide_bits = np.where(twice < 0.0, 9.0, np.clip(np.floor(twice / 2.0), 4.0, 9.0))
    wide = 2.0**wide_bits
    steps = np.ceil(cols / (2.0 * wide))
    blocks = np.ceil(rows * wide / SCAN_THREADS)
    held = machine.sm_count * machine.threads_per_sm / SCAN_THREADS
    waits = steps - 1.0 + FIRST_STEP
    waited = np.maximum(blocks / held, 1.0) * waits * c["scan_step"] / machine.clock_hz
    issued = SCAN_THREADS / WARP * (SCAN_STEP_ISSUED + SCAN_ROUND_ISSUED * (wide_bits + 1.0))
    cycles = blocks * steps * issued / (SLOTS * machine.schedulers_per_sm)
    return [
        among(single, Pass(2.0, 2.0 * elements * size, 1.0, 0.0, SCAN_CYCLES * elements)),
        among(~single, Pass(1.0, 2.0 * elements * size, 1.0, 0.0, cycles, waited)),
    ]


def _of_softmax(rows: Number, cols: Number, size: float, c: Values, machine: Machine) -> Pass:
    """Return softmax, whose block walks along its row for the maximum, the sum and the result."""
    steps = SOFTMAX_READS * np.ceil(cols / (SOFTMAX_THREADS * SOFTMAX_VECTOR))
    waited = np.maximum(rows / machine.sm_count / 2.0, 1.0) * steps * c["step"] / 2.0 / machine.clock_hz
    return Pass(1.0, 2.0 * rows * cols * size, waited_s=waited)


def _of_draw(rows: Number, cols: Number, size: float, c: Values, starts: float = STARTS) -> list[Pass]:
    """Return the kernels of torch.multinomial of one sample: checks that the host reads, then the race.

    max, min and sum read the probabilities; exponential numbers are written, divided into them (2 r + w), and the
    largest is found (r).
    """
    moved = 8.0 * rows * cols * size
    return [Pass(starts * (6.0 + CHECKS) + SYNCS * c["sync"] / c["launch"], moved)]


def _of_sampling(op: Sampling, size: float, c: Values, machine: Machine) -> list[Pass]:
    rows, cols = op.rows, op.vocab
    row = 1.0 * rows * cols * size
    if op.algorithm == "gumbel":  # exponential w, log r + w, difference 2 r + w, argmax r
        return [Pass(4.0 * STARTS, 7.0 * row)]
    if op.algorithm == "multinomial":
        return [_of_softmax(rows, cols, size, c, machine), *_of_draw(rows, cols, size, c)]
    if op.algorithm == "top_k":  # the k largest unsorted, their softmax, the draw among them, the look-up of its index
        return [
            *_of_topk(rows, cols, op.k, size, c, machine, ordered=False), Pass(2.0 * FEW_STARTS),
            *_of_draw(rows, op.k, size, c, starts=FEW_STARTS),
        ]  # fmt: skip
    # difference 2 r + w, comparison r and a mask, copy r + w, fill r + w and the mask; look-up of the index
    between = Pass(5.0 * STARTS, 7.0 * row + 2.0 * rows * cols)
    return [
        *_of_sort(rows, cols, size, c, machine), _of_softmax(rows, cols, size, c, machine),
        *_of_scan(rows, cols, size, c, machine), between, *_of_draw(rows, cols, size, c),
    ]  # fmt: skip


KERNELS: dict[str, Kernels] = {
    "sort": lambda op, size, c, machine: _of_sort(op.rows, op.cols, size, c, machine),
    "topk": _of_any_topk,
    "scan": lambda op, size, c, machine: _of_scan(op.rows, op.cols, size, c, machine),
    "sampling": _of_sampling,
}


#: algorithms that PyTorch has for each operator; others are no call of it
ALGORITHMS = {
    "sort": ("radix",),
    "topk": ("radix_select", "sort"),
    "scan": ("look_back",),
    "sampling": ("multinomial", "gumbel", "top_k", "top_p"),
}


def _applies(op: Any, machine: Machine, library: str) -> bool:
    known: Sort | Topk | Scan | Sampling = op
    return is_eager(op, machine, library) and known.algorithm in ALGORITHMS[op.op]


def _by_all(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether each block adds up the counts of all blocks of its row."""
    if op.op != "topk" or conditions.is_before(*FIRST_BY_ALL) or not conditions.is_before(*LAST_BY_ALL):
        return False
    return shares_rows(op.rows, op.cols)


#: of counts that L1 may keep for the other blocks of an SM
BY_ALL = Doubt(ErrorSource.KERNEL, _by_all, (0.4, 0.4, 0.4))

CONSTANTS = (SWEEP, PASS_START, SELECT, STEP, SCAN_STEP, SYNC)
SINCE = {"topk": ((FIRST_BY_ALL, _of_topk_by_all), (LAST_BY_ALL, _of_any_topk))}
FAMILY = eager_family("eager_selection", CONSTANTS, KERNELS, _applies, (BY_ALL,), SINCE)
