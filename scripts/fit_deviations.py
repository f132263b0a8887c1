"""What machines and libraries that nobody measured differ by: deviations of `perfmodel.prediction.latency.constants`.

Each machine, or library, is left out of a fit; the median of what is left of its rows is its offset u. Of n offsets
from each other, each of a part that was left out as a whole, and of n0 that are usual elsewhere with deviation s0,

    s^2 = (n0 s0^2 + (n - 1) s_n^2) / (n0 + n - 1),

with s_n^2 the mean square of the n. So few offsets do not determine a deviation: the next one is distributed as
Student's t with n0 + n - 1 degrees of freedom (a normal distribution whose variance has the conjugate prior; Gelman et
al., "Bayesian data analysis", section 3.2). Tables state the normal deviation of the same 80 % interval, s t / z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Floats
from perfmodel.core.latency_table import REGIMES
from perfmodel.prediction.uncertainty import Z80

#: offsets whose weight the usual ones have together, n0. Chosen by the interval score (width, and 10 times what lies
#: outside, on a logarithmic scale) of the machines and libraries that are left out in scripts/nested.py, in the mean
#: over all tables: 0.92, 0.91, 0.90 for machines and 1.32, 1.31, 1.31 for libraries with 3, 6 and 10; from 8 on, a
#: library's table lies outside as a whole
PRIOR = 6.0
#: what machines differ between: lines (kinds of memory) and generations of a vendor, and siblings with the same chip
LINES, GENERATIONS, SIBLINGS = BETWEEN = ("lines", "generations", "siblings")
#: fewer rows of a machine in a regime than this give no offset
FEWEST = 10
#: of a machine, where no two were measured: assumed, the middle of all families
ASSUMED_MACHINE = 0.15
#: of a machine among others of its generation, beyond what their specifications say: assumed. Two of them differ by its
#: 1.4-fold, 0.10; H100 and H200, the one pair of one laboratory, differ by 0.04 in the middle of 15 families, and
#: laboratories and boards by more
ASSUMED_SIBLING = 0.07
#: of a library in each regime where no machine was measured with two: assumed. Two libraries differ by its 1.4-fold,
#: 0.35, 0.20 and 0.15, about the middle of products, attention and collectives
ASSUMED_LIBRARY = {"library": (0.25, 0.14, 0.11), "library_here": (0.15, 0.12, 0.08)}


@dataclass(frozen=True)
class LeftOut:
    """Residuals ln(measured / predicted) of one machine under constants that were fitted without it.

    Attributes
    ----------
    machine : its name.
    ratio, regime : of each row.
    part : name of the machines that were left out together.
    """

    machine: str
    ratio: Floats
    regime: NDArray[np.intp]
    part: str = ""

    def offset(self, regime: int) -> float | None:
        """Return the median of a regime: what the machine differs by; None where rows are few."""
        rows = self.ratio[self.regime == regime]
        return float(np.median(rows)) if rows.size >= FEWEST else None

    def within(self, regime: int) -> Floats:
        """Return what is left of a regime's rows without the machine's offset."""
        rows = self.ratio[self.regime == regime]
        return rows - np.median(rows) if rows.size else rows


@dataclass(frozen=True)
class LibraryOffset:
    """What a library differs by over the others of a machine, under constants that were fitted without it.

    Attributes
    ----------
    library, machine, regime : of the rows.
    ratio : median of ln(predicted / measured) over that of the machine's other libraries.
    variance : of the rows about their median.
    """

    library: str
    machine: str
    regime: int
    ratio: float
    variance: float


@dataclass(frozen=True)
class LibraryOffsets:
    """Offsets of libraries that were fitted, of libraries that nobody measured, and that other machines ran only."""

    known: tuple[LibraryOffset, ...] = ()
    whole: tuple[LibraryOffset, ...] = ()
    here: tuple[LibraryOffset, ...] = ()

    def deviations(self) -> dict[str, tuple[float, ...]]:
        """Return what a library that was not measured differs by, and one that was measured elsewhere only.

        The first is the deviation among libraries: one differs from the mean of n others by 1 + 1 / n of its variance,
        which the prediction adds (`perfmodel.prediction.latency.constants`). The spread within the library that grows
        where it is not known adds to the offsets.
        """
        return {
            "library": self._deviation("library", self.whole, lambda one: one.library),
            "library_here": self._deviation("library_here", self.here, lambda one: f"{one.library} {one.machine}"),
        }

    def _deviation(
        self, key: str, found: Sequence[LibraryOffset], part: Callable[[LibraryOffset], str]
    ) -> tuple[float, ...]:
        made = []
        for regime, usual in enumerate(ASSUMED_LIBRARY[key]):
            here = [one for one in found if one.regime == regime]
            parts = sorted({part(one) for one in here})
            squares = [_mean([self._square(key, one) for one in here if part(one) == name]) for name in parts]
            known = [one.variance for one in self.known if one.regime == regime]
            grown = _mean([one.variance for one in here]) - _mean(known)
            made.append(math.sqrt(_next(usual, squares) ** 2 + max(0.0, grown)))
        return tuple(made)

    def _square(self, key: str, one: LibraryOffset) -> float:
        """Return the square of an offset; of a library, that among libraries, without that of the others' mean."""
        if key != "library":
            return one.ratio**2
        same = [own for own in self.known if (own.machine, own.regime) == (one.machine, one.regime)]
        return one.ratio**2 / (1.0 + 1.0 / max(1, len(same) - 1))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _next(usual: float, squares: Sequence[float]) -> float:
    """Return the deviation of the next offset, given the squares of some from each other and what is usual."""
    freedom = PRIOR + max(0, len(squares) - 1)
    return math.sqrt(_drawn(squares, len(squares), usual)) * student_quantile(freedom) / Z80


