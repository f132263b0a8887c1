"""How far the training steps of other laboratories are off, whose runs fit nothing, and what their intervals hold."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from elsewhere import Groups, RunOff, Source, Widening, covered, left_out, widening, widths
from training_batches import AT_FIRST_SIGHT
from training_first_sight import at_first_sight

from perfmodel.accuracy.run_table import Run, read_run_table
from perfmodel.hardware_catalog import hardware
from perfmodel.training.constants import Constants
from perfmodel.training.framework import nearest_framework
from perfmodel.training.published import judged_rows
from perfmodel.training.published_run import measured_time, read_run
from perfmodel.training.step import train
from perfmodel.training.unmeasured import ELSEWHERE, UNDESCRIBED

#: who published the rows that are fitted, as the beginning of their sources
LABORATORIES = (
    "NVIDIA-NeMo/Megatron-Bridge", "NVIDIA/Megatron-LM", "NVIDIA/NeMo", "NVIDIA/NeMo-Megatron-Launcher",
    "arXiv 2205.05198", "mosaicml/llm-foundry", "pytorch/torchtitan",
)  # fmt: skip
#: runs of others
ELSEWHERE_TABLE = Path(__file__).resolve().parents[1] / "examples" / "published" / "training.csv"


def publisher(run: Run) -> str:
    """Return who published a run: the owner of a repository, whatever its tables; else those of its table.

    Submissions to MLPerf run one code on machines of many owners: they are one laboratory's, with their framework.
    """
    source = run.text("source")
    owner = re.match(r"([\w.-]+)/[\w.-]", source)
    return "MLPerf" if "MLPerf" in source else owner[1].lower() if owner else run.text("table")


class Judged(NamedTuple):
    """A run of a laboratory whose runs are not fitted: with the interval of one whose are."""

    name: str
    kind: str
    source: Source
    run: RunOff


def judged_steps(fixed: Constants) -> list[Judged]:
    """Return the runs of other laboratories as they are predicted today.

    Those of frameworks that are described, and the others, have a kind each: that of their interval.
    """
    found = []
    for run in read_run_table(ELSEWHERE_TABLE).runs:
        row = read_run(run, hardware)
        step = train(row.config, row.cluster, row.plan, fixed, checked=False, laboratory=LABORATORIES[0])
        framework = run.text("framework")
        kind = ELSEWHERE if nearest_framework(framework)[1] else UNDESCRIBED
        ends = math.log(step.time_s / step.low_s), math.log(step.high_s / step.time_s)
        off = RunOff(math.log(measured_time(run) / step.time_s), *ends)
        found.append(Judged(run.text("id"), kind, (publisher(run), framework), off))
    return found


def by_kind(steps: Iterable[Judged]) -> dict[str, dict[Source, list[RunOff]]]:
    """Return runs by kind and publisher."""
    found: dict[str, dict[Source, list[RunOff]]] = {ELSEWHERE: {}, UNDESCRIBED: {}}
    for step in steps:
        found[step.kind].setdefault(step.source, []).append(step.run)
    return found


def first_sights(steps: Iterable[Judged]) -> list[Judged]:
    """Return runs as far off as they were at first sight, where that is recorded: what a laboratory meets that is new.

    Their intervals are today's; what they were predicted as with no file for their framework is of that kind.
    """
    record = at_first_sight()
    measured = {run.text("id"): measured_time(run) for run in read_run_table(ELSEWHERE_TABLE).runs}
    found = []
    for step in steps:
        if first := record.get(step.name):
            off = math.log(measured[step.name] / first.predicted_s)
            kind = ELSEWHERE if first.described else UNDESCRIBED
            step = step._replace(kind=kind, run=step.run._replace(off=off))
        found.append(step)
    return found


def other_laboratories(fixed: Constants) -> dict[str, dict[Source, list[RunOff]]]:
    """Return the runs by kind and publisher that say what a laboratory differs by that nobody has seen."""
    return by_kind(first_sights(judged_steps(fixed)))


def other_memory() -> dict[Source, list[RunOff]]:
    """Return the same of the memory that these runs print."""
    found: dict[Source, list[RunOff]] = {}
    for run in read_run_table(ELSEWHERE_TABLE).runs:
        known = dataclasses.replace(run, cells={**run.cells, "source": LABORATORIES[0]})
        for row in judged_rows(read_run(known, hardware)):
            if row.quantity == "memory_bytes":
                ends = math.log(row.predicted / row.low), math.log(row.high / row.predicted)
                kept = found.setdefault((publisher(run), run.text("framework")), [])
                kept.append(RunOff(math.log(row.measured / row.predicted), *ends))
    return found


def elsewhere_text(fixed: Constants) -> str:
    """Return the section on how far the steps of other laboratories are off, and what their intervals hold."""
    steps = judged_steps(fixed)
    kinds = by_kind(first_sights(steps))
    by = {kind: widening(groups) for kind, groups in kinds.items()}
    runs = [step.run for step in steps]
    ratio = np.exp([-run.off for run in runs])
    recorded = len(at_first_sight())
    memory = other_memory()
    printed = widening(memory)

    def share(inside: Callable[[str, Groups], Mapping[Source, float]]) -> str:
        """Return the share of all runs inside the intervals of which a function says the share of each source."""
        shares = ((inside(kind, groups), groups) for kind, groups in kinds.items())
        held = sum(within[source] * len(one) for within, groups in shares for source, one in groups.items())
        return f"{held / len(runs):.0%}"

    before = share(lambda kind, groups: covered(groups, Widening(0.0, 0.0)))
    after = share(lambda kind, groups: covered(groups, by[kind]))
    others = share(lambda kind, groups: left_out(groups))
    width = np.median(np.concatenate([widths(groups, by[kind]) for kind, groups in kinds.items()]))
    tables = sum(map(len, kinds.values()))
    described, other = by[ELSEWHERE], by[UNDESCRIBED]
    off = np.abs(ratio - 1.0)
    return f"""\
### Steps of other laboratories

{len(runs)} runs of other laboratories ({tables} of them with their frameworks in `examples/published/training.csv`,
gathered without sight of a prediction) are off by {np.mean(off):.1%} in the mean and {np.median(off):.1%} in the
median, mostly too fast.

As far off as they were at first sight ({recorded} of them, before anything was changed for them; the others as today),
{before} of them lie in the intervals above. These are widened by what laboratories differ by, {described.low:.2f} to
{described.high:.2f} times with frameworks that are described and {other.low:.2f} to {other.high:.2f} with others, for
all runs but those of {", ".join(LABORATORIES)}: with each laboratory left out of that, they hold {others} (with it in,
{after}) at a median width of {width:.2f}.

The memory that {sum(map(len, memory.values()))} of them print is {printed.low:.2f} to {printed.high:.2f} times the
predicted: peaks of the allocator, reserved memory and the whole device's are seldom told apart.

{AT_FIRST_SIGHT}"""
