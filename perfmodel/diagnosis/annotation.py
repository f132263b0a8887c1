"""What a diagnosis says about each piece of GPU work, for the trace that it came from."""

from __future__ import annotations

from typing import Any

from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Diagnosis


def event_notes(diagnosis: Diagnosis) -> list[dict[str, Any] | None]:
    """Return what is known about each GPU event of the time line, None for events that no entry counts.

    Times are those of one call [us], as the trace has them; a call may launch several kernels. Keys: operator, limiter,
    bound_us, expected_us, expected_low_us, expected_high_us, efficiency (bound over the mean measured time of the
    calls), flag. Without a machine there are only operator and limiter.
    """
    timeline = diagnosis.profile.timeline
    if timeline is None or not timeline.gpu.entry.size:
        return []
    notes = [_note(limit) for limit in diagnosis.limits]
    return [notes[entry] if entry >= 0 else None for entry in timeline.gpu.entry.tolist()]


def _note(limit: Limit) -> dict[str, Any]:
    entry, calls = limit.entry, limit.entry.calls or 1
    times_s = {
        "bound_us": limit.attainable_time_s,
        "expected_us": limit.predicted_time_s,
        "expected_low_us": limit.predicted_low_s,
        "expected_high_us": limit.predicted_high_s,
    }
    note: dict[str, Any] = {"operator": entry.name, "limiter": str(limit.limiter)}
    note |= {key: 1e6 * time_s / calls for key, time_s in times_s.items() if time_s is not None}
    if limit.efficiency is not None:
        note["efficiency"] = limit.efficiency
    return note | ({"flag": limit.flag} if limit.flag else {})
