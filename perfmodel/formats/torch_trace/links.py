"""Links the events of a trace: which call and which operator launched each piece of GPU work, and what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.kernel_names import is_graph_launch
from perfmodel.formats.nesting import innermost, parents
from perfmodel.formats.torch_trace.columns import (
    ApiColumns,
    EventColumns,
    ExchangeColumns,
    GpuColumns,
    OpColumns,
    RangeColumns,
    Recorded,
)
from perfmodel.formats.torch_trace.repeats import same_work_later
from perfmodel.profile.timeline import (
    STEP_NAME,
    ApiCalls,
    CallKind,
    Exchanges,
    Floats,
    GpuEvents,
    HostRanges,
    Ints,
    Spans,
    Timeline,
)

#: ROCm ends a step's range on the GPU with the first kernels of the step: such ranges cover 0.1 % of the step's time on
#: the CPU in a trace of an MI300, complete ones 74 % and 88 % in traces of an H100
_LEAST_GPU_STEP = 0.1
#: Traces of 2021 have whole microseconds. Start and duration are rounded by up to 0.5 us each, so if one piece of work
#: follows another and takes 1 us or more, it may seem to end up to 1 us before the other. Only a piece that ends
#: earlier than that is inside the other one.
_ROUNDING_US = 1.0
#: operators of 2021 that list two of a convolution's three tensors, and the operator around them that lists all three
_PARTS = ("aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight")
_WHOLE = "aten::cudnn_convolution_backward"


@dataclass(frozen=True)
class Traced:
    """A time line, with what else the trace says about its events.

    Attributes
    ----------
    call : for each operator, index into `Recorded.calls`; a part that does not list all of its tensors has that of the
        operator around it.
    op_collective, gpu_collective : for each operator and each GPU event, index into `Recorded.collectives`, or -1.
    same_as : for each GPU event that was launched before the trace, the index of a later one that does the same work in
        a run that repeats; else -1.
    registers : registers of a thread of each GPU event, NaN if the trace does not say.
    in_graph : whether a GPU event was launched with a graph of others.
    counted : whether a GPU event counts, that is, starts in the window.
    steps : what gave the window: "the profiler's steps on the GPU", "... on the CPU", or "".
    """

    timeline: Timeline
    call: Ints
    op_collective: Ints
    gpu_collective: Ints
    same_as: Ints
    registers: Floats
    in_graph: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    steps: str = ""

    def op(self, events: Ints) -> Ints:
        """Return the operator of each of some GPU events, or -1; one that stands for it is -2 less its number.

        So an operator that ran before the trace and the one that stands for it count as two calls.
        """
        own, like = self.timeline.gpu.op[events], self.same_as[events]
        other = np.where(like >= 0, self.timeline.gpu.op[np.maximum(like, 0)], -1)
        return np.where((own < 0) & (other >= 0), -2 - other, own)


def operator_number(op: Ints) -> Ints:
    """Return the numbers of `Traced.op` as indices of operators, or -1."""
    return np.where(op < -1, -2 - op, op)


def build(recorded: Recorded, skipped: Counter[str], *, all_steps: bool) -> Traced:
    """Link the events of a trace and choose the window that counts.

    The window is that of the profiler's steps on the GPU, from the start of the first to the end of the last. If the
    trace has steps on the CPU only, it lasts until the end of the work that they launched. Without steps, or with
    ``all_steps``, it lasts from the first event to the last.
    """
    recorded = _with_steps_as_annotations(recorded)
    recorded = replace(recorded, gpu=_without_nested(recorded.gpu, skipped))
    zero_us = min((float(columns.start_us[0]) for columns in recorded.kinds() if len(columns)), default=0.0)
    ops = _ranges(recorded.ops, zero_us)
    api = _api_calls(recorded.api, recorded.ops, ops, zero_us)
    timeline = Timeline(
        names=recorded.names,
        gpu=_gpu_events(recorded, api, zero_us),
        api=api,
        ops=ops,
        annotations=_ranges(recorded.annotations, zero_us),
    )
    steps_on_gpu = _spans(recorded.gpu_annotations, zero_us)
    window, steps = _window(timeline, None if all_steps else steps_on_gpu)
    op_stacks, api_stacks = _stacks(recorded.python, timeline, zero_us)
    timeline = replace(
        timeline,
        window_s=window,
        stacks=op_stacks,
        api_stacks=api_stacks,
        exchanges=_exchanges(recorded.exchanges, zero_us),
        origin_s=1e-6 * zero_us,
    )
    gpu = timeline.gpu
    _, lane = np.unique(np.stack([gpu.device, gpu.stream]), axis=1, return_inverse=True)
    # the last one stands for a launch that is not in the trace
    graphs = np.array([*(is_graph_launch(name) for name in recorded.names), False])
    return Traced(
        timeline,
        call=_whole_calls(recorded.ops.call, ops, recorded.names),
        op_collective=recorded.ops.collective,
        gpu_collective=recorded.gpu.collective,
        same_as=same_work_later(gpu.name, gpu.launch, lane.reshape(-1), gpu.duration_s),
        registers=recorded.gpu.registers,
        in_graph=graphs[_take(api.name, timeline.gpu.launch)],
        counted=timeline.in_window(),
        steps=steps,
    )


def _exchanges(columns: ExchangeColumns, zero_us: float) -> Exchanges:
    """Return the exchanges on the GPU, or those on the CPU where there are none."""
    if columns.on_gpu.any():
        columns = columns.take(columns.on_gpu > 0)
    spans = _spans(columns, zero_us)
    return Exchanges(
        spans.start_s,
        spans.duration_s,
        spans.name,
        group=columns.group,
        sequence=columns.sequence,
        bytes=columns.bytes,
        ranks=columns.ranks,
    )


def _whole_calls(call: Ints, ops: HostRanges, names: tuple[str, ...]) -> Ints:
    """Return `Traced.call`."""
    is_part = np.array([name in _PARTS for name in names], dtype=bool)
    is_whole = np.array([name == _WHOLE for name in names], dtype=bool)
    if not is_part.any():
        return call
    around = np.maximum(ops.parent, 0)
    return np.where(is_part[ops.name] & (ops.parent >= 0) & is_whole[ops.name[around]], call[around], call)


def _start_s(columns: EventColumns, zero_us: float) -> Floats:
    """Return the starts [s] since the first event of the trace."""
    return (columns.start_us - zero_us) * 1e-6


def _spans(columns: EventColumns, zero_us: float) -> Spans:
    return Spans(_start_s(columns, zero_us), columns.duration_us * 1e-6, columns.name)


def _ranges(columns: RangeColumns, zero_us: float) -> HostRanges:
    spans = _spans(columns, zero_us)
    parent = parents(spans.start_s, spans.end_s, columns.thread)
    return HostRanges(spans.start_s, spans.duration_s, spans.name, columns.thread, parent=parent)


def _api_calls(columns: ApiColumns, op_columns: OpColumns, ops: HostRanges, zero_us: float) -> ApiCalls:
    """Return the calls with the operator around each by time on the thread, else by external id."""
    spans = _spans(columns, zero_us)
    op = innermost(ops.start_s, ops.end_s, ops.thread, spans.start_s, columns.thread, ops.parent)
    op = np.where(op >= 0, op, _look_up(_first_of_each(op_columns.external), columns.external))
    return ApiCalls(spans.start_s, spans.duration_s, spans.name, columns.thread, category=columns.category, op=op)


def _gpu_events(recorded: Recorded, api: ApiCalls, zero_us: float) -> GpuEvents:
    """Return the GPU events, each with the call that has its correlation, and the operator of that call.

    If a copy does not say its bytes, the call that started it may (ROCm).
    """
    gpu, spans = recorded.gpu, _spans(recorded.gpu, zero_us)
    launch = _look_up(_first_of_each(recorded.api.correlation), gpu.correlation)
    op = _take(api.op, launch)
    is_copy = (gpu.category == EventKind.MEMCPY.code) | (gpu.category == EventKind.MEMSET.code)
    size = np.where(np.isnan(gpu.bytes) & is_copy, _take(recorded.api.bytes, launch, np.nan), gpu.bytes)
    return GpuEvents(
        spans.start_s,
        spans.duration_s,
        spans.name,
        category=gpu.category,
        stream=gpu.stream,
        device=gpu.device,
        launch=launch,
        op=np.where(op >= 0, op, _look_up(_first_of_each(recorded.ops.external), gpu.external)),
        bytes=size,
        direction=gpu.direction,
        pinned=gpu.pinned,
    )


def _with_steps_as_annotations(recorded: Recorded) -> Recorded:
    """Return the events with the profiler's steps among the annotations; traces of 2021 list them as operators."""
    ops = recorded.ops
    is_step = _is_step(ops.name, recorded.names)
    if not is_step.any():
        return recorded
    steps = ops.take(is_step)
    as_ranges = RangeColumns(steps.start_us, steps.duration_us, steps.name, steps.thread)
    annotations = RangeColumns.joined([recorded.annotations, as_ranges])
    return replace(recorded, annotations=annotations, ops=ops.take(~is_step))


