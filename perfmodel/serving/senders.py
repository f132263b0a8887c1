"""Those who send requests to a simulated engine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Protocol

from perfmodel.serving.journal import Journal


class Engine(Protocol):
    """What requests are sent to."""

    time_s: float

    @property
    def outstanding(self) -> int:
        """Requests in the engine and in its queue."""

    def submit(self, request: int, time_s: float, /) -> None:
        """Add a request to the queue."""


class Senders:
    """Those who send requests to one engine: a program at given times, or clients that each wait for their answer.

    Parameters
    ----------
    sent : (time, request) of those that are under way, in ascending order [s].
    rest : the requests that follow: each when the one before it has arrived, or when an answer has ended.
    journal : where times of arrival are written; those of a program stand in it.
    back_s : time from the end of an answer to the arrival of its client's next request [s]; None for a program.
    """

    __slots__ = ("_back_s", "_ended", "_journal", "_rest", "sent")

    def __init__(
        self, sent: list[tuple[float, int]], rest: Iterator[int], journal: Journal, back_s: float | None
    ) -> None:
        self.sent, self._rest, self._journal, self._back_s = sent, rest, journal, back_s
        self._ended = len(journal.done)

    @property
    def next_s(self) -> float:
        """Time of the next arrival [s]; infinite without one."""
        return self.sent[0][0] if self.sent else math.inf

    def deliver(self, engine: Engine) -> None:
        """Give the engine what has arrived, or the next request if it has none."""
        sent, arrival_s = self.sent, self._journal.arrival_s
        while sent and (sent[0][0] <= engine.time_s or not engine.outstanding):
            time_s, request = heapq.heappop(sent)
            arrival_s[request] = time_s
            engine.submit(request, time_s)
            if self._back_s is None:
                number = next(self._rest, -1)
                if number >= 0:
                    sent.append((arrival_s[number], number))

    def answer(self) -> None:
        """Let the clients whose answers have ended send their next requests."""
        done = self._journal.done
        if self._back_s is not None:
            for request in done[self._ended :]:
                number = next(self._rest, -1)
                if number >= 0:
                    heapq.heappush(self.sent, (self._journal.last_s[request] + self._back_s, number))
        self._ended = len(done)
