"""Published training runs: reading their tables, and predicting each run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from perfmodel.accuracy.published import PublishedRuns
from perfmodel.accuracy.run_table import RunTable
from perfmodel.core.hardware import Hardware

#: the columns that a table of training runs has
REQUIRED = ("hardware", "num_gpus", "gbs", "seq", "step_time_s")


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one of training runs."""
    return set(REQUIRED) <= set(columns)


def judge(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return the runs of a table beside their predictions."""
    raise NotImplementedError
