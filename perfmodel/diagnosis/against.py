"""Two diagnoses, before and after: what each dimension and each entry contributed to the change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.diagnosis.evidence.whereabouts import count_steps
from perfmodel.diagnosis.result import Diagnosis
from perfmodel.errors import UsageError
from perfmodel.profile.profile import ProfileEntry

if TYPE_CHECKING:
    from perfmodel.core.report import Report

#: what became of an entry
BOTH, RENAMED, APPEARED, VANISHED = "both", "renamed", "appeared", "vanished"
#: what the times are of: the whole window, or one of the profiler's steps
RUN, STEP = "run", "step"
_SHAPED = re.compile(r"(.+\))(?: [\w/]+)?")


@dataclass(frozen=True)
class Change:
    """The time of one dimension or entry on both sides.

    Attributes
    ----------
    name : of the dimension or entry; of an entry that only the second side has, there.
    before_s, after_s : its times [s]; None where that side does not tell, or lacks it.
    share : what it contributed to the change of the whole: (after - before) / whole before. The shares of all
        dimensions, and of a trace those of all entries, add up to whole after / whole before - 1. None without a whole.
    status : "both", "renamed", "appeared" or "vanished".
    after_name : its name on the second side.
    before_calls, after_calls : how often it ran, of entries; of the whole window, or None.
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
        """After minus before [s]; what a side lacks counts as 0."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)

    @property
    def change(self) -> float | None:
        """After / before - 1; None where a side lacks it, or there was no time before."""
        if self.after_s is None or not self.before_s:
            return None
        return self.after_s / self.before_s - 1.0


@dataclass(frozen=True)
class Against:
    """A run compared with an earlier one.

    Attributes
    ----------
    before, after : the diagnoses.
    per : "run", or "step" where both traces say how many steps of the profiler they hold, and not the same number.
    steps : number of the profiler's steps of each side; 0 where it does not say.
    dimensions : in the order of the diagnosis; without those that neither side can tell.
    entries : those of `Diagnosis.wall`, matched; the largest change of time first.
    notes : what is not alike on both sides.
    """

    before: Diagnosis
    after: Diagnosis
    per: str
    steps: tuple[int, int]
    dimensions: tuple[Change, ...]
    entries: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def before_s(self) -> float:
        """The whole before, of a run or of a step [s]."""
        return self.before.total_s / self.divisors[0]

    @property
    def after_s(self) -> float:
        """The whole after, of a run or of a step [s]."""
        return self.after.total_s / self.divisors[1]

    @property
    def divisors(self) -> tuple[int, int]:
        """What the times of the two diagnoses are divided by."""
        return self.steps if self.per == STEP else (1, 1)

    @property
    def speedup(self) -> float | None:
        """Before / after; None where a side has no time."""
        return self.before_s / self.after_s if self.before_s and self.after_s else None

    def report(self, context: Mapping[str, Any] | None = None) -> Report:
        """Return the dimensions as rows, and the entries as a second table."""
        from perfmodel.diagnosis.against_report import against_report

        return against_report(self, context)


def against(before: Diagnosis, after: Diagnosis) -> Against:
    """Return what changed from one diagnosis to another, dimension by dimension and entry by entry.

    Entries are matched by name; then, since versions rename kernels, by what they compute, where that names one entry
    on each side: the operator with its shapes, data type and launching operator; the operator alone; the framework's
    operator with its shapes, whatever its data type. Where both traces hold steps of the profiler, and not the same
    number, times are those of one step.

    Parameters
    ----------
    before, after : diagnoses of two traces, or of two profiles without a time line.

    Raises
    ------
    UsageError
        When only one of them has a time line: its whole is wall time, that of the other the sum of its rows.
    """
    if (before.decomposition is None) != (after.decomposition is None):
        traced, summed = (before, after) if before.decomposition else (after, before)
        raise UsageError(
            f"{_place(traced)} is a trace, {_place(summed)} has sums only.",
            remedy="Wall time and the sum of rows do not compare: give two traces, or two tables.",
        )
    steps = (count_steps(before.profile), count_steps(after.profile))
    per = STEP if all(steps) and steps[0] != steps[1] else RUN
    divisors = steps if per == STEP else (1, 1)
    whole = before.total_s / divisors[0]

    def changed(name: str, times_s: Sequence[float | None], **more: Any) -> Change:
        first, second = (None if time is None else time / by for time, by in zip(times_s, divisors, strict=True))
        share = ((second or 0.0) - (first or 0.0)) / whole if whole else None
        return Change(name, first, second, share, **more)

    dimensions = [
        changed(part.dimension, (part.time_s, after.part(part.dimension).time_s))
        for part in before.parts
        if not (part.time_s is None and after.part(part.dimension).time_s is None)
    ]
    entries = [
        changed(
            (first or second).name,  # type: ignore[union-attr]
            (first.time_s if first else None, second.time_s if second else None),
            status=_status(first, second),
            after_name=second.name if second else "",
            before_calls=first.calls if first else None,
            after_calls=second.calls if second else None,
        )
        for first, second in match_entries(before.wall.entries, after.wall.entries)
    ]
    entries.sort(key=lambda change: -abs(change.change_s))
    return Against(before, after, per, steps, tuple(dimensions), tuple(entries), tuple(_notes(before, after, steps)))


def match_entries(
    before: Iterable[ProfileEntry], after: Iterable[ProfileEntry]
) -> list[tuple[ProfileEntry | None, ProfileEntry | None]]:
    """Return pairs of entries of two profiles, those of one side alone paired with None; see `against`."""
    left, right = ({entry.name: entry for entry in side} for side in (before, after))
    pairs: list[tuple[ProfileEntry | None, ProfileEntry | None]] = [
        (left.pop(name), right.pop(name)) for name in [name for name in left if name in right]
    ]
    for key in (_work_and_launcher, _work, _shapes):
        first, second = (_alone(side.values(), key) for side in (left, right))
        for shared in [one for one in first if one in second]:
            pairs += [(left.pop(first[shared].name), right.pop(second[shared].name))]
    return [*pairs, *((entry, None) for entry in left.values()), *((None, entry) for entry in right.values())]


def _work_and_launcher(entry: ProfileEntry) -> str:
    return f"{entry.op} {entry.launched_by}" if entry.op else ""


def _work(entry: ProfileEntry) -> str:
    return str(entry.op) if entry.op else ""


def _shapes(entry: ProfileEntry) -> str:
    """Return the framework's operator with its shapes, without the data type that may stand behind them."""
    shaped = _SHAPED.fullmatch(entry.name) if entry.launched_by else None
    return shaped.group(1) if shaped else ""


