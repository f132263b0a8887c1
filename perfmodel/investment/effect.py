"""What a candidate does to its targets: no operator becomes faster than the machine allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.limits import Basis, Limit, profile_limits
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class EntryBounds:
    """The bounds of a profile's entries on one machine.

    Attributes
    ----------
    hardware : the machine; None means that no machine is named and nothing is bounded.
    limits : entry name -> its limit.
    cap : whether a claim beyond the bound of its operators counts as the bound; False counts it as claimed.
    """

    hardware: Hardware | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    cap: bool = True

    @classmethod
    def of(cls, profile: Profile, hardware: Hardware | None, *, cap: bool = True) -> EntryBounds:
        """Return the bounds of a profile's entries on a machine."""
        if hardware is None:
            return cls()
        return cls(hardware, {limit.entry.name: limit for limit in profile_limits(profile, hardware)}, cap)

    def floor_s(self, name: str) -> float:
        """Return the shortest time of an entry's unchanged operators [s], at most its time; 0 if not known.

        Only shapes give a floor. Counters give the traffic of the kernel that ran; another kernel may need less.
        """
        limit = self.limits.get(name)
        if limit is None or limit.floor_time_s is None or limit.basis != Basis.MODEL:
            return 0.0
        return min(limit.floor_time_s, limit.entry.time_s)

    def limit_s(self, name: str) -> float:
        """Return the time that claims for an entry's unchanged operators are limited to [s]; 0 if it is not known.

        That is the bound with every tensor crossing device memory once: what a cache would save is flagged, and not
        counted. An entry that is faster than its bound is limited by its floor. Counters limit nothing, as in
        `floor_s`.
        """
        limit = self.limits.get(name)
        if limit is None or limit.attainable_time_s is None or limit.basis != Basis.MODEL:
            return 0.0
        return min(limit.attainable_time_s, limit.entry.time_s)

    def counted_limit_s(self, name: str) -> float:
        """Return `limit_s`; 0 if claims count as claimed [s]."""
        return self.limit_s(name) if self.cap else 0.0

    def attainable_s(self, name: str) -> float | None:
        """Return the bound of an entry [s], with every tensor crossing device memory once; None if it has none."""
        limit = self.limits.get(name)
        return limit.attainable_time_s if limit else None


@dataclass(frozen=True)
class Effect:
    """What one candidate does to its targets.

    Attributes
    ----------
    candidate, targets : the candidate, and the entries that its targets name.
    time_s : the total time of the targets [s].
    ratio : target -> new over old time.
    claimed_speedup, local_speedup : old over new total time of the targets, as claimed, and as counted.
    max_local_speedup : what the bound of the targets allows; None if none of them has a bound, or the candidate
        replaces their operators by others.
    floor_speedup : what the floor of the targets allows, even with all data in a cache; infinite if it is not known.
    limit_speedup : what claims are limited to (`EntryBounds.limit_s`); infinite if it is not known.
    efficiency : bound over measured time of the targets, above 1 where they are faster than it; None unless all of
        them have a bound.
    """

    candidate: Candidate
    targets: tuple[str, ...]
    time_s: float
    ratio: Mapping[str, float]
    claimed_speedup: float
    local_speedup: float
    max_local_speedup: float | None
    floor_speedup: float
    limit_speedup: float
    efficiency: float | None


