"""The time line of a trace: which operator and which call started each piece of GPU work, and what is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.formats.kernel_names import is_graph_launch
from perfmodel.formats.nesting import innermost, parents
from perfmodel.formats.torch_trace.columns import Columns, Gathered
from perfmodel.profile.timeline import (
    COPY,
    MEMCPY,
    MEMSET,
    STEP_NAME,
    SYNC,
    ApiCalls,
    Floats,
    GpuEvents,
    HostRanges,
    Ints,
    Timeline,
)

#: annotations that torch.profiler.profile's step() leaves around each step of a schedule
#: ROCm ends a step's range on the GPU with the first kernels of the step: a range of less than this part of the
#: step's time on the CPU does not cover the step
_LEAST_GPU_STEP = 0.1
#: an event that ends this long before the one around it on its stream is inside it; less is rounding [us]
_NESTED_US = 1.0
#: operators of old versions that list two of a convolution's three tensors, and the one around them that lists all
_PARTS = ("aten::cudnn_convolution_backward_input", "aten::cudnn_convolution_backward_weight")
_WHOLE = "aten::cudnn_convolution_backward"


@dataclass(frozen=True)
class Traced:
    """A time line, with what else the trace says about its events.

    Attributes
    ----------
    call : of each operator, the number of the text of its shapes; of a part that does not list all of its tensors, that
        of the operator around it.
    op_collective, gpu_collective : of each operator and GPU event, the number of its collective, or -1.
    registers : registers of a thread of each GPU event, NaN where the trace does not say.
    in_graph : whether a GPU event was launched with a graph of others.
    counted : whether a GPU event is counted: whether it starts in the window.
    steps : what the window was taken from: "the profiler's steps on the GPU", "... on the CPU", or empty.
    """

    timeline: Timeline
    call: Ints
    op_collective: Ints
    gpu_collective: Ints
    registers: Floats
    in_graph: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    steps: str = ""


def build(gathered: Gathered, *, all_steps: bool) -> Traced:
    """Link the events of a trace, and choose what is looked at.

    The window is that of the profiler's steps on the GPU, from the start of the first to the end of the last; where
    the trace has steps on the CPU only, it lasts to the end of what they launched; without steps, or with
    ``all_steps``, from the first event to the last.
    """
    kinds = {kind: gathered.columns(kind) for kind in ("gpu", "api", "ops", "annotations", "gpu_annotations", "python")}
    _move_steps(kinds, gathered.names)
    kinds["gpu"] = _without_nested(kinds["gpu"], gathered)
    _to_seconds(kinds)
    names = gathered.texts()
    gpu, api, ops = kinds["gpu"], kinds["api"], kinds["ops"]
    links = _link(gpu, api, ops)
    op_stacks, api_stacks = _stacks(kinds["python"], api, links.api_op, names)
    window, steps = _window(kinds, gathered.names, links.launch, all_steps=all_steps)
    timeline = Timeline(
        names=names,
        gpu=_gpu_events(gpu, api, links),
        api=ApiCalls(
            api["start"], api["duration"], api["name"], api["thread"], category=api["category"], op=links.api_op
        ),
        ops=_ranges(ops),
        annotations=_ranges(kinds["annotations"]),
        stacks=op_stacks,
        api_stacks=api_stacks,
        window_s=window,
    )
    graphs = np.array([*(is_graph_launch(name) for name in names), False])
    # the last name is none: that of a launch that is not known
    in_graph = graphs[_take(api["name"], links.launch)]
    return Traced(
        timeline,
        _whole_calls(ops, timeline.ops.parent, names),
        ops["collective"],
        gpu["collective"],
        gpu["registers"],
        in_graph,
        timeline.in_window(),
        steps=steps,
    )


def _whole_calls(ops: Columns, parent: Ints, names: tuple[str, ...]) -> Ints:
    """Return the number of each operator's call, see `Traced`."""
    call = np.asarray(ops["call"])
    part, whole = (np.array([name in wanted for name in names], dtype=bool) for wanted in (_PARTS, (_WHOLE,)))
    if not part.any():
        return call
    around = np.maximum(parent, 0)
    return np.where(part[ops["name"]] & (parent >= 0) & whole[ops["name"][around]], call[around], call)


