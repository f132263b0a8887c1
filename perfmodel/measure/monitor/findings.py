"""What is wrong in a series of readings, each with its evidence and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.core.units import format_binary, format_si
from perfmodel.measure.monitor.series import Floats, Series
from perfmodel.measure.monitor.trend import leak_rate

#: kind of finding
LEAK = "memory leak"
#: a growth that would take longer to fill the memory is none to look into: few jobs run for a month [s]
LONGEST_TO_FULL_S = 30 * 86400.0
#: how long something has to last [s], and the shares that it is judged by
LOW_USE, LOW_USE_S = 0.30, 60.0
BUSY_CORE, HOST_BOUND_USE, HOST_BOUND_S = 0.95, 0.60, 10.0
SWAPPING_BYTES_PER_S, IMBALANCE = 1e6, 0.20
STALL_S, STALLED_CPUS, STALLED_USE = 30.0, 0.02, 0.02
#: training steps before the first that is judged (compilation, the allocator's growth), and how many are judged at once
WARM_UP_STEPS, FEWEST_STEPS, JUDGED_STEPS = 5, 3, 10
#: samples in a row for which a reason for throttling has to hold
_HELD = 4


@dataclass(frozen=True)
class Finding:
    """Something wrong.

    Attributes
    ----------
    kind : "memory leak", "low use", "throttled", "host-bound", "swapping", "imbalance", "stalled", "GPU error" or
        "slow steps".
    of : what it concerns ("gpu 0", "process 123").
    evidence : the figures, a sentence.
    advice : what to do next, a sentence.
    """

    kind: str
    of: str
    evidence: str
    advice: str

    def __str__(self) -> str:
        return f"{self.of}: {self.kind}: {self.evidence} {self.advice}"


def find(series: Series) -> list[Finding]:
    """Return what is wrong in the readings so far."""
    return [
        *_leaks(series),
        *_low_use(series),
        *_throttled(series),
        *_host_bound(series),
        *_swapping(series),
        *_imbalance(series),
        *_stalled(series),
        *_gpu_errors(series),
        *slow_steps(series),
    ]


def _leaks(series: Series) -> Iterator[Finding]:
    for metric, limit_metric in (
        ("process_memory_resident_bytes", "host_memory_total_bytes"),
        ("gpu_memory_used_bytes", "gpu_memory_total_bytes"),
    ):
        for of, times, values in series.of(metric):
            rate = leak_rate(times, values)
            if rate <= 0:
                continue
            _, total = series.get(limit_metric, of if metric.startswith("gpu") else "host")
            full_in_s = float((total[-1] - values[-1]) / rate) if total.size else 0.0
            if full_in_s > LONGEST_TO_FULL_S:
                continue
            left = f"; full in {_span(full_in_s)}" if total.size else ""
            yield Finding(
                LEAK,
                of,
                f"its memory grows by {format_binary(60 * rate)} a minute and is {format_binary(values[-1])}{left}.",
                "Compare two snapshots of the allocations (tracemalloc, torch.cuda.memory._snapshot), minutes apart.",
            )


def _low_use(series: Series) -> Iterator[Finding]:
    for of, times, values in series.of("gpu_utilization_ratio"):
        recent = _recent(times, values, LOW_USE_S)
        if recent is not None and float(np.median(recent)) < LOW_USE:
            _, power = series.get("gpu_power_watts", of)
            drawn = f", it draws {format_si(float(np.median(power[-recent.size :])), 'W', 3)}" if power.size else ""
            yield Finding(
                "low use",
                of,
                f"a kernel ran in {np.median(recent):.0%} of the last {LOW_USE_S:.0f} s{drawn}.",
                "Trace a few steps and run `perfmodel diagnose`: it says what the GPU waits for.",
            )


def _throttled(series: Series) -> Iterator[Finding]:
    for metric, of in series.names():
        if not metric.startswith("gpu_throttled_"):
            continue
        _, values = series.get(metric, of)
        if values.size < _HELD or not values[-_HELD:].all():
            continue
        reason = metric.removeprefix("gpu_throttled_").replace("_", " ")
        _, clocks = series.get("gpu_sm_clock_hertz", of)
        clock = f" at {format_si(float(clocks[-1]), 'Hz', 3)}" if clocks.size else ""
        advice = (
            "Matrix products draw the board's limit: expect `--load sustained` rates, or raise the limit."
            if "power cap" in reason
            else "Check cooling, power supply and the limits that nvidia-smi -q -d PERFORMANCE shows."
        )
        yield Finding("throttled", of, f"{reason} in the last {_HELD} samples{clock}.", advice)


def _host_bound(series: Series) -> Iterator[Finding]:
    times, cores = series.get("host_busiest_core_ratio", "host")
    busiest = _recent(times, cores, HOST_BOUND_S)
    if busiest is None or float(np.median(busiest)) < BUSY_CORE:
        return
    for of, gpu_times, values in series.of("gpu_utilization_ratio"):
        recent = _recent(gpu_times, values, HOST_BOUND_S)
        if recent is not None and float(np.median(recent)) < HOST_BOUND_USE:
            yield Finding(
                "host-bound",
                of,
                f"the GPU is used {np.median(recent):.0%} while one core is at {np.median(busiest):.0%}.",
                "CUDA graphs, torch.compile or more workers for the input take work off that core.",
            )


def _swapping(series: Series) -> Iterator[Finding]:
    _, rates = series.get("host_swap_bytes_per_second", "host")
    if rates.size >= _HELD and float(np.min(rates[-_HELD:])) > SWAPPING_BYTES_PER_S:
        yield Finding(
            "swapping",
            "host",
            f"{format_si(float(np.mean(rates[-_HELD:])), 'B/s', 3)} move between memory and disk.",
            "Use fewer workers or smaller buffers: a disk is a thousand times slower than memory.",
        )


def _imbalance(series: Series) -> Iterator[Finding]:
    recent = {of: _recent(times, values, HOST_BOUND_S) for of, times, values in series.of("gpu_utilization_ratio")}
    medians = {of: float(np.median(values)) for of, values in recent.items() if values is not None}
    if len(medians) < 2:
        return
    mean = sum(medians.values()) / len(medians)
    least = min(medians, key=lambda of: medians[of])
    if mean - medians[least] > IMBALANCE:
        yield Finding(
            "imbalance",
            least,
            f"it is used {medians[least]:.0%}, the GPUs in the mean {mean:.0%}.",
            "Trace all ranks and run `perfmodel diagnose rank*.json.gz`: it names who waits for whom.",
        )


def _stalled(series: Series) -> Iterator[Finding]:
    uses = [_recent(times, values, STALL_S) for _, times, values in series.of("gpu_utilization_ratio")]
    if any(use is not None and float(np.max(use)) > STALLED_USE for use in uses):
        return
    for of, times, values in series.of("process_cpus"):
        recent = _recent(times, values, STALL_S)
        if recent is None or float(np.max(recent)) > STALLED_CPUS or float(np.max(values)) < 10 * STALLED_CPUS:
            continue
        yield Finding(
            "stalled",
            of,
            f"it has used no CPU and no GPU for {STALL_S:.0f} s, after it had worked.",
            "py-spy dump --pid shows where it waits: a lock, the network, a rank that died.",
        )


def _gpu_errors(series: Series) -> Iterator[Finding]:
    for of, _, values in series.of("gpu_xid"):
        if values.size and values[-1] > 0:
            yield Finding(
                "GPU error",
                of,
                f"the driver reported XID {values[-1]:.0f}.",
                "Look it up in NVIDIA's XID catalog: 13, 31 and 43 are faults of the program; 48, 63, 64, 74, 79, 94 "
                "and 95 of memory, links or the board: take the GPU out of use.",
            )
    for of, _, values in series.of("gpu_uncorrected_memory_errors"):
        if values.size and values[-1] > values[0]:
            yield Finding(
                "GPU error",
                of,
                f"{values[-1] - values[0]:.0f} memory errors since the start could not be corrected.",
                "Results may be wrong: end the job, and reset the GPU or take it out of use.",
            )


def slow_steps(series: Series) -> Iterator[Finding]:
    """Yield a finding if the latest training steps are slower than the interval of the expected one."""
    _, steps = series.get("training_step_seconds", "training")
    _, limits = series.get("training_expected_high_seconds", "training")
    judged = steps[WARM_UP_STEPS:][-JUDGED_STEPS:]
    if not limits.size or judged.size < FEWEST_STEPS or float(np.median(judged)) <= limits[-1]:
        return
    _, expected = series.get("training_expected_seconds", "training")
    wanted = f", {format_si(float(expected[-1]), 's', 3)} are expected" if expected.size else ""
    yield Finding(
        "slow steps",
        "training",
        f"the last {judged.size} steps took {format_si(float(np.median(judged)), 's', 3)} in the middle{wanted}, and "
        f"{format_si(float(limits[-1]), 's', 3)} is the slow end of the interval.",
        "Trace a few steps: `perfmodel diagnose trace.json.gz` says where the time goes.",
    )


def _span(time_s: float) -> str:
    """Return a time in the largest of days, hours, minutes and seconds of which it has two."""
    for unit, size_s in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if time_s >= 2 * size_s:
            return f"{time_s / size_s:.0f} {unit}"
    return f"{max(time_s, 0.0):.0f} s"


def _recent(times: Floats, values: Floats, span_s: float) -> Floats | None:
    """Return the values of the last seconds, None where the series does not cover them."""
    if times.size < 3 or times[-1] - times[0] < span_s:
        return None
    recent: Floats = values[times >= times[-1] - span_s]
    return recent
