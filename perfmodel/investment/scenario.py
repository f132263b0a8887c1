"""A scenario: an ordered list of changes to a profiled run, read from a file."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from perfmodel.errors import InputFileError, PerfModelError, UsageError, nearest, unknown_name
from perfmodel.files import read_document
from perfmodel.investment import fields
from perfmodel.operators import Operator
from perfmodel.operators.parse import build_operator

#: kind of step -> the keys of which it needs exactly one, beside its targets
KINDS: Mapping[str, tuple[str, ...]] = {
    "scale": ("speedup", "new_time"),
    "dtype": ("dtype",),
    "algorithm": ("algorithm",),
    "hardware": ("hardware",),
    "batch": ("factor",),
    "checkpoint": (),
    "fuse": (),
    "remove": (),
}
#: kind of step -> further keys that it may have
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "algorithm": ("instead_of",),
    "batch": ("fixed",),
    "checkpoint": ("share",),
    "fuse": ("speedup",),
}


@dataclass(frozen=True)
class Step:
    """One change.

    Attributes
    ----------
    name, kind : its name for people, and one of `KINDS`.
    targets : entries of the profile that it changes: names or shell patterns; "batch" and "hardware" change all by
        default.
    speedup : "scale", "fuse": old over new total time of the targets, above 0.
    new_time_s : "scale": the new total time of the targets [s].
    dtype, algorithm : "dtype", "algorithm": the new dtype or algorithm of the targets' operators.
    instead_of : "algorithm": the algorithm that they run now, by default the operator's own.
    hardware : "hardware": the name of the machine that the run moves to; all entries by default.
    factor : "batch": new over old number of items of a run.
    fixed : "batch": entries whose time does not depend on the batch, for example an optimizer; launch gaps and waits of
        a traced run are always fixed.
    share : "checkpoint": the share of the targets' time that is computed a second time.
    after : names of steps that have to come before.
    claimed_total_time_s, claimed_speedup : what somebody claims for the time of the run after this step [s], and for
        the speedup of the run by this step alone; to be checked.
    place : file and position, for messages.
    """

    name: str
    kind: str
    targets: tuple[str, ...] = ("*",)
    speedup: float | None = None
    new_time_s: float | None = None
    dtype: str = ""
    algorithm: str = ""
    instead_of: str = ""
    factor: float | None = None
    fixed: tuple[str, ...] = ()
    share: float = 1.0
    after: tuple[str, ...] = ()
    claimed_total_time_s: float | None = None
    claimed_speedup: float | None = None
    place: str = ""
    hardware: str = ""

    def error(self, message: str, remedy: str = "") -> PerfModelError:
        """Build an error about this step, with its place in the file if it has one."""
        kind = InputFileError if self.place else UsageError
        return kind(message, place=self.place or f"step {self.name!r}", remedy=remedy)

    def resolve(self, patterns: Sequence[str], entries: Iterable[str]) -> tuple[str, ...]:
        """Return the entries that some patterns name, in the order of the patterns, each once.

        Raises
        ------
        InputFileError, or UsageError for a step made in Python
            If a pattern matches no entry.
        """
        names = list(entries)
        resolved: dict[str, None] = {}
        for pattern in patterns:
            matched = [pattern] if pattern in names else [name for name in names if fnmatch.fnmatchcase(name, pattern)]
            if not matched:
                raise self.error(*no_such_entry(pattern, names))
            resolved.update(dict.fromkeys(matched))
        return tuple(resolved)


def no_such_entry(name: str, entries: Sequence[str]) -> tuple[str, str]:
    """Return message and remedy of the error for a name that is no entry of the profile."""
    listed = ", ".join(map(repr, entries[:8])) + (", ..." if len(entries) > 8 else "")
    return f"{name!r} is no entry of the profile.", f"{nearest(name, entries)} The entries are {listed}.".strip()


@dataclass(frozen=True)
class Scenario:
    """Steps in the order in which they are done, and facts that the profile lacks.

    Attributes
    ----------
    steps : one or more, each with a name of its own.
    items, item : how many items a run works on before the first step, and what they are ("sequences"), for throughput.
    operators : entry -> operator that one call computes, and its calls, if the profile has only times.
    source : the file, for messages.

    Raises
    ------
    InputFileError, or UsageError for a scenario made in Python
        On construction: no step, a name used twice, or ``after`` that names an unknown step, a later one, or forms a
        cycle.
    """

    steps: tuple[Step, ...]
    items: float | None = None
    item: str = "items"
    operators: Mapping[str, tuple[Operator, int]] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not self.steps:
            raise self.error("has no step.", "Write at least one [[steps]] table.")
        names = [step.name for step in self.steps]
        for number, step in enumerate(self.steps):
            if names.index(step.name) != number:
                raise step.error(f"the name {step.name!r} is used twice.", "Give each step its own name.")
            self._check_after(step, names, number)

    def error(self, message: str, remedy: str = "") -> PerfModelError:
        """Build an error about this scenario, with its file if it has one."""
        return (InputFileError if self.source else UsageError)(message, place=self.source, remedy=remedy)

    def _check_after(self, step: Step, names: Sequence[str], number: int) -> None:
        for other in step.after:
            if other not in names:
                listed = ", ".join(map(repr, names))
                remedy = f"{nearest(other, names)} The steps are {listed}.".strip()
                raise step.error(f"after names {other!r}, which is no step.", remedy)
            place = names.index(other)
            if place < number:
                continue
            if other == step.name or self._reaches(other, step.name):
                raise step.error(f"{step.name!r} and {other!r} wait for each other: a cycle.", "Remove one 'after'.")
            raise step.error(f"comes after {other!r}, which is listed below it.", "List the steps in their order.")

    def _reaches(self, start: str, goal: str) -> bool:
        """Whether the step ``start`` comes after ``goal``, directly or not."""
        by_name = {step.name: step for step in self.steps}
        waiting, visited = [start], set[str]()
        while waiting:
            name = waiting.pop()
            if name == goal:
                return True
            if name not in visited and name in by_name:
                visited.add(name)
                waiting.extend(by_name[name].after)
        return False


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario from a TOML, YAML or JSON file of ``[[steps]]``.

    Raises
    ------
    InputFileError
        If the file cannot be read, or a key or value is wrong.
    """
    return parse_scenario(read_document(path), place=os.fspath(path))


