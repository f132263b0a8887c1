"""A profile: the parts of a run and the time that each of them takes, and, where it was traced, its time line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.profile.timeline import Timeline

#: what a part of a run is: work of the GPU, moving data, talking to other GPUs, or a region of the program
KERNEL, MEMCPY, MEMSET, COMMUNICATION, HOST = "kernel", "memcpy", "memset", "communication", "host"
#: key of `ProfileEntry.metrics` under which readers of traces leave the mean registers of a thread of its kernels
REGISTERS = "registers_per_thread"


@dataclass(frozen=True)
class ProfileEntry:
    """One named part of a run: a kernel, a framework's operator with its shapes, a region.

    Attributes
    ----------
    name : as the profiler wrote it; for operators told apart by shape, with the shapes behind it.
    time_s : time in this part over the whole run, all calls together [s]; finite and not negative.
    calls : how often it ran, or None where the profile does not say.
    category : "kernel", "memcpy", "memset", "communication" or "host"; empty where the profile does not say.
    op : the operator of the model that one call computes, `op.count` times in a row (a convolution's backward pass is
        two of them), where names and shapes tell it; else None.
    launched_by : the framework's operator that launched it ("aten::addmm"), or empty.
    kernels : names of the kernels behind a framework's operator, the longest first.
    flop, bytes : FLOP and bytes of device memory that hardware counters saw in all calls together, or None.
    metrics : further readings of a profiler by their own names, in SI units ("sm__warps_active.avg.pct_of_peak...").
    not_modelled : why there is no ``op``, or empty.
    """

    name: str
    time_s: float
    calls: int | None = None
    category: str = ""
    op: Operator | None = None
    launched_by: str = ""
    kernels: tuple[str, ...] = ()
    flop: float | None = None
    bytes: float | None = None
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    not_modelled: str = ""


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went.

    Entries stand side by side: none contains another, so their times add up to the total.

    Attributes
    ----------
    entries : the parts, each name once.
    source : where it was read from, for messages.
    notes : what was decided while reading (columns chosen, rows merged or left out), sentences for people.
    skipped : reason -> number of rows or events that were left out.
    format : name of the format that it was read from ("torch trace", "nsys sqlite"), or empty.
    device : the GPU's name as the profiler wrote it, or empty.
    timeline : when everything ran, where the profile is a trace; None for tables of sums.
    rank : which of several processes it is of, where the profile says so.

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
    format: str = ""
    device: str = ""
    timeline: Timeline | None = None
    rank: int | None = None

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
        format: str = "",  # noqa: A002 -- the name of the attribute
        device: str = "",
        timeline: Timeline | None = None,
        rank: int | None = None,
    ) -> Profile:
        """Return a profile in which entries of one name are summed, with a note that says so.

        A sum of calls, FLOP or bytes is None where one of the summed entries does not say; what else differs
        between them (operator, category, launching operator) is left empty.
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
        return cls(merged, source, notes, MappingProxyType(dict(skipped or {})), format, device, timeline, rank)

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
    same = {
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
        **same,
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
