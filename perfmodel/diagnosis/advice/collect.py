"""All advice for a run, the largest saving first, and the changes that are not advised."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.advice.counters import counter_advice
from perfmodel.diagnosis.advice.fusion import Neighbours, fusion_advice, fusion_not_advised
from perfmodel.diagnosis.advice.host import host_advice
from perfmodel.diagnosis.advice.kernels import faster_than_expected, kernel_advice, not_tuned
from perfmodel.diagnosis.advice.suggest import LEAST_SAVING
from perfmodel.diagnosis.advice.transfer import transfer_advice
from perfmodel.diagnosis.evidence.gaps import SHORT_GAPS
from perfmodel.diagnosis.gaps import IdleReason
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.profile.effort import BATCH_SYNCS, CUDA_GRAPH


class AdviceForRun(NamedTuple):
    """The advice for a run.

    Attributes
    ----------
    advice : the largest saving first; the names of the candidates are unique.
    not_advised : changes that look worthwhile and are not, each as a sentence with the reason.
    """

    advice: tuple[Advice, ...]
    not_advised: tuple[str, ...]


def collect_advice(run: MeasuredRun) -> AdviceForRun:
    """Return the advice that saves at least `LEAST_SAVING` of the run's time; fusion only for a known machine."""
    neighbours = Neighbours(run) if run.decomposition is not None and run.hardware is not None else None
    advice = sorted(
        (item for item in _all_rules(run, neighbours) if item is not None), key=lambda item: -item.time_saved_s
    )
    advice = _waits_before_graphs(advice)
    not_fused = fusion_not_advised(run, neighbours) if neighbours else []
    doubts = (*_delayed_starts(run), *not_fused, *not_tuned(run), *faster_than_expected(run))
    return AdviceForRun(tuple(_with_unique_names(advice)), doubts)


def _all_rules(run: MeasuredRun, neighbours: Neighbours | None) -> Iterator[Advice | None]:
    if run.decomposition is not None:
        yield from host_advice(run)
        yield from transfer_advice(run)
    if neighbours is not None:
        yield from fusion_advice(run, neighbours)
    yield from kernel_advice(run)
    yield from counter_advice(run)


def _with_unique_names(advice: list[Advice]) -> Iterator[Advice]:
    """Yield the advice with a number after each repeated name."""
    counts: Counter[str] = Counter()
    for item in advice:
        name = item.candidate.name
        counts[name] += 1
        unique = f"{name} ({counts[name]})" if counts[name] > 1 else name
        yield dataclasses.replace(item, candidate=dataclasses.replace(item.candidate, name=unique))


def _waits_before_graphs(advice: list[Advice]) -> list[Advice]:
    """Return the advice with changes that remove waits before a graph, which cannot be captured across a wait.

    The candidate of the graph comes after theirs, so that a plan of these candidates does them in this order.
    """
    graph = next((item for item in advice if item.kind == CUDA_GRAPH), None)
    waits = [item for item in advice if item.kind == BATCH_SYNCS]
    if graph is None or not waits:
        return advice
    names = tuple(item.candidate.name for item in waits)
    later = dataclasses.replace(graph, candidate=dataclasses.replace(graph.candidate, after=names))
    place = advice.index(graph)
    before = [item for item in advice[:place] if item not in waits]
    rest = [item for item in advice[place + 1 :] if item not in waits]
    return [*before, *waits, later, *rest]


def _delayed_starts(run: MeasuredRun) -> list[str]:
    """Return long delayed starts as sentences: no change of the launching code brings this time back."""
    return [
        f"{format_si(item.time_s or 0.0, 's')} of delayed start: {item.detail}. The work was launched, but did not "
        "start. Possible causes: a wait for another stream, GPU work launched before the profiler started, another "
        "process on the GPU, or different clocks of host and GPU."
        for item in run.evidence.get(Dimension.IDLE, ())
        if item.what == IdleReason.DELAYED
        and (item.time_s or 0.0) >= LEAST_SAVING * run.total_s
        and not item.detail.endswith(SHORT_GAPS)
    ]
