"""Processes of this machine: when one is lost, or the work ends before it is done, nobody waits for a result.

A result larger than a pipe is received while it is sent. If its sender ends meanwhile, the receiver waits for the rest
for as long as any process could still write it, and a ProcessPoolExecutor leaves the pipe open in the other workers and
in the process that asks. Here all of them close it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from perfmodel.signals import ENDING, put_off

#: how often it is looked whether there is another process to watch [s]
_LOOK_S = 0.5
_HAS_MASKS = hasattr(signal, "pthread_sigmask")


@contextlib.contextmanager
def local_pool(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of processes, which are killed where the block raises, as on Ctrl-C.

    When one of them is killed from outside, the others are too, and what is not done raises a BrokenProcessPool.
    """
    context = _Context()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_belong_to_parent)
    # No public name exists for this process's end of the pipe, on which it never writes. `terminate_workers` of Python
    # 3.14 leaves it open as well.
    context.results = pool._result_queue._writer  # type: ignore[attr-defined]
    done = threading.Event()
    threading.Thread(target=context.watch, args=(done,), daemon=True).start()
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        context.end()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        done.set()


class _Context(SpawnContext):
    """Starts processes for an executor, and ends them.

    Attributes
    ----------
    started : the processes.
    results : this process's end of the pipe on which they send results.
    """

    results: connection.Connection

    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Process] = []
        self._changing, self._ended = threading.Lock(), False

    def Process(self, *arguments: Any, **options: Any) -> _Process:  # type: ignore[override]  # noqa: N802 -- as there
        """Return a process that is not started yet."""
        process = _Process(*arguments, **options)
        process.context = self
        return process

    def start(self, process: _Process) -> None:
        """Start a process, which has the pipe only if no other one was lost before.

        Raises
        ------
        BrokenProcessPool
            When one was.
        """
        with _undisturbed(), self._changing:
            if self._ended:
                raise BrokenProcessPool("a worker died.")
            super(_Process, process).start()
            self.started.append(process)

    def end(self) -> None:
        """Kill the processes and close the pipe, so that what waits for their results reads its end."""
        with self._changing:
            for process in self.started:
                process.kill()
            if not self._ended:
                self._ended = True
                self.results.close()

    def watch(self, done: threading.Event) -> None:
        """End all processes when one ends otherwise than it was asked to, until ``done``."""
        while not done.is_set():
            running = {process.sentinel: process for process in list(self.started) if process.exitcode != 0}
            if not running:
                done.wait(_LOOK_S)
            elif any(running[sentinel].exitcode for sentinel in connection.wait(list(running), _LOOK_S)):  # type: ignore[index]
                self.end()
                return


class _Process(SpawnProcess):
    """A process that its context starts."""

    context: _Context

    def start(self) -> None:
        self.context.start(self)

    def terminate(self) -> None:
        """Kill the process, which ignores SIGTERM."""
        self.kill()

    def __getstate__(self) -> dict[str, Any]:
        """Return what the process itself has of this object, which is not the context."""
        return {name: value for name, value in vars(self).items() if name != "context"}


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM while a process starts: one that has half of what it needs prints a traceback.

    The process starts with both of them blocked, as it inherits, until `_belong_to_parent` ignores them.
    """
    with put_off(also_second=True):
        if _HAS_MASKS:  # started with the first process, it would unblock both again in this thread
            resource_tracker.ensure_running()
        of_main_thread = threading.current_thread() is threading.main_thread()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING) if of_main_thread and _HAS_MASKS else None
        try:
            yield
        finally:
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _belong_to_parent() -> None:
    """Let a worker end when the process that it works for does; one that was killed leaves it waiting for work.

    A terminal sends Ctrl-C to the worker as well, and a batch system SIGTERM; both leave it to that process to end the
    worker.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()
