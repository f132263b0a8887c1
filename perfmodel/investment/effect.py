"""What a candidate makes of its targets, and how far physics lets it: a wish ends where the machine's bound begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.limits import BY_MODEL, Limit, limits
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class Bounds:
    """What a machine allows for the entries of a profile.

    Attributes
    ----------
    hardware : the machine; None where none is named, and nothing is bounded.
    limits : of each entry, by its name.
    cap : whether a claim beyond the floor of its operators counts as the floor; else it counts as claimed.
    """

    hardware: Hardware | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    cap: bool = True

    @classmethod
    def of(cls, profile: Profile, hardware: Hardware | None, *, cap: bool = True) -> Bounds:
        """Return the bounds of a profile's entries on a machine."""
        if hardware is None:
            return cls()
        return cls(hardware, {one.entry.name: one for one in limits(profile, hardware)}, cap)

    def floor_s(self, name: str) -> float:
        """Return what an entry's unchanged operators cannot be faster than [s], at most its time; 0 if not known.

        Only shapes give a floor: what counters saw is the traffic of this kernel, and another may need less.
        """
        found = self.limits.get(name)
        if found is None or found.floor_time_s is None or found.basis != BY_MODEL:
            return 0.0
        return min(found.floor_time_s, found.entry.time_s)

    def counted_floor_s(self, name: str) -> float:
        """Return the floor that claims are counted with [s]: 0 where they count as claimed."""
        return self.floor_s(name) if self.cap else 0.0

    def attainable_s(self, name: str) -> float | None:
        """Return the bound of an entry, every tensor crossing device memory once [s]; None where there is none."""
        found = self.limits.get(name)
        return found.attainable_time_s if found else None


@dataclass(frozen=True)
class Effect:
    """What one candidate does to its targets.

    Attributes
    ----------
    candidate, targets : the candidate, and the entries that its targets name.
    time_s : the time of the targets together [s].
    ratio : new over old time of each target.
    claimed_speedup, local_speedup : old over new time of the targets together, as claimed, and as counted.
    max_local_speedup : what the bound of the targets allows; None where none of them has a bound, or the candidate
        makes other operators of them.
    floor_speedup : what the floor of the targets allows, whatever lies in the caches; infinite where it is not known.
    efficiency : bound over measured time of the targets; None unless all of them have a bound.
    """

    candidate: Candidate
    targets: tuple[str, ...]
    time_s: float
    ratio: Mapping[str, float]
    claimed_speedup: float
    local_speedup: float
    max_local_speedup: float | None
    floor_speedup: float
    efficiency: float | None


def effect(candidate: Candidate, targets: tuple[str, ...], times_s: Mapping[str, float], bounds: Bounds) -> Effect:
    """Return what a candidate does to its targets.

    All targets become faster by one factor; where that goes below the floor of one of them, it stays at its floor and
    the others take up the rest. The sum of the floors is the shortest time of all together.

    Raises
    ------
    UsageError, or InputFileError for a candidate from a file
        When its targets take no time, so that a new time says nothing.
    """
    old = [times_s[name] for name in targets]
    time_s = math.fsum(old)
    claimed = _claimed_speedup(candidate, time_s)
    keeps = candidate.keeps_operators
    floors = [bounds.counted_floor_s(name) if keeps else 0.0 for name in targets]
    new = share_out(old, floors, time_s / claimed)
    new_s = math.fsum(new)
    bounded_s = math.fsum(bounds.attainable_s(name) or 0.0 for name in targets)
    known = [name for name in targets if bounds.attainable_s(name) is not None]
    floor_s = math.fsum(bounds.floor_s(name) for name in targets)
    capped = any(floors) and new_s > time_s / claimed * (1 + 1e-9)
    return Effect(
        candidate=candidate,
        targets=targets,
        time_s=time_s,
        ratio={name: b / a if a else 1.0 for name, a, b in zip(targets, old, new, strict=True)},
        claimed_speedup=claimed,
        local_speedup=time_s / new_s if capped else claimed,
        max_local_speedup=time_s / bounded_s if keeps and known and bounded_s else None,
        floor_speedup=time_s / floor_s if keeps and floor_s else math.inf,
        efficiency=min(bounded_s / time_s, 1.0) if time_s and len(known) == len(targets) else None,
    )


def _claimed_speedup(candidate: Candidate, time_s: float) -> float:
    """Return the speedup of the targets: as given, or old over new time."""
    if candidate.speedup is not None:
        return candidate.speedup
    new_time_s = candidate.new_time_s or 0.0
    if time_s == 0:
        raise candidate.error("its targets take no time, so there is no new_time to compare.", "Drop the candidate.")
    return time_s / new_time_s if new_time_s > 0 else math.inf


def share_out(times_s: Sequence[float], floors_s: Sequence[float], total_s: float) -> list[float]:
    """Return new times that add up to a total, each in proportion to its old time but not below its floor [s].

    Where the floors add up to more than the total, the floors.

    >>> share_out([50.0, 30.0], [0.0, 0.0], 40.0), share_out([50.0, 30.0], [40.0, 0.0], 50.0)
    ([25.0, 15.0], [40.0, 10.0])
    """
    held: set[int] = set()
    while True:
        free_s = math.fsum(time for index, time in enumerate(times_s) if index not in held)
        left_s = total_s - math.fsum(floors_s[index] for index in held)
        factor = max(left_s, 0.0) / free_s if free_s else 0.0
        new = [floors_s[i] if i in held else time * factor for i, time in enumerate(times_s)]
        below = {i for i, time in enumerate(new) if time < floors_s[i]}
        if not below:
            return new
        held |= below


class Combination:
    """Candidates done one after the other on the same profile: speedups of one entry multiply, down to its floor."""

    def __init__(self, times_s: Mapping[str, float], bounds: Bounds) -> None:
        self._times_s = times_s
        self._bounds = bounds
        self._ratio = dict.fromkeys(times_s, 1.0)
        self._changed: set[str] = set()

    def add(self, made: Effect) -> None:
        """Do one more candidate."""
        for name, ratio in made.ratio.items():
            self._ratio[name] *= ratio
        if not made.candidate.keeps_operators:
            self._changed.update(made.targets)

    def time_s(self) -> float:
        """Return the time of the run [s]; an entry whose operators are still the same stays above its floor."""
        return math.fsum(
            time * self._ratio[name]
            if name in self._changed
            else max(time * self._ratio[name], min(self._bounds.counted_floor_s(name), time))
            for name, time in self._times_s.items()
        )
