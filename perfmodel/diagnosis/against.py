"""Two diagnoses, before and after: how much each dimension and each entry contributed to the change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_count, format_si
from perfmodel.diagnosis.result import Diagnosis
from perfmodel.diagnosis.work_done import work_done
from perfmodel.errors import UsageError, expect
from perfmodel.profile.profile import Profile, ProfileEntry

#: how an entry of one side was matched on the other
BOTH, RENAMED, APPEARED, VANISHED = "both", "renamed", "appeared", "vanished"
#: what the times refer to: the whole window, or one of the profiler's steps
RUN, STEP, WORK = "run", "step", "same work"
#: a framework operator with its shapes, and the data type that may follow them
_SHAPED = re.compile(r"(.+\))(?: [\w/]+)?")


@dataclass(frozen=True)
class Change:
    """The time of one dimension or entry on both sides.

    Attributes
    ----------
    name : of the dimension or entry; the name on the second side for an entry that only that side has.
    before_s, after_s : its times [s]; None where that side cannot tell, or lacks it.
    share : its contribution to the change of the total: (after - before) / total before. The shares of all dimensions,
        and of a trace the shares of all entries, add up to total after / total before - 1. None without a total.
    status : "both", "renamed", "appeared" or "vanished".
    after_name : its name on the second side.
    before_calls, after_calls : number of calls of an entry in the whole window, or None.
    """

    name: str
    before_s: float | None
    after_s: float | None
    share: float | None
    status: str = BOTH
    after_name: str = ""
    before_calls: int | None = None
    after_calls: int | None = None

    @property
    def change_s(self) -> float:
        """After minus before [s]; a missing side counts as 0."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)

    @property
    def change(self) -> float | None:
        """After / before - 1; None where a side lacks it, or where the time before is 0."""
        if self.after_s is None or not self.before_s:
            return None
        return self.after_s / self.before_s - 1.0


@dataclass(frozen=True)
class DiagnosisComparison(Reportable):
    """A run compared with an earlier one.

    Attributes
    ----------
    before, after : the diagnoses.
    per : "step" where both traces mark steps of the profiler, but not equally many; "same work" where they do not, and
        the kernels of both ran in another number; else "run".
    work : how many times the work of the first window the second one holds; 1 except for "same work".
    steps : number of the profiler's steps on each side; 0 where it marks none.
    dimensions : in their usual order; without those that neither side can tell.
    entries : the entries of `Diagnosis.wall`, matched; the largest change of time first.
    notes : differences between the sides other than their times.
    """

    before: Diagnosis
    after: Diagnosis
    per: str
    steps: tuple[int, int]
    dimensions: tuple[Change, ...]
    entries: tuple[Change, ...]
    notes: tuple[str, ...]
    work: float = 1.0

    @property
    def before_s(self) -> float:
        """The total before, of a run or of a step [s]."""
        return self.before.total_s / self.divisors[0]

    @property
    def after_s(self) -> float:
        """The total after, of a run or of a step [s]."""
        return self.after.total_s / self.divisors[1]

    @property
    def divisors(self) -> tuple[float, float]:
        """The numbers by which the times of the two diagnoses are divided."""
        return self.steps if self.per == STEP else (1, self.work)

    @property
    def speedup(self) -> float | None:
        """Before / after; None where a side has no time."""
        return self.before_s / self.after_s if self.before_s and self.after_s else None

    @property
    def headline(self) -> str:
        """The change of the total as text: "929 ms -> 770 ms, 1.21x as fast"."""
        total = f"{format_si(self.before_s, 's', 3)} -> {format_si(self.after_s, 's', 3)}"
        per = {STEP: " per step", WORK: " for the same work"}.get(self.per, "")
        return f"{total}{per}" + (f", {self.speedup:.3g}x as fast" if self.speedup else "")


def compare_diagnoses(before: Diagnosis, after: Diagnosis) -> DiagnosisComparison:
    """Return what changed from one diagnosis to another, dimension by dimension and entry by entry.

    Entries are matched by name. Since versions rename kernels, the others are matched by their work, where that
    identifies one entry on each side: the operator with its shapes, data type and launching operator; the operator
    alone; the framework operator with its shapes, whatever its data type. Where both traces mark steps of the profiler,
    but not equally many, times are those of one step.

    Parameters
    ----------
    before, after : diagnoses of two traces, or of two profiles without a time line.

    Raises
    ------
    UsageError
        When only one of them has a time line: its total is wall time, the other's is the sum of its rows; and for what
        is no diagnosis.
    """
    for place, diagnosis in (("before", before), ("after", after)):
        expect(diagnosis, Diagnosis, "diagnosis", place=place, remedy="Write pm.diagnose(profile).")
    if (before.decomposition is None) != (after.decomposition is None):
        traced, summed = (before, after) if before.decomposition else (after, before)
        raise UsageError(
            f"{_place(traced)} is a trace, but {_place(summed)} has only sums.",
            remedy="Wall time cannot be compared with a sum of rows: give two traces, or two tables.",
        )
    steps = (_count_steps(before.profile), _count_steps(after.profile))
    per = STEP if all(steps) and steps[0] != steps[1] else RUN
    matches = match_entries(before.wall.entries, after.wall.entries)
    work, doubt = (1.0, "") if all(steps) else work_done(matches)
    per = WORK if work != 1.0 else per
    divisors: tuple[float, float] = steps if per == STEP else (1, work)
    total_s = before.total_s / divisors[0]
    dimensions = []
    for part in before.parts:
        times_s = _Times.of(part.time_s, after.part(part.dimension).time_s, divisors)
        if not times_s.unknown:
            dimensions.append(Change(part.dimension, *times_s, times_s.share(total_s)))
    entries = sorted(
        (_entry_change(match, divisors, total_s) for match in matches), key=lambda change: -abs(change.change_s)
    )
    notes = (*([doubt] if doubt else []), *_notes(before, after, steps))
    return DiagnosisComparison(before, after, per, steps, tuple(dimensions), tuple(entries), notes, work)