def _to_seconds(kinds: dict[str, Columns]) -> None:
    """Turn times into seconds since the first event of the trace, and add the ends."""
    base = min((float(columns["start"][0]) for columns in kinds.values() if columns["start"].size), default=0.0)
    for columns in kinds.values():
        columns["start"], columns["duration"] = (columns["start"] - base) * 1e-6, columns["duration"] * 1e-6
        columns["end"] = columns["start"] + columns["duration"]


@dataclass(frozen=True)
class _Links:
    """Of each GPU event the call that launched it and the operator, of each call the operator; -1 for none."""

    launch: Ints
    op: Ints
    api_op: Ints


def _link(gpu: Columns, api: Columns, ops: Columns) -> _Links:
    """Link GPU events to calls by correlation, and calls to operators by time on the thread, else by external id."""
    ids = _first_of_each(ops["external"])
    api_op = innermost(ops["start"], ops["end"], ops["thread"], api["start"], api["thread"])
    api_op = np.where(api_op >= 0, api_op, _look_up(ids, api["external"]))
    launch = _look_up(_first_of_each(api["correlation"]), gpu["correlation"])
    op = _take(api_op, launch)
    return _Links(launch, np.where(op >= 0, op, _look_up(ids, gpu["external"])), api_op)


def _gpu_events(gpu: Columns, api: Columns, links: _Links) -> GpuEvents:
    """Return the GPU events; where a copy does not say its bytes, the call that started it may (ROCm)."""
    unsaid = np.isnan(gpu["bytes"]) & ((gpu["category"] == MEMCPY) | (gpu["category"] == MEMSET))
    return GpuEvents(
        start_s=gpu["start"],
        duration_s=gpu["duration"],
        name=gpu["name"],
        category=gpu["category"],
        stream=gpu["stream"],
        device=gpu["device"],
        launch=links.launch,
        op=links.op,
        bytes=np.where(unsaid, _take(api["bytes"], links.launch, np.nan), gpu["bytes"]),
        direction=gpu["direction"],
        pinned=gpu["pinned"],
    )


def _ranges(columns: Columns) -> HostRanges:
    parent = parents(columns["start"], columns["end"], columns["thread"])
    return HostRanges(columns["start"], columns["duration"], columns["name"], columns["thread"], parent=parent)


def _move_steps(kinds: dict[str, Columns], names: dict[str, int]) -> None:
    """Count the profiler's steps among the annotations; traces of 2021 list them among the operators."""
    ops, annotations = kinds["ops"], kinds["annotations"]
    is_step = _steps_among(ops["name"], names)
    if is_step.any():
        joined = {key: np.concatenate([annotations[key], ops[key][is_step]]) for key in annotations}
        order = np.argsort(joined["start"], kind="stable")
        kinds["annotations"] = {key: column[order] for key, column in joined.items()}
        kinds["ops"] = {key: column[~is_step] for key, column in ops.items()}


def _steps_among(name: Ints, names: dict[str, int]) -> NDArray[np.bool_]:
    numbers = [number for text, number in names.items() if text.startswith(STEP_NAME)]
    return np.isin(name, numbers)


def _without_nested(gpu: Columns, gathered: Gathered) -> Columns:
    """Leave out events inside another one of their stream: one stream does one thing at a time, so it counts once."""
    if not gpu["start"].size:
        return gpu
    known = gpu["stream"] >= 0
    order = np.lexsort((-gpu["duration"], gpu["start"], gpu["stream"], gpu["device"]))
    ends = (gpu["start"] + gpu["duration"])[order]
    queue = np.cumsum(_changes(gpu["stream"][order]) | _changes(gpu["device"][order]))
    # the latest end so far on each stream: streams are set apart by more than the whole trace lasts
    apart = queue * (ends.max() - gpu["start"].min() + 2 * _NESTED_US)
    latest = np.maximum.accumulate(ends + apart) - apart
    before = np.concatenate([[-np.inf], latest[:-1]])
    before[np.concatenate([[True], queue[1:] != queue[:-1]])] = -np.inf
    nested = np.zeros(order.size, dtype=bool)
    nested[order] = ends < before - _NESTED_US
    nested &= known
    if not nested.any():
        return gpu
    gathered.skipped["a piece of GPU work inside another one of its stream"] += int(nested.sum())
    return {key: column[~nested] for key, column in gpu.items()}


