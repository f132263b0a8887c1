"""The workers of a Dask cluster: asked for before work is given out, and one message when they are lost."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from typing import Any

from perfmodel.errors import UnavailableError, UsageError, not_installed
from perfmodel.workers.lost import WorkersLostError

#: how long a scheduler may take to answer, and how long it may be without workers [s]
_CONNECT_S, _WORKERS_S = 10.0, 10.0
#: how long a scheduler may be without workers in the middle of the work, and how often that is looked at [s]
_ALONE_S, _LOOK_S = 30.0, 2.0
#: how long a program that accepts a connection may take to greet as Dask does [s]
_GREET_S = 1.0
#: what logs, with a traceback, that a connection is closed: Dask, whose client has a level of its own, and the event
#: loops that run it
_LOGS = ("distributed", "distributed.client", "tornado.application", "asyncio")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Yield a client of a Dask scheduler, whose workers have this version of perfmodel.

    Raises
    ------
    UsageError
        When the address is none.
    UnavailableError
        When Dask is not installed, no scheduler answers at the address, it has no workers, or one of them has another
        version of perfmodel or none.
    WorkersLostError
        When the scheduler ends before the block does, stays without workers, or a piece of work ends each worker that
        begins it.
    """
    _check_address(address)
    try:
        from distributed import KilledWorker
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError
    except ImportError:
        raise not_installed("a scheduler needs Dask", "dask", place="scheduler") from None
    place = f"scheduler {address}"
    alone = threading.Event()
    try:
        with _quiet(), _client(address, place) as client:
            _check_workers(client, address, place)
            _check_versions(client, place)
            with _watched(client, alone):
                yield client
    except (CancelledError, ClosedClientError, CommClosedError):
        if alone.is_set():
            raise WorkersLostError(
                f"all workers ended, and no other came within {_ALONE_S:g} s.",
                place=place,
                remedy=f"They may have run out of memory; start one with: dask worker {address}",
            ) from None
        raise WorkersLostError(
            "the scheduler no longer answers.", place=place, remedy="Start it again with: dask scheduler"
        ) from None
    except KilledWorker:
        raise WorkersLostError(
            "a piece of work ended each worker that began it.",
            place=place,
            remedy="They may have run out of memory: start fewer workers on a machine.",
        ) from None


@contextlib.contextmanager
def executor_of(client: Any) -> Iterator[Executor]:
    """Yield the executor of a client; where the block raises, its tasks are cancelled.

    A client that closes while tasks are under way fetches results over connections that are closed.
    """
    pool: Executor = client.get_executor(pure=False)
    try:
        yield pool
    except BaseException:
        if client.status == "running":
            with contextlib.suppress(OSError):  # the scheduler ends as well
                pool.shutdown(wait=False)
        raise


@contextlib.contextmanager
def _watched(client: Any, alone: threading.Event) -> Iterator[None]:
    """Close a client whose scheduler stays without workers in the block, and say so by ``alone``.

    Its work would wait for them without end. A cluster may replace a worker, which takes a while.
    """
    done = threading.Event()

    def watch() -> None:
        since = time.monotonic()
        while not done.wait(_LOOK_S):
            try:
                if client.scheduler_info()["workers"]:
                    since = time.monotonic()
            except Exception:  # noqa: BLE001 -- the scheduler has ended, which the work sees as well
                return
            if time.monotonic() - since > _ALONE_S:
                alone.set()
                client.close()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(_LOOK_S)


def _check_address(address: str) -> None:
    """Raise a UsageError for what cannot be an address: Dask would look for it for ten seconds."""
    from urllib.parse import urlsplit

    remedy = "Write tcp://HOST:8786."
    if "://" not in address:
        raise UsageError(f"{address!r} is no address.", place="scheduler", remedy=remedy)
    try:
        possible = urlsplit(address).port != 0
    except ValueError:
        possible = False
    if not possible:
        raise UsageError(f"{address!r} has no port from 1 to 65535.", place="scheduler", remedy=remedy)


def _client(address: str, place: str) -> Any:
    """Return a client of a scheduler.

    Raises
    ------
    UnavailableError
        When none answers, or another program does, for which a client would wait without end.
    """
    from distributed import Client
    from distributed.comm.core import CommClosedError
    from distributed.utils import LoopRunner

    other = UnavailableError(
        "what answers there is no Dask scheduler.", place=place, remedy="Name the address that dask scheduler prints."
    )
    connect: Any = Client
    loop: Any = LoopRunner()
    try:
        if loop.run_sync(_kind_of, address) == "Scheduler":
            return connect(address, timeout=_CONNECT_S)
    except (TimeoutError, CommClosedError, MemoryError, OverflowError):  # other words are read as an impossible length
        raise other from None
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"no scheduler answers: {error}.", place=place, remedy="Start one with: dask scheduler"
        ) from None
    raise other


async def _kind_of(address: str) -> str:
    """Return what a program of Dask says that it is."""
    import asyncio

    from distributed.core import rpc
    from distributed.security import Security

    security: Any = Security
    connect: Any = rpc
    arguments = security().get_connection_args("client")

    async def asked() -> str:
        async with connect(address, timeout=_CONNECT_S, connection_args=arguments) as there:
            return str((await there.identity())["type"])

    # The limit of the connection is none for the greeting that follows it.
    return await asyncio.wait_for(asked(), _CONNECT_S + _GREET_S)


def _check_workers(client: Any, address: str, place: str) -> None:
    """Raise an UnavailableError where a scheduler stays without workers, which work would wait for without end."""
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError:
        raise UnavailableError(
            "the scheduler has no workers.", place=place, remedy=f"Start one with: dask worker {address}"
        ) from None


def _check_versions(client: Any, place: str) -> None:
    """Raise an UnavailableError where a worker imports another version of perfmodel, or has none."""
    version = _version()
    own = version()
    for worker, found in client.run(version).items():
        if not found:
            raise UnavailableError(
                f"the worker {worker} has no perfmodel.", place=place, remedy=f"Install perfmodel {own} for it."
            )
        if found != own:
            raise UnavailableError(
                f"the worker {worker} has perfmodel {found}, this program has {own}.",
                place=place,
                remedy="Install the same version on all of them.",
            )


def _version() -> Callable[[], str]:
    """Return a function for the version of the code that a process imports, "" where there is none.

    It is within another one, so that it is sent by its code and not by its name: a worker without perfmodel can run it.
    """

    def version() -> str:
        from importlib import import_module

        try:
            return getattr(import_module("perfmodel"), "__version__", "")
        except ImportError:
            return ""

    return version


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Dask logs about a lost scheduler, or a client that ends, off stderr: it is an error that is raised."""
    logs = [logging.getLogger(name) for name in _LOGS]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
