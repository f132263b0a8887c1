"""A load: requests with their arrival times and lengths, or clients that each wait for their last answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import UsageError, expect, expect_numbers, suggesting, unknown_name
from perfmodel.serving.step_input import arrays

Times = NDArray[np.float64]
Lengths = NDArray[np.int64]

POISSON, GAMMA, UNIFORM = "poisson", "gamma", "uniform"
#: how open-loop arrivals are spaced: exponential gaps, gaps of a gamma distribution (bursts), equal gaps
SPACINGS = (POISSON, GAMMA, UNIFORM)


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests of a load, in the order of their arrival.

    Attributes
    ----------
    arrival_s : time at which each request arrives [s], rising. In a closed loop the first of each client arrives then,
        and later ones when their client's last one has ended.
    prompt, output : tokens of each prompt, and tokens that each answer has; at least 1.
    concurrency : clients of a closed loop, of which each sends a request when its last one has ended; 0 for an open
        loop.
    cached : leading tokens of every prompt that the engine has in its prefix cache: one prefix that all share.

    Raises
    ------
    UsageError
        On construction: no request, columns of different lengths, times that are negative, not finite or not sorted,
        lengths below 1, a negative concurrency, a prefix that is not shorter than every prompt.
    """

    arrival_s: Times
    prompt: Lengths
    output: Lengths
    concurrency: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        expect_numbers(Integral, concurrency=self.concurrency, cached=self.cached)
        self._settle_arrays()
        count = len(self.arrival_s)
        if not count:
            raise UsageError("a load without requests cannot be simulated.", remedy="Give at least one request.")
        if not len(self.prompt) == len(self.output) == count:
            raise UsageError(f"{count} arrivals, {len(self.prompt)} prompts and {len(self.output)} outputs.")
        if not np.all(np.isfinite(self.arrival_s)) or float(self.arrival_s[0]) < 0:
            raise UsageError("an arrival time is negative or not finite.", remedy="Times are seconds from the start.")
        if np.any(np.diff(self.arrival_s) < 0):
            raise UsageError("the arrival times do not rise.", remedy="Sort the requests by their arrival.")
        if min(int(self.prompt.min()), int(self.output.min())) < 1:
            raise UsageError("a request has no prompt or no output.", remedy="Give at least one token of each.")
        if self.concurrency < 0:
            raise UsageError(f"a concurrency of {self.concurrency} is not possible.", remedy="Give 1 or more.")
        if self.cached < 0:
            raise UsageError(f"a cached prefix of {self.cached} tokens is below 0.", remedy="0 is none.")
        if not self.cached < int(self.prompt.min()):
            raise UsageError(
                f"a cached prefix of {self.cached} tokens is not shorter than the shortest prompt, "
                f"{int(self.prompt.min())} tokens.",
                remedy="The last token of a prompt is always computed.",
            )

    def _settle_arrays(self) -> None:
        """Make arrays of lists, and of arrays whose numbers are of another kind: eight bits overflow in sums."""
        columns = arrays("requests", {name: getattr(self, name) for name in ("arrival_s", "prompt", "output")})
        for name, column in columns.items():
            if column.ndim != 1:
                raise UsageError(f"{name} is no list.", place="requests", remedy="Give a number for each request.")
            object.__setattr__(self, name, column if name == "arrival_s" else _whole(name, column))

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def rate_per_s(self) -> float:
        """Mean rate of arrivals of an open loop [1/s]; infinite where all arrive at once."""
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span if span > 0 else math.inf

    def first(self, count: int) -> Requests:
        """Return the first requests of the load."""
        return replace(self, arrival_s=self.arrival_s[:count], prompt=self.prompt[:count], output=self.output[:count])


#: most requests of a load: they stand in memory
MOST_REQUESTS = 20_000_000
#: longest prompt or answer; no model has as many positions
LONGEST = 1e9


def _check_count(count: int) -> None:
    expect(count, Integral, "number of requests", place="count", remedy="Give a whole number, as 200.")
    if isinstance(count, bool) or not 1 <= count <= MOST_REQUESTS:
        raise UsageError(f"a load of {count} requests is not possible.", remedy=f"Give 1 to {MOST_REQUESTS}.")


def _check_seed(seed: int) -> None:
    expect_numbers(Integral, seed=seed)
    if seed < 0:
        raise UsageError(f"a seed of {seed} is below 0.", place="seed", remedy="Give 0 or more.")


#: the longest prompt or answer of a conversation that vLLM's benchmark takes from ShareGPT [tokens]
LONGEST_TURN = 1024.0


def lengths(count: int, mean: float, *, spread: float = 0.0, seed: int = 0) -> Lengths:
    """Return token counts that are uniform between ``mean (1 - spread)`` and ``mean (1 + spread)``.

    Parameters
    ----------
    count : how many.
    mean : their mean [tokens].
    spread : half the width of the range over the mean, 0 for equal lengths.
    seed : of the random numbers; equal seeds give equal lengths.

    Raises
    ------
    UsageError
        When the mean is below 1 or the spread is not within 0 to 1.
    """
    if not 1 <= mean <= LONGEST:
        raise UsageError(f"a mean length of {mean:.12g} tokens is not possible.", remedy=f"Give 1 to {LONGEST:.0f}.")
    if not 0 <= spread <= 1:
        raise UsageError(f"a spread of {spread:g} is not within 0 to 1.", remedy="0.2 means 20 % to either side.")
    if not spread:
        return np.full(count, round(mean), dtype=np.int64)
    low, high = max(1, round(mean * (1 - spread))), max(1, round(mean * (1 + spread)))
    return np.random.default_rng(seed).integers(low, high + 1, count)


