"""A report as one HTML page that opens offline: the answer, drawings that its rows allow, and sortable tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.core.report import Report

SUFFIXES = (".html", ".htm")


def render(
    report: Report, find: Callable[[Iterable[str]], Sequence[Hardware]] | None = None, result: Any = None
) -> str:
    """Return the report as a page; see `perfmodel.render.html.inputs.html_report`.

    Parameters
    ----------
    report : of the result.
    find : returns the machines that the rows name.
    result : that the report was made of; a diagnosis has the time line of its profile.
    """
    from perfmodel.render.html.inputs import page_of_reports

    return page_of_reports([(result, report)], report.title or f"perfmodel {report.command}", find)
