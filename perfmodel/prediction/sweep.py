"""Sweeps of very many points in bounded memory, a chunk at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.roofline import Bound
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.estimate import Estimate
from perfmodel.prediction.predict import CHUNK, estimates, gathered, keep_freed_memory, pieces, predict_piece
from perfmodel.prediction.result import Prediction
from perfmodel.workers import ahead, executor, streamed
from perfmodel.workers.common import common, opened
from perfmodel.workers.slots import Letter, Slot, is_local, read, slots, written

if TYPE_CHECKING:
    from concurrent.futures import Executor

#: points that a worker gets at a time, at most: some tens of milliseconds of work, and 2 MB of results
_TASK = 2**16
#: room in shared memory for the result of a point, 19 B where one family serves all points [B]
_SLOT_BYTES = 40
#: numbers of an operator up to which every worker gets it as a whole, once, and not the ranges of each task
_FEW_NUMBERS = 2**18


def sweep(
    op: Operator,
    hardware: Hardware,
    *,
    chunk: int = CHUNK,
    timing: str = Timing.KERNEL,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
    workers: int = 1,
    scheduler: str = "",
) -> Iterator[Prediction]:
    """Yield the predictions of an operator whose dimensions are arrays, ``chunk`` points at a time.

    The dimensions broadcast with each other, so that ``m`` of shape [M, 1] and ``n`` of shape [N] span M x N points.
    The points come in row-major order. Only one chunk is in memory at a time, so that 10^8 points need no more of it
    than 10^5. The predictions are the same with any number of workers.

    Parameters
    ----------
    op, hardware, timing, cache, library, load : as in `predict`.
    chunk : points of one prediction.
    workers, scheduler : processes that share the work, this one among them, or the address of a Dask scheduler; see
        `perfmodel.workers`. A script that asks for processes needs ``if __name__ == "__main__":``.

    Raises
    ------
    UsageError
        As `predict`, and when ``chunk`` or ``workers`` is impossible.
    UnavailableError
        When a worker dies, or no scheduler answers.

    >>> import numpy as np
    >>> from perfmodel import Gemm, hardware
    >>> sizes = np.arange(64.0, 8192.0, 64.0)
    >>> points = sweep(Gemm(m=sizes[:, None], n=sizes, k=4096, dtype="bf16"), hardware("a100-sxm4-80gb"), chunk=1000)
    >>> sum(part.predicted_time_s.size for part in points)
    16129
    """
    if not isinstance(chunk, (int, np.integer)) or chunk < 1:
        raise UsageError(f"chunk={chunk} is no whole number from 1 on.", place="sweep")
    conditions = Conditions.parse(timing, cache, library, load)
    if workers == 1 and not scheduler:
        yield from pieces(op, hardware, conditions, chunk)
        return
    with executor(workers, scheduler, here=True) as pool:
        yield from _shared(op, hardware, conditions, chunk, pool, ahead(workers, scheduler))


def predict_shared(
    op: Operator, hardware: Hardware, conditions: Conditions, pool: Executor | None, most: int
) -> Prediction:
    """Return what `predict` does of a sweep, bit for bit, with its pieces shared among the processes of a pool.

    Parameters
    ----------
    op, hardware, conditions : what is predicted; a sweep of one piece, or no pool, stays in this process.
    pool : an executor of `perfmodel.workers`.
    most : tasks that are given out at a time: see `perfmodel.workers.ahead`.

    Raises
    ------
    UsageError
        As `predict`.
    UnavailableError
        When a worker dies.
    """
    if pool is None or op.points <= CHUNK:
        parts = pieces(op, hardware, conditions)
        return next(parts) if op.points <= CHUNK else gathered(op, hardware, conditions, parts)
    return gathered(op, hardware, conditions, _shared(op, hardware, conditions, CHUNK, pool, most))


def _shared(
    op: Operator, hardware: Hardware, conditions: Conditions, chunk: int, pool: Executor | None, most: int
) -> Iterator[Prediction]:
    """Yield the predictions of the pieces of a sweep, in order, as workers find them."""
    keep_freed_memory()
    whole = op.numbers <= _FEW_NUMBERS
    size = chunk * max(1, min(_TASK // chunk, math.ceil(op.points / chunk) // most))
    spans = [(start, min(start + size, op.points)) for start in range(0, op.points, size)]
    known = (hardware, conditions, op if whole else None)
    with common(pool, known) as shared, slots(pool, most, _SLOT_BYTES * size) as places:
        tasks = (
            _Task(shared, *_described(op, start, stop, whole), stop - start, chunk, place)
            for (start, stop), place in zip(spans, places, strict=False)
        )
        # The processes of a cluster are others; this one works beside those of its own machine.
        here = functools.partial(_own, op, hardware, conditions) if is_local(pool) else None
        results: Iterator[list[_Found | Letter] | _Own] = streamed(_work, tasks, pool, most, here)
        for (start, stop), result in zip(spans, results, strict=True):
            if isinstance(result, _Own):
                yield from result.pieces
                continue
            for part, sent in zip(op.parts(chunk, start, stop), result, strict=True):
                peak, bound, expected = read(sent)
                again = functools.partial(estimates, part, hardware, conditions)
                yield Prediction(part, hardware, conditions, peak, bound, replace(expected, again=again))


#: what a piece took work to find
_Found = tuple[Peak | None, Bound, Estimate]


class _Task(NamedTuple):
    """Some pieces of a sweep, described by the ranges of their sizes: to make sizes is faster than to send them.

    Attributes
    ----------
    shared : machine, conditions, and the whole operator if it has few numbers: see `perfmodel.workers.common`.
    op, start, points : the points that ``op``, or else the whole operator, has from ``start`` on.
    chunk : points of a piece.
    place : where the arrays of the result go.
    """

    shared: bytes | Slot
    op: Operator | None
    start: int
    points: int
    chunk: int
    place: Slot | None

    def parts(self, whole: Operator | None) -> Iterator[Operator]:
        """Yield the operator of each piece."""
        op = self.op or whole
        assert op is not None
        return op.parts(self.chunk, self.start, self.start + self.points)


def _described(op: Operator, start: int, stop: int, whole: bool) -> tuple[Operator | None, int]:
    """Return an operator that has some points, None where every worker has the whole one, and the first of them."""
    return (None, start) if whole else op.described(start, stop)


@dataclass(frozen=True)
class _Own:
    """The pieces of a task that this process has worked on."""

    pieces: list[Prediction]


def _own(op: Operator, hardware: Hardware, conditions: Conditions, task: _Task) -> _Own:
    return _Own([predict_piece(part, hardware, conditions) for part in task.parts(op)])


def _work(task: _Task) -> list[_Found | Letter]:
    """Return what each piece of a task took work to find; a function of a worker.

    Each piece is sent off before the next, whose arrays take its memory, and its place in the cache. Their terms are
    left out: to send them takes as long as to compute them again.
    """
    keep_freed_memory()
    known: tuple[Hardware, Conditions, Operator | None] = opened(task.shared)
    hardware, conditions, whole = known
    sent: list[_Found | Letter] = []
    for index, part in enumerate(task.parts(whole)):
        piece = predict_piece(part, hardware, conditions)
        found = (piece.peak, piece.bound, replace(piece.estimate, kept_terms=None))
        sent.append(written(found, task.place and task.place.part(index, _SLOT_BYTES * task.chunk)))
    return sent
