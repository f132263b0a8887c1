"""A path: an ordered list of changes to a profiled run, as a file says it."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputFileError, PerfModelError, UsageError, nearest, unknown_name
from perfmodel.files import read_document
from perfmodel.investment import _values as values
from perfmodel.operators import Operator
from perfmodel.operators.parse import build_operator

#: kind of step -> the keys that it needs one of, beside its targets
KINDS: Mapping[str, tuple[str, ...]] = {
    "scale": ("speedup", "new_time"),
    "dtype": ("dtype",),
    "algorithm": ("algorithm",),
    "batch": ("factor",),
    "checkpoint": (),
    "fuse": (),
    "remove": (),
}


@dataclass(frozen=True)
class Step:
    """One change.

    Attributes
    ----------
    name, kind : what people call it, and one of `KINDS`.
    targets : entries of the profile that it changes: names or shell patterns; for "batch" by default all.
    speedup : "scale", "fuse": old over new time of the targets together; above 0.
    new_time_s : "scale": the new time of the targets together [s].
    dtype, algorithm : "dtype", "algorithm": what the operators of the targets are changed to.
    factor : "batch": how many times as many items a run has.
    fixed : "batch": entries whose time does not depend on the batch, as that of an optimizer; launch gaps and waits of
        a traced run are fixed anyway.
    share : "checkpoint": which share of the targets' time is computed a second time.
    after : names of steps that have to come before.
    claimed_total_time_s, claimed_speedup : what somebody says that the run takes after this step [s], and the speedup
        of the whole run by this step alone; to be checked.
    place : file and position, for messages.
    """

    name: str
    kind: str
    targets: tuple[str, ...] = ("*",)
    speedup: float | None = None
    new_time_s: float | None = None
    dtype: str = ""
    algorithm: str = ""
    factor: float | None = None
    fixed: tuple[str, ...] = ()
    share: float = 1.0
    after: tuple[str, ...] = ()
    claimed_total_time_s: float | None = None
    claimed_speedup: float | None = None
    place: str = ""

    def error(self, message: str, remedy: str = "") -> PerfModelError:
        """Build an error about this step: of its file, where it came from one."""
        kind = InputFileError if self.place else UsageError
        return kind(message, place=self.place or f"step {self.name!r}", remedy=remedy)

    def resolve(self, patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
        """Return the entries that some patterns name, in the order of the patterns, each once.

        Raises
        ------
        InputFileError, or UsageError for a step made in Python
            When a pattern matches no entry.
        """
        known = list(names)
        found: dict[str, None] = {}
        for pattern in patterns:
            matched = [pattern] if pattern in known else [name for name in known if fnmatch.fnmatchcase(name, pattern)]
            if not matched:
                hint = nearest(pattern, known)
                listed = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
                raise self.error(f"{pattern!r} is no entry of the profile.", f"{hint} There are {listed}.".strip())
            found.update(dict.fromkeys(matched))
        return tuple(found)


@dataclass(frozen=True)
class Path:
    """Steps in the order in which they are done, and what the profile does not say.

    Attributes
    ----------
    steps : one or more, each name once.
    items, item : how many items a run works on before the first step, and what they are ("sequences"), for throughput.
    operators : entry -> operator that one call computes, and its calls, where the profile has only times.
    source : the file, for messages.

    Raises
    ------
    InputFileError, or UsageError for a path made in Python
        On construction: no step, a name twice, or ``after`` that names an unknown step, a later one, or forms a cycle.
    """

    steps: tuple[Step, ...]
    items: float | None = None
    item: str = "items"
    operators: Mapping[str, tuple[Operator, int]] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not self.steps:
            kind = InputFileError if self.source else UsageError
            raise kind("holds no step.", place=self.source, remedy="Write at least one [[steps]] table.")
        names = [step.name for step in self.steps]
        for number, step in enumerate(self.steps):
            if names.index(step.name) != number:
                raise step.error(f"the name {step.name!r} stands twice.", "Give each step its own.")
            self._check_after(step, names, number)

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
                raise step.error(f"{step.name!r} and {other!r} wait for each other: a cycle.", "Take one 'after' out.")
            raise step.error(f"comes after {other!r}, which stands below it.", "Write the steps in their order.")

    def _reaches(self, start: str, goal: str) -> bool:
        """Whether a step comes, directly or not, after another."""
        by_name = {step.name: step for step in self.steps}
        waiting, seen = [start], set[str]()
        while waiting:
            name = waiting.pop()
            if name == goal:
                return True
            if name not in seen and name in by_name:
                seen.add(name)
                waiting.extend(by_name[name].after)
        return False


def read_path(path: str | os.PathLike[str]) -> Path:
    """Read a path from a TOML, YAML or JSON file of ``[[steps]]``.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key or value is wrong.
    """
    return parse_path(read_document(path), place=os.fspath(path))


def parse_path(document: Any, *, place: str = "path") -> Path:
    """Return the path that a parsed document holds; ``place`` names the file in messages.

    Raises
    ------
    InputFileError
        When a key is unknown, missing or of another type, or a value is out of its range.
    """
    if not isinstance(document, Mapping) or not isinstance(document.get("steps"), list):
        raise InputFileError("holds no list of steps.", place=place, remedy="Write one [[steps]] table for each.")
    for key in document:
        if key not in ("steps", "items", "item", "operators"):
            allowed = ("steps", "items", "item", "operators")
            raise unknown_name("key", str(key), allowed, place=place, kind=InputFileError)
    items = document.get("items")
    return Path(
        tuple(_step(item, f"{place}: step {number}") for number, item in enumerate(document["steps"], start=1)),
        None if items is None else values.positive(items, "items", place),
        values.text(document.get("item", "items"), "item", place),
        _operators(document.get("operators", []), place),
        place,
    )


def _step(item: Any, place: str) -> Step:
    if not isinstance(item, Mapping):
        raise InputFileError(f"is no table, but {str(item)[:40]!r}.", place=place)
    fields: dict[str, Any] = {}
    for key, value in item.items():
        if key not in _KEYS:
            raise unknown_name("key", str(key), _KEYS, place=place, kind=InputFileError)
        attribute, convert = _KEYS[key]
        fields[attribute] = convert(value, str(key), place)
    for key in ("name", "kind"):
        if not fields.get(key):
            raise InputFileError(f"has no {key}.", place=place, remedy=f"Add the key {key!r}.")
    kind = fields["kind"]
    if kind not in KINDS:
        raise unknown_name("kind of step", kind, KINDS, place=place, kind=InputFileError)
    needed = KINDS[kind]
    if needed and sum(key in item for key in needed) != 1:
        raise InputFileError(f"a {kind!r} step needs {' or '.join(needed)}, one of them.", place=place)
    if kind != "batch" and not fields.get("targets"):
        raise InputFileError("has no targets.", place=place, remedy='Name what it changes: targets = ["kernel_a"].')
    return Step(**fields, place=place)


def _operators(items: Any, place: str) -> dict[str, tuple[Operator, int]]:
    """Return the operators that the file gives to entries of the profile."""
    if not isinstance(items, list):
        raise InputFileError("operators is no list.", place=place, remedy="Write one [[operators]] table for each.")
    made = {}
    for number, item in enumerate(items, start=1):
        where = f"{place}: operator {number}"
        if (
            not isinstance(item, Mapping)
            or not isinstance(item.get("entry"), str)
            or not isinstance(item.get("op"), str)
        ):
            raise InputFileError(
                "needs entry and op.", place=where, remedy='entry = "attention", op = "attention", ...'
            )
        calls = values.positive(item.get("calls", 1), "calls", where)
        sizes = {key: value for key, value in item.items() if key not in ("entry", "op", "calls")}
        try:
            made[item["entry"]] = build_operator(item["op"], sizes), int(calls)
        except UsageError as error:
            raise InputFileError(error.message, place=where, remedy=error.remedy) from None
    return made


_KEYS: dict[str, tuple[str, Callable[[Any, str, str], Any]]] = {
    "name": ("name", values.text),
    "kind": ("kind", values.text),
    "targets": ("targets", values.texts),
    "speedup": ("speedup", values.positive),
    "new_time": ("new_time_s", values.duration),
    "dtype": ("dtype", values.text),
    "algorithm": ("algorithm", values.text),
    "factor": ("factor", values.positive),
    "fixed": ("fixed", values.texts),
    "share": ("share", values.share),
    "after": ("after", values.texts),
    "claimed_total_time": ("claimed_total_time_s", values.duration),
    "claimed_speedup": ("claimed_speedup", values.positive),
}
