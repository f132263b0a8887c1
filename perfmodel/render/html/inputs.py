"""What a page can be made of: results of perfmodel, with more views than their tables where the result has more."""

from __future__ import annotations

from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.render.html.page import page
from perfmodel.render.html.views import View, report_views, timeline_view

#: endings of keys in perfmodel's JSON -> unit
_UNITS = {
    "_flop_per_s": "FLOP/s", "_bytes_per_s": "B/s", "_time_s": "s", "_s": "s", "_bytes": "B", "_flop": "FLOP",
    "_fraction": "fraction", "_share": "fraction",
}  # fmt: skip


def html_report(*results: Any, title: str = "") -> str:
    """Return one self-contained HTML page of one result, or of two side by side: before and after.

    Parameters
    ----------
    results : what perfmodel's functions return (a diagnosis, predictions, a ranking, a training step, ...), or reports.
    title : of the page.
    """
    reports = [result if isinstance(result, Report) else report(result) for result in results]
    views = [_views(result, made) for result, made in zip(results, reports, strict=True)]
    heading = title or " | ".join(filter(None, (made.title for made in reports))) or "perfmodel"
    return page(views, title=heading)


def _views(result: Any, made: Report) -> list[View]:
    """Return the views of a report; a diagnosis of a trace has its time line, and its operators as a table."""
    views = report_views(made)
    profile = getattr(result, "profile", None)
    timeline = getattr(profile, "timeline", None)
    if profile is None or timeline is None:
        return views
    drawn = timeline_view(timeline, [entry.name for entry in profile.entries])
    return [*views[:1], *([drawn] if drawn else []), *views[1:]]


def json_report(document: dict[str, Any], place: str) -> Report:
    """Return perfmodel's own JSON as a report; the units follow from the endings of the keys.

    Parameters
    ----------
    document : with "command", "context" and "rows".
    place : its file, for the title.
    """
    rows = [row for row in document.get("rows", []) if isinstance(row, dict)]
    command = str(document.get("command", ""))
    more = {
        key: Report(command, _columns(value), value, title=key.replace("_", " "))
        for key, value in document.items()
        if key != "rows" and isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    }
    notes = tuple(str(note) for note in document.get("notes", []))
    context = document.get("context")
    facts = context if isinstance(context, dict) else {}
    return Report(command, _columns(rows), rows, facts, notes, f"{command}: {place}", more)


def _columns(rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return tuple(Column(key, unit=_unit(key)) for key in keys)


def _unit(key: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
