"""The steady state of an engine that reads prompts in steps of their own, for which all others stop to decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.serving.cost import Array
from perfmodel.serving.cycle import Steady, state_of
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.step import Step

#: rounds of the fixed point, and the share of a round's result that the next one takes: the rates of 54 loads are
#: within 0.1 % of those after 400 rounds
_ROUNDS, _SHARE = 60, 0.5
#: sizes from 1 to the largest at which the times of steps are computed, in between they are straight
_SIZES = 12


@dataclass(frozen=True)
class _Times:
    """Times of a kind of step by the number of its sequences, from 1 to ``most`` [s]."""

    most: Array
    times_s: Array

    @classmethod
    def of(cls, most: Array, time_s: Callable[[Array], Array]) -> _Times:
        shares = np.linspace(0.0, 1.0, _SIZES).reshape(-1, *(1,) * np.ndim(most))
        return cls(most, time_s(most**shares))

    def at(self, number: Array) -> Array:
        """Return the time of a step of so many sequences [s]."""
        spread = np.log(np.maximum(self.most, 1.0 + 1e-9))
        place = np.clip(np.log(np.maximum(number, 1.0)) / spread * (_SIZES - 1), 0.0, _SIZES - 1)
        left = np.minimum(place.astype(int), _SIZES - 2)
        low, high = (np.take_along_axis(self.times_s, side[None], 0)[0] for side in (left, left + 1))
        ends = [self.most ** (side / (_SIZES - 1)) for side in (left, left + 1)]
        inside = (number - ends[0]) / np.maximum(ends[1] - ends[0], 1e-12)
        return np.asarray(low + (high - low) * np.clip(inside, 0.0, 1.0))


@dataclass
class _Round:
    """Means of a round of the fixed point: see `PromptsFirst`."""

    cycle_s: Array
    stalled_s: Array
    waited_s: Array
    decoding: Array
    mates: Array

    def toward(self, other: _Round) -> _Round:
        """Return the means between these and others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Round(*(one + _SHARE * (two - one) for one, two in pairs))


