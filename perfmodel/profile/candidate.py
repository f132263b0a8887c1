"""A candidate: a change to entries of a profile, the time that it would save and the effort that it takes."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perfmodel.errors import InputFileError, PerfModelError, UsageError, nearest, unknown_name
from perfmodel.profile.profile import Profile

RISKS = ("low", "medium", "high")
#: kind of a candidate -> whether its targets still compute the same operators on the same data, so that the bound of
#: each holds afterwards; one that names no kind is taken to. The kinds that diagnose advises are among them.
KINDS: Mapping[str, bool] = {
    "tune-kernel": True,
    "occupancy": True,
    "pin-memory": True,
    "coalesce": False,
    "dtype": False,
    "algorithm": False,
    "attention": False,
    "fuse": False,
    "cuda-graph": False,
    "batch": False,
    "batch-syncs": False,
    "overlap-copies": False,
    "overlap-communication": False,
    "input-pipeline": False,
    "host-work": False,
    "remove": False,
}


@dataclass(frozen=True)
class Candidate:
    """One change that could be made, and what it is said to do.

    Attributes
    ----------
    name : what people call it.
    targets : entries of the profile that it makes faster: names, or shell patterns (``*`` and ``?``).
    speedup : old over new time of the targets together; below 1 it makes them slower.
    new_time_s : the new time of the targets together [s]; 0 removes them. Either this or ``speedup``.
    dev_days : days of development, or None where nobody has estimated them.
    risk : "low", "medium", "high", or empty.
    kind : what sort of change it is, one of `KINDS`, or empty. It tells whether the bound of the unchanged operators
        is held against its speedup: another dtype, algorithm or fused kernel has a bound of its own.
    after : names of candidates that have to be done before.
    excludes : names of candidates that cannot be done together with this one.
    claimed_total_time_s : total time that somebody expects after this candidate alone [s], to be checked.
    place : file and position, for messages; empty for a candidate made in Python.

    Raises
    ------
    UsageError, or InputFileError where ``place`` names a file
        On construction, for a value that is missing, doubled or out of range.
    """

    name: str
    targets: tuple[str, ...]
    speedup: float | None = None
    new_time_s: float | None = None
    dev_days: float | None = None
    risk: str = ""
    after: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    claimed_total_time_s: float | None = None
    place: str = field(default="", compare=False)
    kind: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for key in ("targets", "after", "excludes"):
            value = getattr(self, key)
            object.__setattr__(self, key, (value,) if isinstance(value, str) else tuple(value))
        if not self.name.strip():
            raise self.error("a candidate has no name.", "Give each one a name of its own.")
        if not self.targets:
            raise self.error("has no targets.", 'Name what it makes faster: targets = ["kernel_a"].')
        if (self.speedup is None) == (self.new_time_s is None):
            found = "both speedup and new_time" if self.speedup is not None else "neither speedup nor new_time"
            raise self.error(f"has {found}.", "Give exactly one of them.")
        self._check_above("speedup", self.speedup, 0.0)
        self._check_above("dev_days", self.dev_days, 0.0)
        self._check_above("claimed_total_time", self.claimed_total_time_s, 0.0)
        if self.new_time_s is not None and not 0 <= self.new_time_s < math.inf:
            raise self.error(f"new_time is {self.new_time_s} s.", "It is a time from 0 s up.")
        if self.risk not in ("", *RISKS):
            raise unknown_name("risk", self.risk, RISKS, place=self._place(), kind=self._kind())
        if self.kind and self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS, place=self._place(), kind=self._kind())

    @property
    def keeps_operators(self) -> bool:
        """Whether its targets still compute the same operators afterwards, so that their bounds hold."""
        return KINDS.get(self.kind, True)

    def _check_above(self, key: str, value: float | None, low: float) -> None:
        if value is not None and not low < value < math.inf:
            raise self.error(f"{key} is {value:g}.", f"It has to be above {low:g}.")

    def error(self, message: str, remedy: str = "") -> PerfModelError:
        """Build an error about this candidate: of its file, where it came from one."""
        return self._kind()(message, place=self._place(), remedy=remedy)

    def _kind(self) -> type[PerfModelError]:
        return InputFileError if self.place else UsageError

    def _place(self) -> str:
        return self.place or f"candidate {self.name!r}"

    def resolve(self, profile: Profile, names: Iterable[str]) -> tuple[str, ...]:
        """Return the entries that the targets name, each once, in the profile's order.

        A target that is the exact name of an entry stands for it alone, whatever characters it holds.

        Parameters
        ----------
        profile : the profile, for messages.
        names : the names of its entries; a mapping or set makes exact names fast.

        Raises
        ------
        UsageError, or InputFileError where ``place`` names a file
            When a target names no entry, or a pattern matches none.
        """
        found: set[str] = set()
        for target in self.targets:
            if target in names:
                found.add(target)
                continue
            matched = [name for name in names if fnmatch.fnmatchcase(name, target)]
            if not matched:
                raise self._no_target(target, profile)
            found.update(matched)
        return tuple(entry.name for entry in profile.entries if entry.name in found)

    def _no_target(self, target: str, profile: Profile) -> PerfModelError:
        """Build the error for a target that is not there: the nearest name, then the longest-running ones."""
        pattern = any(mark in target for mark in "*?[")
        hint = "" if pattern else nearest(target, [entry.name for entry in profile.entries])
        largest = sorted(profile.entries, key=lambda entry: -entry.time_s)[:5]
        listed = ", ".join(repr(entry.name[:60]) for entry in largest)
        what = f"pattern {target!r} matches no entry" if pattern else f"target {target!r} is no entry"
        return self.error(f"{what} of the profile.", f"{hint} The largest are {listed}.".strip())
