"""One row of a bench record: what was predicted, what was measured, and how the two compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column
from perfmodel.core.units import format_binary, format_si
from perfmodel.kernels.registry import Kernel
from perfmodel.measure.timing.sample import EVENT
from perfmodel.measure.timing.timer import Timing
from perfmodel.operators import Operator
from perfmodel.prediction.advice import advise
from perfmodel.prediction.ceilings import ceiling_times, datasheet_ceilings, launch_time, link_traffic, resolve_peak
from perfmodel.prediction.predict import bound_time, predict
from perfmodel.prediction.result import PREDICTION_COLUMNS, Prediction

OK, WRONG, SKIPPED, OUT_OF_MEMORY, FAILED = "ok", "wrong", "skipped", "out of memory", "failed"
#: within this of its bound a faster measurement may be its own noise: the stopping rule asks for 1 %
_NOISE = 0.02


@dataclass(frozen=True)
class Outcome:
    """What came of running one kernel; a status other than "ok" has no numbers.

    Attributes
    ----------
    status : "ok", "wrong", "skipped", "out of memory" or "failed"; ``reason`` says why.
    timing : the samples.
    correct, max_relative_error, checked : the verdict against the float64 reference.
    telemetry : what the device said about itself while it was measured: {median, min, max} of each reading.
    sustained : the series of `perfmodel.measure.benchmark.sustain.sustain`, where one was asked for.
    """

    status: str
    reason: str = ""
    timing: Timing | None = None
    correct: bool | None = None
    max_relative_error: float | None = None
    checked: str = ""
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    sustained: Mapping[str, Any] | None = None


def implementation_of(kernel: Kernel) -> str:
    """Return a kernel's name in tables of measurements: backend, hyphen, name; the backend is the "library"."""
    return f"{kernel.backend}-{kernel.name}"


def build_row(
    op: Operator,
    prediction: Prediction,
    kernel: Kernel | None,
    outcome: Outcome,
    hardware: Hardware,
    cache: str,
    *,
    keep_samples: bool = False,
) -> dict[str, Any]:
    """Return the row of one kernel: the keys of ``analyze``, and those of the measurement.

    - achieved_flop_per_s, achieved_bytes_per_s : the operator's FLOP and compulsory bytes over the median [1/s];
    - efficiency : bound over median, the share of the attainable that was achieved; efficiency_text says it for
      people, or "faster than the bound", or the status of a row without numbers;
    - utilization : the largest share of any datasheet ceiling that was achieved, launch left out;
    - prediction_error : (predicted - measured) / measured;
    - composition_time_s, composition_time_low_s, composition_time_high_s : the time to expect of what the kernel
      really runs, where that is a composition of several operators, with its interval [s];
    - samples_s : the time of each sample [s], with ``keep_samples``.
    """
    if outcome.timing and outcome.timing.timing == EVENT:
        prediction = predict(op, hardware, timing="event", cache=prediction.cache, library=prediction.library)
    row = prediction.rows()[0]
    row["name"] = row["name"] or op.op
    row |= dict.fromkeys(_MEASURED_KEYS) | {
        "kernel": kernel.name if kernel else None,
        "backend": kernel.backend if kernel else None,
        "implementation": implementation_of(kernel) if kernel else None,
        "status": outcome.status,
        "reason": outcome.reason,
        "efficiency_text": outcome.status,
        "correct": outcome.correct,
        "max_relative_error": outcome.max_relative_error,
        "checked": outcome.checked,
        "telemetry": dict(outcome.telemetry),
        "cache": cache,
    }
    if outcome.timing is None:
        return row
    if kernel and kernel.own_operator:
        row["own_bound_time_s"] = float(bound_time(kernel.own_operator(op), hardware).time_s)
    if kernel and kernel.composition:
        row |= _composed(kernel.composition(op), prediction, hardware)
    if keep_samples:
        row["samples_s"] = list(outcome.timing.samples_s)
    if outcome.sustained:
        row["sustain"] = dict(outcome.sustained)
    return row | _numbers(op, prediction, outcome.timing, outcome.telemetry, hardware, cache)


