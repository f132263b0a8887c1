"""Requests of users who each wait for their answer: what the cycles of a steady state are computed from."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from perfmodel.serving.cost import Array


@dataclass(frozen=True)
class Clients:
    """Requests that come back to one engine for ever; arrays of one shape, for arrays of loads and lengths.

    Attributes
    ----------
    isl, osl, prefix : tokens of a prompt, of an answer, and of the prompt's part that the cache already has.
    users, running : requests in the system, and those that have a place.
    waves : how often each user of a run that starts at once sends a request; infinite for an endless run.
    """

    isl: Array
    osl: Array
    prefix: Array
    users: Array
    running: Array
    waves: Array

    def __post_init__(self) -> None:
        names = [item.name for item in fields(self)]
        values = np.broadcast_arrays(*(np.asarray(getattr(self, name), dtype=np.float64) for name in names))
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
