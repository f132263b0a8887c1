"""Constants of the latency model that belong to one machine, as its specification file states them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: how long an operator runs, for the stated interval: its launch outweighs its work, below 0.1 ms, and above
REGIMES = ("launch", "mid", "large")

_ALIKE = {"fp16": "bf16", "bf16": "fp16"}


@dataclass(frozen=True)
class LatencyTable:
    """The ``[latency.FAMILY]`` table of a specification: fitted constants and how far off they were.

    Attributes
    ----------
    constants : name -> value in SI units.
    libraries : library -> constants that are its own.
    intervals : regime -> the 10 % and 90 % quantiles of measured / predicted on rows that were not fitted.
    dtypes : of the rows that they were fitted on; empty where that is not known.
    source, date : what the constants were fitted on, and when.
    """

    constants: Mapping[str, float]
    libraries: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    source: str = ""
    date: str = ""
    note: str = ""

    def covers(self, dtype: str) -> bool:
        """Return whether rows of a dtype were fitted; fp16 and bf16 run alike."""
        return not self.dtypes or bool({dtype, _ALIKE.get(dtype, dtype)} & set(self.dtypes))

    @functools.cached_property
    def without_library(self) -> Mapping[str, float]:
        """The constants for a library that has none of its own: the geometric mean of what the others have."""
        found: dict[str, list[float]] = {}
        for own in self.libraries.values():
            for name, value in own.items():
                found.setdefault(name, []).append(math.log(value))
        return {name: math.exp(sum(logs) / len(logs)) for name, logs in found.items()} | dict(self.constants)