def _composed(parts: Sequence[Operator], prediction: Prediction, hardware: Hardware) -> dict[str, Any]:
    """Return the time to expect of operators that run one after another [s].

    The ends of the interval are the sums of their ends: the model errs alike on kernels of one kind.
    """
    made = [(part.count, predict(part, hardware, cache=prediction.cache, library=prediction.library)) for part in parts]
    return {
        "composition_time_s": sum(count * float(one.predicted_time_s) for count, one in made),
        "composition_time_low_s": sum(count * float(one.predicted_time_low_s) for count, one in made),
        "composition_time_high_s": sum(count * float(one.predicted_time_high_s) for count, one in made),
    }


def _numbers(
    op: Operator,
    prediction: Prediction,
    timing: Timing,
    telemetry: Mapping[str, Any],
    hardware: Hardware,
    cache: str,
) -> dict[str, Any]:
    """Return the keys of a row that need a measured time."""
    measured = timing.median_s
    bound, work = float(prediction.bound_time_s), op.work()
    faster = measured < bound
    notes = [faster_than_bound(prediction, measured, hardware, cache, telemetry)] if faster else []
    notes += [f"{timing.remark}."] if timing.remark else []
    return {
        "time_s": timing.statistics(),
        "measured_time_s": measured,
        "stop_reason": timing.stop_reason,
        "timing": timing.timing,
        "calls_per_sample": timing.calls_per_sample,
        "discarded": dict(timing.discarded),
        "flags": " ".join(_flags(op, timing, hardware)),
        "achieved_flop_per_s": float(work.flop) / measured,
        "achieved_bytes_per_s": float(work.bytes) / measured,
        "efficiency": bound / measured,
        "efficiency_text": "faster than the bound" if faster else f"{100 * bound / measured:.1f} %",
        "utilization": _slowest_ceiling_s(op, hardware) / measured,
        "prediction_error": (float(prediction.predicted_time_s) - measured) / measured,
        "faster_than_bound": faster,
        "note": " ".join(notes),
        "advice": advise(prediction.limiter, bound, measured, launch_time(hardware)),
    }


def _flags(op: Operator, timing: Timing, hardware: Hardware) -> list[str]:
    """Return what makes a measurement doubtful, in the words of measurement tables."""
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    beats = bool(bandwidth) and float(op.work().bytes) / timing.median_s > float(bandwidth or 0.0)
    return [*(["faster_than_dram"] if beats else []), *([timing.flag] if timing.flag else [])]


def _slowest_ceiling_s(op: Operator, hardware: Hardware) -> float:
    """Return the longest of the times that each datasheet rate alone would take [s]."""
    work, links = op.work(), link_traffic(op, hardware)
    peak = resolve_peak(op, hardware) if work.flop else None
    times = ceiling_times(work, datasheet_ceilings(hardware, peak, links), links)
    return max(float(time) for time in times.values())


def faster_than_bound(
    prediction: Prediction, measured_s: float, hardware: Hardware, cache: str, telemetry: Mapping[str, Any]
) -> str:
    """Say loudly that a measurement beats its bound, by how much, and which reasons the facts allow."""
    bound = float(prediction.bound_time_s)
    factor = bound / measured_s
    said = f"faster than the bound: {format_si(measured_s, 's')} against {format_si(bound, 's')} ({factor:.2f}x). "
    reasons = []
    if factor < 1 + _NOISE:
        reasons.append("the difference is within the noise of the measurement")
    limiter = str(prediction.limiter)
    if limiter == "compute":
        reasons += _compute_reasons(prediction, hardware, telemetry)
    elif limiter == "launch":
        reasons.append(f"the launch floor in the spec of {hardware.name} is too high")
    else:
        reasons += _memory_reasons(prediction, hardware, limiter, cache, factor)
    return f"{said}Likely: {'; or '.join(reasons)}."


