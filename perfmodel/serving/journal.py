"""What a simulated engine needs to know and writes down: times of steps, and what happens to each request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

#: a part of a prompt in a step: tokens computed now, keys that they attend to at its end
Chunk = tuple[int, int]


class Clock(Protocol):
    """The times of steps."""

    def decode_s(self, sequences: int, context: float, /) -> float:
        """Return the time of a step of decoding sequences with a mean number of keys [s]."""

    def mixed_s(self, sequences: int, context: float, prompts: Sequence[Chunk], /) -> float:
        """Return the time of a step of decoding sequences and parts of prompts (tokens now, keys in all) [s]."""


class Journal:
    """What happened to each request; times are NaN until it happens [s].

    Parameters
    ----------
    prompt, output : tokens of each prompt beyond the cached prefix, and of each answer.
    cached : tokens of the prefix that all prompts share and none computes.
    """

    __slots__ = (
        "arrival_s",
        "cached",
        "done",
        "first_s",
        "given",
        "last_s",
        "output",
        "preempted",
        "prompt",
        "started_s",
    )

    def __init__(self, prompt: list[int], output: list[int], cached: int = 0) -> None:
        count = len(prompt)
        self.cached = cached
        self.prompt, self.output = prompt, output
        self.arrival_s = [math.nan] * count
        self.started_s = [math.nan] * count
        self.first_s = [math.nan] * count
        self.last_s = [math.nan] * count
        #: tokens of the answer that were given out, known when a request enters or leaves the engine
        self.given = [0] * count
        #: request -> how often it was preempted
        self.preempted: dict[int, int] = {}
        #: requests that have ended, in that order
        self.done: list[int] = []
