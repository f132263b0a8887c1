"""What a page shows, as data: the answer, drawings, and tables, made of a report."""

from __future__ import annotations

from typing import Any

from perfmodel.core.report import Report
from perfmodel.render.html.answer import answer
from perfmodel.render.html.charts import charts
from perfmodel.render.html.layouts import unit_of
from perfmodel.render.html.packing import View
from perfmodel.render.html.tables import table_view

_LONGEST_LIST = 12
#: facts that stand elsewhere on the page: as the decision, and among the notes
_TOLD = {"decision", "what_to_do"}


def report_views(report: Report) -> list[View]:
    """Return the views of a report: its answer, the drawings that its rows allow, and its tables."""
    tables = [table_view(report), *(table_view(table, key) for key, table in report.more.items())]
    return [heading_view(report), *charts(report), *tables]


def heading_view(report: Report) -> View:
    """Return what stands first: the title, what limits and what to do, key figures, then conditions and notes."""
    decision, figures = answer(report)
    context = {key: _plain(value) for key, value in report.context.items() if _is_short(value) and key not in _TOLD}
    return {
        "kind": "heading",
        "title": report.title or f"perfmodel {report.command}",
        "decision": decision,
        "figures": figures,
        # tables of pages have the rows that others leave out
        "notes": [*report.assumptions, *(note for note in report.shown_notes if note != report.unlisted)],
        "context": context,
        "units": {key: unit for key in context if (unit := unit_of(key, report.command))},
    }


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, (int, float, bool)) or (
        isinstance(value, (list, tuple))
        and 0 < len(value) < _LONGEST_LIST
        and all(isinstance(item, (str, int, float)) for item in value)
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
