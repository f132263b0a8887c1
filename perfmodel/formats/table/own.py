"""Files of perfmodel itself: which of its results hold the parts of a run, and which files are no profiles.

A sum over rows that are candidates, steps, limits or predictions is no time of a run, though each row has a name and a
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.errors import InputFileError

#: command -> the key of those of its rows that are the measured parts of a run
_PARTS = {"diagnose": "operators", "profile": "rows", "project": "rows"}
#: columns of results as CSV that are no parts of a run -> the command that writes them; the first that fits counts
_COLUMNS = (
    ({"op", "hardware", "bound_time_s", "predicted_time_s", "kernel", "status"}, "bench"),
    ({"problem", "op", "algorithm", "least_time_s", "status"}, "bench"),
    ({"op", "hardware", "bound_time_s", "predicted_time_s"}, "analyze"),
    ({"problem", "op", "algorithm", "why_not"}, "analyze"),
    ({"op", "before_s", "after_s", "verdict"}, "compare"),
    ({"module", "op", "predicted_time_s"}, "capture"),
    ({"rank", "targets", "time_saved_s", "max_overall_speedup"}, "roi"),
    ({"step", "targets", "time_before_s", "time_after_s"}, "whatif"),
)
#: columns of the parts of a run as CSV: of diagnose and of project
_PART_COLUMNS = ({"name", "op", "time_s", "fraction", "not_modelled"}, {"name", "time_s", "projected_time_s", "basis"})
#: key of a list that perfmodel reads -> keys that tell its rows, what the file is, and what takes it
_READ = {
    "candidates": ({"targets"}, "a plan", "Give it to --plan, beside a profile."),
    "steps": ({"kind", "set"}, "a scenario", "Give it to perfmodel whatif, behind a profile."),
}


def own_parts(document: Mapping[str, Any], place: str) -> list[Any] | None:
    """Return the parts of a run in a result of perfmodel, None for a document of another kind.

    Raises
    ------
    InputFileError
        When it is a result whose rows are no parts of a run, a plan or a scenario.
    """
    for key, (of_rows, what, remedy) in _READ.items():
        if _have_one(document.get(key), of_rows):
            raise InputFileError(f"is {what}, not a profile.", place=place, remedy=remedy)
    command = document.get("command")
    if "schema_version" not in document or not isinstance(command, str):
        return None
    parts = document.get(_PARTS.get(command, ""))
    if not isinstance(parts, list):
        raise _no_profile(command, place)
    return parts


def refuse_own_columns(headers: Sequence[str], place: str) -> None:
    """Refuse a result of perfmodel as CSV whose rows are no parts of a run.

    Raises
    ------
    InputFileError
        When it is one.
    """
    if command := _command(headers):
        raise _no_profile(command, place)


def is_derived(headers: Sequence[str]) -> bool:
    """Whether these are the columns of a result as CSV that perfmodel can make again: all but those of bench."""
    return _command(headers) not in ("", "bench") or any(columns.issubset(headers) for columns in _PART_COLUMNS)


def _command(headers: Sequence[str]) -> str:
    return next((command for columns, command in _COLUMNS if columns.issubset(headers)), "")


def _have_one(rows: Any, keys: set[str]) -> bool:
    """Whether this is a list of tables of which some have one of the keys."""
    return isinstance(rows, list) and any(isinstance(row, Mapping) and keys & row.keys() for row in rows)


def _no_profile(command: str, place: str) -> InputFileError:
    return InputFileError(
        f"is a record of perfmodel {command}, not a profile.",
        place=place,
        remedy="Give a table of names and measured times.",
    )
