"""What every rule of a diagnosis looks at: the profile, its time line, how it was divided, and the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.evidence.whereabouts import count_steps
from perfmodel.diagnosis.gaps import Gaps
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Advice, Evidence
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import Effort
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Timeline

#: advice that saves less than this share of the wall time is not given
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Case:
    """One run to be diagnosed.

    Attributes
    ----------
    profile, wall : as it was read, and as entries that add up to the wall time.
    total_s : the wall time, or without a time line the time of all rows [s].
    limits : of the entries of ``profile``, by name.
    kind : dimension of each event of the GPUs; empty without a time line.
    evidence : of each dimension, once it was looked for.
    """

    profile: Profile
    wall: Profile
    total_s: float
    limits: Mapping[str, Limit]
    hardware: Hardware | None
    decomposition: Decomposition | None
    kind: NDArray[np.str_]
    effort: Mapping[str, Effort]
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def wall_entries(self) -> Mapping[str, ProfileEntry]:
        """The entries of ``wall`` by name."""
        return {entry.name: entry for entry in self.wall.entries}

    @property
    def timeline(self) -> Timeline:
        """The time line, of a profile that has one."""
        assert self.profile.timeline is not None
        return self.profile.timeline

    @property
    def divided(self) -> Decomposition:
        """The decomposition, of a profile with a time line."""
        assert self.decomposition is not None
        return self.decomposition

    @property
    def gpus(self) -> int:
        """How many GPUs the times are the mean of."""
        return len(self.decomposition.devices) if self.decomposition else 1

    def all_gaps(self) -> Iterator[Gaps]:
        """Yield the gaps of each GPU."""
        yield from self.divided.gaps.values()

    def gaps_s(self, part: str) -> float:
        """Return one part of all gaps [s], the mean over the GPUs."""
        return sum(float(getattr(gaps, part).sum()) for gaps in self.all_gaps()) / self.gpus

    def advise(
        self, kind: str, dimension: str, name: str, text: str, targets: Sequence[str], saved_s: float, basis: str
    ) -> Advice | None:
        """Return a piece of advice with its candidate, or None where it saves less than `LEAST_GAIN` of the time.

        ``targets`` are entries of ``wall``; together they can save no more than they take.
        """
        known = [target for target in targets if target in self.wall_entries]
        before_s = sum(self.wall_entries[target].time_s for target in known)
        saved_s = min(saved_s, before_s)
        if not known or not saved_s >= LEAST_GAIN * self.total_s:
            return None
        effort = self.effort[kind]
        candidate = Candidate(
            name, tuple(known), new_time_s=before_s - saved_s, dev_days=effort.dev_days, risk=effort.risk, kind=kind
        )
        return Advice(kind, dimension, text, saved_s, basis, candidate)

    @cached_property
    def since_launch_s(self) -> NDArray[np.float64]:
        """Of each API call that launched GPU work the time since the launch before it on its thread [s], else NaN."""
        api, launch = self.timeline.api, self.timeline.gpu.launch
        launched = np.zeros(len(api), dtype=bool)
        launched[launch[launch >= 0]] = True
        calls = np.flatnonzero(launched)
        calls = calls[np.argsort(api.thread[calls], kind="stable")]
        since_s = np.full(len(api), np.nan)
        same = np.diff(api.thread[calls]) == 0
        since_s[calls[1:][same]] = np.diff(api.start_s[calls])[same]
        return since_s

    @cached_property
    def steps(self) -> int:
        """How many steps of the profiler lie in the window; 1 where it marks none."""
        return max(1, count_steps(self.profile))
