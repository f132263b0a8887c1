"""Exchanges that may wait on a GPU for ever: a thread of their own runs them, and this one sees that they go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

Result = TypeVar("Result")

#: between two looks at a thread that still runs [s]
_LOOK_S = 0.1


class _Errand(threading.Thread):
    """One piece of work; the process can end without it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Keep what the work returns or raises."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 -- raised again by the thread that waits
            self.error = error


@dataclass
class Errands:
    """Runs one piece of work after the other, each in a thread that torch may block.

    A kernel of NCCL whose partner is gone spins for ever, and no call of CUDA that waits for it returns; NCCL may also
    block the call that enqueues it. torch releases the interpreter's lock in both.

    Attributes
    ----------
    limit_s : how long the work may take from one `go_on` to the next [s].
    failure : why the work cannot end any more, or an empty string; asked several times a second.
    """

    limit_s: float
    failure: Callable[[], str]
    _since_s: float = field(default=0.0, init=False)

    def go_on(self) -> None:
        """Note, within the work, that it goes on."""
        self._since_s = time.monotonic()

    def run(self, work: Callable[[], Result]) -> Result:
        """Return what some work returns.

        Raises
        ------
        RuntimeError
            When it did not go on within the limit, or cannot end; its thread is left behind (`is_stuck`). And what the
            work raises.
        """
        thread = _Errand(work)
        self.go_on()
        thread.start()
        thread.join(_LOOK_S)
        while thread.is_alive():
            if reason := self.failure():
                raise RuntimeError(reason)
            if time.monotonic() - self._since_s > self.limit_s:
                raise RuntimeError(f"the exchange timed out after {self.limit_s:g} s")
            thread.join(_LOOK_S)
        if thread.error is not None:
            raise thread.error
        return thread.result  # type: ignore[return-value]


#: holds something once this process has given a group over NCCL up
_given_up: list[bool] = []


def give_up() -> None:
    """Note that a group over NCCL is left without its other ranks, which its own way out waits for."""
    _given_up.append(True)


def is_stuck() -> bool:
    """Return whether a group was given up, or a thread left behind: then only ``os._exit`` ends the process.

    The interpreter's own way out waits for the GPU and for the communicator.
    """
    return bool(_given_up) or any(isinstance(thread, _Errand) for thread in threading.enumerate())
