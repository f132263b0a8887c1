"""The ``[latency.FAMILY]`` table of a specification: constants of the latency model fitted on one machine."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.surface import Surface
from perfmodel.core.vocabulary import ErrorSource

#: how long an operator runs, for the stated interval: its launch outweighs its work; below 0.1 ms; above
REGIMES = ("launch", "mid", "large")

#: sources of error beside the shape: a machine that was not measured, or with other collectives only ("machine_here");
#: a library that was measured nowhere ("library") or on other machines only ("library_here"); a dtype of which no row
#: of the vendor was fitted ("dtype") or rows of other machines only ("dtype_here"); a vendor without any measured
#: machine; a kind of link that no row crossed; the host that the devices sit in, which no specification knows; calls
#: unlike those that were fitted, by kernels of a kind without rows, dispatched by another host, or of a library whose
#: releases differ (`Family.doubts`)
DEVIATIONS = tuple(source for source in ErrorSource if source not in (ErrorSource.SHAPE, ErrorSource.RUN))


def same_speed(dtype: str) -> str:
    """Return the dtype whose kernels are as fast: fp16 runs like bf16."""
    return "bf16" if dtype == "fp16" else dtype


@dataclass(frozen=True)
class LatencyTable:
    """Fitted constants of one family, and how far they were off.

    Attributes
    ----------
    constants : name -> value in SI units.
    libraries : library -> its own values of some constants.
    intervals : regime -> the 10 % and 90 % quantiles of measured / predicted on rows that were not fitted, each machine
        about its own median: what shapes differ by.
    deviations : another source of error -> standard deviation of ln(measured / predicted) in each regime, see
        `DEVIATIONS`.
    known_libraries : libraries of the rows that the constants were fitted on; "" where rows of the machine's owner name
        none, so that they tell what a call without a library takes.
    dtypes : dtypes of the rows that they were fitted on; empty where that is unknown.
    source, date : what the constants were fitted on, and when.
    surface : what is left over at each size, where enough rows say.
    links : kinds of link that the rows crossed; empty for rows that cross none, and for a machine's own.
    apart : the intervals of calls that the family tells apart, since their shapes differ by more or less.
    spread : library -> half widths of its intervals, over those of all libraries; 1 for others.
    with_surface : whether the intervals are of rows that the surface corrected, in place of the surface's own.
    """

    constants: Mapping[str, float]
    libraries: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    deviations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    known_libraries: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    source: str = ""
    date: str = ""
    note: str = ""
    surface: Surface | None = None
    links: tuple[str, ...] = ()
    apart: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    with_surface: bool = False

    def covers(self, dtype: str) -> bool:
        """Return whether rows of a dtype were fitted; fp16 and bf16 have the same speed."""
        return not self.dtypes or same_speed(dtype) in map(same_speed, self.dtypes)

    def crosses(self, link: str) -> bool:
        """Return whether rows over a kind of link were fitted, or the kind is that of the machine."""
        return not self.links or link in self.links

    @functools.cached_property
    def without_library(self) -> Mapping[str, float]:
        """The constants for a library without values of its own: the geometric mean of those of the others.

        A kernel that is named within a library ("torch/fa2") is not one of them: nobody runs it who does not ask.
        """
        means = mean_constants(values for library, values in self.libraries.items() if "/" not in library)
        return means | dict(self.constants)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of values above 0.

    >>> round(geometric_mean([1.0, 4.0]), 12)
    2.0
    """
    return math.exp(sum(map(math.log, values)) / len(values))


def mean_constants(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the geometric mean of each constant over the tables that have it."""
    by_name: dict[str, list[float]] = {}
    for values in tables:
        for name, value in values.items():
            by_name.setdefault(name, []).append(value)
    return {name: geometric_mean(values) for name, values in by_name.items()}
