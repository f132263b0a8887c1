"""A measurement faster than its bound: by how much, and the likely causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_binary, format_si
from perfmodel.core.vocabulary import CacheState, Limiter
from perfmodel.prediction.result import Prediction

#: a measurement faster by less than this share may be noise: the stopping rule asks for 1 %
_NOISE = 0.02
#: least share of the gained traffic that data left in the cache must explain to be named as a cause
_EXPLAINS = 0.5


def faster_than_bound(
    prediction: Prediction, measured_s: float, hardware: Hardware, cache: CacheState, telemetry: Mapping[str, Any]
) -> str:
    """Return a sentence that flags a measurement faster than its bound, with the factor and the likely causes.

    Parameters
    ----------
    prediction : with the bound; of one point.
    measured_s : the measured median [s], below the bound.
    hardware : the machine that it is compared with.
    cache : what the caches held before each sample.
    telemetry : readings of the device while it was measured.
    """
    bound = float(prediction.bound_time_s)
    factor = bound / measured_s
    causes = []
    if factor < 1 + _NOISE:
        causes.append("the difference is within the noise of the measurement")
    limiter = str(prediction.limiter)
    if limiter == Limiter.COMPUTE:
        causes += _compute_causes(prediction, hardware, telemetry)
    elif limiter == Limiter.LAUNCH:
        causes.append(f"the launch floor in the spec of {hardware.name} is too high")
    else:
        causes += _memory_causes(prediction, hardware, limiter, cache, factor)
    return (
        f"faster than the bound: {format_si(measured_s, 's')} against {format_si(bound, 's')} ({factor:.2f}x). "
        f"Likely: {'; or '.join(causes)}."
    )


def _compute_causes(prediction: Prediction, hardware: Hardware, telemetry: Mapping[str, Any]) -> list[str]:
    engine, _, dtype = prediction.engine.partition(" ")
    peak = hardware.find_peak(dtype, engine)
    causes = []
    if peak and peak.clock_hz:
        clock = telemetry.get("sm_clock_hz", {}).get("median")
        if clock and clock > peak.clock_hz:
            causes.append(f"it ran at {format_si(clock, 'Hz')}, the peak holds at {format_si(peak.clock_hz, 'Hz')}")
        elif not clock:
            causes.append(f"the clock is above the {format_si(peak.clock_hz, 'Hz')} that the peak holds at")
    causes.append(f"the {dtype} peak of the {engine} engine in the spec of {hardware.name} is too low")
    if prediction.op == "attention":
        causes.append("the kernel skips work that the FLOP count includes")
    return causes


def _memory_causes(
    prediction: Prediction, hardware: Hardware, limiter: str, cache: CacheState, factor: float
) -> list[str]:
    causes = []
    size = format_binary(float(prediction.working_set_bytes))
    level = next((m for m in hardware.caches if m.name == str(prediction.fits_in)), None)
    outer = hardware.caches[0] if hardware.caches else None
    if level and level.capacity_bytes:
        fits = f"its {size} fit the {level.name} of {format_binary(level.capacity_bytes)}"
        if cache == CacheState.WARM:
            causes.append(f"{fits} and were there (--cache warm), while the bound takes them from {limiter}")
        else:
            causes.append(f"{fits}, so that its output is still there when the clock stops")
    elif outer and outer.capacity_bytes and cache == CacheState.WARM:
        causes.append(f"a part of its {size} was in the {outer.name} of {format_binary(outer.capacity_bytes)}")
    elif outer and outer.capacity_bytes:
        written = min(float(prediction.bytes_written), outer.capacity_bytes)
        saved = (1 - 1 / factor) * float(prediction.bytes_read + prediction.bytes_written)
        if written > _EXPLAINS * saved:
            causes.append(
                f"{format_binary(written)} of its {size} may still be in the {outer.name} when the clock stops"
            )
    main = hardware.main_memory
    if main.name == limiter and main.bandwidth_bytes_per_s:
        origin = "is itself a measurement, and may have been disturbed" if hardware.kind == "cpu" else "is too low"
        causes.append(f"the {limiter} bandwidth of {format_si(main.bandwidth_bytes_per_s, 'B/s')} in the spec {origin}")
    return causes
