"""The parts of docs/accuracy.md on rows of other people that nothing is fitted on, or next to nothing."""

from __future__ import annotations

from pathlib import Path

import open_tables
import other_laboratories
import other_laboratories_traces
import published_kernels
import whole_steps
from accuracy_lines import table


def parts() -> tuple[dict[str, str], str]:
    """Return the tables by their names in the page's text, and what the README says of PyTorch's rows."""
    rows = list(other_laboratories.judged(other_laboratories.TABLE))
    traced = list(other_laboratories_traces.judged())
    steps = whole_steps.steps(open_tables.folder().parent)
    tables = {
        "steps": table(whole_steps.HEAD, whole_steps.lines(steps)),
        "laboratory": table(other_laboratories.HEAD, other_laboratories.lines(rows)),
        "traces": table(other_laboratories_traces.HEAD, other_laboratories_traces.lines(traced)),
        "published": table(published_kernels.HEAD, published_kernels.lines(published_kernels.judged())),
        **{name: _by_machine(rows) for name, rows in published_kernels.BATCHES.items()},
        "between_nodes": table(published_kernels.BY_SOURCE, published_kernels.crossing()),
    }
    return tables, other_laboratories.sentence(rows)


def _by_machine(rows: Path) -> str:
    return table(published_kernels.BY_MACHINE, published_kernels.by_machine(published_kernels.judged(rows)))
