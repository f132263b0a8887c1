"""Advice for exposed copies and communication: pinned memory, and overlap with what there is to hide behind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import COMPUTE, MEMORY, OTHER, TRANSFER
from perfmodel.diagnosis.evidence.busy import copy_groups
from perfmodel.diagnosis.result import Advice
from perfmodel.errors import UsageError
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile import effort
from perfmodel.profile.timeline import COMMUNICATION, DEVICE_TO_HOST, HOST_TO_DEVICE, Ints

_WORD = {HOST_TO_DEVICE: "h2d", DEVICE_TO_HOST: "d2h"}


def transfer_advice(case: Case) -> Iterator[Advice | None]:
    """Yield advice for the transfers of a traced run."""
    for (direction, pinned), mine in copy_groups(case).items():
        if pinned == 0 and direction in _WORD:
            yield _pin(case, direction, mine)
    groups = list(copy_groups(case).values())
    if groups:
        yield _overlap(case, np.concatenate(groups), effort.OVERLAP_COPIES, "copies")
    talks = np.flatnonzero((case.timeline.gpu.category == COMMUNICATION) & (case.divided.share_s > 0))
    yield _overlap(case, talks, effort.OVERLAP_COMMUNICATION, "communication")


def _pin(case: Case, direction: int, mine: Ints) -> Advice | None:
    """Return the advice to copy from and to pinned memory: the exposed part shrinks as the copies do."""
    gpu = case.timeline.gpu
    known = mine[np.nan_to_num(gpu.bytes[mine]) > 0]
    took_s, exposed_s = float(gpu.duration_s[known].sum()), float(case.divided.share_s[known].sum())
    if case.hardware is None or not known.size or not took_s:
        return None
    sizes, counts = np.unique(gpu.bytes[known], return_counts=True)
    try:
        made = predict(Memcpy(bytes=sizes, direction=_WORD[direction], pinned=True), case.hardware)
    except UsageError:
        return None  # the machine lists no link
    pinned_s = float(np.dot(np.atleast_1d(made.predicted_time_s), counts))
    moved = float(gpu.bytes[known].sum())
    saved_s = exposed_s * (1.0 - pinned_s / took_s) / case.gpus
    basis = (
        f"{format_si(moved, 'B')} in {known.size} pageable copies took {format_si(took_s, 's')} "
        f"({format_si(moved / took_s, 'B/s')}); pinned they take {format_si(pinned_s, 's')} by the model"
    )
    word = _WORD[direction]
    text = "copy from pinned memory: DataLoader(pin_memory=True), tensor.pin_memory() before .to(device)"
    return case.advise(
        effort.PIN_MEMORY, TRANSFER, f"pinned memory ({word})", text, _entries(case, known), saved_s, basis
    )


def _overlap(case: Case, mine: Ints, kind: str, what: str) -> Advice | None:
    """Return the advice to run transfers beside kernels; no more can hide than there are kernels without one."""
    exposed_s = float(case.divided.share_s[mine].sum()) / case.gpus
    kernels_s = sum(case.divided.time_s[name] for name in (COMPUTE, MEMORY, OTHER))
    divided = case.divided
    hidden_s = (divided.hidden_communication_s + divided.hidden_copy_s) / case.gpus
    room_s = max(kernels_s - hidden_s, 0.0)
    saved_s = min(exposed_s, room_s)
    basis = (
        f"{format_si(exposed_s, 's')} of {what} is exposed; kernels take {format_si(kernels_s, 's')} and hide "
        f"{format_si(hidden_s, 's')} already, so at most {format_si(saved_s, 's')} more"
    )
    text = {
        "copies": "copy on a stream of its own while the step before computes (non_blocking=True and pinned memory)",
        "communication": "start it earlier and in smaller parts, so that it runs beside the computation "
        "(gradient buckets, prefetched all-gathers); what stays is other ranks or the link",
    }[what]
    return case.advise(kind, TRANSFER, f"overlap {what}", text, _entries(case, mine), saved_s, basis)


def _entries(case: Case, events: Ints) -> tuple[str, ...]:
    """Return the names of the entries that count some events."""
    linked = case.timeline.gpu.entry
    if not linked.size:
        return ()
    used = np.unique(linked[events])
    return tuple(case.profile.entries[index].name for index in used[used >= 0].tolist())
