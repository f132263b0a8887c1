"""Independent pieces of work on several processes: the code asks for a `concurrent.futures.Executor` and nothing more.

On one machine it is a ProcessPoolExecutor, on a cluster the executor of a Dask client, which has the same interface.
Results come in the order of the input and are the same with any number of workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from perfmodel.errors import UnavailableError, UsageError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: more processes than this per CPU only take memory
_MOST_PER_CPU = 4
#: items of a stream that are left for the process that asks, and those that each other worker has before it, so that it
#: never waits, where nothing else is said; those of all workers of a cluster, which nobody counts
OWN, EACH, _ON_A_CLUSTER = 4, 4, 256
#: how long a scheduler may take to answer [s]
_CONNECT_S = 10.0


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
        When the number of workers is impossible, or the address is none.
    UnavailableError
        When Dask is not installed, or nothing answers at the address.
    """
    if scheduler:
        with _dask(scheduler) as client:
            yield client.get_executor(pure=False)
        return
    most = _MOST_PER_CPU * (os.cpu_count() or 1)
    if not isinstance(workers, int) or not 1 <= workers <= most:
        raise UsageError(f"{workers} workers are impossible.", place="--workers", remedy=f"Give 1 to {most}.")
    if workers == 1:
        yield None
        return
    pool = ProcessPoolExecutor(workers - here, mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        yield pool
    except BaseException:  # Ctrl-C too: what has not begun never does, and what runs is ended
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    else:
        pool.shutdown()


def _end_with_parent() -> None:
    """Let a worker end when the process that it works for does; one that was killed leaves it waiting for work."""
    parent = parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Any]:
    """Connect to a scheduler, whose workers have to have this version of perfmodel."""
    if "://" not in address:
        raise UsageError(f"{address!r} is no address.", place="--scheduler", remedy="Write tcp://HOST:8786.")
    try:
        from distributed import Client
    except ImportError:
        raise UnavailableError(
            "a scheduler needs Dask, which is not installed.",
            place="--scheduler",
            remedy="pip install 'perfmodel[dask]'",
        ) from None
    connect: Any = Client
    try:
        client = connect(address, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"no scheduler answers: {error}.", place=f"--scheduler {address}", remedy="Start one with: dask scheduler"
        ) from None
    with client:
        _check_versions(client, address)
        yield client


def _check_versions(client: Any, address: str) -> None:
    """Raise an UnavailableError where a worker has another version of perfmodel, or none."""
    own = _version()
    found = {worker: version for worker, version in client.run(_version).items() if version != own}
    for worker, version in found.items():
        raise UnavailableError(
            f"the worker {worker} has perfmodel {version or 'not installed'}, this program has {own}.",
            place=f"--scheduler {address}",
            remedy="Install the same version on all of them.",
        )


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("perfmodel")
    except importlib.metadata.PackageNotFoundError:
        return ""


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
) -> Iterator[_Result]:
    """Yield ``function(item)`` for each item, in the order of the items.

    Parameters
    ----------
    function : of a module, so that another process can import it; items and results can be pickled.
    items : what to work on.
    pool : from `executor`; None works in this process.
    advance : is called with the number of items that are done.

    Raises
    ------
    UnavailableError
        When a worker dies. An error that ``function`` raises is raised here.
    """
    given: Sequence[_Item] = list(items)
    if pool is None:
        results: Iterable[_Result] = map(function, given)
    else:
        results = (future.result() for future in [pool.submit(function, item) for item in given])
    iterator = iter(results)
    for done in range(1, len(given) + 1):
        try:
            result = next(iterator)
        except BrokenProcessPool:
            raise _died(f"{done - 1} of {len(given)}") from None
        if advance is not None:
            advance(done)
        yield result


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
    except BrokenProcessPool:
        raise _died(str(done)) from None


def _streamed(
    function: Callable[[_Item], _Result],
    items: Iterator[_Item],
    pool: Executor,
    ahead: int,
    here: Callable[[_Item], _Result] | None,
    own: int,
) -> Iterator[_Result]:
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    others = ahead
    if here is not None:
        others = ahead - own
        yield from map(here, _until(pool.submit(_start), items))
    while True:
        free = min(ahead - len(waiting), others - sum(not future.done() for _, future in waiting))
        waiting.extend((item, pool.submit(function, item)) for item in itertools.islice(items, free))
        if not waiting:
            return
        if here is not None and len(waiting) < ahead and not waiting[0][1].done():
            own_items = [(item, _finished(here, item)) for item in itertools.islice(items, 1)]
            waiting.extend(own_items)
            if own_items or _taken_back(waiting, here):
                continue
        yield waiting.popleft()[1].result()


def _until(started: Future[None], items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items while no other process has started."""
    while not started.done():
        item = list(itertools.islice(items, 1))
        if not item:
            return
        yield from item


def _finished(function: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
    """Return what this process makes of an item."""
    future: Future[_Result] = Future()
    future.set_result(function(item))
    return future


def _taken_back(waiting: deque[tuple[_Item, Future[_Result]]], function: Callable[[_Item], _Result]) -> bool:
    """Do the last item that no other process has begun in this one; return False where there is none."""
    for place in range(len(waiting) - 1, -1, -1):
        item, future = waiting[place]
        if future.cancel():
            waiting[place] = item, _finished(function, item)
            return True
    return False


def _start() -> None:
    """Do nothing, in a process that has started."""


def _died(done: str) -> UnavailableError:
    return UnavailableError(
        f"a worker died: {done} pieces of work were done.",
        place="--workers",
        remedy="It may have run out of memory: use fewer workers.",
    )
