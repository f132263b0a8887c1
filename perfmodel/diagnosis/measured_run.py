"""One run with everything that the rules for evidence and advice read: profile, time line, decomposition, machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.gaps import Gaps, IdleReason
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Evidence
from perfmodel.profile.effort import Effort
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Floats, Timeline


@dataclass(frozen=True)
class MeasuredRun:
    """One run to be diagnosed.

    Attributes
    ----------
    profile, wall : the profile as it was read, and with entries that add up to the wall time.
    total_s : the wall time; without a time line the time of all entries [s].
    limits : name of an entry of ``profile`` -> its limit.
    hardware : the machine that the run was measured on, or None.
    decomposition : the division of the time line, or None.
    effort : kind of change -> its effort.
    evidence : dimension -> its evidence, once it has been collected.
    """

    profile: Profile
    wall: Profile
    total_s: float
    limits: Mapping[str, Limit]
    hardware: Hardware | None
    decomposition: Decomposition | None
    effort: Mapping[str, Effort]
    evidence: Mapping[Dimension, tuple[Evidence, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def wall_entries(self) -> Mapping[str, ProfileEntry]:
        """Name -> entry of ``wall``."""
        return {entry.name: entry for entry in self.wall.entries}

    @property
    def timeline(self) -> Timeline:
        """The time line; only for a profile that has one."""
        assert self.profile.timeline is not None
        return self.profile.timeline

    @property
    def divided(self) -> Decomposition:
        """The decomposition; only for a profile with a time line."""
        assert self.decomposition is not None
        return self.decomposition

    @property
    def num_gpus(self) -> int:
        """Number of GPUs; times are the mean over them."""
        return len(self.decomposition.devices) if self.decomposition else 1

    def all_gaps(self) -> Iterator[Gaps]:
        """Yield the gaps of each GPU."""
        yield from self.divided.gaps.values()

    def idle_s(self, reason: IdleReason) -> float:
        """Return the idle time with a reason [s], the mean over the GPUs."""
        return sum(float(gaps.idle_s[reason].sum()) for gaps in self.all_gaps()) / self.num_gpus

    @cached_property
    def since_launch_s(self) -> Floats:
        """Time since the previous launch on the same thread for each API call that launched GPU work [s]; else NaN."""
        api, launch = self.timeline.api, self.timeline.gpu.launch
        launched = np.zeros(len(api), dtype=bool)
        launched[launch[launch >= 0]] = True
        calls = np.flatnonzero(launched)
        calls = calls[np.argsort(api.thread[calls], kind="stable")]
        since_s = np.full(len(api), np.nan)
        same_thread = np.diff(api.thread[calls]) == 0
        since_s[calls[1:][same_thread]] = np.diff(api.start_s[calls])[same_thread]
        return since_s

    @cached_property
    def num_steps(self) -> int:
        """Number of the profiler's steps in the window; 1 for a run without marked steps."""
        return max(1, self.timeline.count_steps() if self.profile.timeline else 0)
