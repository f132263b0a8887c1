"""A profile on another machine: every operator, copy and gap, and the whole, with intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import EventKind, Limiter
from perfmodel.diagnosis.decompose import decompose
from perfmodel.diagnosis.limits import profile_limits
from perfmodel.diagnosis.projection.replay import replay
from perfmodel.diagnosis.projection.scale import Scaled, is_beside_gpu, scale_entry
from perfmodel.diagnosis.wall import BEFORE_WINDOW, gap_dimension, wall_profile
from perfmodel.errors import UsageError
from perfmodel.prediction.latency.doubts import HOST_DEVIATION
from perfmodel.prediction.uncertainty import Z80
from perfmodel.prediction.whole_model import run_deviation
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Timeline

#: standard deviation of ln(launches there / here) beside a stated host where the runtime is another vendor's: the
#: smallest of what eight hosts under CUDA and ROCm differ by (`HOST_DEVIATION`), whose processors differ as well
OTHER_RUNTIME = 0.23


@dataclass(frozen=True)
class ProjectedPart:
    """One part of a profile on both machines; the attributes are the keys of the JSON rows.

    Attributes
    ----------
    name : the entry, as in `perfmodel.diagnosis.result.Diagnosis.wall`.
    time_s, projected_time_s : here, and expected there [s].
    low, high : 80 % interval of the projected time [s].
    limiter : what limits it there.
    basis : how the new time was found, in words.
    calls : number of calls, or None.
    """

    name: str
    time_s: float
    projected_time_s: float
    low: float
    high: float
    limiter: str
    basis: str
    calls: int | None = None

    @property
    def speedup(self) -> float:
        """Time here over time there."""
        return self.time_s / self.projected_time_s if self.projected_time_s else math.inf


@dataclass(frozen=True)
class Projection(Reportable):
    """A profile on another machine.

    Attributes
    ----------
    profile : the measured profile; for a trace the parts add up to its wall time.
    source, target : the machines.
    parts : the entries, the longest first.
    whole : the run as a whole: its interval accounts for errors that the parts share.
    profile_there : the profile as it would be read on the target: its entries with their GPU times, and its time line.
    notes : the assumptions, in sentences.
    """

    profile: Profile
    source: Hardware
    target: Hardware
    parts: tuple[ProjectedPart, ...]
    whole: ProjectedPart
    profile_there: Profile
    notes: tuple[str, ...]


def is_replayable(profile: Profile) -> bool:
    """Return whether a profile has a time line of GPU work whose events refer to its entries."""
    timeline = profile.timeline
    return timeline is not None and bool(timeline.overlaps_window().any()) and timeline.gpu.entry.size > 0


def project(
    profile: Profile,
    source: Hardware,
    target: Hardware,
    *,
    host: float | None = None,
    only: Collection[str] | None = None,
) -> Projection:
    """Return what a measured profile would take on another machine.

    Each kernel and copy is scaled (`perfmodel.diagnosis.projection.scale.scale_entry`). The time line of a trace is
    then replayed with the new durations (`perfmodel.diagnosis.projection.replay.replay`), so that the run becomes no
    shorter where the host sets the pace; a table of times is added up.

    The interval of the whole: a machine or a library differs from its predictions in one direction for all kernels,
    so their deviations are added up; the run (10 %) and the host are independent of them. On the profile's own machine
    the kernels and the run are what was measured, and only the host is unsure. A stated host leaves what runs differ
    by, and what another vendor's runtime takes for its launches (`OTHER_RUNTIME`).

    Parameters
    ----------
    profile : any profile.
    source, target : the machine that it was measured on, and the other one.
    host : time of the other host over this one's, also for rows of a table that are work of the CPU. None: as fast as
        this one, and as unsure as hosts differ (`HOST_DEVIATION`).
    only : the entries that move, the others keep their times; None moves all.

    Raises
    ------
    UsageError
        For a factor that is not above 0, and a machine without the figures that the profile needs.
    """
    if host is not None and not 0 < host < math.inf:
        raise UsageError(f"the host's factor is {host:g}.", place="--host", remedy="It has to be above 0 and finite.")
    scaled = {
        entry.name: _scaled(entry, source, target if only is None or entry.name in only else source, host)
        for entry in profile.entries
    }
    if is_replayable(profile):
        assert profile.timeline is not None
        timeline = profile.timeline.between_gpu_work()
        profile = replace(profile, timeline=timeline)
        return _Traced(profile, timeline, source, target, scaled, host).projection()
    return _summed(profile, source, target, scaled, host)


def is_of_cpu(profile: Profile) -> bool:
    """Return whether all times of a table are those of the CPU: calls of an API, ranges of the program, operators."""
    timed = [entry for entry in profile.entries if entry.time_s > 0]
    return bool(timed) and all(entry.category == EventKind.HOST for entry in timed)


def _scaled(entry: ProfileEntry, source: Hardware, target: Hardware, host: float | None) -> Scaled:
    """Return how much longer one entry takes on another machine, beside a host whose factor may be stated."""
    scaled = scale_entry(entry, source, target)
    if host is None or not is_beside_gpu(entry, source):
        return scaled
    return replace(scaled, factor=host, deviation=0.0, basis="work of the CPU: the stated factor of the host")


def _summed(
    profile: Profile, source: Hardware, target: Hardware, scaled: Mapping[str, Scaled], host: float | None
) -> Projection:
    """Project a table of times."""
    entries = profile.entries
    parts = tuple(_part(entry, entry.time_s * scaled[entry.name].factor, scaled[entry.name]) for entry in entries)
    times_s = [part.projected_time_s for part in parts]
    total_s = math.fsum(times_s)
    deviation = _shared_deviation(times_s, [scaled[entry.name].deviation for entry in entries])
    half = Z80 * math.hypot(deviation, _run_deviation(source, target))
    whole = _whole(profile.total_time_s, total_s, total_s * math.exp(-half), total_s * math.exp(half))
    there = replace(
        profile,
        entries=tuple(replace(entry, time_s=time_s) for entry, time_s in zip(entries, times_s, strict=True)),
        device=target.title or target.name,
    )
    of_host = (_host_note(host),) if any(is_beside_gpu(entry, source) for entry in entries) else ()
    gaps = "The profile has no time line: gaps between its rows are not in it."
    notes = (gaps, *of_host, *_notes(parts, source, target))
    return Projection(profile, source, target, _sorted(parts), whole, there, notes)


def _shared_deviation(times_s: Sequence[float], deviations: Sequence[float]) -> float:
    """Return the standard deviation of ln(sum) where the parts deviate together: the mean, weighted by time."""
    total_s = math.fsum(times_s)
    return math.fsum(t * d for t, d in zip(times_s, deviations, strict=True)) / total_s if total_s else 0.0


def _run_deviation(source: Hardware, target: Hardware) -> float:
    """Return the standard deviation of the run beyond its kernels': none on the machine that it was measured on."""
    return 0.0 if source.name == target.name else run_deviation(target)