def parse_scenario(document: Any, *, place: str = "scenario") -> Scenario:
    """Return the scenario in a parsed document; ``place`` names the file in messages.

    Raises
    ------
    InputFileError
        If a key is unknown, missing or of another type, or a value is out of its range.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("steps"), list):
        raise InputFileError("has no list of steps.", place=place, remedy="Write one [[steps]] table per step.")
    fields.check_keys(document, ("steps", "items", "item", "operators"), place)
    items = document.get("items")
    return Scenario(
        tuple(_step(item, f"{place}: step {number}") for number, item in enumerate(document["steps"], start=1)),
        None if items is None else fields.positive(items, "items", place),
        fields.text(document.get("item", "items"), "item", place),
        _operators(document.get("operators", []), place),
        place,
    )


def _step(item: Any, place: str) -> Step:
    values: dict[str, Any] = {}
    for key, value in fields.table(item, place).items():
        if key == "operator":  # a candidate of a plan has it
            raise InputFileError(
                "a step has no operator of its own.",
                place=place,
                remedy="Write an [[operators]] table with entry, op, its dimensions and calls.",
            )
        if key not in _KEYS:
            raise unknown_name("key", str(key), _KEYS, place=place, kind=InputFileError)
        attribute, convert = _KEYS[key]
        values[attribute] = convert(value, str(key), place)
    for key in ("name", "kind"):
        if not values.get(key):
            raise InputFileError(f"has no {key}.", place=place, remedy=f"Add the key {key!r}.")
    kind = values["kind"]
    if kind not in KINDS:
        raise unknown_name("kind of step", kind, KINDS, place=place, kind=InputFileError)
    needed = KINDS[kind]
    if needed and sum(key in item for key in needed) != 1:
        raise InputFileError(f"a {kind!r} step needs {' or '.join(needed)}, one of them.", place=place)
    _check_used(kind, item, place)
    if kind not in _OF_ALL and not values.get("targets"):
        raise InputFileError("has no targets.", place=place, remedy='Name what it changes: targets = ["kernel_a"].')
    return Step(**values, place=place)


def _check_used(kind: str, item: Mapping[str, Any], place: str) -> None:
    """Check that a step has no key that only other kinds use: it would change nothing."""
    used = (*KINDS[kind], *_OPTIONAL.get(kind, ()))
    for key in (*chain(*KINDS.values()), *chain(*_OPTIONAL.values())):
        if key in item and key not in used:
            allowed = f"It takes {', '.join(used)}." if used else "Remove it, or choose another kind."
            raise InputFileError(f"a {kind!r} step has no use for {key}.", place=place, remedy=allowed)


#: kinds of steps that change all entries unless they name some
_OF_ALL = ("batch", "hardware")


def _operators(items: Any, place: str) -> dict[str, tuple[Operator, int]]:
    """Return the operators that the file gives for entries of the profile."""
    if not isinstance(items, list):
        raise InputFileError("operators is not a list.", place=place, remedy="Write one [[operators]] table for each.")
    operators = {}
    for number, item in enumerate(items, start=1):
        where = f"{place}: operator {number}"
        if not isinstance(item, Mapping) or not all(isinstance(item.get(key), str) for key in ("entry", "op")):
            raise InputFileError(
                "needs entry and op.", place=where, remedy='entry = "attention", op = "attention", ...'
            )
        calls = fields.count(item.get("calls", 1), "calls", where)
        sizes = {key: value for key, value in item.items() if key not in ("entry", "op", "calls")}
        try:
            operators[item["entry"]] = build_operator(item["op"], sizes), calls
        except UsageError as error:
            raise InputFileError(error.message, place=where, remedy=error.remedy) from None
    return operators


_KEYS: dict[str, tuple[str, Callable[[Any, str, str], Any]]] = {
    "name": ("name", fields.text),
    "kind": ("kind", fields.text),
    "targets": ("targets", fields.texts),
    "speedup": ("speedup", fields.positive),
    "new_time": ("new_time_s", fields.duration),
    "dtype": ("dtype", fields.text),
    "algorithm": ("algorithm", fields.text),
    "instead_of": ("instead_of", fields.text),
    "hardware": ("hardware", fields.text),
    "factor": ("factor", fields.positive),
    "fixed": ("fixed", fields.texts),
    "share": ("share", fields.fraction),
    "after": ("after", fields.texts),
    "claimed_total_time": ("claimed_total_time_s", fields.duration),
    "claimed_speedup": ("claimed_speedup", fields.positive),
}
