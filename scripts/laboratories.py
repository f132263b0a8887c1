"""The parts of docs/accuracy*.md on rows of other people that nothing is fitted on, or next to nothing."""

from __future__ import annotations

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
    first = published_kernels.judged()
    batches = {name: published_kernels.judged(path) for name, path in published_kernels.BATCHES.items()}
    tables = {
        "steps": table(whole_steps.HEAD, whole_steps.lines(steps)),
        "laboratory": table(other_laboratories.HEAD, other_laboratories.lines(rows)),
        "traces": table(other_laboratories_traces.HEAD, other_laboratories_traces.lines(traced)),
        "batches": table(published_kernels.BY_BATCH, published_kernels.by_batch({"first": first, **batches})),
        "published": table(published_kernels.HEAD, published_kernels.lines(first)),
        **{
            name: table(published_kernels.BY_MACHINE, published_kernels.by_machine(judged))
            for name, judged in batches.items()
        },
        "between_nodes": table(published_kernels.BY_SOURCE, published_kernels.crossing()),
    }
    return tables, other_laboratories.sentence(rows)