def _compute_reasons(prediction: Prediction, hardware: Hardware, telemetry: Mapping[str, Any]) -> list[str]:
    engine, _, dtype = prediction.engine.partition(" ")
    peak = hardware.find_peak(dtype, engine)
    reasons = []
    if peak and peak.clock_hz:
        now = telemetry.get("sm_clock_hz", {}).get("median")
        if now and now > peak.clock_hz:
            reasons.append(f"it ran at {format_si(now, 'Hz')}, the peak holds at {format_si(peak.clock_hz, 'Hz')}")
        elif not now:
            reasons.append(f"the clock is above the {format_si(peak.clock_hz, 'Hz')} that the peak holds at")
    reasons.append(f"the {dtype} peak of the {engine} engine in the spec of {hardware.name} is too low")
    if prediction.op == "attention":
        reasons.append("the kernel skips work that the FLOP count includes")
    return reasons


def _memory_reasons(prediction: Prediction, hardware: Hardware, limiter: str, cache: str, factor: float) -> list[str]:
    reasons = []
    size = format_binary(float(prediction.working_set_bytes))
    level = next((m for m in hardware.caches if m.name == str(prediction.fits_in)), None)
    outer = hardware.caches[0] if hardware.caches else None
    if level and level.capacity_bytes:
        held = f"its {size} fit the {level.name} of {format_binary(level.capacity_bytes)}"
        if cache == "warm":
            reasons.append(f"{held} and lay there (--cache warm), while the bound takes them from {limiter}")
        else:
            reasons.append(f"{held}, so that what it writes stays there when the clock stops")
    elif outer and outer.capacity_bytes and cache == "warm":
        reasons.append(f"a part of its {size} lay in the {outer.name} of {format_binary(outer.capacity_bytes)}")
    elif outer and outer.capacity_bytes:
        written = min(float(prediction.bytes_written), outer.capacity_bytes)
        saved = (1 - 1 / factor) * float(prediction.bytes_read + prediction.bytes_written)
        if written > 0.5 * saved:  # less could not explain what was gained
            reasons.append(
                f"{format_binary(written)} of its {size} may still lie in the {outer.name} when the clock stops"
            )
    main = hardware.main_memory
    if main.name == limiter and main.bandwidth_bytes_per_s:
        origin = "is itself a measurement, and may have been disturbed" if hardware.kind == "cpu" else "is too low"
        reasons.append(
            f"the {limiter} bandwidth of {format_si(main.bandwidth_bytes_per_s, 'B/s')} in the spec {origin}"
        )
    return reasons


_MEASURED_KEYS = (
    *("kernel", "status", "reason", "time_s", "measured_time_s", "stop_reason", "cache", "achieved_flop_per_s"),
    *("achieved_bytes_per_s", "efficiency", "efficiency_text", "utilization", "prediction_error", "own_bound_time_s"),
    *("faster_than_bound", "note", "correct", "max_relative_error", "checked", "telemetry"),
    *("backend", "implementation", "timing", "calls_per_sample", "discarded", "flags", "composition_time_s"),
    *("composition_time_low_s", "composition_time_high_s"),
)
#: what the table for people has of the columns of `analyze`, and from which width on
_KEPT = {"name": 0, "dimensions": 0, "dtype": 3, "limiter": 4, "bound_time_s": 2, "predicted_time_s": 1}
_MEASURED_COLUMNS = (
    Column("measured_time_s", "measured", "s"),
    Column("prediction_error", "prediction error", "fraction", drop=6),
    Column("achieved_flop_per_s", "achieved", "FLOP/s", digits=3, drop=7),
    Column("achieved_bytes_per_s", "achieved", "B/s", digits=3, drop=5),
    Column("efficiency_text", "of the bound"),
)


def bench_columns() -> tuple[Column, ...]:
    """Return the columns of a bench report, and which of them people are shown."""
    kept = [
        dataclasses.replace(column, shown=column.key in _KEPT, drop=_KEPT.get(column.key, 0))
        for column in PREDICTION_COLUMNS
    ]
    place = next(index for index, column in enumerate(kept) if column.key == "dtype")
    kept.insert(place, Column("kernel"))
    shown = {column.key for column in (*kept, *_MEASURED_COLUMNS)}
    hidden = (Column(key, shown=False) for key in _MEASURED_KEYS if key not in shown)
    return (*kept, *_MEASURED_COLUMNS, *hidden)
