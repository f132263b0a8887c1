"""The cost of launching many kernels: one after the other, queued ahead, replayed from a graph, or fused into one.

A launch takes ``launch_s`` on the host. Asynchronous launches run ahead of the GPU, so that they overlap with longer
kernels; a run is launch-bound only if the kernels are shorter, or if something makes the host wait after each kernel.
"""

from __future__ import annotations

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.work import Number, plain

#: idle time of a GPU between two kernels that are both ready, queued or in a CUDA graph [s]. In the open PyTorch traces
#: of NVIDIA GPUs it is 1.0 to 1.7 us in the median, 2 to 7 us for 95 %. With 2 us the kernels of whole models add up to
#: the measured runs (docs/accuracy.md)
KERNEL_GAP_S = 2e-6


def kernel_gap_s(hardware: Hardware) -> float:
    """Return the idle time between two kernels that are both ready [s]: none where a kernel's time holds it."""
    return KERNEL_GAP_S if hardware.launch.queued_s is None else 0.0


def serialised_time_s(count: Number, kernel_s: Number, launch_s: Number) -> Number:
    """Return the time of kernels, each launched after the one before has ended: n (l + k) [s].

    >>> round(serialised_time_s(100, 50e-6, 7e-6) * 1e3, 6)
    5.7
    """
    return plain(np.multiply(count, np.add(kernel_s, launch_s)))


def pipelined_time_s(count: Number, kernel_s: Number, launch_s: Number) -> Number:
    """Return the time of kernels that the host launches without waiting: l + (n - 1) max(k, l) + k [s].

    The slower of host and GPU sets the pace: a launch of 7 us hides behind a kernel of 50 us.

    >>> round(pipelined_time_s(100, 50e-6, 7e-6) * 1e3, 6), round(pipelined_time_s(100, 5e-6, 7e-6) * 1e3, 6)
    (5.007, 0.705)
    """
    slower = np.maximum(kernel_s, launch_s)
    return plain(np.add(launch_s, np.add(np.multiply(np.subtract(count, 1), slower), kernel_s)))


def fused_time_s(count: Number, kernel_s: Number, launch_s: Number) -> Number:
    """Return the time of one kernel that does the work of all: l + n k [s]; the traffic that fusion saves is not in it.

    >>> round(fused_time_s(100, 50e-6, 7e-6) * 1e3, 6)
    5.007
    """
    return plain(np.add(launch_s, np.multiply(count, kernel_s)))


def graph_time_s(count: Number, kernel_s: Number, launch_s: Number) -> Number:
    """Return the time of kernels replayed from one CUDA graph: one launch, then n kernels and n - 1 gaps [s].

    >>> round(graph_time_s(100, 5e-6, 7e-6) * 1e3, 6)
    0.705
    """
    between = np.multiply(np.subtract(count, 1), KERNEL_GAP_S)
    return plain(np.add(fused_time_s(count, kernel_s, launch_s), between))
