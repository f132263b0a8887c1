"""A plan: the candidates for optimisation, what each would make faster, and at what effort."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputFileError, UsageError, nearest, unknown_name
from perfmodel.files import read_document
from perfmodel.investment import _values as values
from perfmodel.profile.candidate import Candidate


@dataclass(frozen=True)
class Plan:
    """Candidates that fit together by name.

    Raises
    ------
    UsageError, or InputFileError for candidates from a file
        On construction: no candidate, a name that stands twice, an unknown name in ``after`` or
        ``excludes``, a candidate that excludes what it needs, or a cycle in ``after``.
    """

    candidates: tuple[Candidate, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.candidates:
            kind = InputFileError if self.source else UsageError
            raise kind("holds no candidate.", place=self.source, remedy="Write at least one [[candidates]] table.")
        by_name: dict[str, Candidate] = {}
        for candidate in self.candidates:
            if candidate.name in by_name:
                raise candidate.error(f"the name {candidate.name!r} stands twice.", "Give each candidate its own.")
            by_name[candidate.name] = candidate
        for candidate in self.candidates:
            _check_names(candidate, by_name)
        _check_order(by_name)


def _check_names(candidate: Candidate, by_name: Mapping[str, Candidate]) -> None:
    for key in ("after", "excludes"):
        for other in getattr(candidate, key):
            if other not in by_name:
                remedy = f"{nearest(other, by_name)} The candidates are {', '.join(map(repr, by_name))}.".strip()
                raise candidate.error(f"{key} names {other!r}, which is no candidate.", remedy)
    if candidate.name in candidate.excludes:
        raise candidate.error("excludes itself.", "Name another candidate.")
    both = [
        other for other in candidate.after if other in candidate.excludes or candidate.name in by_name[other].excludes
    ]
    if both:
        raise candidate.error(f"comes after {both[0]!r} and excludes it.", "Leave out one of the two.")


def _check_order(by_name: Mapping[str, Candidate]) -> None:
    """Walk ``after`` from each candidate without recursion and report the first cycle."""
    done: set[str] = set()
    for start in by_name:
        path: list[str] = []
        stack = [(start, iter(by_name[start].after))] if start not in done else []
        path.extend(name for name, _ in stack)
        while stack:
            name, following = stack[-1]
            other = next((item for item in following if item not in done), None)
            if other is None:
                done.add(name)
                stack.pop()
                path.pop()
            elif other in path:
                cycle = " after ".join(repr(item) for item in [*path[path.index(other) :], other])
                raise by_name[other].error(f"the order is a cycle: {cycle}.", "Take one 'after' out.")
            else:
                stack.append((other, iter(by_name[other].after)))
                path.append(other)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a TOML, YAML or JSON file of ``[[candidates]]``.

    Raises
    ------
    InputFileError
        When the file cannot be read or parsed, or a candidate is wrong; see `Candidate` and `Plan`.
    """
    return parse_plan(read_document(path), place=os.fspath(path))


def parse_plan(document: Any, *, place: str = "plan") -> Plan:
    """Return the plan that a parsed document holds: a table with the list ``candidates``.

    Keys of a candidate: name, targets, and one of speedup and new_time ("12 ms"); optional kind, dev_days, risk,
    after, excludes, claimed_total_time ("380 ms"). ``place`` names the file in messages.

    Raises
    ------
    InputFileError
        When a key is unknown, missing or of another type, or a candidate is wrong.
    """
    items = document.get("candidates") if isinstance(document, Mapping) else None
    if not isinstance(items, list):
        raise InputFileError(
            "holds no list of candidates.", place=place, remedy="Write one [[candidates]] table for each."
        )
    unknown = [key for key in document if key != "candidates"]
    if unknown:
        raise unknown_name("key", str(unknown[0]), ["candidates"], place=place, kind=InputFileError)
    return Plan(tuple(_candidate(item, n, place) for n, item in enumerate(items, start=1)), place)


def _candidate(item: Any, number: int, place: str) -> Candidate:
    """Return one table of the document as a candidate."""
    where = f"{place}: candidate {number}"
    if not isinstance(item, Mapping):
        raise InputFileError(f"is no table, but {str(item)[:40]!r}.", place=where)
    name = item.get("name")
    if isinstance(name, str) and name.strip():
        where += f" {name!r}"
    fields: dict[str, Any] = {}
    for key, value in item.items():
        if key not in _KEYS:
            raise unknown_name("key", str(key), _KEYS, place=where, kind=InputFileError)
        attribute, convert = _KEYS[key]
        fields[attribute] = convert(value, str(key), where)
    if "name" not in fields or "targets" not in fields:
        missing = "name" if "name" not in fields else "targets"
        raise InputFileError(f"has no {missing}.", place=where, remedy=f"Add the key {missing!r}.")
    return Candidate(**fields, place=where)


_KEYS: dict[str, tuple[str, Callable[[Any, str, str], Any]]] = {
    "name": ("name", values.text),
    "targets": ("targets", values.texts),
    "speedup": ("speedup", values.number),
    "new_time": ("new_time_s", values.time),
    "dev_days": ("dev_days", values.number),
    "risk": ("risk", values.text),
    "kind": ("kind", values.text),
    "after": ("after", values.texts),
    "excludes": ("excludes", values.texts),
    "claimed_total_time": ("claimed_total_time_s", values.time),
}
