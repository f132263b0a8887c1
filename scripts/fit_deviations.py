"""What machines and libraries that nobody measured differ by: deviations of `perfmodel.prediction.latency.constants`.

Each machine, or library, is left out of a fit; the median of what is left of its rows is its offset u. Few offsets of a
family do not determine its deviation: it is drawn to that of families like it (`fit_hierarchy`), and the next offset is
distributed as Student's t. Tables state the normal deviation of the same 80 % interval, s t / z.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fit_hierarchy import ASSUMED_STRENGTH, Expected, Hierarchy, Variance, assumed, hierarchies, mean_square
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Floats
from perfmodel.core.latency_table import REGIMES

#: what machines differ between: vendors, in the widest table of families that several have; lines (kinds of memory) and
#: generations of a vendor; siblings with the same chip
VENDORS, LINES, GENERATIONS, SIBLINGS = BETWEEN = ("vendors", "lines", "generations", "siblings")
#: standard deviation of a normal distribution over its median absolute deviation
MAD = 1.4826
#: fewer rows of a machine in a regime than this give no offset
FEWEST = 10
#: of a machine, where no two were measured: assumed, the middle of all families
ASSUMED_MACHINE = 0.15
#: of a machine among others of its generation, beyond what their specifications say, in each regime: assumed. Two of
#: them differ by its 1.4-fold, 0.05: H100 and H200 (one laboratory) differ by 0.05, 0.03 and 0.03 in the three regimes
#: (the root mean square over families with more than 100 rows), and laboratories have libraries of their own
ASSUMED_SIBLING = (0.035, 0.035, 0.035)
#: sources of error of libraries
LIBRARY_KEYS = ("library", "library_here")
#: of libraries in each regime, before any pair of them is known: assumed, rounded from all families of the kind. Two
#: libraries differ by its 1.4-fold. Those that call the vendor's products (cuBLAS) differ by its version and by the
#: laboratory; engines have their own kernels of attention, experts and products with scales
OF_VENDOR = {"library": (0.08, 0.10, 0.07), "library_here": (0.08, 0.06, 0.05)}
OF_COLLECTIVES = {"library": (0.10, 0.10, 0.05), "library_here": (0.15, 0.12, 0.04)}
OF_ENGINE = {"library": (0.16, 0.16, 0.14), "library_here": (0.20, 0.14, 0.10)}
#: of experts, whose kernels engines write for each generation, and whose inputs they quantise as they see fit: two
#: libraries differ by 0.2 in 16 bits, 0.2 to 0.5 in 4 and 0.5 in 8 bits with scales of blocks; their 0.7-fold, rounded
OF_EXPERTS = {**OF_ENGINE, "library": (0.20, 0.20, 0.20)}
#: of attention, whose long calls differ more: by what the tensor engine reaches
OF_ATTENTION = {**OF_ENGINE, "library": (0.16, 0.18, 0.15)}
#: of products with scales of blocks, most of whose libraries were timed around calls that the host dispatches, which
#: takes 60, 90 and 181 us in three kernels of vLLM on H100: by a factor of two in the launch regime
OF_DISPATCHED = {**OF_ENGINE, "library": (0.70, 0.16, 0.14)}
#: of streams: kernels of engines that load element by element take an H100 1.6 times as long for SwiGLU as those by
#: vectors of 16 B; 0.47 over the root of 2 is the deviation of these two, and half of the operations have such kernels
OF_STREAMS = {"library": (0.25, 0.23, 0.23), "library_here": (0.15, 0.12, 0.08)}
#: of look-ups of rows: PyTorch's kernel before 2.7, which engines call, loads element by element, and takes an H100 3.5
#: times as long as that by vectors below 15 us and 4.5 times above: 1.25 and 1.5 over the root of 2, and less by the
#: engines that have the same
OF_LOOK_UPS = {"library": (0.60, 0.75, 0.75), "library_here": (0.15, 0.12, 0.08)}


@dataclass(frozen=True)
class LeftOut:
    """Residuals ln(measured / predicted) of one machine under constants that were fitted without it.

    Attributes
    ----------
    machine : its name.
    ratio, regime : of each row.
    part : name of the machines that were left out together.
    link : the kind of link that the rows cross, where no other machine's rows do.
    apart : which rows the family tells apart; None for none.
    """

    machine: str
    ratio: Floats
    regime: NDArray[np.intp]
    part: str = ""
    link: str = ""
    apart: NDArray[np.bool_] | None = None

    def offset(self, regime: int) -> float | None:
        """Return the median of a regime: what the machine differs by; None where rows are few."""
        rows = self.ratio[self.regime == regime]
        return float(np.median(rows)) if rows.size >= FEWEST else None

    def without(self, regime: int) -> LeftOut:
        """Return the rows of the other regimes."""
        others = self.regime != regime
        apart = None if self.apart is None else self.apart[others]
        return replace(self, ratio=self.ratio[others], regime=self.regime[others], apart=apart)

    def within(self, regime: int) -> Floats:
        """Return what is left of a regime's rows without the machine's offset."""
        rows = self.ratio[self.regime == regime]
        return rows - np.median(rows) if rows.size else rows

    def apart_in(self, regime: int) -> NDArray[np.bool_]:
        """Return which of the rows of `within` the family tells apart."""
        here = self.regime == regime
        return np.zeros(int(here.sum()), dtype=np.bool_) if self.apart is None else self.apart[here]


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

    def squares(self, key: str, regime: int) -> dict[str, float]:
        """Return the mean square of the offsets of each library, or of each library on each machine."""
        found: dict[str, list[float]] = {}
        for one in self._left_out(key, regime):
            part = one.library if key == "library" else f"{one.library} {one.machine}"
            found.setdefault(part, []).append(self._square(key, one))
        return {part: _mean(squares) for part, squares in found.items()}

    def grown(self, key: str, regime: int) -> float | None:
        """Return by how much the variance over shapes grows where a library is not known; None where nothing tells."""
        left_out = [one.variance for one in self._left_out(key, regime)]
        known = [one.variance for one in self.known if one.regime == regime]
        return _mean(left_out) - _mean(known) if left_out and known else None

    def _left_out(self, key: str, regime: int) -> list[LibraryOffset]:
        return [one for one in (self.whole if key == "library" else self.here) if one.regime == regime]

    def _square(self, key: str, one: LibraryOffset) -> float:
        """Return the square of an offset; of a library, that among libraries, without that of the others' mean."""
        if key != "library":
            return one.ratio**2
        same = [own for own in self.known if (own.machine, own.regime) == (one.machine, one.regime)]
        return one.ratio**2 / (1.0 + 1.0 / max(1, len(same) - 1))


