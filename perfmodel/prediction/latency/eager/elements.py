"""Kernels of single elements that PyTorch does not write for vectors of 16 B: dropout and transposed copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.operators.dropout import Dropout
from perfmodel.operators.lookup import SECTOR_BYTES
from perfmodel.operators.transpose import Transpose
from perfmodel.prediction.latency.eager.passes import Pass, eager_family, is_eager
from perfmodel.prediction.latency.family import Constant, Values
from perfmodel.prediction.latency.machine import Machine

#: elements of a vector of dropout, where their number is a multiple of it (Dropout.cu, get_vector_size)
VECTOR = 4.0
#: outputs of a block of a copy whose input is strided: 128 threads of 4 (CUDALoops.cuh, launch_legacy_kernel)
BLOCK_OUTPUTS = 512.0

#: chosen on a row of an H100 and eight of an H200 with the next two (own records, torch 2.11.0; all were in view)
SEED = Constant("seed", "", 1700.0, 100.0, 10e3, 0.3, "cycles until a thread has its first random numbers")
RANDOM = Constant("random", "", 0.5, 0.05, 5.0, 0.3, "SM cycles of an element of dropout, in vectors of four")
SINGLE = Constant("single", "", 1.05, 0.05, 10.0, 0.3, "the same of one that a thread loads alone")


def _dropout(op: Dropout, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return the seeds of the threads' generators (Philox), and the elements with a random number each."""
    whole = np.asarray(op.numel) % VECTOR == 0.0
    cycles = np.where(whole, c["random"], c["single"]) * op.numel
    return [Pass(0.0, waited_s=c["seed"] / machine.clock_hz), Pass(1.0, op.work().bytes, cycles=cycles)]


def _transpose(op: Transpose, size: float, c: Values, machine: Machine) -> list[Pass]:
    """Return a copy whose neighbouring outputs lie a row of the input apart, so that each reads a sector of its own.

    Other elements of a sector are outputs of the same block where ``rows`` are few, and find it in L1; else L2 sends
    the sector again: 32 B an element.
    """
    columns = np.clip(BLOCK_OUTPUTS / np.asarray(1.0 * op.rows), 1.0, SECTOR_BYTES / size)
    sectors = 1.0 * op.batch * op.rows * op.cols / np.minimum(columns, op.cols)
    return [Pass(1.0, op.work().bytes, cached=SECTOR_BYTES * sectors)]


def _applies(op: Any, machine: Machine, library: str) -> bool:
    return is_eager(op, machine, library) and not getattr(op, "backward", False)


FAMILY = eager_family("eager_element", (SEED, RANDOM, SINGLE), {"dropout": _dropout, "transpose": _transpose}, _applies)
