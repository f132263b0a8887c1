"""A diagnosis: the dimensions of a run's time with the evidence behind each, and what would bring time back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.limits import Limit
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile

if TYPE_CHECKING:
    from perfmodel.core.report import Report


@dataclass(frozen=True)
class Evidence:
    """One thing behind the time of a dimension: a kernel, a group of gaps, a call that waits.

    Attributes
    ----------
    what : its name.
    time_s : its part of the dimension's time [s], the mean over the GPUs; None for what is told beside it, as the
        time that a call took on the CPU.
    count : how often, all GPUs together, or None.
    detail : one sentence for people.
    """

    what: str
    time_s: float | None
    count: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Part:
    """One dimension of a run's time.

    Attributes
    ----------
    dimension : one of `perfmodel.diagnosis.decompose.DIMENSIONS`.
    time_s, fraction : its time [s] and share of the whole; None where the profile cannot tell.
    evidence : what is behind it, the longest first.
    """

    dimension: str
    time_s: float | None
    fraction: float | None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Advice:
    """One change worth looking at.

    Attributes
    ----------
    kind : which sort of change, a key of `perfmodel.profile.effort.EFFORT`.
    dimension : the dimension that it makes shorter.
    text : what to do, a sentence for people.
    time_saved_s : estimated gain over the whole run [s]; ``basis`` says how it was estimated.
    basis : where the estimate comes from, with its figures.
    candidate : the same as a candidate that `roi` accepts; its targets are entries of `Diagnosis.wall`.
    """

    kind: str
    dimension: str
    text: str
    time_saved_s: float
    basis: str
    candidate: Candidate


@dataclass(frozen=True)
class Diagnosis:
    """Where the time of a run goes, and what would bring it back.

    Attributes
    ----------
    profile : as it was read.
    hardware : the machine that the parts were compared with, or None.
    decomposition : of the time line; None for a profile without one.
    limits : of each entry of ``profile``, in its order.
    wall : the profile whose entries add up to the wall time (see `perfmodel.diagnosis.wall`); ``profile``
        itself without a time line.
    parts : one for each dimension, in the order of `DIMENSIONS`; their times add up to ``total_s``.
    advice : sorted by the time saved.
    left_alone : what looks like a candidate and is none, with the reason.
    notes : how the machine was found, what is missing.
    """

    profile: Profile
    hardware: Hardware | None
    decomposition: Decomposition | None
    limits: tuple[Limit, ...]
    wall: Profile
    parts: tuple[Part, ...]
    advice: tuple[Advice, ...] = ()
    left_alone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def total_s(self) -> float:
        """What the fractions are of [s]: the wall time of a trace, else the time of all dimensions that are known."""
        return self.decomposition.wall_s if self.decomposition else math.fsum(part.time_s or 0.0 for part in self.parts)

    def part(self, dimension: str) -> Part:
        """Return the part of a dimension."""
        return next(part for part in self.parts if part.dimension == dimension)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of all advice, for `perfmodel.Plan` and `roi`."""
        return tuple(item.candidate for item in self.advice)

    def report(self, context: Mapping[str, Any] | None = None) -> Report:
        """Return the dimensions as rows, and the candidates as a second table."""
        from perfmodel.diagnosis.report import diagnosis_report

        return diagnosis_report(self, context)
