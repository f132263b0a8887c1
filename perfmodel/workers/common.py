"""What all tasks of a piece of work have in common: each worker gets it once, and not with every task.

A machine with the surfaces that are kept on it has megabytes. To send it takes milliseconds on either side, as long as
some tasks take, and drives out of the caches of a core what the work needs there.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfmodel.workers.slots import Slot, block, content

if TYPE_CHECKING:
    from concurrent.futures import Executor


@contextlib.contextmanager
def common(pool: Executor | None, thing: object) -> Iterator[Any]:
    """Yield what stands for a thing in the tasks of a pool, whose workers have the thing by `opened`.

    It is a place in shared memory for the processes of this machine, and data of the cluster for those of a cluster:
    the first worker that needs them has them from the scheduler, the others from each other. Where neither is to be
    had, it is the thing, pickled, and goes with every task.

    Parameters
    ----------
    pool : an executor of `perfmodel.workers`.
    thing : can be pickled.
    """
    packed = pickle.dumps(thing)
    if client := getattr(pool, "_client", None):  # Dask's executor
        yield client.submit(bytes, packed, pure=False)
        return
    with block(pool, len(packed)) as place:
        if place is not None:
            content(place)[:] = packed
        yield place or packed


@functools.lru_cache(maxsize=1)
def opened(shared: bytes | Slot) -> Any:
    """Return the thing that all tasks have in common; a worker keeps it, with what it has computed from its figures."""
    return pickle.loads(content(shared) if isinstance(shared, Slot) else shared)  # noqa: S301 -- of who asks for work
