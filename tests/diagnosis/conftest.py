"""Time lines written by hand, in microseconds, for tests."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import ApiCalls, CallKind, CopyDirection, GpuEvents, HostRanges, Timeline

_GPU = {"kernel": EventKind.KERNEL, "copy": EventKind.MEMCPY, "communication": EventKind.COMMUNICATION}
US = 1e-6


def timeline(window, gpu=(), api=(), ops=(), annotations=()):
    """Return a time line.

    gpu: (start, end, name, kind, index of its API call or -1[, stream[, device]]);
    api: (start, end, name, kind[, thread]);
    ops and annotations: (start, end, name[, thread]); all times in us. Each list is ordered by start.
    """
    names: dict[str, int] = {}

    def number(name):
        return names.setdefault(name, len(names))

    def column(rows, make, kind=np.int64):
        return np.array([make(row) for row in rows], dtype=kind)

    def span(rows):
        start = column(rows, lambda row: row[0] * US, np.float64)
        return start, column(rows, lambda row: row[1] * US, np.float64) - start

    def ranges(rows):
        return HostRanges(
            *span(rows),
            column(rows, lambda row: number(row[2])),
            column(rows, lambda row: row[3] if len(row) > 3 else 1),
            np.full(len(rows), -1),
        )

    is_copy = [row[3] == "copy" for row in gpu]
    return Timeline(
        gpu=GpuEvents(
            *span(gpu),
            column(gpu, lambda row: number(row[2])),
            column(gpu, lambda row: _GPU[row[3]].code),
            column(gpu, lambda row: row[5] if len(row) > 5 else 7),
            column(gpu, lambda row: row[6] if len(row) > 6 else 0),
            column(gpu, lambda row: row[4]),
            np.full(len(gpu), -1),
            np.full(len(gpu), np.nan),
            np.where(is_copy, CopyDirection.HOST_TO_DEVICE, CopyDirection.UNKNOWN).astype(np.int64),
            np.full(len(gpu), -1),
        ),
        api=ApiCalls(
            *span(api),
            column(api, lambda row: number(row[2])),
            column(api, lambda row: row[4] if len(row) > 4 else 1),
            column(api, lambda row: CallKind[row[3].upper()]),
            np.full(len(api), -1),
        ),
        ops=ranges(ops),
        annotations=ranges(annotations),
        names=tuple(names),
        window_s=(window[0] * US, window[1] * US),
    )


@pytest.fixture
def traced():
    """The function that writes a time line from tuples in microseconds."""
    return timeline
