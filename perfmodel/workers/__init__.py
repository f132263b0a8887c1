"""Independent pieces of work on several processes: the code asks for a `concurrent.futures.Executor` and nothing more.

On one machine it is a ProcessPoolExecutor, on a cluster the executor of a Dask client, which has the same interface.
Results come in the order of the input and are the same with any number of workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Generic, TypeVar

from perfmodel.errors import UsageError
from perfmodel.workers.lost import WorkersLostError

if TYPE_CHECKING:  # importing them takes longer than this module where there is no other process
    from concurrent.futures import Executor, Future

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: more processes than this per CPU only take memory
_MOST_PER_CPU = 4
#: items of a stream that are left for the process that asks, and those that each other worker has before it, so that it
#: never waits, where nothing else is said; those of all workers of a cluster, which nobody counts
OWN, EACH, _ON_A_CLUSTER = 4, 4, 256


@contextlib.contextmanager
def executor(workers: int = 1, scheduler: str = "", *, here: bool = False) -> Iterator[Executor | None]:
    """Yield an executor, or None where the work is done in this process.

    Parameters
    ----------
    workers : processes of this machine; with 1 there is no other process.
    here : whether this process is one of them, since it works too (`streamed`).
    scheduler : address of a Dask scheduler ("tcp://HOST:PORT"), whose workers are used instead.

    Raises
    ------
    UsageError
        When the number of workers is impossible or stands beside a scheduler, or the address is none.
    UnavailableError
        As `perfmodel.workers.cluster.connected`, also within the block.
    """
    if scheduler:
        if workers != 1:
            raise UsageError(
                f"{workers!r} has no effect beside a scheduler, whose workers share the work.",
                place="workers",
                remedy="Leave out one of them.",
            )
        from perfmodel.workers.cluster import connected, executor_of

        with connected(scheduler) as client, executor_of(client) as pool:
            yield pool
        return
    if usable(workers) == 1:
        yield None
        return
    from perfmodel.workers.processes import local_pool  # multiprocessing takes long to import

    with local_pool(workers - here) as pool:
        yield pool


def usable(workers: int, tasks: int | None = None) -> int:
    """Return how many processes share some tasks: as many as are asked for, and no more than there are tasks.

    Raises
    ------
    UsageError
        When the number is impossible.
    """
    most = _MOST_PER_CPU * (os.cpu_count() or 1)
    if not isinstance(workers, int | Integral) or not 1 <= workers <= most:
        raise UsageError(f"{workers!r} workers are impossible.", place="workers", remedy=f"Give 1 to {most}.")
    return workers if tasks is None else max(1, min(workers, tasks))


def ahead(workers: int, scheduler: str, own: int = OWN, each: int = EACH) -> int:
    """Return how many items of a stream are given out at a time, or wait with their results: see `streamed`.

    Parameters
    ----------
    workers, scheduler : as in `executor`, with this process as one of the workers.
    own : items that are left for this process, of which that many results wait when another worker is slow.
    each : items that each other worker has before it. Many, where items take unequal times: a worker has done with
        those that take none before this process, at a long one, can give it more.
    """
    return _ON_A_CLUSTER if scheduler else own + each * (workers - 1)


def mapped(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    pool: Executor | None,
    advance: Callable[[int], None] | None = None,
    kept: dict[int, _Result] | None = None,
) -> Iterator[_Result]:
    """Yield ``function(item)`` for each item, in the order of the items.

    Parameters
    ----------
    function : of a module, so that another process can import it; items and results can be pickled.
    items : what to work on.
    pool : from `executor`; None works in this process.
    advance : is called with the number of items that are done.
    kept : gets the results by the places of their items: where an error or Ctrl-C ends the work also those of items
        that come behind one that is not done.

    Raises
    ------
    WorkersLostError
        When a worker dies. An error that ``function`` raises is raised here.
    """
    given: Sequence[_Item] = list(items)
    futures: list[Future[_Result]] = []
    done = 0
    try:
        if pool is not None:
            futures.extend(pool.submit(function, item) for item in given)
        for result in map(function, given) if pool is None else (future.result() for future in futures):
            if kept is not None:
                kept[done] = result
            done += 1
            if advance is not None:
                advance(done)
            yield result
    except _broken():
        raise _died(f"{sum(map(_has_result, futures))} of {len(given)}") from None
    finally:
        if kept is not None:
            kept.update({place: future.result() for place, future in enumerate(futures) if _has_result(future)})


def _broken() -> type[Exception]:
    """Return the error of a pool that has lost a worker."""
    from concurrent.futures import BrokenExecutor

    return BrokenExecutor


def _has_result(future: Future[_Result]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def streamed(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    pool: Executor | None,
    ahead: int,
    here: Callable[[_Item], _Result] | None = None,
    own: int = OWN,
) -> Iterator[_Result]:
    """Yield ``function(item)`` for each item, in the order of the items, of which there may be more than fit in memory.

    Parameters
    ----------
    function, pool : as in `mapped`, which also says what is raised.
    items : are taken one by one as results are asked for.
    ahead : items that are worked on, or wait with their results, at a time; with ``here`` more than ``own``.
    here : does the same in this process, which then works on items until the others have started, and whenever it
        would wait for them, in the end on those that they have not begun; None where it has only to wait.
    own : items that are left for this process. Where items take unequal times it is large, so that this process works
        on while another has a long one; where results are large it is small, since so many of them wait.
    """
    if pool is None:
        yield from map(function, items)
        return
    done = 0
    try:
        for result in _streamed(function, iter(items), pool, ahead, here, own):
            yield result
            done += 1
    except _broken():
        raise _died(str(done)) from None


def _streamed(
    function: Callable[[_Item], _Result],
    items: Iterator[_Item],
    pool: Executor,
    ahead: int,
    here: Callable[[_Item], _Result] | None,
    own: int,
) -> Iterator[_Result]:
    waiting: deque[_Piece[_Item, _Result]] = deque()
    if here is not None:
        yield from map(here, _until(pool.submit(_start), items))
    while True:
        _give_out(waiting, function, items, pool, ahead, 0 if here is None else own)
        if not waiting:
            return
        first = waiting[0]
        if here is not None and not first.done:
            mine = next((piece for piece in waiting if piece.future is None), None) or _taken_back(waiting)
            if mine is not None:
                mine.future = _finished(here, mine.item)
            if mine not in (first, None):
                continue
        waiting.popleft()
        assert first.future is not None
        yield first.future.result()


@dataclass(eq=False)
class _Piece(Generic[_Item, _Result]):
    """An item whose turn to be yielded has not come: another process has it, or has done it, or nobody has begun it."""

    item: _Item
    future: Future[_Result] | None

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done()


def _give_out(
    waiting: deque[_Piece[_Item, _Result]],
    function: Callable[[_Item], _Result],
    items: Iterator[_Item],
    pool: Executor,
    ahead: int,
    own: int,
) -> None:
    """Give items to the other processes, and leave some between them for this one, as many as it keeps up with.

    What this process has done is then asked for next. Were its items behind those of the others, which are under way
    for some time, its results would wait for them, and drive out of the cache what the next item needs there.
    """
    most, most_left = ahead - own, min(own, OWN)
    given = sum(piece.future is not None and not piece.done for piece in waiting)
    left = sum(piece.future is None for piece in waiting)
    while len(waiting) < ahead and (given < most or left < most_left):
        piece = next((_Piece[_Item, _Result](item, None) for item in items), None)
        if piece is None:
            break
        waiting.append(piece)
        if given < most and given * most_left <= left * most:
            piece.future = pool.submit(function, piece.item)
            given += 1
        else:
            left += 1
    # others that have little left, and get nothing new, take what was left for this one
    for piece in reversed(waiting):
        if piece.future is None and 2 * given < most:
            piece.future = pool.submit(function, piece.item)
            given += 1


def _until(started: Future[None], items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items while no other process has started."""
    while not started.done():
        item = list(itertools.islice(items, 1))
        if not item:
            return
        yield from item


def _finished(function: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
    """Return what this process makes of an item."""
    from concurrent.futures import Future

    future: Future[_Result] = Future()
    future.set_result(function(item))
    return future


def _taken_back(waiting: deque[_Piece[_Item, _Result]]) -> _Piece[_Item, _Result] | None:
    """Return the last piece that no other process has begun, if there is one, and let none begin it."""
    return next((piece for piece in reversed(waiting) if piece.future is not None and piece.future.cancel()), None)


def _start() -> None:
    """Do nothing, in a process that has started."""


def _died(done: str) -> WorkersLostError:
    return WorkersLostError(
        f"a worker died; pieces of work that were done: {done}.",
        place="workers",
        remedy="It may have run out of memory: use fewer workers.",
    )
