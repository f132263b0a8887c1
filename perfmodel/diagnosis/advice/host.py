"""Advice for times in which the GPU waits for the host: graphs, fewer waits, background loading, less host work."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import median
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis import wall
from perfmodel.diagnosis.advice.fusion import times
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.decompose import moves_data
from perfmodel.diagnosis.evidence.gaps import launch_intervals_s
from perfmodel.diagnosis.gaps import NOT_LAUNCHING_S, IdleReason, is_input_pipeline
from perfmodel.diagnosis.intervals import covered_s, union
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice, Evidence
from perfmodel.prediction import launching
from perfmodel.profile import effort
from perfmodel.profile.timeline import Ints

#: parts of the names of calls for start-up, and of calls that bypass the caching allocator: neither belongs in a
#: measured step
_START_UP = (
    *("Malloc", "Free", "HostAlloc", "StreamCreate", "GetStreamPriorityRange", "GetDeviceProperties"),
    *("ModuleLoad", "LibraryLoad", "LaunchKernel"),
)
#: pieces of evidence that the basis of an advice lists
_LISTED = 3
#: late launches of a GPU from which a graph is advised: fewer tell no pace of launches, and no repeated step
_FEWEST_LATE = 8


def host_advice(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield advice for launch, sync and idle time of a traced run."""
    yield _graph(run)
    yield from _fewer_waits(run)
    yield _input(run)
    yield _host_work(run)
    yield _untraced(run)


def _graph(run: MeasuredRun) -> Advice | None:
    """Return the advice to replay late launches from a graph: each gap shrinks to the gap between a graph's kernels.

    Copies between host and device count in no graph: the host reads what they bring, or has to fill what they take.
    """
    saved_s, late = 0.0, []
    on_gpu = np.array([*~moves_data(run.timeline), False])  # the last element stands for the event -1
    for gaps in run.all_gaps():
        is_late = (gaps.launch_s > 0) & ~gaps.launched_ahead & on_gpu[gaps.after] & ~_from_graph(run, gaps.after)
        saved_s += float(np.maximum(gaps.launch_s[is_late] - launching.KERNEL_GAP_S, 0.0).sum())
        late.append(gaps.after[is_late])
    events = np.concatenate(late)
    interval_s = launch_intervals_s(run, run.timeline.gpu.launch[events])
    # what takes longer is other work of the host, and no launch
    interval_s = interval_s[interval_s < NOT_LAUNCHING_S]
    count = round(events.size / run.num_gpus)
    if count < _FEWEST_LATE or not interval_s.size:
        return None
    # the median stands for each of them, and they follow each other within the run
    launch_s = min(median(interval_s), run.total_s / count)
    kernel_s = float(run.timeline.gpu.duration_s[events].mean())
    times_s = {
        "with a wait after each": launching.serialised_time_s(count, kernel_s, launch_s),
        "queued ahead": launching.pipelined_time_s(count, kernel_s, launch_s),
        "replayed from a graph": launching.graph_time_s(count, kernel_s, launch_s),
        "fused into one": launching.fused_time_s(count, kernel_s, launch_s),
    }
    listed = ", ".join(f"{format_si(float(time_s), 's')} {how}" for how, time_s in times_s.items())
    return suggest(
        run,
        effort.CUDA_GRAPH,
        Dimension.LAUNCH,
        name="CUDA graph",
        text=f"replay the {count} late launches from a CUDA graph (torch.compile(mode='reduce-overhead'), constant "
        f"shapes), fuse the kernels, or give each kernel more work (a larger batch){_waits_text(run)}",
        targets=(wall.LAUNCH_GAPS,),
        saved_s=saved_s / run.num_gpus,
        basis=f"{count} kernels of {format_si(kernel_s, 's')} (mean) were launched late, one every "
        f"{format_si(launch_s, 's')} (median); the model predicts {listed}",
    )


def _waits_text(run: MeasuredRun) -> str:
    """Return that waits inside of the step break the capture of a graph, and where they are; empty without waits."""
    waits = [item for item in run.evidence.get(Dimension.SYNC, ()) if item.count]
    if not waits:
        return ""
    listed = ", ".join(f"{item.what} ({times(item.count or 0)})" for item in waits[:_LISTED])
    return f"; first move the waits out of what is captured, since a graph cannot hold one: {listed}"


def _from_graph(run: MeasuredRun, events: Ints) -> NDArray[np.bool_]:
    """Return which events the replay of a graph launched already."""
    timeline = run.timeline
    if not len(timeline.api):
        return np.zeros(events.shape, dtype=bool)
    # the last element stands for the call -1
    is_graph = np.array([*("GraphLaunch" in name for name in timeline.names), False])
    call = np.where(events >= 0, timeline.gpu.launch[np.maximum(events, 0)], -1)
    return np.asarray(is_graph[np.where(call >= 0, timeline.api.name[np.maximum(call, 0)], -1)])


