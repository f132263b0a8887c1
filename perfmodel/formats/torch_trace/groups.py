"""Groups the GPU events of a trace: by operator and shape, by operator, or by kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.interned import Interned
from perfmodel.formats.torch_trace.links import Traced, operator_number
from perfmodel.profile.timeline import Ints


@dataclass(frozen=True)
class KernelGroup:
    """GPU work of one name, regardless of operators; ``name`` is an index into the names."""

    name: int


@dataclass(frozen=True)
class OpGroup:
    """GPU work that operators of one name launched."""

    name: int


@dataclass(frozen=True)
class CallGroup:
    """GPU work that operators of one name launched with arguments of one shape; ``call`` as in `Traced.call`."""

    name: int
    call: int


@dataclass(frozen=True)
class CopyGroup:
    """Copies of one size and direction, which tell more than the shapes of the operator around them."""

    name: int
    bytes: int
    direction: int
    pinned: int
    op_name: int


@dataclass(frozen=True)
class CollectiveGroup:
    """Collectives with one message; ``message`` is an index into `Recorded.collectives`."""

    message: int
    op_name: int


Group = KernelGroup | OpGroup | CallGroup | CopyGroup | CollectiveGroup


class _Work(NamedTuple):
    """What the trace says about one GPU event, as numbers; -1 means unknown, or none.

    Attributes
    ----------
    name, op_name : index into the names, of the event and of the operator that launched it.
    kind : code of its `EventKind`.
    message : index into `Recorded.collectives`.
    call : as in `Traced.call`.
    in_graph : 1 if it was launched with a graph of others.
    bytes, direction, pinned : of a copy.
    """

    name: int
    kind: int
    message: int
    in_graph: int
    op_name: int
    call: int
    bytes: int
    direction: int
    pinned: int


class _Columns(NamedTuple):
    """`_Work` of many GPU events."""

    name: Ints
    kind: Ints
    message: Ints
    in_graph: Ints
    op_name: Ints
    call: Ints
    bytes: Ints
    direction: Ints
    pinned: Ints


def grouped(traced: Traced, grouping: str) -> dict[Group, Ints]:
    """Return the indices of the counted GPU events of each group, for a grouping of `ReadOptions`."""
    group_of = {"kernel": _by_kernel, "op": _by_op, "shape": _by_shape}[grouping]
    counted = np.flatnonzero(traced.counted)
    # most events repeat the numbers of others
    rows: Interned[tuple[int, ...]] = Interned()
    groups: Interned[Group] = Interned()
    row = rows.numbers(_rows(traced, counted))
    group = groups.numbers([group_of(_Work(*one)) for one in rows])[row]
    order = np.argsort(group, kind="stable")
    events, ends = counted[order], np.cumsum(np.bincount(group)).tolist()
    return {one: events[begin:end] for one, begin, end in zip(groups, [0, *ends], ends, strict=False)}


def _rows(traced: Traced, counted: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the fields of `_Work` for each counted GPU event."""
    gpu = traced.timeline.gpu
    op, in_graph, same_as = operator_number(traced.op(counted)), traced.in_graph[counted], traced.same_as[counted]
    has_op = op >= 0
    in_op = has_op & ~in_graph
    at_gpu = traced.gpu_collective[np.where(same_as >= 0, same_as, counted)]
    size = gpu.bytes[counted]
    work = _Columns(
        name=gpu.name[counted],
        kind=gpu.category[counted],
        # NVIDIA describes the message at the kernel, ROCm at the operator
        message=np.where(at_gpu >= 0, at_gpu, _at_op(traced.op_collective, op, has_op)),
        in_graph=in_graph.astype(np.int64),
        op_name=_at_op(traced.timeline.ops.name, op, in_op),
        call=_at_op(traced.call, op, in_op),
        bytes=np.where(np.isnan(size), -1.0, size).astype(np.int64),
        direction=gpu.direction[counted],
        pinned=gpu.pinned[counted],
    )
    return zip(*[column.tolist() for column in work], strict=True)


def _at_op(column: Ints, op: Ints, has_op: NDArray[np.bool_]) -> Ints:
    """Return the value of each event's operator, -1 without one."""
    return np.where(has_op, column[np.maximum(op, 0)], -1) if column.size else np.full(op.size, -1)


def _by_kernel(work: _Work) -> Group:
    return KernelGroup(work.name)


def _by_op(work: _Work) -> Group:
    return OpGroup(work.op_name) if work.op_name >= 0 else KernelGroup(work.name)


def _by_shape(work: _Work) -> Group:
    if work.kind == EventKind.MEMCPY.code and not work.in_graph:
        return CopyGroup(work.name, work.bytes, work.direction, work.pinned, work.op_name)
    if work.kind == EventKind.COMMUNICATION.code and work.message >= 0 and not work.in_graph:
        return CollectiveGroup(work.message, work.op_name)
    return CallGroup(work.op_name, work.call) if work.op_name >= 0 else KernelGroup(work.name)
