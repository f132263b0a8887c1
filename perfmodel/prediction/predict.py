"""Bound, prediction and advice for an operator on a machine, in one result."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.vocabulary import CacheState, Limiter, Load, Timing
from perfmodel.core.work import Number, Work
from perfmodel.operators.base import Operator
from perfmodel.prediction.bounds import bounding_times, floor_of, peak_of
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.copies import work_on
from perfmodel.prediction.latency.estimate import Estimate
from perfmodel.prediction.latency.joined import joined
from perfmodel.prediction.latency.usual import estimate_by_usual
from perfmodel.prediction.result import Prediction

#: points that are predicted at a time: with fewer, numpy takes longer to be asked some hundred times than to compute
CHUNK = 65536
#: more than the arrays of one piece of a sweep take together
KEPT_BYTES = 2**24
#: parameters of glibc's mallopt (malloc.h), what they are set to, and variables that set them before a process starts
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
KEPT_AT_MOST_BYTES = 2**28
#: a member of an enumeration takes longer to find than all else that is done with it
_COLD = CacheState.COLD
_GLIBC_THRESHOLDS = frozenset({"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})


def bound_time(op: Operator, hardware: Hardware) -> roofline.Bound:
    """Return the bound of one cold call of an operator, and the ceiling that sets it.

    T = max(FLOP / dense peak, bytes / bandwidth of each memory level and link, launch floor), from datasheet
    figures (Williams et al. 2009, see `perfmodel.core.roofline`). Dimensions may be arrays.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses.
    """
    work = work_on(op, hardware)
    return roofline.bound(bounding_times(op, hardware, work, peak_of(op, hardware, work)))


def floor_time(op: Operator, hardware: Hardware, cache: str = CacheState.COLD) -> Number:
    """Return the time that no honest measurement is below [s]: the bound of a cold call, or what remains of it warm.

    It counts only the FLOP that no known algorithm avoids: a convolution by Winograd beats the bound, whose FLOP are
    counted by convention, but not this floor. So do boards whose clock exceeds that of their printed peaks.

    With warm caches, when the same buffers are used again and again, at least the bytes that the caches cannot hold
    still cross device memory; compute, links and the launch floor stay.
    """
    work = work_on(op, hardware)
    times = bounding_times(op, hardware, work, peak_of(op, hardware, work))
    return _floor(op, hardware, work, times, CacheState.parse(cache))


def _floor(op: Operator, hardware: Hardware, work: Work, times: Mapping[Limiter, Number], cache: CacheState) -> Number:
    """Return the time that no call is below [s], given what all of the counted FLOP take."""
    least = op.least_flop()
    if isinstance(least, np.ndarray) or least != work.flop:
        work = replace(work, flop=least)
        times = bounding_times(op, hardware, work, peak_of(op, hardware, work))
    return floor_of(work, hardware, times, cache)


def predict(
    op: Operator,
    hardware: Hardware,
    *,
    timing: str = Timing.KERNEL,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine.

    The bound assumes a cold call: every tensor crosses device memory. If the working set fits a cache,
    ``resident_bound_time_s`` is the bound for data that already lies there.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, from the catalog or a file.
    timing : the interval to predict: "kernel" or "graph", the time on the device, as a profiler or a replayed CUDA
        graph measures it; "do_bench", the time between events around one call that waits in the queue, as Triton's
        do_bench has it; or "event", the time between events around the caller's single call, its dispatch included.
    cache : "cold", the inputs come from device memory; "warm", the same buffers are used again and again, so that data
        that fit a cache may lie there, and the prediction may be below the cold bound; or "rotating", five copies of
        a product's weights take turns, as in benchmarks of serving libraries.
    library : whose kernels run, as measurement tables name them ("torch", "sglang", "trtllm", "nccl"), for the
        families in which libraries differ; "" for any.
    load : "burst", milliseconds of work, as benchmarks replay a kernel; or "sustained", minutes of it, in which the
        power limit leaves less of the clock of matrix engines.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses, or ``timing``, ``cache``
        or ``load`` is unknown.
    """
    conditions = Conditions.parse(timing, cache, library, load)
    if op.points <= CHUNK:
        return predict_piece(op, hardware, conditions)
    return gathered(op, hardware, conditions, pieces(op, hardware, conditions))


