"""A profile: the parts of a run, the time that each part takes, and, for a traced run, the time line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType
from typing import NamedTuple

from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import UsageError, expect, unknown_name
from perfmodel.operators import Operator
from perfmodel.profile.timeline import Timeline

#: key of `ProfileEntry.metrics` that holds the mean number of registers per thread of an entry's kernels
REGISTERS = "registers_per_thread"


@dataclass(frozen=True)
class ProfileEntry:
    """One named part of a run: a kernel, a framework operator with its shapes, a region of the program.

    Attributes
    ----------
    name : as the profiler wrote it; operators that differ only by shape have the shapes appended.
    time_s : time in this part over the whole run, all calls together [s]; finite and not negative.
    calls : number of calls, or None where the profile does not record it.
    category : an `EventKind`, given as a member or as its word; empty where the profile does not record it.
    op : the operator of the model that one call computes, `op.count` times in a row (a convolution's backward pass
        computes two), where names and shapes identify it; else None.
    launched_by : the framework operator that launched it ("aten::addmm"), or empty.
    kernels : names of the kernels that ran for a framework operator, the longest-running first.
    flop, bytes : FLOP and bytes of device memory that hardware counters measured over all calls, or None.
    metrics : further readings under the profiler's names, in SI units ("sm__warps_active.avg.pct_of_peak...").
    not_modelled : the reason why ``op`` is None, or empty.

    Raises
    ------
    UsageError
        On construction, for an unknown category.
    """

    name: str
    time_s: float
    calls: int | None = None
    category: EventKind | str = ""
    op: Operator | None = None
    launched_by: str = ""
    kernels: tuple[str, ...] = ()
    flop: float | None = None
    bytes: float | None = None
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    not_modelled: str = ""

    def __post_init__(self) -> None:
        if self.category and not isinstance(self.category, EventKind):
            if self.category not in set(EventKind):
                raise unknown_name("category", self.category, EventKind, place=self.name)
            object.__setattr__(self, "category", EventKind(self.category))


class ProcessGroup(NamedTuple):
    """Processes of a job that exchange with each other: the group's name, and their numbers in the job."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Profile(Reportable):
    """Where the time of a run went.

    No entry contains another, so the times of the entries add up to the total.

    Attributes
    ----------
    entries : the parts; their names are unique.
    source : the file that the profile was read from, for messages.
    notes : decisions of the reader (columns chosen, rows merged or left out), as sentences for people.
    skipped : reason -> number of rows or events that were left out.
    format : name of the file's format ("torch trace", "nsys sqlite"), or empty.
    device : the GPU's name as the profiler wrote it, or empty.
    timeline : the time line of a trace; None for tables of sums.
    rank : number of the process among several, where the profile records it.
    world_size : how many processes the job has, where the profile records it.
    groups : the process groups that the process belongs to, where the profile lists them.
    host : the name of its host, where the profile records it.

    Raises
    ------
    UsageError
        On construction, for a time that is negative or not finite, and for a name that occurs twice
        (`from_entries` adds entries of one name).
    """

    entries: tuple[ProfileEntry, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    format: str = ""
    device: str = ""
    timeline: Timeline | None = None
    rank: int | None = None
    world_size: int | None = None
    groups: tuple[ProcessGroup, ...] = ()
    host: str = ""

    def __post_init__(self) -> None:
        names: set[str] = set()
        object.__setattr__(self, "entries", tuple(self.entries))
        remedy = 'Write pm.ProfileEntry("attention", 0.12): a name and seconds.'
        for entry in self.entries:
            expect(entry, ProfileEntry, "entry of a profile", place=self.source or "entries", remedy=remedy)
            if type(entry.time_s) is not float:  # an abstract class takes longer to ask
                expect(entry.time_s, Real, "time", place=self.source or repr(entry.name), remedy=remedy)
            if not (math.isfinite(entry.time_s) and entry.time_s >= 0):
                raise UsageError(f"the time of {entry.name!r} is {entry.time_s} s.", place=self.source)
            if entry.name in names:
                raise UsageError(
                    f"the name {entry.name!r} occurs twice.",
                    place=self.source,
                    remedy="Profile.from_entries adds entries of one name.",
                )
            names.add(entry.name)

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[ProfileEntry],
        *,
        source: str = "",
        notes: tuple[str, ...] = (),
        skipped: Mapping[str, int] | None = None,
        format: str = "",  # noqa: A002 -- the name of the attribute
        device: str = "",
        timeline: Timeline | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        groups: tuple[ProcessGroup, ...] = (),
        host: str = "",
    ) -> Profile:
        """Return a profile in which entries of one name are added up, with notes on that and on what was skipped.

        The sum of calls, FLOP or bytes is None if one of the entries lacks the figure. Attributes that differ between
        the entries (operator, category, launching operator) become empty.
        """
        named: dict[str, list[ProfileEntry]] = {}
        for entry in entries:
            named.setdefault(entry.name, []).append(entry)
        merged = tuple(_sum_entries(group) for group in named.values())
        repeated = [group for group in named.values() if len(group) > 1]
        if repeated:
            rows = sum(len(group) for group in repeated)
            several = f"{rows} rows share {len(repeated)} names; rows of one name are summed."
            notes = (*notes, several if len(repeated) > 1 else f"{rows} rows share one name; they are summed.")
        skipped = dict(skipped or {})
        notes = (*notes, *(f"Left out: {count} x {reason}." for reason, count in skipped.items()))
        kept = MappingProxyType(skipped)
        return cls(merged, source, notes, kept, format, device, timeline, rank, world_size, groups, host)

    @property
    def total_time_s(self) -> float:
        """The time of all entries together [s]."""
        return math.fsum(entry.time_s for entry in self.entries)


def _sum_entries(group: list[ProfileEntry]) -> ProfileEntry:
    """Return the sum of entries of one name."""
    first = group[0]
    if len(group) == 1:
        return first
    calls, flop, moved = (_sum([getattr(entry, key) for entry in group]) for key in ("calls", "flop", "bytes"))
    equal = {
        key: getattr(first, key)
        for key in ("category", "op", "launched_by", "not_modelled")
        if all(getattr(entry, key) == getattr(first, key) for entry in group)
    }
    return ProfileEntry(
        first.name,
        math.fsum(entry.time_s for entry in group),
        None if calls is None else int(calls),
        flop=flop,
        bytes=moved,
        kernels=tuple(dict.fromkeys(kernel for entry in group for kernel in entry.kernels)),
        **equal,
    )


def _sum(values: list[float | None]) -> float | None:
    """Return the sum, or None if a value is missing."""
    present = [value for value in values if value is not None]
    return math.fsum(present) if len(present) == len(values) else None
