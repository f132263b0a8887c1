"""Large results of workers by shared memory: their arrays are written once and read once, and pass through no pipe.

Memory is cut into slots, of which the tasks that are under way have one each. It belongs to the process that asks for
the work, and is given back when that ends, however it ends: when it is killed, by Python's resource tracker.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import shutil
import sys
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from perfmodel.signals import put_off

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.shared_memory import SharedMemory

_Result = TypeVar("_Result")

#: where Linux keeps shared memory. Writing to it when it is full kills the writer, so that some of it is left free
_FOLDER = Path("/dev/shm")  # noqa: S108 -- looked at, not written to
_LEFT_FREE = 2.0


class Slot(NamedTuple):
    """A place in shared memory: the name of the block, and the bytes from ``start`` to ``stop``."""

    block: str
    start: int
    stop: int

    def part(self, index: int, size_bytes: int) -> Slot:
        """Return one of the parts of a size, with no more room than the slot has."""
        start = min(self.start + index * size_bytes, self.stop)
        return Slot(self.block, start, min(start + size_bytes, self.stop))


class Letter(NamedTuple):
    """A result on its way: pickled, and the sizes of its arrays, which lie one after another in a slot [B]."""

    head: bytes
    slot: Slot
    sizes: tuple[int, ...]


@contextlib.contextmanager
def slots(pool: Executor | None, count: int, size_bytes: int) -> Iterator[Iterator[Slot | None]]:
    """Yield slots for the result of one task after the other, over and over again.

    They are None for the workers of a cluster, which share no memory with this process, for threads, which share all of
    it, and where the machine has no room: then results are sent.

    Parameters
    ----------
    pool : an executor of `perfmodel.workers`.
    count : tasks that are under way at a time. A result has been read before the task after so many others is given
        out, as `perfmodel.workers.streamed` does.
    size_bytes : size of a slot [B].
    """
    with block(pool, count * size_bytes) as whole:
        yield (
            itertools.repeat(None)
            if whole is None
            else itertools.cycle([whole.part(index, size_bytes) for index in range(count)])
        )


@contextlib.contextmanager
def block(pool: Executor | None, size_bytes: int) -> Iterator[Slot | None]:
    """Yield a place that this process shares with the workers of a pool; None as in `slots`."""
    memory: SharedMemory | None = None
    try:
        with put_off():  # a Ctrl-C while it is made would leave it behind
            memory = _memory(size_bytes) if is_local(pool) else None
        yield None if memory is None else Slot(memory.name, 0, size_bytes)
    finally:
        if memory is not None:
            memory.close()
            memory.unlink()


def is_local(pool: Executor | None) -> bool:
    """Return whether the workers of a pool are processes of this machine; without a pool there is none."""
    if pool is None:
        return False
    from concurrent.futures import ProcessPoolExecutor

    return isinstance(pool, ProcessPoolExecutor)


def _memory(size_bytes: int) -> SharedMemory | None:
    """Return shared memory, if the machine has room for it."""
    from multiprocessing.shared_memory import SharedMemory

    try:
        if _FOLDER.exists() and shutil.disk_usage(_FOLDER).free < _LEFT_FREE * size_bytes:
            return None
        return SharedMemory(create=True, size=size_bytes)
    except OSError:
        return None


def written(result: _Result, slot: Slot | None) -> _Result | Letter:
    """Return a result as a worker sends it: its arrays are in the slot, if they fit there."""
    if slot is None:
        return result
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = tuple(view.nbytes for view in views)
    if sum(sizes) > slot.stop - slot.start:
        return result
    memory, start = _bytes(slot.block), slot.start
    for view in views:
        memory[start : (start := start + view.nbytes)] = view
    return Letter(head, slot, sizes)


def read(sent: _Result | Letter) -> _Result:
    """Return the result that a worker sent; its arrays are copies, so that the slot is free for the next one."""
    if not isinstance(sent, Letter):
        return sent
    memory, start = _bytes(sent.slot.block), sent.slot.start
    arrays = [bytearray(memory[start : (start := start + size)]) for size in sent.sizes]
    result: _Result = pickle.loads(sent.head, buffers=arrays)  # noqa: S301 -- made by a worker of this process
    return result


def content(place: Slot) -> memoryview:
    """Return what stands in a slot."""
    return _bytes(place.block)[place.start : place.stop]


def _bytes(block: str) -> memoryview:
    """Return the memory of a block, given by its name."""
    return cast(memoryview, _attached(block).buf)


@functools.lru_cache(maxsize=1)
def _attached(block: str) -> SharedMemory:
    """Return a block by its name, which Python's resource tracker has of the process that made it.

    A worker that attaches while that process gives the block back, on Ctrl-C, would leave it in the tracker, which
    complains of it at the end.
    """
    from multiprocessing import resource_tracker
    from multiprocessing.shared_memory import SharedMemory

    if sys.version_info >= (3, 13):
        return SharedMemory(block, track=False)
    register, resource_tracker.register = resource_tracker.register, _register_nothing
    try:
        return SharedMemory(block)
    finally:
        resource_tracker.register = register


def _register_nothing(name: Sized, rtype: str) -> None:
    """Stand in for the tracker's function before Python 3.13."""