def pieces(op: Operator, hardware: Hardware, conditions: Conditions, chunk: int = CHUNK) -> Iterator[Prediction]:
    """Yield the predictions of a sweep, some points at a time, in row-major order."""
    if op.points > chunk:
        keep_freed_memory()
    for part in op.parts(chunk):
        yield predict_piece(part, hardware, conditions)


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones.

    Once glibc has freed a large block, it keeps up to twice its size; before that it returns the memory of each array
    to the kernel, and faulting it in again took 40 % of a sweep's time (man mallopt, M_MMAP_THRESHOLD). The block is
    never written to, so that it takes no memory. Where the environment sets a threshold, as Dask's nanny does for its
    workers, glibc learns nothing from the block, and sweeps took four times the processor time: it is told instead.
    """
    np.empty(KEPT_BYTES, np.uint8)
    if not _GLIBC_THRESHOLDS.isdisjoint(os.environ):
        _tell_glibc()


@functools.cache
def _tell_glibc() -> None:
    """Set the sizes up to which glibc keeps freed memory; other C libraries have no such setting."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            mallopt(parameter, KEPT_AT_MOST_BYTES)


def estimates(op: Operator, hardware: Hardware, conditions: Conditions) -> Iterator[Estimate]:
    """Yield the estimates of a sweep, some points at a time, with their terms."""
    return (piece.estimate for piece in pieces(op, hardware, conditions))


def predict_piece(
    op: Operator, hardware: Hardware, conditions: Conditions, parts: Sequence[Operator] = ()
) -> Prediction:
    """Return the prediction of one call, or of a sweep whose arrays fit a processor's cache.

    A call may run some operators one after another in place of a library's kernels. Its time is the sum of theirs: what
    a machine or a library differs by adds up, and the errors of different shapes average out
    (`perfmodel.prediction.uncertainty.of_sum`). The bound stays that of ``op``, whatever computes it.

    Parameters
    ----------
    op, hardware, conditions : as for `predict`.
    parts : the operators that the call runs, each ``count`` times; none for what the library runs.

    Raises
    ------
    UsageError
        As `predict`, for the operator and for each part.
    """
    work = work_on(op, hardware)
    peak = peak_of(op, hardware, work)
    times = bounding_times(op, hardware, work, peak)
    bound = roofline.bound(times)
    if _bound_is_floor(op, hardware, conditions):
        floor = bound.time_s
    elif type(op).least_flop is not Operator.least_flop:
        floor = _floor(op, hardware, work, times, conditions.cache)
    else:
        floor = floor_of(work, hardware, times, conditions.cache)
    expected = estimate_by_usual(op, hardware, peak, conditions, floor, parts)
    return Prediction(op, hardware, conditions, peak, bound, expected)


def _bound_is_floor(op: Operator, hardware: Hardware, conditions: Conditions) -> bool:
    """Return whether no measurement is faster than the bound: warm data, another algorithm or a higher clock may be."""
    if hardware.max_clock_hz is not None:
        return False
    return conditions.cache is _COLD and type(op).least_flop is Operator.least_flop


def gathered(op: Operator, hardware: Hardware, conditions: Conditions, parts: Iterable[Prediction]) -> Prediction:
    """Return the prediction of a long sweep, put together from those of its pieces as they come."""
    time_s, code, start = np.empty(op.points), np.empty(op.points, np.int8), 0
    floor_s = time_s if _bound_is_floor(op, hardware, conditions) else np.empty(op.points)
    peaks: list[Peak | None] = []
    names: tuple[str, ...] = ()

    def kept() -> Iterator[Estimate]:
        nonlocal start, names
        for piece in parts:
            places = slice(start, start := start + piece.operator.points)
            time_s[places], code[places] = piece.bound.time_s, piece.bound.limiter_code
            if floor_s is not time_s:
                floor_s[places] = piece.estimate.spread.floor_s
            names = piece.bound.names
            peaks.append(piece.peak)
            yield piece.estimate

    again = functools.partial(estimates, op, hardware, conditions)
    expected = joined(kept(), op.shape, floor_s, again)
    bound = roofline.Bound(time_s.reshape(op.shape), code.reshape(op.shape), names)
    peak = next((peak for peak in peaks if peak is not None), None)
    return Prediction(op, hardware, conditions, peak, bound, expected)
