"""Links the events of a trace: which call and which operator launched each piece of GPU work, and what is counted."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.kernel_names import is_graph_launch
from perfmodel.formats.nesting import innermost, parents
from perfmodel.formats.torch_trace.columns import (
    ApiColumns,
    EventColumns,
    ExchangeColumns,
    OpColumns,
    RangeColumns,
    Recorded,
)
from perfmodel.formats.torch_trace.repeats import same_work_later
from perfmodel.formats.torch_trace.window import (
    are_steps,
    changes,
    take_or,
    window_of,
    with_steps_as_annotations,
    without_nested,
)
from perfmodel.profile.timeline import (
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
        return self._op[events]

    @functools.cached_property
    def _op(self) -> Ints:
        """What `op` returns, of every event: most traces have many entries."""
        own, like = self.timeline.gpu.op, self.same_as
        stands = like >= 0
        if not stands.any():
            return own
        other = np.where(stands, own[np.maximum(like, 0)], -1)
        return np.where((own < 0) & (other >= 0), -2 - other, own)


def operator_number(op: Ints) -> Ints:
    """Return the numbers of `Traced.op` as indices of operators, or -1."""
    return np.where(op < -1, -2 - op, op)


def build(recorded: Recorded, skipped: Counter[str], *, all_steps: bool) -> Traced:
    """Link the events of a trace and choose the window that counts.

    The window is that of the profiler's steps on the GPU, from the start of the first to the end of the last and of the
    work that the steps launched. If the trace has steps on the CPU only, it starts with these. Without steps, or with
    ``all_steps``, it lasts from the first event to the last.
    """
    is_step = are_steps(recorded.names)
    recorded = with_steps_as_annotations(recorded, is_step)
    recorded = replace(recorded, gpu=without_nested(recorded.gpu, skipped))
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
    window, steps = window_of(timeline, None if all_steps else steps_on_gpu, is_step)
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
    # the last one stands for a launch that is not in the trace
    graphs = np.array([*(is_graph_launch(name) for name in recorded.names), False])
    return Traced(
        timeline,
        call=_whole_calls(recorded.ops.call, ops, recorded.names),
        op_collective=recorded.ops.collective,
        gpu_collective=recorded.gpu.collective,
        same_as=_same_work_later(gpu),
        registers=recorded.gpu.registers,
        in_graph=graphs[take_or(api.name, timeline.gpu.launch)],
        counted=timeline.in_window(),
        steps=steps,
    )


def _same_work_later(gpu: GpuEvents) -> Ints:
    """Return `Traced.same_as`."""
    if (gpu.launch >= 0).all():  # as in traces of today
        return np.full(len(gpu), -1, dtype=np.int64)
    return same_work_later(gpu.name, gpu.launch, _lanes(gpu), gpu.duration_s)


def _lanes(gpu: GpuEvents) -> Ints:
    """Return the number of the device and stream of each event."""
    order = np.lexsort((gpu.stream, gpu.device))
    lane = np.empty(order.size, dtype=np.int64)
    lane[order] = np.cumsum(changes(gpu.stream[order]) | changes(gpu.device[order]))
    return lane


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
        sender=columns.sender,
        receiver=columns.receiver,
    )


def _whole_calls(call: Ints, ops: HostRanges, names: tuple[str, ...]) -> Ints:
    """Return `Traced.call`."""
    if not any(part in names for part in _PARTS):
        return call
    is_part = np.array([name in _PARTS for name in names], dtype=bool)
    is_whole = np.array([name == _WHOLE for name in names], dtype=bool)
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
    op = _or_by_id(op, op_columns.external, columns.external)
    return ApiCalls(spans.start_s, spans.duration_s, spans.name, columns.thread, category=columns.category, op=op)


def _gpu_events(recorded: Recorded, api: ApiCalls, zero_us: float) -> GpuEvents:
    """Return the GPU events, each with the call that has its correlation, and the operator of that call.

    If a copy does not say its bytes, the call that started it may (ROCm).
    """
    gpu, spans = recorded.gpu, _spans(recorded.gpu, zero_us)
    launch = _look_up(recorded.api.correlation, gpu.correlation)
    op = _or_by_id(take_or(api.op, launch), recorded.ops.external, gpu.external)
    size, is_copy = gpu.bytes, (gpu.category == EventKind.MEMCPY.code) | (gpu.category == EventKind.MEMSET.code)
    untold = np.isnan(size) & is_copy
    if untold.any():
        size = np.where(untold, take_or(recorded.api.bytes, launch, np.nan), size)
    return GpuEvents(
        spans.start_s,
        spans.duration_s,
        spans.name,
        category=gpu.category,
        stream=gpu.stream,
        device=gpu.device,
        launch=launch,
        op=op,
        bytes=size,
        direction=gpu.direction,
        pinned=gpu.pinned,
    )


def _look_up(values: Ints, wanted: Ints) -> Ints:
    """Return the first index at which each wanted value stands among others, or -1; negative ones are unknown."""
    if not values.size:
        return np.full(wanted.size, -1, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    position = np.minimum(np.searchsorted(ordered, wanted), values.size - 1)
    return np.where((ordered[position] == wanted) & (wanted >= 0), order[position], -1)


def _or_by_id(op: Ints, ids: Ints, wanted: Ints) -> Ints:
    """Return the operators, and where one is not known (-1), that with the wanted external id."""
    unknown = op < 0
    return np.where(unknown, _look_up(ids, wanted), op) if unknown.any() else op


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