def library_deviations(
    own: LibraryOffsets,
    alike: Sequence[LibraryOffsets],
    every: Sequence[LibraryOffsets],
    usual: Mapping[str, Sequence[Expected]],
) -> dict[str, tuple[float, ...]]:
    """Return what a library that was not measured differs by, and one that was measured elsewhere only.

    The first is the deviation among libraries: one differs from the mean of n others by 1 + 1 / n of its variance,
    which the prediction adds (`perfmodel.prediction.latency.constants`). The spread within the library that grows where
    it is not known adds to the offsets.

    Parameters
    ----------
    own : the offsets of the family.
    alike, every : those of all other families whose libraries differ alike, and of all families: the first of which
        something is known tells how much the spread grows.
    usual : source of error -> what is usual in these in each regime.
    """
    made = {}
    for key, regimes in usual.items():
        deviations = []
        for regime, expected in enumerate(regimes):
            known = ([one.grown(key, regime) for one in near] for near in ([own], alike, every))
            grown = next((found for near in known if (found := [g for g in near if g is not None])), [])
            deviation = expected.next(list(own.squares(key, regime).values()))
            deviations.append(math.hypot(deviation, math.sqrt(max(0.0, _mean(grown)))))
        made[key] = tuple(deviations)
    return made


def usual_libraries(
    alike: Mapping[str, Sequence[LibraryOffsets]], before: Mapping[str, Mapping[str, Sequence[float]]], key: str
) -> list[Hierarchy]:
    """Return what libraries usually differ by in each regime.

    A kind of families of which nothing is assumed differs as the median of all others, which are as many samples of it:
    one whose libraries have kernels of another form is not usual.

    Parameters
    ----------
    alike : kind -> the offsets of its families.
    before : kind -> source of error -> what is assumed before any two libraries of it are known.
    key : the source of error.
    """
    made = []
    for regime in range(len(REGIMES)):
        kinds = {}
        for kind, expected in before.items():
            found = [one.squares(key, regime) for one in alike.get(kind, ())]
            own = mean_square([u for one in found for u in one.values()], len(set().union(*found)))
            variance = assumed(expected[key][regime]).variance.drawn(own, ASSUMED_STRENGTH)
            kinds[kind] = assumed(math.sqrt(variance.value))
        usual = float(np.median([one.variance.value for one in kinds.values()]))
        made.append(Hierarchy(kinds, Expected(Variance(usual, len(kinds) - 1.0))))
    return made


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


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