def _part(entry: ProfileEntry, time_s: float, scaled: Scaled) -> ProjectedPart:
    half = math.exp(Z80 * scaled.deviation)
    bounds = (time_s / half, time_s * half)
    return ProjectedPart(entry.name, entry.time_s, time_s, *bounds, scaled.limiter, scaled.basis, entry.calls)


def _whole(time_s: float, new_s: float, low_s: float, high_s: float) -> ProjectedPart:
    return ProjectedPart("the whole", time_s, new_s, min(low_s, new_s), max(high_s, new_s), "", "sum of the parts")


def _sorted(parts: Sequence[ProjectedPart]) -> tuple[ProjectedPart, ...]:
    return tuple(sorted(parts, key=lambda part: -max(part.time_s, part.projected_time_s)))


class _Traced:
    """The projection of a trace: its time line is replayed once in the middle and once at each end of its errors."""

    def __init__(
        self,
        profile: Profile,
        timeline: Timeline,
        source: Hardware,
        target: Hardware,
        scaled: Mapping[str, Scaled],
        host: float | None,
    ) -> None:
        self.profile, self.timeline, self.source, self.target = profile, timeline, source, target
        self.scaled, self.host = scaled, host
        self.limiter = _limiters(profile, source)
        factors = [scaled[entry.name].factor for entry in profile.entries]
        deviations = [scaled[entry.name].deviation for entry in profile.entries]
        entry_of = timeline.gpu.entry
        # the last elements stand for events without an entry
        self.factor = np.array([*factors, _mean_factor(profile, factors)])[entry_of]
        self.deviation = np.array([*deviations, max(deviations, default=0.0)])[entry_of]

    def projection(self) -> Projection:
        """Return the projection."""
        here = self._wall(self.timeline)
        speed = 1.0 if self.host is None else self.host
        half = Z80 * np.hypot(self.deviation, _run_deviation(self.source, self.target))
        middle = self._replayed(self.factor, speed)
        kernels = [self._replayed(self.factor * np.exp(sign * half), speed) for sign in (-1, 1)]
        unsure = _host_deviation(self.source, self.target, self.host)
        hosts = [
            self._replayed(self.factor, speed * math.exp(sign * Z80 * unsure)) if unsure else middle for sign in (-1, 1)
        ]
        names = list(dict.fromkeys(entry.name for wall in (here, middle) for entry in wall.entries))
        parts = tuple(self._projected(name, here, middle, (*kernels, *hosts)) for name in names)
        low_s, high_s = (
            _beside(middle.total_time_s, [kernels[side].total_time_s, hosts[side].total_time_s], sign)
            for side, sign in ((0, -1), (1, 1))
        )
        whole = _whole(here.total_time_s, middle.total_time_s, low_s, high_s)
        notes = (_host_note(self.host, unsure), *_notes(parts, self.source, self.target))
        entries = tuple(
            replace(entry, time_s=entry.time_s * self.scaled[entry.name].factor) for entry in self.profile.entries
        )
        there = replace(
            self.profile,
            entries=entries,
            timeline=replay(self.timeline, self.factor, host=speed),
            device=self.target.title or self.target.name,
        )
        return Projection(here, self.source, self.target, _sorted(parts), whole, there, notes)

    def _replayed(self, factor: NDArray[Any], host: float) -> Profile:
        return self._wall(replay(self.timeline, factor, host=host))

    def _wall(self, timeline: Timeline) -> Profile:
        limiter = self.limiter[timeline.gpu.entry]
        return wall_profile(replace(self.profile, timeline=timeline), decompose(timeline, limiter))

    def _projected(self, name: str, here: Profile, middle: Profile, others: Sequence[Profile]) -> ProjectedPart:
        before, after = (_entry(profile, name) for profile in (here, middle))
        entry = before or after
        assert entry is not None
        time_s, new_s = (item.time_s if item else 0.0 for item in (before, after))
        scaled = self.scaled.get(name)
        if scaled is not None:
            return _part(replace(entry, time_s=time_s), new_s, scaled)
        times_s = [item.time_s if item else 0.0 for item in (_entry(profile, name) for profile in others)]
        low_s, high_s = min([new_s, *times_s]), max([new_s, *times_s])
        limiter = Limiter.UNKNOWN if name == BEFORE_WINDOW else Limiter.HOST
        words = "time line replayed with the new kernels" if gap_dimension(name) else "mean of the other kernels"
        return ProjectedPart(name, time_s, new_s, low_s, high_s, limiter, words, entry.calls)


