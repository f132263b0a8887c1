"""Triton's products with scales of blocks, which engines ran before DeepGEMM's and CUTLASS's, and AMD's without AITER.

A program computes a tile of the result and walks along all of k, which nothing splits: few columns leave most of the
machine idle, and the walk takes as long as its steps wait for memory. Many rows run at the rate at which a
multiprocessor scales and adds up the sums of each block, well below that of its matrix engine.
"""

from __future__ import annotations

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.prediction.latency.machine import AMD
from perfmodel.serving.cost import Array

#: time of one step of the walk, 128 of k [s]: 576 and 512 columns of k = 7168 took 45.5 and 27.1 us for 8 rows on an
#: H200, 2 columns' blocks of k = 256 took 9.5 us beside the same calls (sgl-project/sglang pull requests 3893, 5820)
STEP_S = 0.4e-6
#: FLOP/s of one multiprocessor at many rows: 4096 rows of 24576 x 7168 took 4067 us on an H200, DeepGEMM 1354 us
#: (the same pull request 3893, Triton 3.1)
RATE = 2.7e12
#: time of products, and of those of experts, over that of AITER's kernels on AMD's machines (docs.vultr.com,
#: inference-cookbook/rocm/optimization/aiter-configuration, which takes them from AMD's documentation)
ON_AMD, EXPERTS_ON_AMD = 2.0, 3.0
#: k of a step, and rows and columns of a tile of many rows; those of few rows are as small as a matrix instruction
STEP, ROWS, FEW_ROWS, COLUMNS = 128.0, 64.0, 16.0, 128.0


def walk_s(k: float) -> float:
    """Return the time in which a tile walks along k [s].

    >>> walk_s(7168) / walk_s(1024)
    7.0
    """
    return STEP_S * float(np.ceil(k / STEP))


def triton_time(library_s: Array, rows: Array, n: int, k: int, hardware: Hardware, *, experts: bool) -> Array:
    """Return the time of a product, no less than with the library's kernels [s].

    t = max(library, steps of the walk, FLOP of the tiles / (rate of a multiprocessor x multiprocessors)), and on AMD's
    machines, where nobody printed such rates, the library's time times a factor in place of the last.

    Parameters
    ----------
    library_s : time of the product by kernels that are tuned [s].
    rows, n, k : rows, columns, and what they have in common.
    experts : whether it stands for those of experts.
    """
    walked = np.maximum(library_s, walk_s(k))
    if hardware.vendor == AMD:
        return np.asarray(np.maximum(walked, (EXPERTS_ON_AMD if experts else ON_AMD) * library_s))
    tile = np.where(rows <= ROWS, FEW_ROWS, ROWS)
    flop = 2.0 * tile * np.ceil(rows / tile) * COLUMNS * np.ceil(n / COLUMNS) * k
    return np.asarray(np.maximum(walked, flop / (RATE * hardware.sm_count) if hardware.sm_count else 0.0))