def _alone(entries: Iterable[ProfileEntry], key: Callable[[ProfileEntry], str]) -> dict[str, ProfileEntry]:
    """Return the entries by a key, without those whose key is empty or that of another."""
    groups: dict[str, list[ProfileEntry]] = {}
    for entry in entries:
        if key(entry):
            groups.setdefault(key(entry), []).append(entry)
    return {shared: group[0] for shared, group in groups.items() if len(group) == 1}


def _status(first: ProfileEntry | None, second: ProfileEntry | None) -> str:
    if first is None or second is None:
        return APPEARED if first is None else VANISHED
    return BOTH if first.name == second.name else RENAMED


def _place(diagnosis: Diagnosis) -> str:
    return diagnosis.profile.source or "the profile"


def _notes(before: Diagnosis, after: Diagnosis, steps: tuple[int, int]) -> list[str]:
    """Say in what the two sides differ besides their times."""
    said = []
    devices = [one.profile.device or "not said" for one in (before, after)]
    if devices[0] != devices[1]:
        said.append(f"Different devices: {devices[0]} before, {devices[1]} after.")
    counts = [len(one.decomposition.devices) if one.decomposition else 0 for one in (before, after)]
    if counts[0] != counts[1]:
        said.append(f"{counts[0]} GPUs before, {counts[1]} after; times are means over the GPUs.")
    formats = [one.profile.format or "not said" for one in (before, after)]
    if formats[0] != formats[1]:
        said.append(f"Different formats: {formats[0]} before, {formats[1]} after; the names of entries may differ.")
    if bool(steps[0]) != bool(steps[1]):
        said.append("Only one trace holds steps of the profiler: the windows may hold unequal amounts of work.")
    unknown = [part.dimension for part in before.parts if part.time_s is None]
    if unknown and before.decomposition is None:
        said.append(f"Without a time line not known: {', '.join(unknown)}. Times are of the rows listed.")
    return said
