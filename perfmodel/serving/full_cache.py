"""A cache that cannot hold all users at their full length: how many run, and how often each of them is preempted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.serving.clients import Places, unlimited
from perfmodel.serving.cost import Array
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet
from perfmodel.serving.memory import Memory
from perfmodel.serving.new_tokens import AHEAD, DECAY_STEPS, ratio_ends
from perfmodel.serving.policies import SWAP, Policy

#: part of its answer that a sequence has when it is preempted: where many run and many wait, more of few that run, and
#: more where few wait, which falls by so much with each further cache that the users would fill
_HAS, _HAS_OF_FEW, _HAS_OF_LAST, _FALLS = 0.1, 0.4, 0.3, 2.6
#: requests that have begun and wait for a place, over the prompts whose room an answer takes: of few that run, and of
#: each that runs
_PAUSED, _PAUSED_OF_EACH = 0.5, 0.07
#: part of an answer by which others grow until a preempted sequence is back, which then lacks these blocks
_TAKEN = 0.78
#: where requests enter by an estimate: part of what an answer adds beyond the estimate that is free in the mean, how
#: often the cache is full over what would be without an estimate, and how fast that falls with ends in a step
_BEFORE, _RETRACTED, _ENDED = 0.7, 0.14, 5.0
#: numbers of sequences at which a sum is computed, and standard deviations to either side that it covers
_NODES, _SIDES = 128, 5.0
#: how often an estimate and what follows from it are computed in turn
_ROUNDS = 3

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class _Sizes:
    """What sequences take of the cache [tokens].

    Attributes
    ----------
    prompt : of one that has just begun, in the mean.
    growth : what its answer adds, in the mean.
    mean, deviation : of the sequences that run, at any time.
    of_lengths : share of their variance that is one of lengths, not of ages.
    least, most : of the shortest one when it begins, and of the longest one when it ends.
    """

    prompt: Array
    growth: Array
    mean: Array
    deviation: Array
    of_lengths: Array
    least: Array
    most: Array


@dataclass(frozen=True)
class _Load:
    """Tokens of a prompt that are new and of an answer, users, most sequences that run, and the spread of lengths."""

    new: Array
    answer: Array
    users: Array
    most: Array
    spread: float


@dataclass(frozen=True)
class _Line:
    """How many sequences of those that stand in a line fit at once, and how often their number falls.

    Attributes
    ----------
    running : mean number of those that fit.
    falls : see `places`: 1 in the mean over sizes of the cache.
    """

    running: Array
    falls: Array


def places(deployment: Deployment, isl: Array, osl: Array, prefix: Array, users: Array, spread: float = 0.0) -> Places:
    """Return how many of some users run at once on one engine, and what a full cache costs the others.

    Requests stand in a line in the order in which they came, and so many run that the next one does not fit: engines
    admit the first of the queue, and preempt the youngest, which becomes the first of the queue again. With K tokens of
    the cache, and S_n those of n sequences at any time, which are a renewal process (Cox 1962, "Renewal theory"), of U
    users

        N = E[running] = sum over n <= U of P(S_n <= K).

    An engine that reserves the whole sequence preempts none; for one that estimates it see `_by_estimate`. Others admit
    a sequence by its prompt of p tokens. While one answer ends, those of all others grow by as much together, g tokens,
    so that S_n passes K f_n(K) g n / N times (Rice 1944, "Mathematical analysis of random noise"), f_n being its
    density. The youngest is smaller than the mean mu of all: it has a part h of its answer. So

        preemptions of a request = g / (p + h g) mu sum over n <= U of f_n(K) n / N  exp(-N / g - w / g),

    in which mu times the sum is 1 in the mean over K, and more or less where few sequences of equal lengths fill the
    cache just so. The exponentials are the probabilities that no answer ends in the step in which the cache is full,
    which makes room without a preemption, and that the cache fills up though a watermark of w tokens was left free on
    admission, as the time between two ends of answers varies. A sequence that is preempted computes its p + h g tokens
    anew, unless its blocks stay readable until others take them.

    Requests that have begun and wait for a place are ``falls`` g / p (0.5 + 0.07 N), where ``falls`` are the factors
    behind g / (p + h g), but no more than all that do not run. They are more than ages without an order would make
    them: with ages a in units of an answer and their density ~ exp(z a), the cache stays full if
    e^z (p + g / z) = p + g + g / z, whose complex roots z have positive real parts. So sequences bunch: at one time
    many young ones run, at another few old ones.

    The numbers in h, in those that wait and in the blocks that are taken were fitted on 805 simulated loads with steps
    of equal time: lengths that vary by 30 and by 80 %, answers of 1/30 to 45 prompts, caches of 1 to 90 sequences.
    There N is 2 % off in the mean and 4 % in 19 of 20 loads, preemptions 12 and 34 %, requests that have begun 3 and
    9 %. Prompts in chunks that are preempted half read are not counted: their blocks are found again.

    Parameters
    ----------
    deployment : one engine.
    isl, osl, prefix : tokens of a prompt, of an answer, and of the prompt's part that the cache already has.
    users : requests in the system.
    spread : half the width of the range of both lengths over their mean, of a prompt that of its part behind the
        prefix.
    """
    policy, memory = Fleet().policy_for(deployment), deployment.memory()
    values = (np.asarray(value, dtype=np.float64) for value in (isl - prefix, osl, memory.shared(prefix), users))
    new, answer, shared, users = np.broadcast_arrays(*values)
    most = np.minimum(users, deployment.sequence_limit)
    if not math.isfinite(memory.kv_tokens):
        return unlimited(most)
    block = policy.block_tokens
    room = np.floor((memory.kv_tokens - shared) / block) * block
    free = np.floor(policy.watermark * room / block) * block
    steps = np.maximum((answer - 1.0) / deployment.gained, 1e-9)
    if policy.conservativeness is not None:
        return _by_estimate(memory, policy, _Load(new, answer, users, most, spread), room, steps)
    sizes = _sizes(memory, policy, new, answer, spread)
    line = _line(most, room - free, sizes, block)
    if policy.reserve:
        return unlimited(line.running)
    growth = np.maximum(sizes.growth, 1e-9)
    falls = line.falls * np.exp(-line.running / steps - free / growth)
    beyond = np.maximum(0.0, most * sizes.mean / np.maximum(room - free, 1.0) - 1.0)
    has = _HAS + _HAS_OF_FEW / line.running + _HAS_OF_LAST * np.exp(-_FALLS * beyond)
    lost = sizes.prompt + has * sizes.growth
    left = np.maximum(users - line.running, 1e-9)
    paused = falls * sizes.growth / sizes.prompt * (_PAUSED + _PAUSED_OF_EACH * line.running)
    return Places(
        running=line.running,
        preempted=falls * sizes.growth / lost,
        recomputed=_recomputed(memory, policy, new + has * (answer - 1.0), answer, lost / growth),
        paused=left * -np.expm1(-paused / left),
    )


def _by_estimate(memory: Memory, policy: Policy, load: _Load, room: Array, steps: Array) -> Places:
    """Return the places of an engine whose requests enter by an estimate of what the others still generate.

    See `perfmodel.serving.new_tokens`. A sequence of p tokens that has x of g more takes p + x + r (g - x) by the
    estimate, and one enters if its p + g fit beside the others. So the line is one of these sizes, in K - c (1 - r) g
    tokens: the estimate of one that has entered is (1 - r) g less than what it had to find, and what the others grow
    before the next answer ends, when the next one is tried, is part of it. Sequences are retracted where no answer
    ends in the time in which the others take what is left,

        retractions of a request = 0.14 g / (p + g) mu sum over n <= U of f_n(K) n / N  exp(-5 N / g),

    and r is the mean between retractions of `_mean_ratio`, computed in turn with them. Retracted sequences queue as all
    others, so that their part of the queue is their part of the entries; the youngest of N + 1 has g / (N + 1) tokens
    of its answer, which are computed anew with its prompt.

    c = 0.7 and the numbers in the retractions were fitted on 160 simulated loads (2 to 256 users, prompts to 4000 and
    answers to 1450 tokens): of 120 others throughput is 3 % off in the mean and 9 % in 19 of 20, times per token 7 and
    25 % (5 and 15 where lengths vary), retractions a factor 1.7 (standard deviation). Equal lengths in step with each
    other are retracted never or often.

    Parameters
    ----------
    memory, policy : of the deployment, and of its scheduler.
    load : lengths and users.
    room : tokens of the cache.
    steps : decode steps of an answer.
    """
    assert policy.conservativeness is not None
    ratio: Array = np.full_like(room, ratio_ends(policy.conservativeness)[1])
    for _ in range(_ROUNDS):
        sizes = _sizes(memory, policy, load.new, load.answer, load.spread, ratio)
        growth = np.maximum(sizes.growth, 1e-9)
        entry = np.maximum(1.0, room - _BEFORE * (1.0 - ratio) * growth - policy.block_tokens)
        line = _line(load.most, entry, sizes, policy.block_tokens, whole=room)
        seldom = np.exp(-_ENDED * line.running / steps)
        retracted = line.falls * _RETRACTED * growth / (sizes.prompt + growth) * seldom
        ratio = _mean_ratio(policy.conservativeness, line.running, retracted * line.running / steps, load.answer)
    left = np.maximum(load.users - line.running, 0.0)
    return Places(
        running=line.running,
        preempted=retracted,
        recomputed=load.new + (load.answer - 1.0) / (1.0 + line.running),
        paused=left * retracted / (1.0 + retracted),
    )


def _mean_ratio(conservativeness: float, running: Array, each_step: Array, answer: Array) -> Array:
    """Return the estimate in the mean over time, of what is left of answers.

    It falls by f a step from r, where a retraction raises it to, to its least value l. With q retractions a step at
    random times the last one was t steps ago with a density ~ exp(-q t), so that the mean is

        l + (r - l) - (f / q) (1 - exp(-q (r - l) / f)).

    The youngest of N + 1 sequences goes, so that with any ages those of the others are (N + 3) / (2 N + 4) of their
    answers in the mean.

    Parameters
    ----------
    conservativeness : of the policy.
    running : sequences that run, in the mean.
    each_step : retractions in a decode step.
    answer : tokens of an answer.
    """
    first, least = ratio_ends(conservativeness)
    raised = np.minimum(1.0, 0.5 + 0.5 / (running + 2.0) + AHEAD / answer)
    above, fall = np.maximum(0.0, raised - least), np.maximum((first - least) / DECAY_STEPS, 1e-12)
    times = np.maximum(each_step, 1e-12) / fall
    return np.asarray(least + above + np.expm1(-above * times) / times)


def _recomputed(memory: Memory, policy: Policy, tokens: Array, answer: Array, size: Array) -> Array:
    """Return the tokens of a preempted sequence that are computed anew.

    Where a prefix cache keeps its blocks, others take them as they grow, by about an answer until it is back.

    Parameters
    ----------
    memory, policy : of the deployment, and of its scheduler.
    tokens : of the sequence.
    answer : tokens of an answer.
    size : what the sequence takes of the cache, over the growth of an answer.
    """
    if policy.preemption == SWAP:
        return np.zeros_like(tokens)
    if not policy.keeps_blocks or memory.state_tokens:
        return tokens
    return np.minimum(tokens, _TAKEN * answer * -np.expm1(-size))


def _sizes(
    memory: Memory, policy: Policy, new: Array, answer: Array, spread: float, ratio: Array | float = 0.0
) -> _Sizes:
    """Return what sequences take whose lengths are uniform within a share of their means.

    Those that enter by an estimate also take a ``ratio`` of what they still generate.

    One that runs at any time has a long answer more often than one that begins: in proportion to its length, so that
    with answers uniform within a (1 - s) and a (1 + s) the mean is a (1 + s^2 / 3), and that of its square
    a^2 (1 + s^2). It has any part of it with equal probability, or room for all of it from its first step on.
    """
    block, square = policy.block_tokens, spread * spread
    longer, second = 1.0 + square / 3.0, 1.0 + square
    begun, ends = _of(memory, new), _of(memory, new + answer - 1.0)
    growth, least, most = np.maximum(0.0, ends - begun), begun * (1.0 - spread), ends * (1.0 + spread)
    largest = _in_blocks(_of(memory, (new + answer) * (1.0 + spread)), block)
    empty, wider = _rounding(least, most, block)
    if policy.reserve:
        mean = _of(memory, new + answer * longer - 1.0) + empty if spread else largest
        variance = of_lengths = growth**2 * (second - longer**2)
        first = _in_blocks(_of(memory, (new + answer - 1.0) * (1.0 - spread)), block)
    else:
        mean = _of(memory, new + answer * longer / 2.0) + empty + ratio * growth * longer / 2.0
        both = (1.0 + ratio) ** 2 / 4.0
        variance = growth**2 * (second * (1.0 + ratio + ratio**2) / 3.0 - longer**2 * both)
        of_lengths = growth**2 * square / 3.0 * both
        first = _in_blocks(_of(memory, new * (1.0 - spread)), block)
    variance, of_lengths = (part + begun**2 * square / 3.0 for part in (variance, of_lengths))
    prompt = begun + _rounding(least, begun * (1.0 + spread), block)[0]
    deviation, share = wider * np.sqrt(np.maximum(0.0, variance)), of_lengths / np.maximum(variance, 1e-9)
    return _Sizes(prompt, growth, mean, deviation, share, first, largest)


def _of(memory: Memory, tokens: Array) -> Array:
    return np.asarray(memory.of_sequence(tokens))


def _in_blocks(tokens: Array, block: int) -> Array:
    return np.asarray(np.ceil(tokens / block) * block)


def _rounding(least: Array, most: Array, block: int) -> tuple[Array, Array]:
    """Return what whole blocks change for sequences of any length in a range with equal probability.

    The first is how many tokens of its last block a sequence leaves empty, in the mean; the second the standard
    deviation of what sequences take over that of their lengths: 0 where all take as many blocks.
    """

    def sums(tokens: Array) -> tuple[Array, Array]:
        """Return the sum of what sequences of 1, 2, ... so many tokens take, and that of its squares, in blocks."""
        whole = np.floor(tokens / block)
        last, count = tokens - whole * block, whole * (whole + 1.0) / 2.0
        return block * count + last * (whole + 1.0), block * count * (2.0 * whole + 1.0) / 3.0 + last * (
            whole + 1.0
        ) ** 2

    lengths = most - least + 1.0
    mean, square = (
        (of_most - of_less) / lengths for of_most, of_less in zip(sums(most), sums(least - 1.0), strict=True)
    )
    variance = block**2 * np.maximum(0.0, square - mean**2)
    return block * mean - (least + most) / 2.0, np.sqrt(variance / np.maximum((lengths**2 - 1.0) / 12.0, 1e-9))


def _line(most: Array, room: Array, sizes: _Sizes, block: int, whole: Array | None = None) -> _Line:
    """Return how many sequences, of ``most``, fit into a room, and how often their number falls.

    Those that fit into the ``whole`` cache at their full length always do.

    One always fits. Sums of sizes are taken as normal. Far from room / mean all probabilities are 1 or 0; in between
    there is a node for each number, or for a range of them.

    Few sequences leave less often than many, so that those that are large stay together for longer: with ends at random
    the mean over time is one over the mean of 1 / N over ends. Ages differ without that. So it is this mean by the
    share that lengths have of the variance.
    """
    side = _SIDES * sizes.deviation
    root = np.sqrt(side**2 + 4.0 * sizes.mean * room)
    first, last = (((root + end * side) / (2.0 * sizes.mean)) ** 2 for end in (-1.0, 1.0))
    first = np.clip(np.floor(first), 1.0, most)
    width = np.maximum(1.0, (np.ceil(last) - first) / _NODES)
    before = first + np.arange(_NODES).reshape(-1, *(1,) * first.ndim) * width
    counted = np.clip(most - before, 0.0, width)
    number = before + (width + 1.0) / 2.0
    deviation = np.maximum(sizes.deviation * np.sqrt(number), 1e-9)
    apart = (room + block / 2.0 - number * sizes.mean) / deviation  # the next larger sum is a block beyond the room
    always, never = number * sizes.most <= (room if whole is None else whole), number * sizes.least > room
    fits = np.where(always, 1.0, np.where(never, 0.0, 0.5 * (1.0 + _erf(apart / math.sqrt(2.0)))))
    density = np.exp(-0.5 * apart**2) / (math.sqrt(2.0 * math.pi) * deviation)
    density = np.where(np.logical_or(always, never), 0.0, density)
    mean = first + (fits * counted).sum(axis=0)
    inverse = 1.0 / first - (fits * (1.0 / before - 1.0 / (before + counted))).sum(axis=0)
    running = mean - sizes.of_lengths * (mean - 1.0 / inverse)
    return _Line(running, sizes.mean * (density * counted * number).sum(axis=0) / running)
