"""A diagnosis: the dimensions of a run's time with their evidence, and the changes that would save time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.units import format_count, format_si
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.decompose import Decomposition
from perfmodel.diagnosis.limits import Limit
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile

#: parts that the repr of a diagnosis names
_LONGEST_PARTS = 3

#: what time stamps of traces, in nanoseconds at best, leave of nothing: below this share of the total time, and
#: below this time, as some such gaps add up to [s]; the shortest kernel takes ten times as long
_RESIDUE, _RESIDUE_S = 1e-6, 1e-7


def is_nothing(time_s: float | None, total_s: float) -> bool:
    """Whether a time is what the time stamps of a trace leave of nothing, given the total time; both in [s].

    >>> is_nothing(11e-9, 12.5e-3), is_nothing(11e-9, 1e-3), is_nothing(1e-6, 10.0), is_nothing(None, 1.0)
    (True, False, False, False)
    """
    return time_s is not None and time_s < min(_RESIDUE * total_s, _RESIDUE_S)


@dataclass(frozen=True)
class Evidence:
    """One contribution to the time of a dimension: a kernel, a group of gaps, a call that waits.

    Attributes
    ----------
    what : its name.
    time_s : its part of the dimension's time [s], the mean over the GPUs; None for a contribution without one.
    count : number of occurrences on all GPUs together, or None.
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
    dimension : the dimension.
    time_s, fraction : its time [s] and share of the total; None where the profile cannot tell.
    evidence : the contributions to its time, the longest first.
    """

    dimension: Dimension
    time_s: float | None
    fraction: float | None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Advice:
    """One change that is worth considering.

    Attributes
    ----------
    kind : the kind of change, a key of `perfmodel.profile.effort.EFFORT`.
    dimension : the dimension that becomes shorter.
    text : the change, in words for people.
    time_saved_s : estimated saving over the whole run [s].
    basis : how the saving was estimated, with the figures.
    candidate : the change as a candidate for `roi`; its targets are entries of `Diagnosis.wall`.
    time_saved_low_s, time_saved_high_s : 80 % interval of the saving [s]; None where it was measured, not predicted.
    """

    kind: str
    dimension: Dimension
    text: str
    time_saved_s: float
    basis: str
    candidate: Candidate
    time_saved_low_s: float | None = None
    time_saved_high_s: float | None = None


@dataclass(frozen=True)
class Diagnosis(Reportable):
    """Where the time of a run goes, and which changes would save time.

    Attributes
    ----------
    profile : the profile as it was read.
    hardware : the machine that the entries were compared with, or None.
    decomposition : the division of the time line; None for a profile without one.
    limits : the limit of each entry of ``profile``, in the order of the entries.
    wall : the profile whose entries add up to the wall time (see `perfmodel.diagnosis.wall`); ``profile`` itself where
        there is no time line.
    parts : one for each `Dimension`, in their order; the times add up to ``total_s``.
    advice : the changes, the largest saving first.
    not_advised : changes that look worthwhile and are not, each with the reason.
    notes : how the machine was found, and missing information.
    outside_s : the time before the first and after the last piece of GPU work of a trace without marked steps [s]; it
        is no part of ``total_s``.
    """

    profile: Profile
    hardware: Hardware | None
    decomposition: Decomposition | None
    limits: tuple[Limit, ...]
    wall: Profile
    parts: tuple[Part, ...]
    advice: tuple[Advice, ...] = ()
    not_advised: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outside_s: tuple[float, float] = (0.0, 0.0)

    def __repr__(self) -> str:
        """Return the longest parts in a line."""
        known = sorted((part for part in self.parts if part.time_s), key=lambda part: -(part.time_s or 0.0))
        parts = ", ".join(f"{part.dimension} {100 * (part.fraction or 0.0):.3g} %" for part in known[:_LONGEST_PARTS])
        candidates = format_count(len(self.advice), "candidate")
        return f"<Diagnosis: {format_si(self.total_s, 's')}: {parts or 'nothing known'}; {candidates}>"

    @property
    def total_s(self) -> float:
        """The time that the fractions refer to [s]: the wall time of a trace, else the sum of the known parts."""
        return self.decomposition.wall_s if self.decomposition else math.fsum(part.time_s or 0.0 for part in self.parts)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of all advice, for `perfmodel.Plan` and `roi`."""
        return tuple(item.candidate for item in self.advice)

    def part(self, dimension: str) -> Part:
        """Return the part of a dimension."""
        return next(part for part in self.parts if part.dimension == dimension)