def _beside(middle_s: float, others_s: Sequence[float], sign: int) -> float:
    """Return an end of an interval [s]: independent deviations of the logarithm add up in quadrature."""
    logs = [math.log(other_s / middle_s) for other_s in others_s if other_s > 0 and middle_s > 0]
    return middle_s * math.exp(sign * math.sqrt(math.fsum(max(sign * log, 0.0) ** 2 for log in logs)))


def _entry(profile: Profile, name: str) -> ProfileEntry | None:
    return next((entry for entry in profile.entries if entry.name == name), None)


def _limiters(profile: Profile, hardware: Hardware) -> NDArray[Any]:
    """Return the limiter of each entry, and of events without one at the end."""
    return np.array([*(item.limiter for item in profile_limits(profile, hardware)), Limiter.UNKNOWN])


def _mean_factor(profile: Profile, factors: Sequence[float]) -> float:
    """Return new over old time of all entries together."""
    total_s = profile.total_time_s
    pairs = zip(profile.entries, factors, strict=True)
    return math.fsum(entry.time_s * factor for entry, factor in pairs) / total_s if total_s else 1.0


def _host_deviation(source: Hardware, target: Hardware, host: float | None) -> float:
    """Return the standard deviation of ln(time of the host there / assumed)."""
    if host is None:
        return HOST_DEVIATION
    if host == 1.0 and source.name == target.name:
        return 0.0
    runtime = 0.0 if source.vendor == target.vendor else OTHER_RUNTIME
    return math.hypot(run_deviation(target), runtime)


def _host_note(host: float | None, deviation: float = 0.0) -> str:
    if host is None:
        return (
            "The host is assumed to be as fast as the one of the profile, within "
            f"{100 * HOST_DEVIATION:.0f} % (standard deviation); --host X states its time over this one's."
        )
    within = f", within {100 * deviation:.0f} % (standard deviation)" if deviation else ""
    return f"The host takes {host:g} times as long for its own work, as stated{within}."


def _notes(parts: Sequence[ProjectedPart], source: Hardware, target: Hardware) -> list[str]:
    """Return how much of the time is scaled by ceilings alone."""
    total_s = math.fsum(part.time_s for part in parts)
    rough_s = math.fsum(part.time_s for part in parts if "bandwidths" in part.basis or "peaks" in part.basis)
    notes = []
    if total_s and rough_s > 0.01 * total_s:
        notes.append(
            f"{100 * rough_s / total_s:.0f} % of the time has no operator and follows the ratio of what limits it."
        )
    if source.kind != target.kind or source.vendor != target.vendor:
        notes.append("Other vendors' libraries may choose other kernels than the ones of the profile.")
    return notes
