"""The report of a saved result."""

from __future__ import annotations

from perfmodel.api.saved import SavedResult, report_of
from perfmodel.core.report import report

report.register(SavedResult)(report_of)
