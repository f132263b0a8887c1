"""What the latency model expects of one call, or of each call of a sweep: the time, its interval, and its terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.core import roofline
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.record import record
from perfmodel.core.vocabulary import ErrorSource, Limiter
from perfmodel.core.work import Number, Text, anywhere, maximum, plain
from perfmodel.prediction.latency.terms import EVENTS, EVENTS_DIFFER, EVENTS_S, Term, Terms, starting_s
from perfmodel.prediction.uncertainty import Z80, Uncertainty

#: regime of each point as an index into `REGIMES`
Codes = NDArray[np.int8] | int
#: low and high end of an interval, over the time
Ends = tuple[Number, Number]
#: names or numbers of points
Found = TypeVar("Found", Text, Number)
#: above this predicted time an operator is large [s]
LARGE_S = 1e-4


@record
class Spread:
    """The interval of each point over its time: what it follows from, since the two ends take twice the time's memory.

    Attributes
    ----------
    code : which of the ``ends`` each point has.
    ends : the intervals that occur; a single pair of arrays where each point has one of its own.
    floor_s : no honest measurement is faster [s]; the low end is not either.
    """

    code: Codes
    ends: tuple[Ends, ...]
    floor_s: Number

    def low_s(self, time_s: Number) -> Number:
        """Return the low ends of some times [s]."""
        return plain(maximum(time_s * self._end(0), self.floor_s))

    def high_s(self, time_s: Number) -> Number:
        """Return the high ends of some times [s]."""
        return plain(time_s * self._end(1))

    def centre(self) -> Number:
        """Return the middle of the interval over the time, in logarithms: above 1 if kernels are slower at most."""
        return plain(np.sqrt(np.multiply(self._end(0), self._end(1))))

    @property
    def factors(self) -> Ends:
        """The ends of the interval of each point over its time."""
        return self._end(0), self._end(1)

    @property
    def is_of_points(self) -> bool:
        """Whether each point has an interval of its own."""
        return np.ndim(self.ends[0][0]) > 0

    def _end(self, which: int) -> Number:
        if isinstance(self.code, int):
            return self.ends[self.code][which]
        return np.array([ends[which] for ends in self.ends]).take(self.code)

    def reaching(self, ratio: Number) -> Spread:
        """Return a spread that also holds other times, given over the expected ones."""
        low, high = plain(np.minimum(self._end(0), ratio)), plain(np.maximum(self._end(1), ratio))
        return Spread(0, ((low, high),), self.floor_s)

    def half_width(self) -> Number:
        """Return half of the interval of ln(measured / predicted)."""
        return plain(0.5 * np.log(np.divide(self._end(1), self._end(0))))

    def beside(self, other: Spread, here: NDArray[np.bool_]) -> Spread:
        """Return the spread of this one's points where a mask holds, and of the other's elsewhere, with one floor."""
        code = np.where(here, self.code, np.int8(len(self.ends)) + np.asarray(other.code, np.int8))
        return Spread(code, self.ends + other.ends, self.floor_s)


@record
class Estimate:
    """The time to expect, and why.

    Attributes
    ----------
    time_s : expected time of one call [s].
    spread : its 80 % interval.
    regime_code : where the interval comes from, as an index into `REGIMES`.
    family, calibration : where the formula and the constants come from.
    basis : the source of the constants, for people.
    uncertainty : what the interval is made of.
    kept_terms : the parts of the time, and the time that each resource alone would take, or a function that finds
        them: they take as long as the time, and ten times its memory. None where ``again`` finds them.
    again : works the estimate of each part of a long sweep out once more, in order.
    """

    time_s: Number
    spread: Spread
    regime_code: Codes
    family: Text
    calibration: Text
    basis: str
    uncertainty: Uncertainty
    kept_terms: Terms | Callable[[], Terms] | None = field(compare=False)
    again: Callable[[], Iterable[Estimate]] = field(default=tuple, repr=False, compare=False)

    @property
    def low_s(self) -> Number:
        """Lower end of the 80 % interval [s]."""
        return self.spread.low_s(self.time_s)

    @property
    def high_s(self) -> Number:
        """Upper end of the 80 % interval [s]."""
        return self.spread.high_s(self.time_s)

    @property
    def regime(self) -> Text:
        """The name of the regime of each point."""
        return _named(REGIMES, self.regime_code)

    @property
    def terms(self) -> Terms:
        """The parts of the time, and the time that each resource alone would take."""
        if self.kept_terms is not None:
            return self._own_terms()
        shape, start = np.shape(self.time_s), 0
        adds: dict[Term, NDArray[np.float64]] = {}
        alone: dict[Term, NDArray[np.float64]] = {}
        for part in self.again():
            places = slice(start, start := start + np.size(part.time_s))
            _fill(adds, part.terms.adds, places, np.size(self.time_s))
            _fill(alone, part.terms.alone, places, np.size(self.time_s))
        return Terms(_shaped(adds, shape), _shaped(alone, shape))

    def _own_terms(self) -> Terms:
        """Return the terms of an estimate that keeps them, or finds them once."""
        kept = self.kept_terms
        assert kept is not None
        if not isinstance(kept, Terms):
            kept = kept()
            object.__setattr__(self, "kept_terms", kept)
        return kept

    @property
    def limiter(self) -> Text:
        """What most of the time is spent on: the limiter whose terms add up to the most."""
        return self._from_terms(limiter_of)

    @property
    def largest_term(self) -> Text:
        """The largest of the terms."""
        return self._from_terms(largest_of)

    @property
    def moving_s(self) -> Number:
        """What traffic to the main memory adds [s]."""
        return self._from_terms(moving_s_of)

    def _from_terms(self, found: Callable[[Mapping[Term, Number]], Found]) -> Found:
        if self.kept_terms is not None:
            return found(self._own_terms().adds)
        pieces = [np.broadcast_to(found(part.terms.adds), np.shape(part.time_s)) for part in self.again()]
        return cast(Found, np.concatenate(pieces).reshape(np.shape(self.time_s)))


def reaching(one: Estimate, other_s: Number) -> Estimate:
    """Return an estimate whose interval reaches what another library is expected to take [s], on its side.

    What the interval grows by counts as what libraries differ by: its half widths squared, over those of a deviation.
    """
    ratio = other_s / one.time_s
    spread = one.spread.reaching(ratio)
    grown = (spread.half_width() ** 2 - one.spread.half_width() ** 2) / Z80**2
    if not np.ndim(one.time_s) and not anywhere(grown > 0.0):
        return one
    return replace(one, spread=spread, uncertainty=one.uncertainty.and_of(ErrorSource.LIBRARY, maximum(grown, 0.0)))


def reaching_further(one: Estimate, down: Number, up: Number) -> Estimate:
    """Return an estimate whose interval reaches further, in the logarithm of the time, since figures are left out.

    What the squares of the half widths grow by is the variance of that, as in `reaching`.
    """
    low, high = one.spread.factors
    ends = (plain(low * np.exp(np.negative(down))), plain(high * np.exp(up)))
    spread = Spread(0, (ends,), one.spread.floor_s)
    grown = (spread.half_width() ** 2 - one.spread.half_width() ** 2) / Z80**2
    return replace(one, spread=spread, uncertainty=one.uncertainty.and_of(ErrorSource.SPECIFICATION, grown))


def between_events(one: Estimate) -> Estimate:
    """Return the estimate of a call between two events, given that of its kernels.

    What the events add has an error of its own: the variance of the sum's logarithm is w^2 V + (1 - w)^2 V_events, with
    w the kernels' share.
    """
    time_s = one.time_s + EVENTS_S
    share = one.time_s / time_s
    low, high = (
        share * end + (1.0 - share) * differ for end, differ in zip(one.spread.factors, EVENTS_DIFFER, strict=True)
    )
    variances = {source: share**2 * value for source, value in one.uncertainty.variances(one.regime).items()}
    events = math.log(EVENTS_DIFFER[1] / EVENTS_DIFFER[0]) / (2.0 * Z80)
    variances[ErrorSource.DISPATCH] = variances.get(ErrorSource.DISPATCH, 0.0) + ((1.0 - share) * events) ** 2
    parts = {source: (plain(value),) * len(REGIMES) for source, value in variances.items()}
    return replace(
        one,
        time_s=plain(time_s),
        spread=Spread(0, ((plain(low), plain(high)),), one.spread.floor_s),
        regime_code=regime_of(EVENTS_S, time_s),
        uncertainty=Uncertainty(((True, parts),)),
        kept_terms=lambda: one.terms.plus(EVENTS, EVENTS_S),
    )


def largest_of(adds: Mapping[Term, Number]) -> Text:
    """Return the largest term; of equal ones the first."""
    return roofline.bound(adds).limiter


def limiter_of(adds: Mapping[Term, Number]) -> Text:
    """Return the limiter whose terms add up to the most; of equal ones the first.

    Terms of no single resource count for no limiter.

    >>> from perfmodel.prediction.latency.terms import CONTENTION, HBM, MATH, TILE_WASTE
    >>> limiter_of({MATH: 2.0, TILE_WASTE: 2.0, HBM: 3.0, CONTENTION: 1.0})
    'compute'
    """
    sums: dict[Limiter, Number] = {}
    for term, time in adds.items():
        limiter = term.limiter
        if limiter is not Limiter.UNKNOWN:
            sums[limiter] = sums[limiter] + time if limiter in sums else time
    return roofline.bound(sums).limiter if sums else Limiter.UNKNOWN


def moving_s_of(adds: Mapping[Term, Number]) -> Number:
    """Return what the terms of traffic to the main memory add up to [s].

    >>> from perfmodel.prediction.latency.terms import HBM, L2, MATH
    >>> moving_s_of({MATH: 2.0, HBM: 3.0, L2: 1.0})
    3.0
    """
    total: Number = 0.0
    for term, time in adds.items():
        if term.limiter in (Limiter.HBM, Limiter.DRAM):
            total = total + time
    return total


def regime_code(adds: Mapping[Term, Number], time_s: Number) -> Codes:
    """Return the regime of each point, given the terms of its time, as `regime_of` does."""
    return regime_of(starting_s(adds), time_s)


def regime_of(starting_s: Number, time_s: Number) -> Codes:
    """Return the regime of each point as an index into `REGIMES`.

    Launch-bound if starting the kernel, or the host, takes over half of the time; otherwise large from 0.1 ms.
    """
    started: Any = starting_s > 0.5 * time_s
    small: Any = time_s < LARGE_S
    if isinstance(started, np.ndarray):
        code: NDArray[np.int8] = (np.int8(2) - small) * ~started  # numpy chooses by a mask ten times slower
        return code
    return 0 if started else 1 if small else 2


def _named(names: tuple[str, ...], code: Codes) -> Text:
    return names[code] if isinstance(code, int) else np.asarray(names)[code]


def _fill(columns: dict[Term, NDArray[np.float64]], values: Mapping[Term, Number], places: slice, points: int) -> None:
    """Write the values of some points into columns; 0 where a point lacks a term."""
    for name, value in values.items():
        if name not in columns:
            columns[name] = np.zeros(points)
        columns[name][places] = value


def _shaped(columns: Mapping[Term, NDArray[np.float64]], shape: tuple[int, ...]) -> dict[Term, Number]:
    return {name: column.reshape(shape) for name, column in columns.items()}