def candidate_effect(
    candidate: Candidate, targets: tuple[str, ...], times_s: Mapping[str, float], bounds: EntryBounds
) -> Effect:
    """Return what a candidate does to its targets.

    All targets become faster by the same factor. A target that would fall below its limit stays there, and the others
    take up the rest. The shortest total time is the sum of the limits.

    Parameters
    ----------
    candidate : the change.
    targets : the entries that it changes.
    times_s : entry -> measured time [s].
    bounds : the bounds of the entries on the machine.

    Raises
    ------
    UsageError, or InputFileError for a candidate from a file
        If the candidate states a new time and its targets take no time.
    """
    old = [times_s[name] for name in targets]
    time_s = math.fsum(old)
    claimed = _claimed_speedup(candidate, time_s)
    keeps = candidate.keeps_operators
    least = [bounds.counted_limit_s(name) if keeps else 0.0 for name in targets]
    new = share_out(old, least, time_s / claimed)
    new_s = math.fsum(new)
    bounded_s = math.fsum(bounds.attainable_s(name) or 0.0 for name in targets)
    bounded = [name for name in targets if bounds.attainable_s(name) is not None]
    floor_s = math.fsum(bounds.floor_s(name) for name in targets)
    limit_s = math.fsum(bounds.limit_s(name) for name in targets)
    capped = any(least) and new_s > time_s / claimed * (1 + 1e-9)
    return Effect(
        candidate=candidate,
        targets=targets,
        time_s=time_s,
        ratio={name: b / a if a else 1.0 for name, a, b in zip(targets, old, new, strict=True)},
        claimed_speedup=claimed,
        local_speedup=time_s / new_s if capped else claimed,
        max_local_speedup=max(time_s / bounded_s, 1.0) if keeps and bounded and bounded_s else None,
        floor_speedup=time_s / floor_s if keeps and floor_s else math.inf,
        limit_speedup=time_s / limit_s if keeps and limit_s else math.inf,
        efficiency=bounded_s / time_s if time_s and len(bounded) == len(targets) else None,
    )


def _claimed_speedup(candidate: Candidate, time_s: float) -> float:
    """Return the speedup of the targets: as stated, or old over new time."""
    if candidate.speedup is not None:
        return candidate.speedup
    new_time_s = candidate.new_time_s or 0.0
    if time_s == 0:
        raise candidate.error("its targets take no time, so its new_time has no speedup.", "Remove the candidate.")
    return time_s / new_time_s if new_time_s > 0 else math.inf


def share_out(times_s: Sequence[float], floors_s: Sequence[float], total_s: float) -> list[float]:
    """Return new times with a given total, each in proportion to its old time but not below its floor [s].

    If the floors add up to more than the total, the new times are the floors.

    >>> share_out([50.0, 30.0], [0.0, 0.0], 40.0), share_out([50.0, 30.0], [40.0, 0.0], 50.0)
    ([25.0, 15.0], [40.0, 10.0])
    """
    at_floor: set[int] = set()
    while True:
        free_s = math.fsum(time for index, time in enumerate(times_s) if index not in at_floor)
        left_s = total_s - math.fsum(floors_s[index] for index in at_floor)
        factor = max(left_s, 0.0) / free_s if free_s else 0.0
        new = [floors_s[i] if i in at_floor else time * factor for i, time in enumerate(times_s)]
        below = {i for i, time in enumerate(new) if time < floors_s[i]}
        if not below:
            return new
        at_floor |= below


class Combination:
    """Candidates applied one after the other to one profile: speedups of an entry multiply, down to its limit."""

    def __init__(self, times_s: Mapping[str, float], bounds: EntryBounds) -> None:
        self._times_s = times_s
        self._bounds = bounds
        self._ratio = dict.fromkeys(times_s, 1.0)
        self._changed: set[str] = set()

    def add(self, effect: Effect) -> None:
        """Apply one more candidate."""
        for name, ratio in effect.ratio.items():
            self._ratio[name] *= ratio
        if not effect.candidate.keeps_operators:
            self._changed.update(effect.targets)

    def time_s(self) -> float:
        """Return the time of the run [s]."""
        return math.fsum(map(self.entry_s, self._times_s))

    def entry_s(self, name: str) -> float:
        """Return the time of an entry [s]; one with unchanged operators stays at or above its limit."""
        time_s = self._times_s[name]
        new_s = time_s * self._ratio[name]
        return new_s if name in self._changed else max(new_s, min(self._bounds.counted_limit_s(name), time_s))
