"""A report as JSON: full precision, SI base units, stable keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".json",)


def render(report: Report) -> str:
    """Return the report as JSON text; a number that is not finite becomes null."""
    return report.json_text()
