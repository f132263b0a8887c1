"""The events of a trace as columns of numbers: one record of arrays for each kind of event."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.profile.timeline import Floats, Ints


@dataclass(frozen=True)
class EventColumns:
    """Events of one kind, ordered by start.

    Attributes
    ----------
    start_us, duration_us : [us], on the trace's own clock.
    name : index into `Recorded.names`.
    """

    start_us: Floats
    duration_us: Floats
    name: Ints

    def __len__(self) -> int:
        return int(self.start_us.size)

    @property
    def end_us(self) -> Floats:
        """When each event ended [us]."""
        return self.start_us + self.duration_us

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some of the events: those with these indices, or where a mask is true."""
        return type(self)(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})

    def repeated(self) -> NDArray[np.bool_]:
        """Return which events equal an earlier one in every column, as those of a trace that was merged with itself."""
        repeated = np.zeros(len(self), dtype=bool)
        together = np.flatnonzero(self.start_us[1:] == self.start_us[:-1])
        if not together.size:
            return repeated
        rows = distinct(np.concatenate((together, together + 1)))
        columns = [getattr(self, column.name)[rows] for column in fields(self)]
        # NaN stands for an unknown figure, and equals no number
        values = np.column_stack([np.nan_to_num(column.astype(np.float64), nan=-1.0) for column in columns])
        order = np.lexsort(values.T[::-1])
        repeated[rows[order[1:]]] = (values[order[1:]] == values[order[:-1]]).all(axis=1)
        return repeated

    @classmethod
    @functools.cache
    def none(cls) -> Self:
        """Return the columns of no events, which most traces have of some kinds."""
        types = {"Floats": np.float64, "Ints": np.int64}
        return cls(**{column.name: np.empty(0, dtype=types[str(column.type)]) for column in fields(cls)})

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Return the events of several parts, ordered by start."""
        if len(parts) == 1:
            joined = parts[0]
        else:
            names = [column.name for column in fields(cls)]
            joined = cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
        start_us = joined.start_us
        if (start_us[1:] >= start_us[:-1]).all():
            return joined
        return joined.take(np.argsort(start_us, kind="stable"))


@dataclass(frozen=True)
class RangeColumns(EventColumns):
    """Ranges on the CPU; ``thread`` is a number for process and thread."""

    thread: Ints


@dataclass(frozen=True)
class OpColumns(RangeColumns):
    """Operators of the framework.

    Attributes
    ----------
    call : index into `Recorded.calls`.
    external : external id, or -1.
    collective : index into `Recorded.collectives`, or -1.
    """

    call: Ints
    external: Ints
    collective: Ints


@dataclass(frozen=True)
class ApiColumns(RangeColumns):
    """Calls of the runtime.

    Attributes
    ----------
    category : as in `perfmodel.profile.timeline.ApiCalls`.
    correlation, external : ids, or -1.
    bytes : size of a copy [B], NaN if the trace does not say.
    """

    category: Ints
    correlation: Ints
    external: Ints
    bytes: Floats


@dataclass(frozen=True)
class GpuColumns(EventColumns):
    """Work of the GPUs.

    Attributes
    ----------
    category, direction, pinned, stream, device : as in `perfmodel.profile.timeline.GpuEvents`.
    correlation, external : ids, or -1.
    bytes : size of a copy [B], NaN if the trace does not say.
    registers : registers of a thread, NaN if the trace does not say.
    collective : index into `Recorded.collectives`, or -1.
    """

    category: Ints
    direction: Ints
    pinned: Ints
    stream: Ints
    device: Ints
    correlation: Ints
    external: Ints
    bytes: Floats
    registers: Floats
    collective: Ints


@dataclass(frozen=True)
class ExchangeColumns(EventColumns):
    """Exchanges between ranks, on the GPU or, with gloo, on threads of the CPU.

    Attributes
    ----------
    group : index into `Recorded.names`, or -1.
    sequence : number in the group, or -1.
    bytes : message of this rank [B], NaN if the trace does not say.
    ranks : ranks of the group, 0 if the trace does not say.
    on_gpu : 1 for a kernel, 0 for a range on the CPU.
    sender, receiver : as in `perfmodel.profile.timeline.Exchanges`.
    """

    group: Ints
    sequence: Ints
    bytes: Floats
    ranks: Ints
    on_gpu: Ints
    sender: Ints
    receiver: Ints


class CallTexts(NamedTuple):
    """What an operator's event says about its arguments, as JSON texts; missing ones are empty.

    ``result`` is the size of what it returns, which follows from later operators (`results`).
    """

    dims: bytes
    strides: bytes
    dtypes: bytes
    values: bytes
    result: bytes = b""


class Message(NamedTuple):
    """What an event says about a collective: name, elements of a rank before and after, number of ranks, dtype."""

    name: str
    elements_in: float | None
    elements_out: float | None
    group_size: float | None
    dtype: bytes


@dataclass(frozen=True)
class Recorded:
    """All events of a trace by kind, and the texts that their numbers stand for."""

    gpu: GpuColumns
    api: ApiColumns
    ops: OpColumns
    annotations: RangeColumns
    gpu_annotations: RangeColumns
    python: RangeColumns
    exchanges: ExchangeColumns
    names: tuple[str, ...]
    calls: tuple[CallTexts, ...]
    collectives: tuple[Message, ...]

    def kinds(self) -> tuple[EventColumns, ...]:
        """Return the events of each kind."""
        return (self.gpu, self.api, self.ops, self.annotations, self.gpu_annotations, self.python)
