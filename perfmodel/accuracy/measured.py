"""Measured calls of operators: the content of a table of measurements, ready to be predicted in one sweep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.units import format_count
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import PerfModelError
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.implementations import library_of, version_of

#: no call is as short as this [s], and ratios to shorter times overflow
SHORTEST_S = 1e-15
#: what times in seconds may have been entered in, and how many times too large they are then
_UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}


@dataclass(frozen=True)
class MeasuredCalls:
    """Calls of one operator on one machine that differ only in their sizes.

    Attributes
    ----------
    hardware : the machine's name in the table.
    op : one operator; each size that varies is an array with one value per row.
    time_s : measured time of each row [s].
    timing, cache : the interval that was timed, and the state of the caches.
    implementation : the kernel's origin in the table: "library-version/detail".
    flags : doubts of the table's author about each row; usually "".
    place : the file.
    line : line of each row in it.
    load : for how long the device had been at work.
    source : who published them, in tables of several; "" where the table does not say.
    parts : the operators that a single call runs one after another in place of one kernel; none for all others.
    """

    hardware: str
    op: Operator
    time_s: NDArray[np.float64]
    timing: Timing
    cache: CacheState
    implementation: str
    flags: NDArray[np.str_]
    place: str
    line: NDArray[np.int64]
    load: Load = Load.BURST
    source: str = ""
    parts: tuple[Operator, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "timing", Timing(self.timing))
        object.__setattr__(self, "cache", CacheState(self.cache))

    @property
    def library(self) -> str:
        """The library's name, without version and detail: "trtllm-1.0.0/torch_flow" is "trtllm"."""
        return library_of(self.implementation)

    @property
    def version(self) -> str:
        """The version of the library: "torch-2.1-cudnn" has 2.1; "" where the name has none."""
        return version_of(self.implementation)

    @property
    def conditions(self) -> Conditions:
        """The conditions that these times hold for; a replayed graph is timed on the device, as a kernel is."""
        timing = Timing.KERNEL if self.timing is Timing.GRAPH else self.timing
        return Conditions(timing, self.cache, self.library, self.load, self.version)

    def __len__(self) -> int:
        return int(self.time_s.size)

    def take(self, chosen: NDArray[Any] | slice) -> MeasuredCalls:
        """Return the rows that a mask, an index array or a slice selects."""
        sizes = {key: value[chosen] for key, value in self.op.params().items() if np.ndim(value)}
        return replace(
            self,
            op=replace(self.op, **sizes),
            time_s=self.time_s[chosen],
            flags=self.flags[chosen],
            line=self.line[chosen],
        )

    def one(self, index: int) -> MeasuredCalls:
        """Return one row, with plain numbers as sizes."""
        given = {key: value for key, value in self.op.params().items() if key not in self.op._derived}
        sizes = {key: value[index].item() for key, value in given.items() if np.ndim(value)}
        op = type(self.op)(**{**given, **sizes}, dtype=self.op.dtype)
        return replace(self.take(slice(index, index + 1)), op=op)


@dataclass(frozen=True)
class Skipped:
    """Rows that are left out for one reason.

    Attributes
    ----------
    reason : the reason, for people.
    rows : number of rows.
    place : file and line of the first one.
    """

    reason: str
    rows: int
    place: str

    def __str__(self) -> str:
        return f"{format_count(self.rows, 'row')}: {self.reason.rstrip('.')} (first: {self.place})"


class Skips:
    """A count of rows that are left out, by reason, so that nothing is dropped silently."""

    def __init__(self) -> None:
        self._by_reason: dict[str, Skipped] = {}

    def add(self, reason: str, place: str, lines: NDArray[np.int64]) -> None:
        """Count the rows on some lines of a file."""
        if lines.size:
            self._count(reason, int(lines.size), f"{place}:{lines.min()}")

    def update(self, others: Iterable[Skipped]) -> None:
        """Add the counts of another table."""
        for skipped in others:
            self._count(skipped.reason, skipped.rows, skipped.place)

    def _count(self, reason: str, rows: int, place: str) -> None:
        before = self._by_reason.get(reason)
        self._by_reason[reason] = Skipped(
            reason, rows + (before.rows if before else 0), before.place if before else place
        )

    def all(self) -> tuple[Skipped, ...]:
        """Return the counts, in the order in which the reasons appeared."""
        return tuple(self._by_reason.values())


def reason_of(error: PerfModelError) -> str:
    """Return why rows cannot be used, with the nearest name; the list of all names would hide other reasons."""
    place = f"{error.place}: " if error.place else ""
    hint = error.remedy.partition("Allowed:")[0]
    return f"{place}{error.message} {hint}".strip()


@dataclass(frozen=True)
class Measurements:
    """The content of one table.

    Attributes
    ----------
    place : the file.
    calls : its calls, in groups that differ only in their sizes.
    skipped : the rows that cannot be used, by reason.
    notes : further facts about the table, in sentences.
    """

    place: str
    calls: tuple[MeasuredCalls, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


def likely_unit(slower: float) -> str:
    """Return the unit in which times were most likely entered that should be in seconds, "" where they seem to be.

    Parameters
    ----------
    slower : how many times as long as predicted they are, in the median.
    """
    return next((name for name, factor in _UNITS.items() if factor / 4.0 < slower < factor * 4.0), "")


def shape_hash(op: Operator, rows: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each row, from its sizes alone: it is the same on every machine.

    A split by it keeps all measurements of a shape on one side. The mixing step is that of splitmix64 (G. L. Steele,
    D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    state = np.zeros(rows, dtype=np.uint64)
    sizes = {name: value for name, value in op.params().items() if not isinstance(value, (str, bool))}
    for name in sorted(sizes):
        state = _mixed(state ^ np.broadcast_to(np.asarray(sizes[name], dtype=np.float64), (rows,)).astype(np.uint64))
    return np.asarray((_mixed(state) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
