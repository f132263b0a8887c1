"""A candidate for optimisation: a change to entries of a profile, the time that it saves and the effort it takes."""

from __future__ import annotations

import fnmatch
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real

from perfmodel.errors import InputFileError, PerfModelError, UsageError, nearest, suggesting_class, unknown_name
from perfmodel.operators.base import Operator
from perfmodel.profile.profile import Profile

RISKS = ("low", "medium", "high")
#: kind of change -> whether the targets still compute the same operators on the same data afterwards, so that their
#: bounds still hold; a candidate without a kind is assumed to. `perfmodel.profile.effort` has the effort of those kinds
#: that diagnose advises.
KINDS: Mapping[str, bool] = {
    "tune-kernel": True,
    "occupancy": True,
    "pin-memory": True,
    "coalesce": False,
    "dtype": False,
    "pad": False,
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


@suggesting_class
@dataclass(frozen=True)
class Candidate:
    """One change that could be made, and its claimed effect.

    Attributes
    ----------
    name : a name for people.
    targets : the entries of the profile that the change makes faster: names, or shell patterns (``*`` and ``?``).
    speedup : old over new time of all targets together; below 1 the change makes them slower.
    new_time_s : the new time of all targets together [s]; 0 removes them. Give either this or ``speedup``.
    algorithm, instead_of : another algorithm for the operators of the targets, and the one that they run now (by
        default the operator's own): the speedup is the ratio of the two predicted times. It takes the place of
        ``speedup`` and needs a machine.
    operator : what a target computes whose entry in the profile does not say.
    dev_days : days of development, or None where there is no estimate.
    risk : "low", "medium", "high", or empty.
    kind : the kind of change, one of `KINDS`, or empty. It decides whether the bounds of the present operators limit
        the speedup: another dtype, algorithm or fused kernel has a bound of its own.
    after : names of candidates that have to be done first.
    excludes : names of candidates that cannot be combined with this one.
    claimed_total_time_s : the total time that somebody expects after this candidate alone [s], to be checked.
    place : file and position, for messages; empty for a candidate from Python.

    Raises
    ------
    UsageError, or InputFileError where ``place`` names a file
        On construction, for a value that is missing, given twice or out of range.
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
    algorithm: str = field(default="", kw_only=True)
    instead_of: str = field(default="", kw_only=True)
    operator: Operator | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise self.error("the name is no text.", "Give each candidate a name of its own.")
        for key in ("targets", "after", "excludes"):
            object.__setattr__(self, key, self._names(key, getattr(self, key)))
        if not self.name.strip():
            raise self.error("a candidate has no name.", "Give each one a name of its own.")
        if not self.targets:
            raise self.error("has no targets.", 'Name what it makes faster: targets = ["kernel_a"].')
        self._check_effect()
        self._check_above("speedup", self.speedup, 0.0)
        self._check_above("dev_days", self.dev_days, 0.0)
        self._check_above("claimed_total_time", self.claimed_total_time_s, 0.0)
        self._check_number("new_time", self.new_time_s)
        if self.new_time_s is not None and not 0 <= self.new_time_s < math.inf:
            raise self.error(f"new_time is {self.new_time_s} s.", "It has to be a time of 0 s or more.")
        if self.risk not in ("", *RISKS):
            raise unknown_name("risk", self.risk, RISKS, place=self._place(), kind=self._kind())
        if self.kind and self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS, place=self._place(), kind=self._kind())

    def _names(self, key: str, value: object) -> tuple[str, ...]:
        """Return the names in a list; a text is one name."""
        names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
        if not all(isinstance(name, str) for name in names):
            raise self.error(f"{key} is {reprlib.repr(value)}, no list of names.", f'Write {key} = ["kernel_a"].')
        return names

    def _check_effect(self) -> None:
        """Check that the effect is stated once; one that names an algorithm is of that kind."""
        if self.algorithm and self.kind not in ("", "algorithm"):
            raise self.error(f"names an algorithm and is of the kind {self.kind!r}.", "Write kind = 'algorithm'.")
        if self.algorithm and not self.kind:
            object.__setattr__(self, "kind", "algorithm")
        given = [name for name, value in (("speedup", self.speedup), ("new_time", self.new_time_s),
                                          ("algorithm", self.algorithm or None)) if value is not None]  # fmt: skip
        of_algorithm = [key for key in ("instead_of", "operator") if getattr(self, key)]
        if of_algorithm and not self.algorithm:
            raise self.error(f"has {of_algorithm[0]} and no algorithm.", "Name the algorithm, or remove it.")
        if len(given) == 1:
            return
        if given:
            raise self.error(f"has both {' and '.join(given)}.", "Give exactly one of them.")
        raise self.error("has neither speedup nor new_time.", "Give exactly one of them, or an algorithm.")

    @property
    def keeps_operators(self) -> bool:
        """Whether the targets still compute the same operators afterwards, so that their bounds still hold."""
        return KINDS.get(self.kind, True)

    def _check_above(self, key: str, value: float | None, low: float) -> None:
        self._check_number(key, value)
        if value is not None and not low < value < math.inf:
            raise self.error(f"{key} is {value:g}.", f"It has to be above {low:g} and finite.")

    def _check_number(self, key: str, value: object) -> None:
        """Raise an error for a text, as a file has it: numbers of Python are in SI units."""
        if value is not None and not isinstance(value, Real):
            raise self.error(f"{key} is {value!r}, no number.", "Give a number, of a time its seconds.")

    def error(self, message: str, remedy: str = "") -> PerfModelError:
        """Build an error about this candidate: an `InputFileError` for a candidate from a file, else `UsageError`."""
        return self._kind()(message, place=self._place(), remedy=remedy)

    def _kind(self) -> type[PerfModelError]:
        return InputFileError if self.place else UsageError

    def _place(self) -> str:
        return self.place or f"candidate {self.name!r}"

    def resolve(self, profile: Profile, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the entries that the targets match, each once, in the profile's order.

        A target that equals the name of an entry matches only that entry, even if it contains ``*`` or ``?``.

        Parameters
        ----------
        profile : the profile; its entries appear in messages.
        names : the names of its entries; a mapping or set makes the search for exact names fast.

        Raises
        ------
        UsageError, or InputFileError where ``place`` names a file
            When a target matches no entry.
        """
        matches: set[str] = set()
        for target in self.targets:
            if target in names:
                matches.add(target)
                continue
            matching = [name for name in names if fnmatch.fnmatchcase(name, target)]
            if not matching:
                raise self._no_target(target, profile)
            matches.update(matching)
        return tuple(entry.name for entry in profile.entries if entry.name in matches)

    def _no_target(self, target: str, profile: Profile) -> PerfModelError:
        """Build the error for a target that matches no entry: it lists the nearest name and the largest entries."""
        pattern = any(mark in target for mark in "*?[")
        hint = "" if pattern else nearest(target, [entry.name for entry in profile.entries])
        largest = sorted(profile.entries, key=lambda entry: -entry.time_s)[:5]
        listed = ", ".join(repr(entry.name[:60]) for entry in largest)
        what = "pattern" if pattern else "target"
        return self.error(
            f"{what} {target!r} matches no entry of the profile.", f"{hint} The largest are {listed}.".strip()
        )
