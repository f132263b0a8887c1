"""Requests of users who each wait for their answer: what the cycles of a steady state are computed from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.cost import Array


@dataclass(frozen=True)
class Places:
    """What becomes of users whose sequences together may outgrow the cache.

    Attributes
    ----------
    running : sequences that run, in the mean over time.
    preempted : how often a request loses its place.
    recomputed : tokens whose keys and values it has lost when it is back.
    paused : requests that have begun and wait for a place again, in the mean over time.
    """

    running: Array
    preempted: Array
    recomputed: Array
    paused: Array


def unlimited(running: Array) -> Places:
    """Return the places of sequences that keep theirs."""
    none = np.zeros(np.shape(running))
    return Places(np.asarray(running), none, none, none)


@dataclass(frozen=True)
class Clients:
    """Requests that come back to one engine for ever; arrays of one shape, for arrays of loads and lengths.

    A request that is preempted and recomputed comes back as one whose prompt is what has to be computed anew, and
    whose answer is what is left of it: it has as many parts as it has places, each with a prompt of its own.

    Attributes
    ----------
    isl, osl, prefix : tokens of a prompt, of an answer, and of the prompt's part that the cache already has.
    users : requests in the system.
    waves : how often each user of a run that starts at once sends a request; infinite for an endless run.
    places : those that run, and what a full cache costs them.
    """

    isl: Array
    osl: Array
    prefix: Array
    users: Array
    waves: Array
    places: Places

    def __post_init__(self) -> None:
        names, of_places = ([item.name for item in fields(kind)] for kind in (Clients, Places))
        names.remove("places")
        values = [getattr(self, name) for name in names] + [getattr(self.places, name) for name in of_places]
        arrays = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in values))
        for name, array in zip(names, arrays, strict=False):
            object.__setattr__(self, name, array)
        object.__setattr__(self, "places", Places(*arrays[len(names) :]))

    @property
    def running(self) -> Array:
        """Requests that have a place, in the mean."""
        return self.places.running

    @property
    def parts(self) -> Array:
        """Places that a request takes, one after the other."""
        return np.asarray(1.0 + self.places.preempted)

    @property
    def new(self) -> Array:
        """Tokens that are computed at the start of a part, in the mean."""
        return np.asarray((self.isl - self.prefix + self.places.preempted * self.places.recomputed) / self.parts)

    @property
    def answer(self) -> Array:
        """Tokens that a part gives."""
        return np.asarray(self.osl / self.parts)

    @property
    def context(self) -> Array:
        """Keys of a sequence that decodes, in the mean over its answer."""
        return np.asarray(self.isl + self.osl / 2.0)

    def queued(self, running: Array) -> Array:
        """Return the requests that have not begun, over those that run."""
        return np.asarray(np.maximum(0.0, self.users - running - self.places.paused) / running)

    def later_s(self, cycle_s: Array, first_s: Array, token_s: Array) -> Array:
        """Return what preemption adds to the mean time of each further token [s].

        Each part but the first one has a wait and a prompt, which gives a token in place of a step, and in between
        the request waits for a place.

        Parameters
        ----------
        cycle_s : time from one request of a place to the next [s].
        first_s : time of a part until its first token [s].
        token_s : time of each further token of a part [s].
        """
        again_s = self.places.preempted * (first_s - token_s) + self.places.paused / self.running * cycle_s
        return np.asarray(again_s / np.maximum(self.osl - 1.0, 1.0))

    def undisturbed(self, where: NDArray[np.bool_]) -> Clients:
        """Return the requests of which some are never preempted."""
        found = self.places
        preempted, paused = (np.where(where, 0.0, value) for value in (found.preempted, found.paused))
        return replace(self, places=Places(found.running, preempted, found.recomputed, paused))