def _drawn(squares: Sequence[float], parts: int, usual: float) -> float:
    """Return the variance of offsets that are those of so many parts, drawn to the usual one."""
    # The offsets of two parts from each other are one number, so that they have a degree of freedom less.
    own = max(0, parts - 1)
    return (PRIOR * usual**2 + own * _mean(squares)) / (PRIOR + own)


def student_quantile(freedom: float) -> float:
    """Return the 90 % quantile of Student's t, to 1 % from 3 degrees of freedom on, 3 % from 2 on.

    Abramowitz and Stegun, "Handbook of mathematical functions", 26.7.5.
    """
    z = Z80
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3


def offsets_of(machines: Iterable[LeftOut], regime: int) -> list[float]:
    """Return what each of n parts that were left out in turn differs by in a regime: of its machines, in squares.

    A part that is left out differs from the mean of the others, by 1 + 1 / (n - 1) of the variance between parts.
    """
    parts: dict[str, list[float]] = {}
    for machine in machines:
        if (offset := machine.offset(regime)) is not None:
            parts.setdefault(machine.part or machine.machine, []).append(offset)
    share = (len(parts) - 1) / len(parts) if len(parts) > 1 else 1.0
    return [math.sqrt(share * _mean([offset**2 for offset in offsets])) for offsets in parts.values()]


def machine_deviation(machines: Sequence[LeftOut], usual: Sequence[float]) -> tuple[float, ...]:
    """Return the deviation of a machine of another part in each regime; ``usual`` is that among such families."""
    made = []
    for regime, expected in enumerate(usual):
        made.append(_next(expected, [offset**2 for offset in offsets_of(machines, regime)]))
    return tuple(made)


def usual_deviation(alike: Sequence[Sequence[LeftOut]], every: Sequence[Sequence[LeftOut]]) -> tuple[float, ...]:
    """Return the deviation of machines in each regime that is usual in families like one.

    Parameters
    ----------
    alike, every : the machines that were left out of each family that differs between machines as the one does, and of
        every family; all of these count as `PRIOR` offsets. What a machine differs by in families that are alike is
        nearly one number (a left-out B200 is slower by 0.2 to 0.3 in all collectives), so that its parts are counted.
    """
    made = []
    for regime in range(len(REGIMES)):
        near, far = ([u**2 for machines in found for u in offsets_of(machines, regime)] for found in (alike, every))
        widely = math.sqrt(_mean(far)) if far else ASSUMED_MACHINE
        made.append(math.sqrt(_drawn(near, _parts(alike, regime), widely)))
    return tuple(made)


def _parts(families: Sequence[Sequence[LeftOut]], regime: int) -> int:
    """Return how many parts have offsets in a regime of some families."""
    found = (machine for machines in families for machine in machines if machine.offset(regime) is not None)
    return len({machine.part or machine.machine for machine in found})
