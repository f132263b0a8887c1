"""A profile: named parts of a run and the time that each of them takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perfmodel.errors import UsageError


@dataclass(frozen=True)
class ProfileEntry:
    """One named part of a run: a kernel, an operator, a region.

    Attributes
    ----------
    name : as the profiler wrote it.
    time_s : time in this part over the whole run, all calls together [s]; finite and not negative.
    calls : how often it ran, or None where the profile does not say.
    """

    name: str
    time_s: float
    calls: int | None = None


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went.

    Entries stand side by side: none contains another, so their times add up to the total.

    Attributes
    ----------
    entries : the parts, each name once.
    source : where it was read from, for messages.
    notes : what was decided while reading (columns chosen, rows merged or left out), sentences for people.
    skipped : reason -> number of rows that were left out.

    Raises
    ------
    UsageError
        On construction, for a time that is negative or not finite, and for a name that stands twice
        (`from_entries` sums those).
    """

    entries: tuple[ProfileEntry, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for entry in self.entries:
            if not (math.isfinite(entry.time_s) and entry.time_s >= 0):
                raise UsageError(f"the time of {entry.name!r} is {entry.time_s} s.", place=self.source)
            if entry.name in seen:
                raise UsageError(
                    f"the name {entry.name!r} stands twice.",
                    place=self.source,
                    remedy="Profile.from_entries sums entries of one name.",
                )
            seen.add(entry.name)

    @classmethod
    def from_entries(
        cls,
        entries: Iterable[ProfileEntry],
        *,
        source: str = "",
        notes: tuple[str, ...] = (),
        skipped: Mapping[str, int] | None = None,
    ) -> Profile:
        """Return a profile in which entries of one name are summed, with a note that says so.

        The sum of calls is None where one of the summed entries does not say its calls.
        """
        groups: dict[str, list[ProfileEntry]] = {}
        for entry in entries:
            groups.setdefault(entry.name, []).append(entry)
        merged = tuple(_sum_entries(group) for group in groups.values())
        several = [group for group in groups.values() if len(group) > 1]
        if several:
            rows = sum(len(group) for group in several)
            said = f"{rows} rows share {len(several)} names with other rows; the rows of one name are summed."
            notes = (*notes, said if len(several) > 1 else f"{rows} rows share one name; they are summed.")
        return cls(merged, source, notes, MappingProxyType(dict(skipped or {})))

    @property
    def total_time_s(self) -> float:
        """The time of all entries together [s]."""
        return math.fsum(entry.time_s for entry in self.entries)


def _sum_entries(group: list[ProfileEntry]) -> ProfileEntry:
    """Return the sum of entries of one name."""
    if len(group) == 1:
        return group[0]
    calls = [entry.calls for entry in group if entry.calls is not None]
    known = sum(calls) if len(calls) == len(group) else None
    return ProfileEntry(group[0].name, math.fsum(entry.time_s for entry in group), known)
