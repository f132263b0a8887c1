"""The steady state of an engine that reads prompts in steps of their own, for which all others stop to decode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.serving.clients import Clients
from perfmodel.serving.cost import Array
from perfmodel.serving.cycle import Steady, state_of
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.first_token import come_together, mates_of
from perfmodel.serving.sized_times import SizedTimes
from perfmodel.serving.step import Step

#: rounds of the fixed point, and the share of a round's result that the next one takes: the rates of 54 loads are
#: within 0.1 % of those after 400 rounds
_ROUNDS, _SHARE = 60, 0.5
#: most of the time that steps with prompts are taken to run for: the others have an end
_MOST_READING = 0.999


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
        W = p rest(t_p) + (1 - p) b t_d / 2 rest of the step in which it comes back, if b: any other decodes

    with k = 1 + m prompts in its own step, and k' = m / (1 - exp(-m)) in the mean step, as many as the budget of tokens
    has room for. Prompts of its mates beyond that are read before its own, which
    adds to W, or after it, which adds to S. Answers end while sequences
    decode, so that a request leaves no step with prompts; that one runs when it is back has a probability that
    approaches their share of the time rho as away is longer than they are (a chain with two states),

        p = rho (1 - exp(-away / (t_p (1 - rho)))).

    The requests are out of step with each other, as their lengths are not all equal, but for answers of one or two
    tokens, which come and go together, see `perfmodel.serving.first_token.come_together`.

    Parameters
    ----------
    deployment : one engine.
    clients : the requests.
    """

    def __init__(self, deployment: Deployment, clients: Clients) -> None:
        self.deployment, self.clients = deployment, clients
        self.users, self.running = clients.users, clients.running
        self.new, self.context = clients.new, clients.context
        self.answer = (clients.answer - 1.0) / deployment.gained
        budget = float(deployment.token_budget * deployment.slots)
        self.most = np.minimum(np.maximum(1.0, np.floor(budget / self.new)), np.maximum(self.running, 1.0))
        self.prompt_s = SizedTimes.of(self.most, self._prompt_s)
        self.decode_s = SizedTimes.of(np.maximum(self.running, 1.0), self._decode_s)
        self.front_s = deployment.host.away_s(self.decode_s.at(self.running), self.running) / clients.parts
        served = (deployment.host.front_end_s > 0) & (self.users <= self.running)
        self.together = come_together(self.answer, self.running, self.most, served)
        self.mean = self._settled()

    def _prompt_s(self, prompts: Array) -> Array:
        shape = prompts.shape
        chunk = prompts, self.new, self.clients.isl
        cost = self.deployment.device(np.zeros(shape), np.broadcast_to(self.context, shape), shape, [chunk], prompts)
        return np.asarray(self.deployment.host.finished(cost, prompts).time_s)

    def _decode_s(self, sequences: Array) -> Array:
        cost = self.deployment.device(sequences, np.broadcast_to(self.context, sequences.shape))
        return np.asarray(self.deployment.host.finished(cost, sequences).time_s)

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
        reading = np.minimum(_MOST_READING, others * each_s / cycle_s)
        met = reading * -np.expm1(-away_s / (own_s * (1.0 - reading)))
        ended = (found.decoding - 1.0) / np.maximum(answer, 1e-9)
        beside = met * ended / np.maximum(token_s, 1e-12) * np.minimum(away_s, own_s)
        group = mates_of(others, self.most, own_s / cycle_s)
        # Prompts come before a decode that was not scheduled ahead, so that groups that meet end together ever after.
        joined = (answer > 0) & (not self.deployment.profile.ahead)
        group = np.where(joined, np.minimum(others, self.most - 1.0), group)
        mates = np.where(self.together, group, ended + beside + self.clients.places.preempted)
        late = np.maximum(0.0, 1.0 + found.mates - self.most) / (2.0 * self.most) * self.prompt_s.at(self.most)
        window_s = own_s + found.stalled_s + np.maximum(answer - 1.0, 0.0) * token_s
        stalled_s = np.maximum(0.0, others - found.mates) * np.minimum(1.0, window_s / cycle_s) * each_s + late
        busy = 1.0 - (1.0 - np.minimum(1.0, decoding_s / cycle_s)) ** others
        rest_s = met * np.maximum(0.5 * own_s, own_s - 0.5 * away_s) + (1.0 - met) * busy * 0.5 * token_s
        # a place that others wait for is taken at the end of a step
        waited_s = np.where(away_s > 0, rest_s, 0.0) + late
        # In a cycle the engine computes a prompt of each that runs, and the steps of decode that all of them share.
        half = 1.0 + mates_of(others, self.most, np.ones(()))
        each_s = np.where(self.together, self.prompt_s.at(half) / half, each_s)
        least_s = self.running * each_s + answer * token_s
        waited_s, stalled_s = (np.where(self.together, 0.0, time_s) for time_s in (waited_s, stalled_s))
        alone_s = away_s + waited_s + own_s + answer * token_s
        cycle_s = np.maximum(alone_s + stalled_s, least_s)
        waited_s = np.where(self.together, cycle_s - alone_s, waited_s)
        stalled_s = np.where(self.together, 0.0, cycle_s - alone_s)
        decoding = 1.0 + others * (answer * token_s + stalled_s) / cycle_s
        return _Round(cycle_s, stalled_s, waited_s, decoding, np.minimum(others, mates))

    def prompts_of(self, found: _Round) -> Array:
        """Return the prompts of the mean step with prompts."""
        mates = np.maximum(found.mates, 1e-9)
        # requests that were preempted come back with those that take the place of one which has ended
        ends = np.maximum((mates - self.clients.places.preempted) / self.clients.parts, 1e-9)
        mean = np.where(self.together, 1.0 + mates, self.clients.parts * ends / -np.expm1(-ends))
        return np.asarray(np.minimum(self.most, mean))

    def result(self) -> Steady:
        """Return throughput and latency."""
        deployment, found, answer, shape = self.deployment, self.mean, self.answer, self.running.shape
        several, decoding = self.prompts_of(found), found.decoding
        decode = deployment.host.finished(deployment.device(decoding, self.context), decoding)
        chunk = several, self.new, self.clients.isl
        read = deployment.device(np.zeros(shape), self.context, shape, [chunk], several)
        prompt = deployment.host.finished(read, several)
        steps = self.running / several
        token_s, read_s = np.asarray(decode.time_s), np.asarray(prompt.time_s)
        # the times of the fixed point lie between sizes whose times were computed; the rest is what others stop it for
        cycle_s = np.maximum(found.cycle_s, answer * token_s + steps * read_s)
        away_s, own_s = self.away_s(cycle_s), self.prompt_s.at(1.0 + found.mates)
        rest_s = np.maximum(0.0, cycle_s - away_s - own_s - answer * token_s)
        waited_s = np.where(self.together, rest_s, np.minimum(found.waited_s, rest_s))
        stalled_s = rest_s - waited_s
        each_s = self.prompt_s.at(self.most) / self.most
        start_s = each_s * self.others / 2.0 * np.clip(1.0 / self.clients.waves, 0.0, 1.0)
        return state_of(
            deployment, self.clients, self.running,
            cycle_s=cycle_s, steps=answer + steps, away_s=away_s, first_s=waited_s + own_s, started_s=start_s,
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
