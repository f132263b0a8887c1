"""What counts in a trace: the window of the profiler's steps, and work that is not inside other work of its stream."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.formats.torch_trace.columns import GpuColumns, RangeColumns, Recorded
from perfmodel.profile.timeline import STEP_NAME, Ints, Spans, Timeline

#: ROCm ends a step's range on the GPU with the first kernels of the step: such ranges cover 0.1 % of the step's time on
#: the CPU in a trace of an MI300, complete ones 74 % and 88 % in traces of an H100
_LEAST_GPU_STEP = 0.1
#: Traces of 2021 have whole microseconds. Start and duration are rounded by up to 0.5 us each, so if one piece of work
#: follows another and takes 1 us or more, it may seem to end up to 1 us before the other. Only a piece that ends
#: earlier than that is inside the other one.
_ROUNDING_US = 1.0


def are_steps(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which names are those of the profiler's steps."""
    return np.array([text.startswith(STEP_NAME) for text in names], dtype=bool)


def with_steps_as_annotations(recorded: Recorded, are_steps: NDArray[np.bool_]) -> Recorded:
    """Return the events with the profiler's steps among the annotations; traces of 2021 list them as operators."""
    ops = recorded.ops
    is_step = are_steps[ops.name]
    if not is_step.any():
        return recorded
    steps = ops.take(is_step)
    as_ranges = RangeColumns(steps.start_us, steps.duration_us, steps.name, steps.thread)
    annotations = RangeColumns.joined([recorded.annotations, as_ranges])
    return replace(recorded, annotations=annotations, ops=ops.take(~is_step))


def without_nested(gpu: GpuColumns, skipped: Counter[str]) -> GpuColumns:
    """Remove events inside another one of their stream, which does one thing at a time, so that time counts once."""
    if _follow_each_other(gpu):
        return gpu
    order = np.lexsort((-gpu.duration_us, gpu.start_us, gpu.stream, gpu.device))
    ends = gpu.end_us[order]
    queue = np.cumsum(changes(gpu.stream[order]) | changes(gpu.device[order]))
    # the latest end so far on each stream: streams are set apart by more than the whole trace lasts
    apart = queue * (ends.max() - gpu.start_us.min() + 2 * _ROUNDING_US)
    latest = np.maximum.accumulate(ends + apart) - apart
    before = np.concatenate([[-np.inf], latest[:-1]])
    before[np.concatenate([[True], queue[1:] != queue[:-1]])] = -np.inf
    nested = np.zeros(order.size, dtype=bool)
    nested[order] = ends < before - _ROUNDING_US
    nested &= gpu.stream >= 0
    if not nested.any():
        return gpu
    skipped["piece of GPU work inside another one of its stream"] += int(nested.sum())
    return gpu.take(~nested)


def _follow_each_other(gpu: GpuColumns) -> bool:
    """Return whether no event is inside one that started earlier, on whichever stream."""
    start_us, ends = gpu.start_us, gpu.end_us
    latest = np.maximum.accumulate(ends[:-1])
    return bool((start_us[1:] > start_us[:-1]).all() and (ends[1:] >= latest - _ROUNDING_US).all())


def changes(values: Ints) -> NDArray[np.bool_]:
    """Return where a value differs from the one before it."""
    changed = np.zeros(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def take_or(values: NDArray[Any], index: Ints, missing: float = -1) -> NDArray[Any]:
    """Return ``values[index]``, and ``missing`` where an index is negative."""
    if not values.size:
        return np.full(index.size, missing, dtype=values.dtype)
    return np.where(index >= 0, values[np.maximum(index, 0)], missing).astype(values.dtype)


def window_of(
    timeline: Timeline, steps_on_gpu: Spans | None, are_steps: NDArray[np.bool_]
) -> tuple[tuple[float, float], str]:
    """Return the window [s] and what gave it; without ``steps_on_gpu`` steps are ignored."""
    gpu, api = timeline.gpu, timeline.api
    spans = [part for part in (gpu, api, timeline.ops, timeline.annotations) if len(part)]
    whole = (0.0, 0.0)
    if spans:
        whole = (min(float(part.start_s[0]) for part in spans), max(float(part.end_s.max()) for part in spans))
    if steps_on_gpu is None:
        return whole, ""
    on_cpu, on_gpu = (_steps(part, are_steps) for part in (timeline.annotations, steps_on_gpu))
    if on_gpu is not None and on_cpu is None:
        return (on_gpu.start_s, on_gpu.end_s), "the profiler's steps on the GPU"
    if on_cpu is None:
        return whole, ""
    begin = take_or(api.start_s, gpu.launch, np.nan)
    launched = (begin >= on_cpu.start_s) & (begin <= on_cpu.end_s)
    last_s = float(gpu.end_s[launched].max()) if launched.any() else on_cpu.end_s
    if on_gpu is not None and on_gpu.busy_s >= _LEAST_GPU_STEP * on_cpu.busy_s:
        # a step's range on the GPU may begin after an exchange, which runs on another stream, and may end with the
        # forward pass, where other threads launch the rest
        first_s = float(gpu.start_s[launched].min()) if launched.any() else on_gpu.start_s
        return (min(on_gpu.start_s, first_s), max(on_gpu.end_s, last_s)), "the profiler's steps on the GPU"
    begin_s = on_cpu.start_s
    if last_s > on_cpu.end_s:
        begin_s += min(_older_work_s(timeline, launched, begin_s), last_s - on_cpu.end_s)
    return (begin_s, max(on_cpu.end_s, last_s)), "the profiler's steps on the CPU and what they launched"


def _older_work_s(timeline: Timeline, launched: NDArray[np.bool_], start_s: float) -> float:
    """Return how long the GPUs still do what was launched before the steps, until the first work of these [s].

    A GPU that runs behind the host does so at the start as at the end: with what it still does at the end, and without
    this, the window would have the work of one step more.
    """
    gpu = timeline.gpu
    first_s = float(gpu.start_s[launched].min()) if launched.any() else start_s
    older = ~launched & (gpu.start_s < first_s) & (gpu.end_s > start_s)
    return max(min(first_s, float(gpu.end_s[older].max())) - start_s, 0.0) if older.any() else 0.0


@dataclass(frozen=True)
class _Steps:
    """From the start of the first step to the end of the last, and the time inside steps [s]."""

    start_s: float
    end_s: float
    busy_s: float


def _steps(spans: Spans, are_steps: NDArray[np.bool_]) -> _Steps | None:
    """Return the profiler's steps, or None without any."""
    is_step = are_steps[spans.name]
    if not is_step.any():
        return None
    return _Steps(
        float(spans.start_s[is_step].min()),
        float(spans.end_s[is_step].max()),
        float(spans.duration_s[is_step].sum()),
    )
