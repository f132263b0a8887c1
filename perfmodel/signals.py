"""Ctrl-C and SIGTERM, put off while something must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

#: what ends a program; a terminal and a batch system send it to the workers too
ENDING = (signal.SIGINT, signal.SIGTERM)
#: a person takes longer for a second Ctrl-C [s]
_AT_ONCE_S = 0.1


@contextlib.contextmanager
def put_off(*, also_second: bool = False) -> Iterator[list[int]]:
    """Put off Ctrl-C and SIGTERM to the end of the block.

    It yields the numbers of the signals that came, so that long work can look whether it is to end. Only the main
    thread takes signals: in others nothing is put off. Programs as `timeout` send a signal to the process and at once
    to its group; the two count as one.

    Parameters
    ----------
    also_second : whether a second Ctrl-C is put off, too. Otherwise it ends the block.
    """
    came: list[int] = []
    first_s = 0.0
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal first_s
        first_s = first_s or time.monotonic()
        came.append(number)
        again = number == signal.SIGINT and time.monotonic() - first_s > _AT_ONCE_S
        handler = before.get(signal.SIGINT)
        if again and not also_second and callable(handler):
            handler(number, frame)

    # a handler that Python has not set is None, and cannot be set again
    before = {number: handler for number in ENDING if (handler := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, remember)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came[:1]:
            signal.raise_signal(late)