def _fewer_waits(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield the advice to wait once per step: of n waits, n - steps and their restarts become unnecessary."""
    for item in run.evidence[Dimension.SYNC]:
        count, time_s = (item.count or 0) / run.num_gpus, item.time_s or 0.0
        if count <= run.num_steps:
            continue
        steps = f"{run.num_steps} steps" if run.num_steps > 1 else "one step"
        detail = f"; {item.detail}" if item.detail else ""
        yield suggest(
            run,
            effort.BATCH_SYNCS,
            Dimension.SYNC,
            name=f"batch {item.what}",
            text=f"collect the values that {item.what} fetches on the GPU and wait once per step, or copy them with "
            "non_blocking=True and read them one step later",
            targets=(wall.sync_name(item.what),),
            saved_s=time_s * (1.0 - run.num_steps / count),
            basis=f"{count:.0f} waits in {steps} leave the GPU idle for {format_si(time_s, 's')}{detail}",
        )


def _input(run: MeasuredRun) -> Advice | None:
    """Return the advice to load the input in the background, which hides the time that the GPU waits for it."""
    lost_s = run.idle_s(IdleReason.INPUT)
    if lost_s <= 0:
        return None
    load_s = _input_s(run)
    # Loading hides behind the rest of the run if all workers together are at least as fast as the rest.
    workers = math.ceil(load_s / (run.total_s - lost_s))
    return suggest(
        run,
        effort.INPUT_PIPELINE,
        Dimension.IDLE,
        name="load input in the background",
        text=f"load in the background: DataLoader(num_workers={max(workers, 2)}, prefetch_factor=2, pin_memory=True)",
        targets=(wall.idle_name(IdleReason.INPUT),),
        saved_s=lost_s,
        basis=f"loading takes {format_si(load_s, 's')} of {format_si(run.total_s, 's')}, and the GPU waits for "
        f"{format_si(lost_s, 's')} of it; {workers} worker{'s' if workers > 1 else ''} or more hide it",
    )


def _input_s(run: MeasuredRun) -> float:
    """Return how long the input pipeline ran in the window [s]."""
    timeline = run.timeline
    is_input = is_input_pipeline(timeline)
    low_s, high_s = (np.array([value]) for value in timeline.window_s)
    longest_s = 0.0
    for ranges in (timeline.ops, timeline.annotations):
        if len(ranges):
            chosen = is_input[ranges.name]
            loading = union(ranges.start_s[chosen], ranges.end_s[chosen])
            longest_s = max(longest_s, float(covered_s(loading, low_s, high_s)[0]))
    return longest_s


def _idle_evidence(run: MeasuredRun, reason: IdleReason) -> list[Evidence]:
    return [item for item in run.evidence[Dimension.IDLE] if item.what == reason]


def _listed(evidence: list[Evidence]) -> str:
    return "; ".join(f"{format_si(item.time_s or 0.0, 's')} {item.detail}" for item in evidence[:_LISTED])


#: operators of PyTorch whose first call with a shape builds a plan of cuDNN: 46 ms of 88 in a step of decoding of
#: torch 2.11 on an H100 (our own profile)
_PLANNED = "aten::_cudnn_attention_forward"


def _host_work(run: MeasuredRun) -> Advice | None:
    """Return the advice to move host work out of the path of launches."""
    evidence = _idle_evidence(run, IdleReason.HOST_WORK)
    if not evidence:
        return None
    text = "move this CPU work to another thread, to the GPU, or out of the step"
    if any(word in evidence[0].detail for word in _START_UP):
        text = "this is start-up and allocation: warm up before the measurement, and use the caching allocator"
    elif _PLANNED in evidence[0].detail:
        text = (
            "cuDNN builds a plan for each new shape, so for each length of the keys: choose another backend "
            "(torch.nn.attention.sdpa_kernel), or keep the keys at a constant length (static cache)"
        )
    return suggest(
        run,
        effort.HOST_WORK,
        Dimension.IDLE,
        name="move host work",
        text=text,
        targets=(wall.idle_name(IdleReason.HOST_WORK),),
        saved_s=run.idle_s(IdleReason.HOST_WORK),
        basis=_listed(evidence),
    )


_FIND_OUT = (
    "the trace shows no activity of the host here: record Python (with_stack=True), and look for I/O, logging and locks"
)
_TRACE_HOST = (
    "the trace has no calls of the host, so launches, waits and other work in the gaps are not told apart: record them "
    "(ProfilerActivity.CPU, nsys profile --trace cuda,nvtx, rocprofv3 --hip-trace)"
)


def _untraced(run: MeasuredRun) -> Advice | None:
    """Return the advice to find out what the host did outside the framework, between two pieces of GPU work."""
    saved_s = sum(float(gaps.untraced_s[(gaps.before >= 0) & (gaps.after >= 0)].sum()) for gaps in run.all_gaps())
    timeline = run.profile.timeline
    host_traced = timeline is None or len(timeline.api) or len(timeline.ops)
    return suggest(
        run,
        effort.HOST_WORK,
        Dimension.IDLE,
        name="find untraced host code",
        text=_FIND_OUT if host_traced else _TRACE_HOST,
        targets=(wall.idle_name(IdleReason.UNTRACED),),
        saved_s=saved_s / run.num_gpus,
        basis=_listed(_idle_evidence(run, IdleReason.UNTRACED)),
    )
