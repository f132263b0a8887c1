"""What a page can be made of: results of perfmodel, with more views than their tables where the result has more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Report, report
from perfmodel.render.html.layouts import columns_of
from perfmodel.render.html.machines import machine_figures, names_in
from perfmodel.render.html.packing import View
from perfmodel.render.html.page import page
from perfmodel.render.html.pair import pair_view
from perfmodel.render.html.tables import TITLES
from perfmodel.render.html.timeline import timeline_view
from perfmodel.render.html.views import report_views

#: returns the machines with some names, without those that nobody knows
FindMachines = Callable[[Iterable[str]], Sequence[Hardware]]


def html_report(*results: Any, title: str = "", find: FindMachines | None = None) -> str:
    """Return one self-contained HTML page of one result, or of two side by side: before and after.

    Parameters
    ----------
    results : what perfmodel's functions return (a diagnosis, predictions, a ranking, a training step, ...), or reports.
    title : of the page.
    find : returns the machines that the results name, whose figures and sources the page shows beside the numbers.
    """
    return page_of_reports(
        [(result, result if isinstance(result, Report) else report(result)) for result in results], title, find
    )


def page_of_reports(results: Sequence[tuple[Any, Report]], title: str = "", find: FindMachines | None = None) -> str:
    """Return the page of results with their reports, which may have more context than those made by `report`."""
    reports = [one for _, one in results]
    views = [_views(result, one) for result, one in results]
    heading = title or " | ".join(filter(None, (one.title for one in reports))) or "perfmodel"
    pair = pair_view(*reports) if len(reports) == 2 else None
    return page(views, title=heading, machines=_machines(reports, find), pair=pair)


def _machines(reports: Sequence[Report], find: FindMachines | None) -> dict[str, Any]:
    """Return the figures of the machines that reports name."""
    names: dict[str, None] = {}
    families: dict[str, None] = {}
    for one in reports:
        rows = [row for table in (one, *one.more.values()) for row in table.rows]
        machines, used = names_in(rows, one.context)
        names |= dict.fromkeys(machines)
        families |= dict.fromkeys(used)
    return machine_figures(find(names) if find is not None else (), families)


def _views(result: Any, one: Report) -> list[View]:
    """Return the views of a report; a diagnosis of a trace has its time line after what takes the time."""
    views = report_views(one)
    profile = getattr(result, "profile", None)
    timeline = getattr(profile, "timeline", None)
    if profile is None or timeline is None:
        return views
    drawn = timeline_view(timeline, [entry.name for entry in profile.entries])
    place = next((at for at, view in enumerate(views) if view["kind"] == "bars"), 0) + 1
    return [*views[:place], *([drawn] if drawn else []), *views[place:]]


def json_report(document: dict[str, Any], place: str) -> Report:
    """Return perfmodel's own JSON as a report; the units follow from the endings of the keys.

    Parameters
    ----------
    document : with "command", "context" and "rows".
    place : its file, for the title.
    """
    rows = [row for row in _listed(document, "rows") if isinstance(row, dict)]
    command = str(document.get("command", ""))
    if command == "search":  # as both searches wrote until 0.2
        command = "search train" if any("mfu" in row for row in rows) else "search serve"
    more = {
        key: Report(command, columns_of(command, value, key), value, title=key.replace("_", " ").capitalize())
        for key, value in document.items()
        if key != "rows" and isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    }
    notes = tuple(str(note) for note in _listed(document, "notes"))
    context = document.get("context")
    facts = context if isinstance(context, dict) else {}
    subject = facts.get("model") or storage.name_of(str(facts.get("profile") or ""))
    title = f"{TITLES.get(command, command)}{f': {subject}' if subject else ''}"
    return Report(command, columns_of(command, rows), rows, {"file": place, **facts}, notes, title, more)


def _listed(document: dict[str, Any], key: str) -> list[Any]:
    """Return the list of a key; a file with anything else there, or nothing, has none."""
    found = document.get(key)
    return found if isinstance(found, list) else []