class PromptsFirst:
    """The cycle of a request among U that run: away, waiting, its prompt's step, and decode that others' prompts stop.

    With A steps of decode, t_p(k) the step of k prompts, and t_d(D) that of D decoding sequences, a request is back
    after

        T = away + W + t_p(k) + A t_d(D) + S,

    of which ``away`` is spent in the server in front. As in mean-value analysis (Reiser, Lavenberg 1980, "Mean-value
    analysis of closed multichain queueing networks") a request sees the U - 1 others as they are in the mean:

        D = 1 + (U - 1) (A t_d + S) / T     decode beside it
        m = (D - 1) / A + met               come back with it: the answers of its last step end together
        S = (U - 1 - m) w / T t_p(k') / k'  stops for prompts that come within w, from its prompt to its last step
        W = p rest(t_p) + (1 - p) t_d / 2   rest of the step in which it comes back

    with k = 1 + m prompts in its own step, and k' = m / (1 - exp(-m)) in the mean step, as many as the budget of tokens
    has room for. Prompts of its mates beyond that are read before its own, or after it. Answers end while sequences
    decode, so that a request leaves no step with prompts; that one runs when it is back has a probability that
    approaches their share of the time rho as away is longer than they are (a chain with two states),

        p = rho (1 - exp(-away / (t_p (1 - rho)))).

    The requests are out of step with each other, as their lengths are not all equal.

    Parameters
    ----------
    deployment : one engine.
    isl, osl, prefix : tokens of a prompt, of an answer, and of the prompt's part that the cache already has.
    users, running : requests in the system, and those that have a place.
    waves : how often each user of a run that starts at once sends a request; infinite for an endless run.
    """

    def __init__(
        self,
        deployment: Deployment,
        isl: Array,
        osl: Array,
        prefix: Array,
        users: Array,
        running: Array,
        waves: Array | float = np.inf,
    ) -> None:
        values = isl, osl, prefix, users, running, np.asarray(waves, dtype=np.float64)
        self.isl, self.osl, self.prefix, self.users, self.running, self.waves = np.broadcast_arrays(*values)
        self.deployment = deployment
        self.new, self.context = self.isl - self.prefix, self.isl + self.osl / 2.0
        self.answer = (self.osl - 1.0) / deployment.gained
        budget = float(deployment.token_budget * deployment.slots)
        self.most = np.minimum(np.maximum(1.0, np.floor(budget / self.new)), np.maximum(self.running, 1.0))
        self.prompt_s = _Times.of(self.most, self._prompt_s)
        self.decode_s = _Times.of(np.maximum(self.running, 1.0), self._decode_s)
        self.front_s = deployment.away_s(self.decode_s.at(self.running), self.running)
        self.mean = self._settled()

    def _prompt_s(self, prompts: Array) -> Array:
        shape = prompts.shape
        chunk = prompts, self.new, self.isl
        cost = self.deployment.device(np.zeros(shape), np.broadcast_to(self.context, shape), shape, [chunk], prompts)
        return np.asarray(self.deployment.finished(cost, prompts).time_s)

    def _decode_s(self, sequences: Array) -> Array:
        cost = self.deployment.device(sequences, np.broadcast_to(self.context, sequences.shape))
        return np.asarray(self.deployment.finished(cost, sequences).time_s)

    @property
    def others(self) -> Array:
        """Requests that run beside one."""
        return np.maximum(self.running - 1.0, 0.0)

    def away_s(self, cycle_s: Array) -> Array:
        """Return the time for which a place is empty [s]: none as long as others wait for it."""
        queued = np.maximum(0.0, self.users - self.running)
        return np.asarray(np.maximum(0.0, self.front_s - queued * cycle_s / self.running))

    def _settled(self) -> _Round:
        zero = np.zeros(self.running.shape)
        start_s = self.front_s + self.prompt_s.at(zero) + self.answer * self.decode_s.at(self.running)
        found = _Round(start_s, zero, zero, np.asarray(self.running), zero)
        for _ in range(_ROUNDS):
            found = found.toward(self._next(found))
        return found

    def _next(self, found: _Round) -> _Round:
        others, answer, cycle_s = self.others, self.answer, found.cycle_s
        decodes = np.where(answer > 0, 1.0, 0.0)
        token_s = decodes * self.decode_s.at(found.decoding)
        own_s, several = self.prompt_s.at(1.0 + found.mates), self.prompts_of(found)
        each_s = self.prompt_s.at(several) / several
        away_s, decoding_s = self.away_s(cycle_s), answer * token_s + found.stalled_s
        reading = np.minimum(0.999, others * each_s / cycle_s)
        met = reading * -np.expm1(-away_s / (own_s * (1.0 - reading)))
        ended = (found.decoding - 1.0) / np.maximum(answer, 1e-9)
        beside = met * ended / np.maximum(token_s, 1e-12) * np.minimum(away_s, own_s)
        # Of answers of one token all time is prompts, in which others come as in any.
        mates = np.where(answer > 0, ended + beside, others * reading * own_s / cycle_s)
        late = np.maximum(0.0, 1.0 + found.mates - self.most) / (2.0 * self.most) * self.prompt_s.at(self.most)
        window_s = own_s + found.stalled_s + np.maximum(answer - 1.0, 0.0) * token_s
        stalled_s = np.maximum(0.0, others - found.mates) * np.minimum(1.0, window_s / cycle_s) * each_s + late
        busy = 1.0 - (1.0 - np.minimum(1.0, decoding_s / cycle_s)) ** others
        rest_s = met * np.maximum(0.5 * own_s, own_s - 0.5 * away_s) + (1.0 - met) * busy * 0.5 * token_s
        # a place that others wait for is taken at the end of a step
        waited_s = np.where(away_s > 0, rest_s, 0.0) + late
        # In a cycle the engine computes a prompt of each that runs, and the steps of decode that all of them share.
        least_s = self.running * each_s + answer * token_s
        alone_s = away_s + waited_s + own_s + answer * token_s
        cycle_s = np.maximum(alone_s + decodes * stalled_s, least_s)
        stalled_s = decodes * (cycle_s - alone_s)
        waited_s = np.where(answer > 0, waited_s, cycle_s - away_s - own_s)
        decoding = 1.0 + others * (answer * token_s + stalled_s) / cycle_s
        return _Round(cycle_s, stalled_s, waited_s, decoding, np.minimum(others, mates))

    def prompts_of(self, found: _Round) -> Array:
        """Return the prompts of the mean step with prompts."""
        mates = np.maximum(found.mates, 1e-9)
        return np.asarray(np.minimum(self.most, mates / -np.expm1(-mates)))

    def result(self) -> Steady:
        """Return throughput and latency."""
        deployment, found, answer, shape = self.deployment, self.mean, self.answer, self.running.shape
        several, decoding = self.prompts_of(found), found.decoding
        decode = deployment.finished(deployment.device(decoding, self.context), decoding)
        chunk = several, self.new, self.isl
        read = deployment.device(np.zeros(shape), self.context, shape, [chunk], several)
        prompt = deployment.finished(read, several)
        steps = self.running / several
        token_s, read_s = np.asarray(decode.time_s), np.asarray(prompt.time_s)
        # the times of the fixed point lie between sizes whose times were computed; the rest is what others stop it for
        cycle_s = np.maximum(found.cycle_s, answer * token_s + steps * read_s)
        away_s, own_s = self.away_s(cycle_s), self.prompt_s.at(1.0 + found.mates)
        rest_s = np.maximum(0.0, cycle_s - away_s - own_s - answer * token_s)
        waited_s = np.where(answer > 0, np.minimum(found.waited_s, rest_s), rest_s)
        stalled_s = rest_s - waited_s
        queue_s = np.maximum(0.0, self.users - self.running) * cycle_s / self.running
        each_s = self.prompt_s.at(self.most) / self.most
        start_s = each_s * self.others / 2.0 * np.clip(1.0 / self.waves, 0.0, 1.0)
        return state_of(
            deployment, (self.isl, self.osl, self.prefix), self.users, self.running,
            cycle_s=cycle_s, steps=answer + steps, away_s=away_s, first_s=waited_s + own_s + start_s, queue_s=queue_s,
            token_s=(token_s + stalled_s / np.maximum(answer, 1e-9)) / deployment.gained,
            of_cycle=mean_of((decode, answer), (prompt, steps)),
            of_token=mean_of((decode, np.maximum(answer * token_s, 1e-12)), (prompt, stalled_s)), of_prompt=prompt,
        )  # fmt: skip


def mean_of(*steps: tuple[Step, Array]) -> Step:
    """Return the mean of steps by their weights; what makes one of them slow makes the others slow, too."""
    whole = np.maximum(sum((weight for _, weight in steps), start=np.zeros(())), 1e-30)

    def mean(value: Callable[[Step], Number]) -> Number:
        return plain(sum((weight * np.asarray(value(step)) for step, weight in steps), start=np.zeros(())) / whole)

    terms = {
        term: mean(lambda step, name=term: step.terms_s.get(name, 0.0))  # type: ignore[misc]
        for term in dict.fromkeys(name for step, _ in steps for name in step.terms_s)
    }
    return Step(mean(lambda s: s.time_s), mean(lambda s: s.low_s), mean(lambda s: s.high_s), terms)