def _changes(values: Ints) -> NDArray[np.bool_]:
    return np.concatenate([[False], values[1:] != values[:-1]])


def _first_of_each(values: Ints) -> tuple[Ints, Ints]:
    """Return the different values that are not negative, and the first index of each."""
    found, first = np.unique(values, return_index=True)
    return found[found >= 0], first[found >= 0].astype(np.int64)


def _look_up(table: tuple[Ints, Ints], wanted: Ints) -> Ints:
    """Return the index that a table of `_first_of_each` has for each wanted value, or -1."""
    values, indices = table
    if not values.size:
        return np.full(wanted.size, -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(values, wanted), values.size - 1)
    return np.where(values[place] == wanted, indices[place], -1)


def _take(values: NDArray[Any], index: Ints, missing: float = -1) -> NDArray[Any]:
    """Return ``values[index]``, and ``missing`` where an index is negative."""
    if not values.size:
        return np.full(index.size, missing, dtype=values.dtype)
    return np.where(index >= 0, values[np.maximum(index, 0)], missing).astype(values.dtype)


def _window(
    kinds: dict[str, Columns], names: dict[str, int], launch: Ints, *, all_steps: bool
) -> tuple[tuple[float, float], str]:
    """Return start and end of what is looked at [s], and what they were taken from."""
    used = [c for kind, c in kinds.items() if kind in ("gpu", "api", "ops", "annotations") and c["start"].size]
    whole = (min(float(c["start"][0]) for c in used), max(float(c["end"].max()) for c in used)) if used else (0.0, 0.0)
    if all_steps:
        return whole, ""
    cpu, gpu = (_span(kinds[kind], names) for kind in ("annotations", "gpu_annotations"))
    if gpu is not None and (cpu is None or gpu[2] >= _LEAST_GPU_STEP * cpu[2]):
        return gpu[:2], "the profiler's steps on the GPU"
    if cpu is None:
        return whole, ""
    begun = _take(kinds["api"]["start"], launch, np.nan).astype(np.float64)
    launched = (begun >= cpu[0]) & (begun <= cpu[1])
    last = float(kinds["gpu"]["end"][launched].max()) if launched.any() else cpu[1]
    return (cpu[0], max(cpu[1], last)), "the profiler's steps on the CPU, and what they launched"


def _span(columns: Columns, names: dict[str, int]) -> tuple[float, float, float] | None:
    """Return start and end of the profiler's steps and the time inside them [s], or None without steps."""
    steps = _steps_among(columns["name"], names)
    if not steps.any():
        return None
    return (
        float(columns["start"][steps].min()),
        float(columns["end"][steps].max()),
        float(columns["duration"][steps].sum()),
    )


def _stacks(
    python: Columns, api: Columns, api_op: Ints, names: tuple[str, ...]
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]]:
    """Return the Python calls around the operators, and the calls of the runtime, that wait or copy."""
    waiting = np.flatnonzero((api["category"] == SYNC) | (api["category"] == COPY))
    if not waiting.size or not python["start"].size:
        return {}, {}
    start, end, thread = python["start"], python["end"], python["thread"]
    around = innermost(start, end, thread, api["start"][waiting], api["thread"][waiting]).tolist()
    parent, name = parents(start, end, thread).tolist(), python["name"].tolist()
    known: dict[int, tuple[str, ...]] = {-1: ()}
    api_stacks = {
        call: _stack(inner, parent, name, names, known)
        for call, inner in zip(waiting.tolist(), around, strict=True)
        if inner >= 0
    }
    by_op = {int(api_op[call]): stack for call, stack in reversed(api_stacks.items()) if api_op[call] >= 0}
    return by_op, api_stacks


def _stack(
    inner: int, parent: list[int], name: list[int], names: tuple[str, ...], known: dict[int, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the names from the outermost range to ``inner``; ``known`` keeps what was found before."""
    path = []
    while inner not in known:
        path.append(inner)
        inner = parent[inner]
    for index in reversed(path):
        known[index] = (*known[inner], names[name[index]])
        inner = index
    return known[inner]