def _is_step(name: Ints, names: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.isin(name, [number for number, text in enumerate(names) if text.startswith(STEP_NAME)])


def _without_nested(gpu: GpuColumns, skipped: Counter[str]) -> GpuColumns:
    """Remove events inside another one of their stream, which does one thing at a time, so that time counts once."""
    if not len(gpu):
        return gpu
    order = np.lexsort((-gpu.duration_us, gpu.start_us, gpu.stream, gpu.device))
    ends = gpu.end_us[order]
    queue = np.cumsum(_changes(gpu.stream[order]) | _changes(gpu.device[order]))
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


def _changes(values: Ints) -> NDArray[np.bool_]:
    return np.concatenate([[False], values[1:] != values[:-1]])


def _first_of_each(values: Ints) -> tuple[Ints, Ints]:
    """Return the different values that are not negative, and the first index of each."""
    different, first = np.unique(values, return_index=True)
    return different[different >= 0], first[different >= 0].astype(np.int64)


def _look_up(table: tuple[Ints, Ints], wanted: Ints) -> Ints:
    """Return the index that a table of `_first_of_each` has for each wanted value, or -1."""
    values, indices = table
    if not values.size:
        return np.full(wanted.size, -1, dtype=np.int64)
    position = np.minimum(np.searchsorted(values, wanted), values.size - 1)
    return np.where(values[position] == wanted, indices[position], -1)


def _take(values: NDArray[Any], index: Ints, missing: float = -1) -> NDArray[Any]:
    """Return ``values[index]``, and ``missing`` where an index is negative."""
    if not values.size:
        return np.full(index.size, missing, dtype=values.dtype)
    return np.where(index >= 0, values[np.maximum(index, 0)], missing).astype(values.dtype)


def _window(timeline: Timeline, steps_on_gpu: Spans | None) -> tuple[tuple[float, float], str]:
    """Return the window [s] and what gave it; without ``steps_on_gpu`` steps are ignored."""
    gpu, api = timeline.gpu, timeline.api
    spans = [part for part in (gpu, api, timeline.ops, timeline.annotations) if len(part)]
    whole = (0.0, 0.0)
    if spans:
        whole = (min(float(part.start_s[0]) for part in spans), max(float(part.end_s.max()) for part in spans))
    if steps_on_gpu is None:
        return whole, ""
    on_cpu, on_gpu = (_steps(part, timeline.names) for part in (timeline.annotations, steps_on_gpu))
    if on_gpu is not None and (on_cpu is None or on_gpu.busy_s >= _LEAST_GPU_STEP * on_cpu.busy_s):
        return (on_gpu.start_s, on_gpu.end_s), "the profiler's steps on the GPU"
    if on_cpu is None:
        return whole, ""
    begin = _take(api.start_s, gpu.launch, np.nan)
    launched = (begin >= on_cpu.start_s) & (begin <= on_cpu.end_s)
    last_s = float(gpu.end_s[launched].max()) if launched.any() else on_cpu.end_s
    return (on_cpu.start_s, max(on_cpu.end_s, last_s)), "the profiler's steps on the CPU and what they launched"


@dataclass(frozen=True)
class _Steps:
    """From the start of the first step to the end of the last, and the time inside steps [s]."""

    start_s: float
    end_s: float
    busy_s: float


def _steps(spans: Spans, names: tuple[str, ...]) -> _Steps | None:
    """Return the profiler's steps, or None without any."""
    is_step = _is_step(spans.name, names)
    if not is_step.any():
        return None
    return _Steps(
        float(spans.start_s[is_step].min()),
        float(spans.end_s[is_step].max()),
        float(spans.duration_s[is_step].sum()),
    )


_Stacks = dict[int, tuple[str, ...]]


def _stacks(columns: RangeColumns, timeline: Timeline, zero_us: float) -> tuple[_Stacks, _Stacks]:
    """Return the Python calls around the operators, and around the runtime calls, that wait or copy."""
    api = timeline.api
    waiting = np.flatnonzero((api.category == CallKind.SYNC) | (api.category == CallKind.COPY))
    if not waiting.size or not len(columns):
        return {}, {}
    python = _ranges(columns, zero_us)
    begin_s, thread = api.start_s[waiting], api.thread[waiting]
    around = innermost(python.start_s, python.end_s, python.thread, begin_s, thread, python.parent).tolist()
    parent, name = python.parent.tolist(), python.name.tolist()
    stacks: dict[int, tuple[str, ...]] = {-1: ()}
    api_stacks = {
        call: _stack(inner, parent, name, timeline.names, stacks)
        for call, inner in zip(waiting.tolist(), around, strict=True)
        if inner >= 0
    }
    by_op = {int(api.op[call]): stack for call, stack in reversed(api_stacks.items()) if api.op[call] >= 0}
    return by_op, api_stacks


def _stack(inner: int, parent: list[int], name: list[int], names: tuple[str, ...], stacks: _Stacks) -> tuple[str, ...]:
    """Return the names from the outermost range to ``inner``; ``stacks`` keeps those of earlier calls."""
    path = []
    while inner not in stacks:
        path.append(inner)
        inner = parent[inner]
    for index in reversed(path):
        stacks[index] = (*stacks[inner], names[name[index]])
        inner = index
    return stacks[inner]
