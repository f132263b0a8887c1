"""Where a mixture of experts sends its tokens: how many rows each expert of a rank has."""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Vocabulary
from perfmodel.core.work import Number, plain

Floats = NDArray[np.float64]

#: loads that are drawn where they are random: their mean features differ by about 2 % from those of many
DRAWS = 4
#: a power law's busiest expert may have this share of all tokens before the loads are scaled to their sum
LARGEST_SHARE = 0.8
#: a skewed load of few slots: weights from a hundredth on, so that most experts get none
FEW_SLOTS = (0.01, 2.0)
#: loads kept; a table of measurements has some thousands
_MOST_LOADS = 20_000


def expected_touched(tokens: Number, experts: Number, top_k: Number) -> Number:
    """Return how many experts get a token when each token takes any k of E: E (1 - (1 - k / E)^T).

    >>> [round(float(expected_touched(tokens, 128, 8)), 1) for tokens in (1, 8, 64, 512)]
    [8.0, 51.6, 125.9, 128.0]
    """
    return experts * (1.0 - (1.0 - top_k / experts) ** tokens)


def expected_visits(experts: Number, top_k: Number, ranks: Number) -> Number:
    """Return how many of R ranks, each with E / R experts, a token with any k of E experts visits.

    R (1 - C(E - E/R, k) / C(E, k)): a rank is left out when all k experts are others'.

    >>> round(float(expected_visits(256, 8, 8)), 1)
    5.3
    """
    return plain(ranks * (1.0 - _missed(experts, experts / ranks, top_k)))


def _missed(experts: Number, held: Number, top_k: Number) -> Number:
    """Return the probability that none of k different experts of E is among some, C(E - held, k) / C(E, k)."""
    others = experts - held
    none: Number = 1.0
    for chosen in range(int(np.max(top_k))):
        # of the experts that are left after so many choices, those of other ranks
        left = np.maximum(0.0, others - chosen) / np.maximum(1.0, experts - chosen)
        none = none * np.where(chosen < np.asarray(top_k), left, 1.0)
    return none


class Dispatcher(Vocabulary):
    """How ranks that share experts exchange tokens before the experts, and what these give after them."""

    ALLTOALL = "alltoall"  # each copy of a token by itself, as NCCL's all-to-all and DeepEP's low-latency kernels do
    DEEPEP = "deepep"  # one copy to each rank with any of the token's experts, and over the network one to each node
    ALLGATHER = "allgather"  # all tokens to all ranks; a reduce-scatter adds up what the experts give


class Router(NamedTuple):
    """Which experts a token takes: any k of E, or k of those in some of the groups of experts.

    Attributes
    ----------
    experts, top_k : of a layer, and of a token.
    groups, chosen : groups of neighbouring experts, and from how many of them a token's come: 8 and 4 in DeepSeek-V3
        (arXiv 2412.19437, "node-limited routing"). They are taken to be any, and the k any of theirs.
    """

    experts: int
    top_k: int
    groups: int = 1
    chosen: int = 1

    def visits(self, ranks: int) -> float:
        """Return how many of R ranks, each with as many neighbouring experts, a token visits: `expected_visits`.

        With groups it is the sum over the ranks of 1 - E[C(n - h, k) / C(n, k)], n the experts of the chosen groups and
        h the rank's among them.

        >>> round(Router(256, 8).visits(8), 2), round(Router(256, 8, 8, 4).visits(8), 2)
        (5.29, 3.63)
        """
        return _visits(self, ranks)

    def copies(self, dispatcher: Dispatcher, ranks: int) -> float:
        """Return how many of R ranks, its own among them, a token is at with a dispatcher, counted with repetition."""
        if dispatcher == Dispatcher.DEEPEP:
            return self.visits(ranks)
        return float(self.top_k if dispatcher == Dispatcher.ALLTOALL else ranks)


