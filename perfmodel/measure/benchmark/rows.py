"""One row of a benchmark: what was predicted, what was measured, and how the two compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.measure.benchmark.faster_than_bound import faster_than_bound
from perfmodel.measure.benchmark.jobs import Job, implementation_of
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.timing.timer import TimedCall
from perfmodel.operators import Operator
from perfmodel.prediction.advice import advise
from perfmodel.prediction.bounds import peak_of
from perfmodel.prediction.ceilings import ceiling_times, datasheet_ceilings, launch_time, link_load
from perfmodel.prediction.predict import bound_time, predict, predict_piece
from perfmodel.prediction.result import Prediction
from perfmodel.records.schema import MEASURED_KEYS, OPTIONAL_KEYS, Status


@dataclass(frozen=True)
class Outcome:
    """What came of running one kernel; only the status "ok" has a time.

    Attributes
    ----------
    status, reason : what came of it, and why there is no time.
    timed : the samples.
    correct, max_relative_error, checked : the verdict against the float64 reference.
    telemetry : readings of the device while it was measured: {median, min, max} of each.
    sustained : the series of `perfmodel.measure.benchmark.sustain.sustain`, where one was asked for.
    """

    status: Status
    reason: str = ""
    timed: TimedCall | None = None
    correct: bool | None = None
    max_relative_error: float | None = None
    checked: str = ""
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    sustained: Mapping[str, Any] | None = None


def build_row(job: Job, outcome: Outcome, hardware: Hardware, settings: BenchSettings) -> dict[str, Any]:
    """Return the row of one kernel: the keys of `perfmodel.records.schema.Row`, and all keys of ``analyze``."""
    op, kernel, prediction = job.op, job.kernel, job.prediction
    if outcome.timed and outcome.timed.timing in (Timing.EVENT, Timing.DO_BENCH):
        timing = outcome.timed.timing
        prediction = predict(op, hardware, timing=timing, cache=prediction.cache, library=prediction.library)
    row = prediction.rows()[0]
    row["name"] = row["name"] or op.op
    row |= {key: None for key in MEASURED_KEYS if key not in OPTIONAL_KEYS} | {
        "kernel": kernel.name if kernel else None,
        "backend": kernel.backend if kernel else None,
        "implementation": implementation_of(kernel, prediction.conditions.version) if kernel else None,
        "status": str(outcome.status),
        "reason": outcome.reason,
        "correct": outcome.correct,
        "max_relative_error": outcome.max_relative_error,
        "checked": outcome.checked,
        "telemetry": dict(outcome.telemetry),
        "cache": str(settings.cache),
    }
    if outcome.timed is None:
        return row
    if kernel and kernel.own_operator:
        row["own_bound_time_s"] = float(bound_time(kernel.own_operator(op), hardware).time_s)
    if kernel and (parts := kernel.parts(op)):
        row |= _composed(op, parts, prediction, hardware)
    if settings.keep_samples:
        row["samples_s"] = list(outcome.timed.samples_s)
    if outcome.sustained:
        row["sustain"] = dict(outcome.sustained)
    return row | _numbers(op, prediction, outcome.timed, outcome.telemetry, hardware, settings.cache)


def _composed(op: Operator, parts: Sequence[Operator], prediction: Prediction, hardware: Hardware) -> dict[str, Any]:
    """Return the expected time of operators that run one after another, with its interval [s]."""
    expected = predict_piece(op, hardware, prediction.conditions, parts)
    return {
        f"composition_time{end}_s": float(getattr(expected, f"predicted_time{end}_s")) for end in ("", "_low", "_high")
    }


def _numbers(
    op: Operator,
    prediction: Prediction,
    timed: TimedCall,
    telemetry: Mapping[str, Any],
    hardware: Hardware,
    cache: CacheState,
) -> dict[str, Any]:
    """Return the keys of a row that need a measured time."""
    measured = timed.median_s
    bound, work = float(prediction.bound_time_s), op.work()
    faster = measured < bound
    notes = [faster_than_bound(prediction, measured, hardware, cache, telemetry)] if faster else []
    notes += [f"{timed.remark}."] if timed.remark else []
    return {
        "time_s": timed.statistics(),
        "measured_time_s": measured,
        "stop_reason": timed.stop_reason,
        "timing": str(timed.timing),
        "calls_per_sample": timed.calls_per_sample,
        "discarded": dict(timed.discarded),
        "flags": " ".join(_flags(op, timed, hardware)),
        "achieved_flop_per_s": float(work.flop) / measured,
        "achieved_bytes_per_s": float(work.least_bytes) / measured,
        "efficiency": bound / measured,
        "utilization": _slowest_ceiling_s(op, hardware) / measured,
        "prediction_error": (float(prediction.predicted_time_s) - measured) / measured,
        "faster_than_bound": faster,
        "note": " ".join(notes),
        "advice": advise(
            prediction.limiter,
            bound,
            measured,
            launch_time(hardware),
            spent_on=prediction.estimate.limiter,
            moving_s=prediction.estimate.moving_s,
        ),
    }


def _flags(op: Operator, timed: TimedCall, hardware: Hardware) -> list[str]:
    """Return what makes a measurement doubtful, in the words of measurement tables."""
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    beats = bool(bandwidth) and float(op.work().least_bytes) / timed.median_s > float(bandwidth or 0.0)
    return [*(["faster_than_dram"] if beats else []), *([timed.flag] if timed.flag else [])]


def _slowest_ceiling_s(op: Operator, hardware: Hardware) -> float:
    """Return the longest of the times that each datasheet rate alone would take [s]."""
    work, links = op.work(), link_load(op, hardware)
    peak = peak_of(op, hardware, work)
    times = ceiling_times(work, datasheet_ceilings(hardware, peak, links), links)
    return max(float(time) for time in times.values())
