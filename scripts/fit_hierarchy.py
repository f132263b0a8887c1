"""Variances of few offsets each, drawn together: those of a family to its kind's, those of kinds to that of all.

With v_f the variance of the offsets of a family, v_k that of its kind and v that of all,

    v_f / v_k ~ scaled inverse chi-square of n_f degrees of freedom,   v_k / v ~ the same of n_k,

so that the mean square s^2 of d degrees of freedom of a family is v_k times an F of (d, n_f), and its variance is

    (n_f v_k + d s^2) / (n_f + d);  of a kind likewise, (n_k v + d s^2) / (n_k + d).

How alike families are, n_f, and the variances of kinds are those of the largest marginal likelihood of all mean
squares: an empirical Bayes estimate (Smyth 2004, "Linear models and empirical Bayes methods for assessing differential
expression", Statistical Applications in Genetics and Molecular Biology 3(1), sections 3 and 6).
The next offset is distributed as Student's t, with the degrees of freedom of its variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.prediction.uncertainty import Z80

#: degrees of freedom that a likelihood is computed for: of more, a variance is that of its kind; of fewer than 2, a
#: variance has no mean
STRENGTHS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 50.0)
#: where mean squares do not tell how alike they are, as those of libraries, of which a family has two or three. With 4,
#: 5 and 6 the interval score (width, and 10 times what lies outside, on a logarithmic scale) of the libraries that are
#: left out in scripts/nested.py is 1.155, 1.156 and 1.157 in the mean over all tables: about the same
ASSUMED_STRENGTH = 5.0
#: how alike kinds are: chosen. The likelihood of five kinds of one to four degrees of freedom each asks for one
#: variance of all, which leaves three to five tables with more than half of their rows outside. With 2, 3 and 5 the
#: interval score (see `ASSUMED_STRENGTH`) of the machines that are left out is 0.844, 0.843 and 0.842, and 85 % of the
#: rows lie inside in the mean over all tables: the same; of a B200's all-gathers 59, 50 and 47 % do
STRENGTH_OF_KINDS = 2.0
#: deviations that a likelihood is computed for
_GRID = np.exp(np.linspace(math.log(0.005), math.log(2.0), 121))
#: mean squares below this are noise
_LEAST = 1e-6


@dataclass(frozen=True)
class Variance:
    """A variance, and how many degrees of freedom it rests on."""

    value: float
    freedom: float

    @property
    def deviation(self) -> float:
        """The normal deviation of the same 80 % interval as the next offset's."""
        return math.sqrt(self.value) * student_quantile(self.freedom) / Z80

    def drawn(self, own: Variance, strength: float) -> Variance:
        """Return the variance of a part of these, given its own mean square and how alike parts are."""
        value = (strength * self.value + own.freedom * own.value) / (strength + own.freedom)
        return Variance(value, 1.0 / (1.0 / (strength + own.freedom) + 1.0 / self.freedom))


@dataclass(frozen=True)
class Expected:
    """What is usual in families of a kind: their variance, and how alike they are, in degrees of freedom."""

    variance: Variance
    strength: float = ASSUMED_STRENGTH

    def at_least(self, deviation: float) -> Expected:
        """Return the same, or what is known to differ by no less."""
        known = Variance(deviation**2, math.inf)
        return self if self.variance.value > known.value else replace(self, variance=known)

    def next(self, squares: Sequence[float], parts: int | None = None) -> float:
        """Return the deviation of the next part of a family, given the squares of so many of its own."""
        return self.variance.drawn(mean_square(squares, parts), self.strength).deviation


@dataclass(frozen=True)
class Hierarchy:
    """What is usual in one regime: of each kind, and of a kind of which nothing is known."""

    kinds: Mapping[str, Expected]
    other: Expected

    def kind(self, name: str) -> Expected:
        """Return what is usual in families of a kind."""
        return self.kinds.get(name, self.other)


def assumed(deviation: float) -> Expected:
    """Return what is expected where nothing was measured."""
    return Expected(Variance(deviation**2, math.inf))


def mean_square(squares: Sequence[float], parts: int | None = None) -> Variance:
    """Return the mean of the squares of so many parts from each other; of two parts these are one number."""
    count = len(squares) if parts is None else parts
    return Variance(float(np.mean(squares)) if squares else 0.0, max(0.0, count - 1.0))


def hierarchies(
    families: Sequence[Mapping[str, Sequence[Variance]]],
    parts: Sequence[Mapping[str, int]],
    deviations: Sequence[float],
) -> list[Hierarchy]:
    """Return what is usual in each regime.

    Parameters
    ----------
    families : of each regime, kind -> the mean squares of its families.
    parts : of each regime, kind -> how many machines those are of. What one of them differs by is nearly the same in
        all families of a kind (a B200 that is left out is slower by 0.2 to 0.3 in all collectives), so that a variance
        has a degree of freedom less than there are parts, however many families there are.
    deviations : what is assumed in each regime where no two parts were measured.
    """
    within = strength_of([own for regime in families for own in regime.values()])
    made = []
    for regime, counts, expected in zip(families, parts, deviations, strict=True):
        kinds = {
            kind: Variance(scale_of(own, within), max(1.0, counts[kind] - 1.0))
            for kind, own in regime.items()
            if any(one.freedom > 0 for one in own)
        }
        values, weights = [one.value for one in kinds.values()], [one.freedom for one in kinds.values()]
        everywhere = Variance(float(np.average(values, weights=weights)) if kinds else expected**2, math.inf)
        drawn = {kind: Expected(everywhere.drawn(own, STRENGTH_OF_KINDS), within) for kind, own in kinds.items()}
        other = everywhere.drawn(Variance(0.0, 0.0), STRENGTH_OF_KINDS)
        made.append(Hierarchy(drawn, Expected(other, within)))
    return made


def strength_of(groups: Iterable[Sequence[Variance]]) -> float:
    """Return how alike the mean squares of each group are, in degrees of freedom."""
    several = [group for group in map(_known, groups) if len(group) > 1]
    if not several:
        return ASSUMED_STRENGTH
    return max(STRENGTHS, key=lambda strength: sum(_likelihoods(group, strength).max() for group in several))


def scale_of(group: Sequence[Variance], strength: float) -> float:
    """Return the variance that some mean squares are drawn to."""
    return float(_GRID[_likelihoods(_known(group), strength).argmax()] ** 2)


def _known(group: Sequence[Variance]) -> list[Variance]:
    return [one for one in group if one.freedom > 0]


def _likelihoods(group: Sequence[Variance], strength: float) -> np.ndarray:
    """Return the logarithm of the likelihood of mean squares, but for a constant, for each deviation of the grid."""
    total = np.zeros(_GRID.size)
    for own in group:
        ratio = max(own.value, _LEAST) / _GRID**2 * own.freedom / strength
        total += own.freedom / 2.0 * np.log(ratio) - (own.freedom + strength) / 2.0 * np.log1p(ratio)
        total += math.lgamma((own.freedom + strength) / 2.0) - math.lgamma(strength / 2.0)
    return total


def student_quantile(freedom: float) -> float:
    """Return the 90 % quantile of Student's t, to 1 % from 3 degrees of freedom on, 3 % from 2 on; that of 2 for fewer.

    Abramowitz and Stegun, "Handbook of mathematical functions", 26.7.5.
    """
    z, freedom = Z80, max(freedom, 2.0)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3
