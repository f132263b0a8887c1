"""Advice for the times in which the GPU waits for the host: graphs, fewer waits, background loading, other work."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis import wall
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import IDLE, LAUNCH, SYNC
from perfmodel.diagnosis.evidence.gaps import AWAY, BUSY, launch_intervals_s
from perfmodel.diagnosis.gaps import INPUT_PIPELINE
from perfmodel.diagnosis.intervals import covered_s, union
from perfmodel.diagnosis.result import Advice
from perfmodel.prediction import launching
from perfmodel.profile import effort
from perfmodel.profile.timeline import Ints

#: calls that start a process up, or go past the caching allocator: they do not belong into a measured step
_START_UP = (
    *("Malloc", "Free", "HostAlloc", "StreamCreate", "GetStreamPriorityRange", "GetDeviceProperties"),
    *("ModuleLoad", "LibraryLoad", "LaunchKernel"),
)


def host_advice(case: Case) -> Iterator[Advice | None]:
    """Yield advice for launch, sync and idle time of a traced run."""
    yield _graph(case)
    yield from _fewer_waits(case)
    yield _input(case)
    yield _busy(case)
    yield _away(case)


def _graph(case: Case) -> Advice | None:
    """Return the advice to replay late launches from a graph: each gap shrinks to that between a graph's kernels."""
    saved_s, late = 0.0, []
    for gaps in case.all_gaps():
        mine = (gaps.launch_s > 0) & ~gaps.ahead & (gaps.after >= 0) & ~_from_graph(case, gaps.after)
        saved_s += float(np.maximum(gaps.launch_s[mine] - launching.KERNEL_GAP_S, 0.0).sum())
        late.append(gaps.after[mine])
    events = np.concatenate(late)
    interval_s = launch_intervals_s(case, case.timeline.gpu.launch[events])
    if not events.size or not interval_s.size:
        return None
    count = round(events.size / case.gpus)
    launch_s, kernel_s = float(np.median(interval_s)), float(case.timeline.gpu.duration_s[events].mean())
    shown = {
        "waiting for each": launching.serialised_time_s(count, kernel_s, launch_s),
        "queued ahead": launching.pipelined_time_s(count, kernel_s, launch_s),
        "replayed from a graph": launching.graph_time_s(count, kernel_s, launch_s),
        "fused into one": launching.fused_time_s(count, kernel_s, launch_s),
    }
    worked_out = ", ".join(f"{format_si(float(time_s), 's')} {how}" for how, time_s in shown.items())
    basis = (
        f"{count} kernels of {format_si(kernel_s, 's')} (mean) were launched too late, one every "
        f"{format_si(launch_s, 's')} (median): {worked_out}"
    )
    text = (
        f"replay the {count} late launches from a CUDA graph (torch.compile(mode='reduce-overhead')), fuse them, or "
        "give each more work (a larger batch); shapes have to stay the same"
    )
    return case.advise(effort.CUDA_GRAPH, LAUNCH, "CUDA graph", text, (wall.LAUNCH_GAPS,), saved_s / case.gpus, basis)


def _from_graph(case: Case, events: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which events were launched by the replay of a graph already."""
    timeline = case.timeline
    is_graph = np.array([*("GraphLaunch" in name for name in timeline.names), False])
    if not len(timeline.api):
        return np.zeros(events.shape, dtype=bool)
    call = np.where(events >= 0, timeline.gpu.launch[np.maximum(events, 0)], -1)
    found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = is_graph[
        np.where(call >= 0, timeline.api.name[np.maximum(call, 0)], -1)
    ]
    return found


def _fewer_waits(case: Case) -> Iterator[Advice | None]:
    """Yield the advice to wait once a step: of n waits, n - steps and their restarts go."""
    for one in case.evidence[SYNC]:
        count = (one.count or 0) / case.gpus
        if count <= case.steps:
            continue
        saved_s = (one.time_s or 0.0) * (1.0 - case.steps / count)
        steps = f"{case.steps} steps" if case.steps > 1 else "one step"
        basis = f"{count:.0f} waits in {steps} cost the GPU {format_si(one.time_s or 0.0, 's')}; {one.detail}"
        text = (
            f"collect what {one.what} fetches on the GPU and wait once a step, or copy it with non_blocking=True and "
            "look at it a step later"
        )
        yield case.advise(
            effort.BATCH_SYNCS, SYNC, f"batch {one.what}", text, (wall.sync_name(one.what),), saved_s, basis
        )


def _input(case: Case) -> Advice | None:
    """Return the advice to load the input beside the computation: what the GPU waited for it is hidden."""
    lost_s = case.gaps_s("input_s")
    if lost_s <= 0:
        return None
    load_s = _input_s(case)
    # loading hides behind the rest of the run when the workers together are no slower than it
    workers = math.ceil(load_s / (case.total_s - lost_s))
    basis = (
        f"loading takes {format_si(load_s, 's')} of {format_si(case.total_s, 's')}, of which the GPU waits "
        f"{format_si(lost_s, 's')}; {workers} worker{'s' if workers > 1 else ''} or more hide it"
    )
    text = f"load in the background: DataLoader(num_workers={max(workers, 2)}, prefetch_factor=2, pin_memory=True)"
    return case.advise(effort.INPUT_PIPELINE, IDLE, "input in the background", text, (wall.INPUT,), lost_s, basis)


def _input_s(case: Case) -> float:
    """Return how long the input pipeline ran in the window [s]."""
    timeline = case.timeline
    is_input = np.array([bool(INPUT_PIPELINE.search(name)) for name in timeline.names], dtype=bool)
    low, high = (np.array([value]) for value in timeline.window_s)
    total_s = 0.0
    for ranges in (timeline.ops, timeline.annotations):
        if len(ranges):
            mine = is_input[ranges.name]
            loading = union(ranges.start_s[mine], ranges.end_s[mine])
            total_s = max(total_s, float(covered_s(loading, low, high)[0]))
    return total_s


def _busy(case: Case) -> Advice | None:
    """Return the advice to take work of the host out of the way of launching."""
    places = [one for one in case.evidence[IDLE] if one.what == BUSY]
    if not places:
        return None
    where = places[0].detail
    listed = "; ".join(f"{format_si(one.time_s or 0.0, 's')} {one.detail}" for one in places[:3])
    text = "move this work of the CPU to another thread, to the GPU, or out of the step"
    if any(word in where for word in _START_UP):
        text = "start-up and allocations: warm up before measuring, and keep memory in the caching allocator"
    return case.advise(
        effort.HOST_WORK, IDLE, "host work out of the way", text, (wall.BUSY,), case.gaps_s("busy_s"), listed
    )


def _away(case: Case) -> Advice | None:
    """Return the advice to look at what the host did outside the framework, between two pieces of GPU work."""
    saved_s = sum(float(gaps.away_s[(gaps.before >= 0) & (gaps.after >= 0)].sum()) for gaps in case.all_gaps())
    places = [one for one in case.evidence[IDLE] if one.what == AWAY]
    listed = "; ".join(f"{format_si(one.time_s or 0.0, 's')} {one.detail}" for one in places[:3])
    text = "the host runs nothing that the trace sees: record Python (with_stack=True), look for I/O, logging, locks"
    return case.advise(effort.HOST_WORK, IDLE, "host away", text, (wall.AWAY,), saved_s / case.gpus, listed)
