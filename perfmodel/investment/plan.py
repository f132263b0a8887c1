"""A plan: candidates for optimisation, read from a file or written from a diagnosis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from perfmodel.diagnosis.result import Advice
from perfmodel.errors import InputFileError, UsageError, nearest
from perfmodel.files import read_document, toml_string
from perfmodel.investment import fields
from perfmodel.profile.candidate import Candidate


@dataclass(frozen=True)
class Plan:
    """Candidates with consistent names.

    Raises
    ------
    UsageError, or InputFileError for candidates from a file
        On construction: no candidate, a name used twice, an unknown name in ``after`` or ``excludes``, a candidate that
        excludes what it needs, or a cycle in ``after``.
    """

    candidates: tuple[Candidate, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.candidates:
            kind = InputFileError if self.source else UsageError
            raise kind("has no candidate.", place=self.source, remedy="Write at least one [[candidates]] table.")
        by_name: dict[str, Candidate] = {}
        for candidate in self.candidates:
            if candidate.name in by_name:
                raise candidate.error(f"the name {candidate.name!r} is used twice.", "Give each candidate its own.")
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
    """Check that ``after`` forms no cycle."""
    try:
        TopologicalSorter({name: candidate.after for name, candidate in by_name.items()}).prepare()
    except CycleError as error:
        names = error.args[1][::-1]
        cycle = " after ".join(map(repr, names))
        raise by_name[names[0]].error(f"the order is a cycle: {cycle}.", "Remove one 'after'.") from None


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a TOML, YAML or JSON file of ``[[candidates]]``.

    Raises
    ------
    InputFileError
        If the file cannot be read or parsed, or a candidate is wrong; see `Candidate` and `Plan`.
    """
    return parse_plan(read_document(path), place=os.fspath(path))


def parse_plan(document: Any, *, place: str = "plan") -> Plan:
    """Return the plan in a parsed document: a table with the list ``candidates``.

    Keys of a candidate: name, targets, and one of speedup, new_time ("12 ms") and algorithm; optional kind, dev_days,
    risk, after, excludes, claimed_total_time ("380 ms"), and with an algorithm instead_of and operator ({op = ...}).
    ``place`` names the file in messages.

    Raises
    ------
    InputFileError
        If a key is unknown, missing or of another type, or a candidate is wrong.
    """
    items = document.get("candidates") if isinstance(document, Mapping) else None
    if not isinstance(items, list):
        raise InputFileError(
            "has no list of candidates.", place=place, remedy="Write one [[candidates]] table per candidate."
        )
    fields.check_keys(document, ("candidates",), place)
    return Plan(tuple(_candidate(item, n, place) for n, item in enumerate(items, start=1)), place)


def _candidate(item: Any, number: int, place: str) -> Candidate:
    """Return one table of the document as a candidate."""
    where = f"{place}: candidate {number}"
    name = fields.table(item, where).get("name")
    if isinstance(name, str) and name.strip():
        where += f" {name!r}"
    fields.check_keys(item, _KEYS, where)
    values: dict[str, Any] = {}
    for key, value in item.items():
        attribute, convert = _KEYS[key]
        values[attribute] = convert(value, str(key), where)
    if "name" not in values or "targets" not in values:
        missing = "name" if "name" not in values else "targets"
        raise InputFileError(f"has no {missing}.", place=where, remedy=f"Add the key {missing!r}.")
    return Candidate(**values, place=where)


_KEYS: dict[str, tuple[str, Callable[[Any, str, str], Any]]] = {
    "name": ("name", fields.text),
    "targets": ("targets", fields.texts),
    "speedup": ("speedup", fields.number),
    "new_time": ("new_time_s", fields.seconds),
    "dev_days": ("dev_days", fields.number),
    "risk": ("risk", fields.text),
    "kind": ("kind", fields.text),
    "algorithm": ("algorithm", fields.text),
    "instead_of": ("instead_of", fields.text),
    "operator": ("operator", fields.operator),
    "after": ("after", fields.texts),
    "excludes": ("excludes", fields.texts),
    "claimed_total_time": ("claimed_total_time_s", fields.seconds),
}


def plan_toml(advice: Iterable[Advice]) -> str:
    """Return the candidates of a diagnosis as a plan file: TOML, each with its reason as a comment, times in full.

    >>> from perfmodel.profile.candidate import Candidate
    >>> advice = Advice("fuse", "memory", "Fuse them.", 1.0, "6 become 2", Candidate("a", ("b",), new_time_s=0.5))
    >>> print(plan_toml([advice]))
    # Candidates of perfmodel diagnose; days and risk are assumptions by kind of change.
    <BLANKLINE>
    [[candidates]]
    # Fuse them.
    # 6 become 2
    name = "a"
    targets = ["b"]
    new_time = "0.5 s"
    <BLANKLINE>
    """
    lines = ["# Candidates of perfmodel diagnose; days and risk are assumptions by kind of change.", ""]
    for item in advice:
        candidate = item.candidate
        lines += ["[[candidates]]", f"# {_comment(item.text)}", f"# {_comment(item.basis)}"]
        lines.append(f"name = {toml_string(candidate.name)}")
        lines.append(f"targets = [{', '.join(toml_string(target) for target in candidate.targets)}]")
        lines.append(f'new_time = "{candidate.new_time_s!r} s"')
        for key in ("kind", "risk"):
            if getattr(candidate, key):
                lines.append(f"{key} = {toml_string(getattr(candidate, key))}")
        if candidate.after:
            lines.append(f"after = [{', '.join(map(toml_string, candidate.after))}]")
        if candidate.dev_days is not None:
            lines.append(f"dev_days = {candidate.dev_days!r}")
        lines.append("")
    return "\n".join(lines)


def _comment(value: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in value)