def _count_steps(profile: Profile) -> int:
    return profile.timeline.count_steps() if profile.timeline else 0


class _Times(NamedTuple):
    """A time before and after, of a run or of a step [s]; None where it is unknown."""

    before_s: float | None
    after_s: float | None

    @classmethod
    def of(cls, before_s: float | None, after_s: float | None, divisors: tuple[float, float]) -> _Times:
        """Return times of whole runs divided by the numbers of steps."""
        return cls(
            None if before_s is None else before_s / divisors[0], None if after_s is None else after_s / divisors[1]
        )

    @property
    def unknown(self) -> bool:
        """Whether neither time is known."""
        return self.before_s is None and self.after_s is None

    def share(self, total_s: float) -> float | None:
        """Return the contribution to the change of a total before [s]."""
        return ((self.after_s or 0.0) - (self.before_s or 0.0)) / total_s if total_s else None


class Match(NamedTuple):
    """One entry on both sides; None on the side that lacks it."""

    before: ProfileEntry | None
    after: ProfileEntry | None


def match_entries(before: Iterable[ProfileEntry], after: Iterable[ProfileEntry]) -> list[Match]:
    """Return the entries of two profiles in pairs; see `compare_diagnoses`."""
    left, right = ({entry.name: entry for entry in side} for side in (before, after))
    matches = [Match(left.pop(name), right.pop(name)) for name in [name for name in left if name in right]]
    for key in (_work_and_launcher, _work, _shapes):
        first, second = (_unique(side.values(), key) for side in (left, right))
        shared = [value for value in first if value in second]
        matches += [Match(left.pop(first[value].name), right.pop(second[value].name)) for value in shared]
    only_before = (Match(entry, None) for entry in left.values())
    only_after = (Match(None, entry) for entry in right.values())
    return [*matches, *only_before, *only_after]


def _entry_change(match: Match, divisors: tuple[float, float], total_s: float) -> Change:
    """Return the change of one entry, as a contribution to the change of a total before [s]."""
    before, after = match
    times_s = _Times.of(before.time_s if before else None, after.time_s if after else None, divisors)
    return Change(
        before.name if before else after.name if after else "",
        *times_s,
        times_s.share(total_s),
        status=_status(before, after),
        after_name=after.name if after else "",
        before_calls=before.calls if before else None,
        after_calls=after.calls if after else None,
    )


def _work_and_launcher(entry: ProfileEntry) -> str:
    return f"{entry.op} {entry.launched_by}" if entry.op else ""


def _work(entry: ProfileEntry) -> str:
    return str(entry.op) if entry.op else ""


def _shapes(entry: ProfileEntry) -> str:
    """Return the framework operator with its shapes, without the data type."""
    shaped = _SHAPED.fullmatch(entry.name) if entry.launched_by else None
    return shaped.group(1) if shaped else ""


def _unique(entries: Iterable[ProfileEntry], key: Callable[[ProfileEntry], str]) -> dict[str, ProfileEntry]:
    """Return key -> entry for the entries with a key of their own; an empty key is none."""
    groups: dict[str, list[ProfileEntry]] = {}
    for entry in entries:
        if key(entry):
            groups.setdefault(key(entry), []).append(entry)
    return {value: group[0] for value, group in groups.items() if len(group) == 1}


def _status(first: ProfileEntry | None, second: ProfileEntry | None) -> str:
    if first is None or second is None:
        return APPEARED if first is None else VANISHED
    return BOTH if first.name == second.name else RENAMED


def _place(diagnosis: Diagnosis) -> str:
    return diagnosis.profile.source or "the profile"


def _notes(before: Diagnosis, after: Diagnosis, steps: tuple[int, int]) -> tuple[str, ...]:
    """Return sentences about differences between the sides other than their times."""
    notes = []
    devices = [side.profile.device or "unknown" for side in (before, after)]
    if devices[0] != devices[1]:
        notes.append(f"Different devices: {devices[0]} before, {devices[1]} after.")
    counts = [len(side.decomposition.devices) if side.decomposition else 0 for side in (before, after)]
    if counts[0] != counts[1]:
        notes.append(f"{format_count(counts[0], 'GPU')} before, {counts[1]} after; times are means over the GPUs.")
    formats = [side.profile.format or "unknown" for side in (before, after)]
    if formats[0] != formats[1]:
        notes.append(f"Different formats: {formats[0]} before, {formats[1]} after; the names of entries may differ.")
    if bool(steps[0]) != bool(steps[1]):
        notes.append("Only one trace marks steps of the profiler: the windows may contain different amounts of work.")
    unknown = [part.dimension for part in before.parts if part.time_s is None]
    if unknown and before.decomposition is None:
        notes.append(f"Unknown without a time line: {', '.join(unknown)}. Times are those of the listed rows.")
    return tuple(notes)