@functools.lru_cache(maxsize=4096)
def _visits(router: Router, ranks: int) -> float:
    """Return the ranks that a token of a router visits, which a search asks for in every plan."""
    if router.groups <= router.chosen:
        return float(expected_visits(float(router.experts), router.top_k, float(ranks)))
    place = np.arange(router.experts)
    held = np.zeros((ranks, router.groups), np.int64)
    np.add.at(held, (place * ranks // router.experts, place * router.groups // router.experts), 1)
    among = router.experts * router.chosen / router.groups
    visits = 0.0
    for parts, alike in Counter(map(tuple, held.tolist())).items():
        # (groups chosen, experts of the rank in them) -> ways to choose
        ways = Counter({(0, 0): 1})
        for part in parts:
            for (count, own), number in list(ways.items()):
                ways[count + 1, own + part] += number
        found = [(own, number) for (count, own), number in ways.items() if count == router.chosen]
        missed = sum(number * float(_missed(among, float(own), router.top_k)) for own, number in found)
        visits += alike * (1.0 - missed / math.comb(router.groups, router.chosen))
    return visits


@dataclass(frozen=True)
class Loads:
    """What the rows of the experts of one rank are like, in the mean over draws.

    Attributes
    ----------
    slots : rows of all of them.
    touched : experts with at least one.
    largest : rows of the busiest one.
    blocks : rows of a tile -> sum over experts of ceil(rows / tile).
    """

    slots: float
    touched: float
    largest: float
    blocks: tuple[float, ...]


#: rows of the tiles that `Loads.blocks` are for
TILE_ROWS = (8, 16, 32, 64, 128, 256)


def loads_of(
    tokens: Number, experts: Number, top_k: Number, ranks: Number, skew: float, *, balanced: bool
) -> LoadFeatures:
    """Return the loads of each point; scalar or array like the dimensions."""
    shape = np.broadcast_shapes(*map(np.shape, (tokens, experts, top_k, ranks)))
    columns = [np.broadcast_to(np.asarray(value, np.int64), shape).ravel() for value in (tokens, experts, top_k, ranks)]
    points, place = np.unique(np.stack(columns), axis=1, return_inverse=True)
    found = [loads(*point, skew, balanced) for point in points.T.tolist()]
    rows = np.array([(one.slots, one.touched, one.largest, *one.blocks) for one in found])[np.ravel(place)]
    return LoadFeatures(tuple(column.reshape(shape) if shape else float(column[0]) for column in rows.T))


@dataclass(frozen=True)
class LoadFeatures:
    """`Loads` of many points: each feature an array, or a number."""

    columns: tuple[Number, ...]

    @property
    def slots(self) -> Number:
        """Rows of all experts of the rank."""
        return self.columns[0]

    @property
    def touched(self) -> Number:
        """Experts with at least one row."""
        return self.columns[1]

    @property
    def largest(self) -> Number:
        """Rows of the busiest expert."""
        return self.columns[2]

    def blocks(self, tile_rows: int) -> Number:
        """Return the tiles of so many rows that all experts need."""
        return self.columns[3 + TILE_ROWS.index(tile_rows)]


@functools.lru_cache(maxsize=_MOST_LOADS)
def loads(tokens: int, experts: int, top_k: int, ranks: int, skew: float, balanced: bool) -> Loads:
    """Return the loads of a rank; of the busiest one where tokens prefer some experts.

    Parameters
    ----------
    tokens : tokens of all ranks, each with ``top_k`` of the experts.
    ranks : ranks that share the experts evenly.
    skew : exponent alpha of the power law of the experts' rows; 0 where each expert is as likely.
    balanced : whether the tokens take the experts in turn.
    """
    if balanced:
        whole, more = divmod(tokens * top_k, experts)
        # The experts with one row more lie on all ranks.
        share = more / experts
        draws = np.full((1, experts // ranks), float(whole))
        return _features(draws, share)
    # The same numbers for all tokens, so that chance does not change the order of their loads.
    rng = np.random.default_rng([experts, top_k, ranks, round(1000 * skew)])
    drawn = [_power_law(rng, tokens, experts, top_k, skew) if skew else _even(rng, tokens, experts, top_k)
             for _ in range(DRAWS)]  # fmt: skip
    by_rank = np.array(drawn).reshape(DRAWS, ranks, experts // ranks)
    busiest = by_rank.sum(axis=2).argmax(axis=1) if skew else np.zeros(DRAWS, dtype=np.intp)
    return _features(by_rank[np.arange(DRAWS), busiest], 0.0)


def _features(rows: Floats, share_with_one_more: float) -> Loads:
    """Return the mean features of draws x experts; a share of the experts has one row more."""
    one = share_with_one_more

    def mean(count: Floats, with_one: Floats) -> float:
        return float(((1.0 - one) * count + one * with_one).sum(axis=1).mean())

    return Loads(
        slots=mean(rows, rows + 1.0),
        touched=mean(np.asarray(rows > 0, np.float64), np.ones(rows.shape)),
        largest=float(rows.max(axis=1).mean() + (one > 0)),
        blocks=tuple(mean(np.ceil(rows / tile), np.ceil((rows + 1.0) / tile)) for tile in TILE_ROWS),
    )


def _even(rng: np.random.Generator, tokens: int, experts: int, top_k: int) -> Floats:
    """Return the rows of each expert where every token takes any k of them: binomial each, T k together."""
    return rng.multinomial(tokens * top_k, np.full(experts, 1.0 / experts)).astype(np.float64)


def _power_law(rng: np.random.Generator, tokens: int, experts: int, top_k: int, skew: float) -> Floats:
    """Return the rows of each expert from a power law n^-alpha on [1, 0.8 T], scaled to T k; none above T."""
    slots = tokens * top_k
    low, high = (1.0, LARGEST_SHARE * tokens) if slots > experts else FEW_SLOTS
    high = max(high, low)
    drawn = _inverse(rng.random(experts), skew, low, high)
    rows = np.round(drawn / drawn.sum() * slots)
    order = np.argsort(-drawn, kind="stable")
    missing = int(slots - rows.sum())
    # Rounding leaves a few rows too many or too few; the busiest experts take them.
    if missing > 0:
        np.add.at(rows, order[np.arange(missing) % experts], 1.0)
    for place in range(-missing):
        rows[order[place % max(1, int((rows > 0).sum()))]] -= 1.0
    return np.minimum(rows, float(tokens)) if top_k <= 1 else _capped(rows, float(tokens))


def _inverse(u: Floats, skew: float, low: float, high: float) -> Floats:
    """Return the numbers with the cumulative shares u of a power law n^-alpha on [low, high]."""
    power = 1.0 - skew
    if abs(power) < 1e-9:
        return np.asarray(low * (high / low) ** u)
    return np.asarray(((high**power - low**power) * u + low**power) ** (1.0 / power))


def _capped(rows: Floats, most: float) -> Floats:
    """Return the rows with none above ``most``; what is above goes to the experts in the order of their rows."""
    over = float(np.maximum(rows - most, 0.0).sum())
    rows = np.minimum(rows, most)
    for place in np.argsort(-rows, kind="stable"):
        if over <= 0:
            break
        taken = min(over, most - rows[place])
        rows[place] += taken
        over -= taken
    return rows