def conversation_lengths(count: int, mean: float, *, seed: int = 0) -> Lengths:
    """Return token counts as those of conversations: an exponential distribution, cut at `LONGEST_TURN`, in any order.

    The quantiles of the distribution are taken, so that few requests have its mean, too; they are scaled to it after
    the cut. vLLM's and SGLang's benchmarks leave out longer prompts and answers of ShareGPT. That the distribution is
    exponential is assumed: their deviation is about as large as their mean.

    Parameters
    ----------
    count : how many.
    mean : their mean [tokens].
    seed : of the order; equal seeds give equal orders.

    >>> int(conversation_lengths(4, 100.0).sum())
    400
    """
    longest = max(LONGEST_TURN, mean)
    quantiles = -np.log1p(-(np.arange(count) + 0.5) / count)
    tokens = np.minimum(mean * quantiles / quantiles.mean(), longest)
    tokens = np.maximum(1, np.round(tokens * (mean / tokens.mean()))).astype(np.int64)
    return np.random.default_rng(seed).permutation(tokens)


@suggesting
def open_loop(
    rate_per_s: float,
    count: int,
    isl: float | ArrayLike,
    osl: float | ArrayLike,
    *,
    spacing: str = POISSON,
    burstiness: float = 1.0,
    spread: float = 0.0,
    seed: int = 0,
) -> Requests:
    """Return requests that arrive whether or not earlier ones have ended.

    Parameters
    ----------
    rate_per_s : mean rate [1/s]; infinite for all at once.
    count : how many requests.
    isl, osl : tokens of a prompt and of an answer: a mean, or one length for each request.
    spacing : one of `SPACINGS`.
    burstiness : for "gamma", the squared coefficient of variation of the gaps: 1 is Poisson, above 1 is bursty.
    spread : see `lengths`; for means.
    seed : of the random numbers.

    Raises
    ------
    UsageError
        When the rate or the burstiness is not above 0, the gaps have none, or a length is impossible.
    """
    _check_count(count)
    expect_numbers(Real, burstiness=burstiness, spread=spread)
    _check_seed(seed)
    expect(rate_per_s, Real, "rate", place="rate_per_s", remedy="Give requests a second, as 4.")
    if math.isnan(rate_per_s) or rate_per_s <= 0:
        raise UsageError(f"a rate of {rate_per_s:g} requests a second never sends one.", remedy="Give a rate above 0.")
    if spacing not in SPACINGS:
        raise unknown_name("spacing of arrivals", spacing, SPACINGS)
    if not (math.isfinite(burstiness) and burstiness > 0):
        raise UsageError(f"a burstiness of {burstiness:g} is not possible.", remedy="1 is Poisson, 4 is bursty.")
    if burstiness != 1 and spacing != GAMMA:
        raise UsageError(f"a burstiness of {burstiness:g} is none of {spacing} gaps.", remedy="Add --spacing gamma.")
    gaps = _gaps(np.random.default_rng(seed), spacing, burstiness, count)
    arrival_s = np.zeros(count) if math.isinf(rate_per_s) else np.cumsum(gaps) / rate_per_s
    return Requests(arrival_s - arrival_s[:1], *_both_lengths(count, isl, osl, spread, seed))


def _gaps(random: np.random.Generator, spacing: str, burstiness: float, count: int) -> Times:
    """Return gaps with a mean of 1."""
    if spacing == UNIFORM:
        return np.ones(count)
    shape = 1.0 / burstiness if spacing == GAMMA else 1.0
    return random.gamma(shape, 1.0 / shape, count)


@suggesting
def closed_loop(
    concurrency: int,
    count: int,
    isl: float | ArrayLike,
    osl: float | ArrayLike,
    *,
    spread: float = 0.0,
    ramp_s: float = 0.0,
    seed: int = 0,
) -> Requests:
    """Return requests of ``concurrency`` clients, each of which waits for its answer before it sends the next one.

    Parameters
    ----------
    concurrency : clients.
    count, isl, osl, spread, seed : see `open_loop`.
    ramp_s : time over which the clients start, evenly [s]. 0: all at once, as most benchmarks do, so that the first
        prompts queue.

    Raises
    ------
    UsageError
        When the concurrency is below 1, the ramp is negative, or a length is impossible.
    """
    _check_count(count)
    expect_numbers(Real, ramp_s=ramp_s, spread=spread)
    _check_seed(seed)
    expect(concurrency, Integral, "number of clients", place="concurrency", remedy="Give a whole number, as 16.")
    if concurrency < 1:
        raise UsageError(f"a concurrency of {concurrency} is not possible.", remedy="Give 1 or more.")
    if not (math.isfinite(ramp_s) and ramp_s >= 0):
        raise UsageError(f"a ramp of {ramp_s:g} s is not possible.", remedy="Give 0 or more.")
    starts = np.minimum(np.arange(count), concurrency - 1) * (ramp_s / concurrency)
    return Requests(starts, *_both_lengths(count, isl, osl, spread, seed), concurrency)


def _both_lengths(
    count: int, isl: float | ArrayLike, osl: float | ArrayLike, spread: float, seed: int
) -> tuple[Lengths, Lengths]:
    sides = arrays("requests", {"isl": isl, "osl": osl}).items()
    first, second = (
        _whole(name, side) if side.ndim else lengths(count, float(side), spread=spread, seed=seed + 1 + number)
        for number, (name, side) in enumerate(sides)
    )
    return first, second


def _whole(name: str, tokens: Times) -> Lengths:
    """Return lengths as whole numbers.

    Raises
    ------
    UsageError
        When one is not finite.
    """
    if not np.all(np.isfinite(tokens)):
        raise UsageError(f"{name} is not finite.", place="requests", remedy="Give whole numbers of tokens.")
    return tokens.astype(np.int64)
