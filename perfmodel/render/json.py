"""A report as JSON: full precision, SI base units, stable keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perfmodel.core.report import GoesOn, Report

SUFFIXES = (".json",)


def render(report: Report) -> str:
    """Return the report as JSON text; a number that is not finite becomes null."""
    return report.json_text()


def pieces(report: Report, goes_on: GoesOn) -> Iterator[str]:
    """Yield the same text a piece at a time."""
    yield from report.json_pieces(goes_on)
