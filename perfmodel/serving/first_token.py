"""The time to the first token of an engine that reads prompts beside decode, from the means of its cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.cost import Array
from perfmodel.serving.sized_times import SizedTimes

Flags = NDArray[np.bool_]

#: rounds of the fixed point, and the share of a round's result that the next one takes
_ROUNDS, _SHARE = 40, 0.5
#: most of the time that steps with prompts are taken to run for: a queue of theirs stays finite
_MOST_READING = 0.99


class FirstToken(NamedTuple):
    """When the first token of a request with a place comes.

    Attributes
    ----------
    waited_s, own_s : time until the step that reads its prompt, and that of the steps that do [s].
    together : whether those whose prompts a step reads end and come back together.
    """

    waited_s: Array
    own_s: Array
    together: Flags


def residual(late_s: Array, step_s: Array) -> Array:
    """Return how long a request waits for a step to end that comes so long after the end of the step before [s].

    One that comes at the end of a step waits for none, and one that comes soon after it for the rest of the next one;
    as steps differ, it is half of one on average for those that come later.
    """
    return np.where(late_s <= 0.0, 0.0, np.maximum(step_s - late_s, 0.5 * step_s))


def come_together(answer: Array, running: Array, most: Array, served: Flags | bool) -> Flags:
    """Return whether those whose prompts a step reads end and come back together.

    Answers of one token end with their prompt. Those of two end in the step after it, if no other prompts are read in
    it: none are where all are away together, in a server in front, and few steps have room for all.

    Parameters
    ----------
    answer : steps of decode of an answer.
    running, most : requests in all, and prompts that a step has room for.
    served : whether a server in front keeps requests away.
    """
    few = np.logical_and(running <= 2.0 * most, served)
    return np.logical_or(answer <= 0.0, np.logical_and(answer <= 1.0, few))


def mates_of(others: Array, most: Array, share: Array) -> Array:
    """Return the prompts beside one in the step of a group: those that came back in the step before it.

    A half of all at most: one group is read while the other is away, or waits.

    Parameters
    ----------
    others, most : requests beside one, and prompts that a step has room for.
    share : of its cycle that a request's prompt takes.
    """
    return np.maximum(0.0, np.minimum(np.minimum(0.5 * (others - 1.0), others * share), most - 1.0))


@dataclass(frozen=True)
class Readers:
    """What reads prompts in the steps of a copy of the model, or of a micro-batch of a pipeline.

    Of U requests each is away for a time, waits, has its prompt read and decodes A steps, after a time T again. As in
    mean-value analysis it sees the U - 1 others as they are in the mean, so that

        u = t + a p (t(k') - t)+                time within which others come for its step, t the mean step
        m = (U - 1) u / T                       as many do
        q = (U - 1) (a t(k') + (1 - a) t) / (k' T)
        W = q rest(t(k')) + (1 - q) b rest(t_d) + late
        late = (1 + m - most)+ / (2 most) t(most) + m / most late

    with k' = m / (1 - exp(-m)) prompts in the mean step that has any, and b that any other decodes. Steps give each
    answer a token however long they are, so that as many answers end in a long one, with prompts, as in one of decode.
    Only requests that are away for longer than a step, in a share a, see steps as they are in time: with prompts for a
    share p of it. ``late`` is what prompts take that come for the same step, which has no room for all of them, and
    those that such prompts of before have left.

    Attributes
    ----------
    others : requests beside one, U - 1.
    most : prompts that a step has room for; 1 where a prompt takes several steps.
    chunks : steps that one prompt takes.
    prompt_s : time of a step by the number of its prompts, of one chunk each [s].
    decode_s : time of a step of decode alone [s].
    answer : steps of decode of an answer, A.
    away_s, front_s : time until the scheduler can take a request, and the part of it that is no step [s].
    served : whether a server in front keeps requests away at all.
    """

    others: Array
    most: Array
    chunks: Array
    prompt_s: SizedTimes
    decode_s: Array
    answer: Array
    away_s: Array
    front_s: Array
    served: bool

    @property
    def together(self) -> Flags:
        """Whether those whose prompts a step reads end and come back together, see `come_together`."""
        found = come_together(self.answer, 1.0 + self.others, self.most, self.served)
        return np.logical_and(found, np.logical_or(self.answer <= 0.0, self.chunks <= 1.0))

    def settled(self, busy_s: Array) -> FirstToken:
        """Return the fixed point, of a cycle that is no shorter than the engine is busy and a request takes [s]."""
        zero = np.zeros(np.broadcast_shapes(self.others.shape, busy_s.shape))
        mates, late, waited, own = zero, zero, zero, zero + self.prompt_s.at(zero)
        for _ in range(_ROUNDS):
            found = self._next(busy_s, mates, late, waited, own)
            old = (mates, late, waited, own)
            mates, late, waited, own = (one + _SHARE * (two - one) for one, two in zip(old, found, strict=True))
        return FirstToken(waited, own, self.together)

    def _next(
        self, busy_s: Array, mates: Array, late: Array, waited: Array, own: Array
    ) -> tuple[Array, Array, Array, Array]:
        decoded_s = self.answer * self.decode_s
        cycle_s = self.away_s + np.maximum(busy_s, waited + own + decoded_s)
        comes = self.others / cycle_s
        several = np.clip(mates / -np.expm1(-np.maximum(mates, 1e-9)), 1.0, self.most)
        step_s = self.prompt_s.at(several)
        decoding = np.where(self.answer > 0, 1.0 - (1.0 - np.minimum(1.0, decoded_s / cycle_s)) ** self.others, 0.0)
        # steps give all answers their tokens: one of decode takes its time and what prompts add to the mean step
        mean_s = (cycle_s - self.away_s - waited - own) / np.maximum(self.answer, 1.0)
        strays = np.minimum(1.0, self.front_s / step_s)
        seen_s = mean_s + strays * np.minimum(1.0, comes * step_s / several) * np.maximum(0.0, step_s - mean_s)
        reading = self.chunks / several * comes * (strays * step_s + (1.0 - strays) * mean_s)
        reading = np.minimum(_MOST_READING, reading)
        mates = np.minimum(self.others, comes * seen_s)
        mates = np.where(self.together, mates_of(self.others, self.most, own / cycle_s), mates)
        full_s = self.prompt_s.at(self.most) * self.chunks / self.most
        over = np.maximum(0.0, 1.0 + mates - self.most) / 2.0
        queue = np.minimum(_MOST_READING, comes * seen_s * self.chunks / self.most) * late
        late = np.where(self.together, 0.0, np.minimum(self.others * full_s, over * full_s + queue))
        rest = reading * residual(self.front_s, step_s)
        rest = rest + (1.0 - reading) * decoding * residual(self.front_s, self.decode_s)
        rest = np.where(self.together, 0.0, rest)
        own = self.prompt_s.at(np.minimum(1.0 + mates, self.most)) * self.chunks
        return mates, late, rest + late, own
