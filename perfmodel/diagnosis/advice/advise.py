"""All advice for a run, the largest saving first, and what is better left."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from perfmodel.core.units import format_si
from perfmodel.diagnosis.advice.counters import counter_advice
from perfmodel.diagnosis.advice.fusion import Neighbours, fusion_advice, fusion_left
from perfmodel.diagnosis.advice.host import host_advice
from perfmodel.diagnosis.advice.kernels import kernel_advice
from perfmodel.diagnosis.advice.transfer import transfer_advice
from perfmodel.diagnosis.case import LEAST_GAIN, Case
from perfmodel.diagnosis.decompose import IDLE
from perfmodel.diagnosis.evidence.gaps import HELD_UP, SHORT
from perfmodel.diagnosis.result import Advice


def advise(case: Case) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """Return the advice that saves `LEAST_GAIN` of the time or more, and what looks like a candidate and is none.

    The advice is sorted by what it saves, each name once; the others are sentences with the reason. Fusion is looked
    at where the machine is known.
    """
    neighbours = Neighbours(case) if case.decomposition is not None and case.hardware is not None else None
    found = sorted((one for one in _all(case, neighbours) if one is not None), key=lambda one: -one.time_saved_s)
    seen: Counter[str] = Counter()
    named = []
    for one in found:
        name = one.candidate.name
        seen[name] += 1
        told = f"{name} ({seen[name]})" if seen[name] > 1 else name
        named.append(dataclasses.replace(one, candidate=dataclasses.replace(one.candidate, name=told)))
    left = fusion_left(case, neighbours) if neighbours else []
    return tuple(named), (*_held_up(case), *left)


def _all(case: Case, neighbours: Neighbours | None) -> Iterator[Advice | None]:
    if case.decomposition is not None:
        yield from host_advice(case)
        yield from transfer_advice(case)
    if neighbours is not None:
        yield from fusion_advice(case, neighbours)
    yield from kernel_advice(case)
    yield from counter_advice(case)


def _held_up(case: Case) -> list[str]:
    """Return what was asked for in time and did not start: no change of the launching code brings that back."""
    return [
        f"{format_si(one.time_s or 0.0, 's')} held up: {one.detail}. The work was asked for and did not start; look "
        "for a wait for another stream, GPU work launched before the profiler began, another process on the GPU, or "
        "clocks of host and GPU that differ."
        for one in case.evidence.get(IDLE, ())
        if one.what == HELD_UP and (one.time_s or 0.0) >= LEAST_GAIN * case.total_s and not one.detail.endswith(SHORT)
    ]
