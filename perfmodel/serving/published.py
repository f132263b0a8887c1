"""Published inference runs: reading their tables, and predicting each run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from perfmodel.accuracy.published import PublishedRuns
from perfmodel.accuracy.run_table import RunTable
from perfmodel.core.hardware import Hardware


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one of inference runs."""
    return False


def judge(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return the runs of a table beside their predictions."""
    raise NotImplementedError