def machine_deviation(machines: Sequence[LeftOut], usual: Sequence[Expected]) -> tuple[float, ...]:
    """Return the deviation of a machine of another part in each regime; ``usual`` is that among such families."""
    return tuple(
        expected.next([offset**2 for offset in offsets_of(machines, regime)]) for regime, expected in enumerate(usual)
    )


def usual_machines(kinds: Mapping[str, Sequence[Sequence[LeftOut]]]) -> list[Hierarchy]:
    """Return what machines usually differ by in each regime.

    Parameters
    ----------
    kinds : the machines that were left out of the tables of the families of each kind.
    """
    found, parts = [], []
    for regime in range(len(REGIMES)):
        squares = {k: [[u**2 for u in offsets_of(one, regime)] for one in tables] for k, tables in kinds.items()}
        found.append({kind: [mean_square(own) for own in tables] for kind, tables in squares.items()})
        parts.append({kind: _parts(tables, regime) for kind, tables in kinds.items()})
    return hierarchies(found, parts, (ASSUMED_MACHINE,) * len(REGIMES))


def _parts(families: Sequence[Sequence[LeftOut]], regime: int) -> int:
    """Return how many parts have offsets in a regime of some families."""
    found = (machine for machines in families for machine in machines if machine.offset(regime) is not None)
    return len({machine.part or machine.machine for machine in found})


def link_deviation(
    left_out: Sequence[LeftOut], machine: Sequence[float], expected: Sequence[Expected]
) -> tuple[float, ...]:
    """Return the deviation of a kind of link that nobody measured, in each regime.

    Rows over a kind of link that no other machine has tell what it differs by, and what its machines do. That of two
    kinds is one number, in all families that exchange.

    Parameters
    ----------
    left_out : the machines of all families that exchange.
    machine : the usual deviation between machines, which their squares are less of.
    expected : what is assumed before two kinds are known.
    """
    made = []
    for regime, (of_machine, before) in enumerate(zip(machine, expected, strict=True)):
        offsets = [(one.link, one.offset(regime)) for one in left_out if one.link]
        squares = [max(0.0, u**2 - of_machine**2) for _, u in offsets if u is not None]
        kinds = len({kind for kind, u in offsets if u is not None})
        made.append(before.next(squares, kinds))
    return tuple(made)


def growth(tables: Iterable[tuple[Sequence[LeftOut], Sequence[LeftOut]]]) -> tuple[float, ...]:
    """Return by how much the variance over shapes grows in each regime where the machine is not known.

    Parameters
    ----------
    tables : of each table, its machines when they were left out and when they were fitted.
    """
    pairs = list(tables)
    made = []
    for regime in range(len(REGIMES)):
        variances = [[_mean(_variances(machines, regime)) for machines in pair] for pair in pairs]
        made.append(max(0.0, _mean([left_out - known for left_out, known in variances if left_out and known])))
    return tuple(made)


def _variances(machines: Iterable[LeftOut], regime: int) -> list[float]:
    """Return the variance of each machine's rows about their median, which few rows far off do not tell."""
    within = [rows for machine in machines if (rows := machine.within(regime)).size >= FEWEST]
    return [float(np.median(np.abs(rows)) * MAD) ** 2 for rows in within]
