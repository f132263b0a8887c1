"""Advice for exposed copies and communication: pinned memory, and overlap with kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfmodel.core.arrays import distinct
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.decompose import KERNEL_DIMENSIONS
from perfmodel.diagnosis.evidence.busy import CopyGroup, copy_groups
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.errors import UsageError
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile import effort
from perfmodel.profile.timeline import Ints

_OVERLAP_COPIES = "copy on a separate stream while the previous step computes (non_blocking=True and pinned memory)"
_OVERLAP_COMMUNICATION = (
    "start communication earlier and in smaller parts, so that it overlaps computation (gradient buckets, prefetched "
    "all-gathers); waits for other ranks and the time on the link remain"
)


def transfer_advice(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield advice for the transfers of a traced run."""
    groups = copy_groups(run)
    for group in groups:
        if group.pinned == 0 and group.direction.word:
            yield _pin(run, group)
    if groups:
        copies = np.concatenate([group.events for group in groups])
        yield _overlap(run, copies, effort.OVERLAP_COPIES, "copies", _OVERLAP_COPIES)
    messages = np.flatnonzero(run.timeline.gpu.are(EventKind.COMMUNICATION) & (run.divided.share_s > 0))
    yield _overlap(run, messages, effort.OVERLAP_COMMUNICATION, "communication", _OVERLAP_COMMUNICATION)


def _pin(run: MeasuredRun, group: CopyGroup) -> Advice | None:
    """Return the advice to use pinned host memory: the exposed time shrinks in proportion to the copies."""
    gpu = run.timeline.gpu
    events = group.events[np.nan_to_num(gpu.bytes[group.events]) > 0]
    duration_s, exposed_s = float(gpu.duration_s[events].sum()), float(run.divided.share_s[events].sum())
    if run.hardware is None or not events.size or not duration_s:
        return None
    sizes, counts = np.unique(gpu.bytes[events], return_counts=True)
    direction = group.direction.word
    try:
        prediction = predict(Memcpy(bytes=sizes, direction=direction, pinned=True), run.hardware)
    except UsageError:
        return None  # the machine lists no link
    pinned_s = float(np.dot(np.atleast_1d(prediction.predicted_time_s), counts))
    moved = float(gpu.bytes[events].sum())
    return suggest(
        run,
        effort.PIN_MEMORY,
        Dimension.TRANSFER,
        name=f"pinned memory ({direction})",
        text="copy from pinned memory: DataLoader(pin_memory=True), tensor.pin_memory() before .to(device)",
        targets=_entry_names(run, events),
        saved_s=exposed_s * (1.0 - pinned_s / duration_s) / run.num_gpus,
        basis=f"{format_si(moved, 'B')} in {events.size} pageable copies took {format_si(duration_s, 's')} "
        f"({format_si(moved / duration_s, 'B/s')}); the model predicts {format_si(pinned_s, 's')} from pinned memory",
    )


def _overlap(run: MeasuredRun, events: Ints, kind: str, what: str, text: str) -> Advice | None:
    """Return the advice to overlap transfers with kernels; they can hide only behind kernels that hide nothing yet."""
    divided = run.divided
    exposed_s = float(divided.share_s[events].sum()) / run.num_gpus
    kernels_s = sum(divided.time_s[dimension] for dimension in KERNEL_DIMENSIONS)
    hidden_s = (divided.hidden_communication_s + divided.hidden_copy_s) / run.num_gpus
    saved_s = min(exposed_s, max(kernels_s - hidden_s, 0.0))
    return suggest(
        run,
        kind,
        Dimension.TRANSFER,
        name=f"overlap {what}",
        text=text,
        targets=_entry_names(run, events),
        saved_s=saved_s,
        basis=f"{format_si(exposed_s, 's')} of {what} is exposed; kernels run for {format_si(kernels_s, 's')} and hide "
        f"{format_si(hidden_s, 's')} of transfers already, so they can hide {format_si(saved_s, 's')} more",
    )


def _entry_names(run: MeasuredRun, events: Ints) -> tuple[str, ...]:
    """Return the names of the entries that count some events."""
    entry_of = run.timeline.gpu.entry
    if not entry_of.size:
        return ()
    indices = distinct(entry_of[events])
    return tuple(run.profile.entries[index].name for index in indices[indices >= 0].tolist())
