"""A report as one HTML page that opens offline: the answer, drawings that its rows allow, and sortable tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report

SUFFIXES = (".html", ".htm")


def render(report: Report, find: Callable[[Iterable[str]], Sequence[Hardware]] | None = None) -> str:
    """Return the report as a page; see `perfmodel.render.html.inputs.html_report`."""
    from perfmodel.render.html.inputs import html_report

    return html_report(report, title=report.title or f"perfmodel {report.command}", find=find)
