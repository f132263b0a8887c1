"""A report as one HTML page that opens offline: sortable tables, and the views that its rows allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".html", ".htm")


def render(report: Report) -> str:
    """Return the report as a page; see `perfmodel.render.html.page.page`."""
    from perfmodel.render.html.page import page
    from perfmodel.render.html.views import report_views

    return page([report_views(report)], title=report.title or f"perfmodel {report.command}")
