"""A report as JSON: full precision, SI base units, the contract's keys."""

from __future__ import annotations

import json

from perfmodel.core.report import Report


def render(report: Report) -> str:
    """Return the report as JSON text; what is not a finite number is null."""
    return json.dumps(report.as_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
