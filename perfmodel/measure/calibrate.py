"""Measuring what a machine sustains: memory bandwidth, matrix products, the cost of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import find_kernels
from perfmodel.measure.machine import now_utc
from perfmodel.measure.stopping import StandardErrorRule
from perfmodel.measure.timer import Timing, best_median_s, time_call, time_queue
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.reduction import Reduction

Status = Callable[[str], None]

#: each buffer of a bandwidth measurement is at least this many times the last-level cache
_CACHES = 4
_LEAST_BUFFER_BYTES = MappingProxyType({"cpu": 2.0**26, "cuda": 2.0**30})
#: the largest matrix product that is tried, by kind of device
_LARGEST_PRODUCT = MappingProxyType({"cpu": 2048, "cuda": 8192})
_SMALLEST_PRODUCT = 256
#: calls in a queue of tiny kernels
_QUEUED_CALLS = 2000


@dataclass(frozen=True)
class Effort:
    """How much time a calibration takes: a few seconds before a benchmark, or more for a spec to keep.

    Attributes
    ----------
    rounds : how many medians the best is taken of.
    samples : samples of one median.
    product_s : longest time of one matrix product that is tried [s].
    """

    rounds: int
    samples: int
    product_s: float


QUICK = Effort(rounds=2, samples=5, product_s=0.06)
THOROUGH = Effort(rounds=3, samples=7, product_s=0.15)


@dataclass(frozen=True)
class Figures:
    """What was measured, in SI units.

    Attributes
    ----------
    bandwidth_bytes_per_s : access pattern ("copy", "add", "read") -> best median, all directions counted [B/s].
    fastest_bytes_per_s : the fastest single sample of any pattern [B/s]: the ceiling of a memory without datasheet. A
        copy alone is none on a CPU: its stores first fetch the lines that they overwrite, traffic that is not
        counted, so that an addition or a sum can show a higher bandwidth.
    flop_per_s : dtype -> best rate of a matrix product [FLOP/s].
    call_overhead_s : time of a call that does nothing to speak of [s].
    source, method : by what and when it was measured, and how, for the specification.
    """

    bandwidth_bytes_per_s: Mapping[str, float]
    fastest_bytes_per_s: float
    flop_per_s: Mapping[str, float]
    call_overhead_s: float
    source: str
    method: str

    @property
    def copy_bytes_per_s(self) -> float:
        """Sustained copy bandwidth, both directions counted [B/s]."""
        return self.bandwidth_bytes_per_s["copy"]


def calibrate(device: Device, dtypes: Sequence[str], effort: Effort, status: Status) -> Figures:
    """Measure bandwidth, matrix products in some dtypes, and the cost of a call.

    Parameters
    ----------
    device : what to measure.
    dtypes : dtypes of matrix products; those that the device cannot run are left out.
    effort : how long it may take.
    status : is told what is being measured.
    """
    status("measuring memory bandwidth")
    bandwidth: dict[str, float] = {}
    fastest = 0.0
    for name, op in _patterns(device).items():
        timings = _timings(op, device, effort)
        bandwidth[name] = float(op.work().bytes) / best_median_s(timings)
        fastest = max(fastest, float(op.work().bytes) / min(min(timing.samples_s) for timing in timings))
    rates = {}
    for dtype in dict.fromkeys(dtypes):
        if _can_run(Gemm(m=1, n=1, k=1, dtype=dtype), device):
            status(f"measuring matrix products in {dtype}")
            rates[dtype] = _product_rate(dtype, device, effort)
    status("measuring the cost of a call")
    overhead = _overhead_s(device)
    facts = device.facts()
    threads = f", threads: {facts['threads']}" if device.kind == "cpu" else f" on {device.name}"
    return Figures(
        bandwidth_bytes_per_s={name: _rounded(value) for name, value in bandwidth.items()},
        fastest_bytes_per_s=_rounded(fastest),
        flop_per_s={dtype: _rounded(value) for dtype, value in rates.items()},
        call_overhead_s=_rounded(overhead),
        source=f"perfmodel calibrate{threads}, torch {facts['torch']}, {now_utc()}",
        method=_METHOD[device.kind].format(rounds=effort.rounds, caches=_CACHES, patterns=", ".join(bandwidth)),
    )


_COMMON = (
    "Best of {rounds} medians; {patterns} of float32 buffers beyond {caches} x the last-level cache, all directions "
    "counted; square matrix products; the call overhead is an addition of one element, "
)
_METHOD = MappingProxyType(
    {"cpu": f"{_COMMON}alone, its caches flushed", "cuda": f"{_COMMON}one of a queue of {_QUEUED_CALLS}"}
)


def _rounded(value: float) -> float:
    """Return four significant digits: a measurement has no more."""
    return float(f"{value:.4g}")


def _patterns(device: Device) -> dict[str, Operator]:
    """Return the operators that move memory in each pattern, on buffers beyond the caches."""
    size = max(_CACHES * device.cache_bytes, _LEAST_BUFFER_BYTES[device.kind])
    columns = 2**16
    rows = max(1, int(min(size, device.free_memory_bytes() / 16) / 4 / columns) + 1)
    return {
        "copy": Elementwise(numel=rows * columns, kind="copy"),
        "add": Elementwise(numel=rows * columns, kind="add"),
        "read": Reduction(rows=rows, cols=columns),
    }


def _can_run(op: Operator, device: Device) -> bool:
    return not find_kernels(op.op)[0].supports(op, device)


def _prepared(op: Operator, device: Device) -> Callable[[], Any]:
    """Return the library call for an operator: the first of its kernels."""
    from perfmodel.kernels.inputs import make_inputs

    return find_kernels(op.op)[0].prepare(op, make_inputs(op, device.kind, seed=0))


def _timings(op: Operator, device: Device, effort: Effort) -> list[Timing]:
    """Return several timings of warm calls: the data is larger than the cache, or is meant to be in it."""
    rule = StandardErrorRule(0.0, effort.samples, effort.samples, time_limit_s=1.0)
    with device.precision(op.dtype):
        call = _prepared(op, device)
        return [time_call(call, device, rule, cache="warm") for _ in range(effort.rounds)]


def _product_rate(dtype: str, device: Device, effort: Effort) -> float:
    """Return the best rate of square products [FLOP/s], doubled in size while they stay affordable."""
    best, size = 0.0, _SMALLEST_PRODUCT
    while size <= _LARGEST_PRODUCT[device.kind]:
        op = Gemm(m=size, n=size, k=size, dtype=dtype)
        median = best_median_s(_timings(op, device, effort))
        best = max(best, float(op.flop()) / median)
        if 8 * median > effort.product_s:
            break
        size *= 2
    return best


def _overhead_s(device: Device) -> float:
    """Return the time of an addition of one element [s]: alone and cold on a CPU, one of a queue on a GPU."""
    op = Elementwise(numel=1, kind="add")
    with device.precision(op.dtype):
        call = _prepared(op, device)
        if device.kind == "cuda":
            return time_queue(call, device, _QUEUED_CALLS)
        rule = StandardErrorRule(0.0, 15, 15, time_limit_s=2.0)
        return time_call(call, device, rule, cache="flushed").median_s


def with_figures(hardware: Hardware, figures: Figures, *, memory_is_measured: bool) -> Hardware:
    """Return a machine with the measured figures as its sustained ceilings and launch overhead.

    Parameters
    ----------
    hardware : the machine with its datasheet figures.
    figures : what was measured.
    memory_is_measured : True where the memory has no datasheet bandwidth, as on a CPU: the fastest sample then
        stands in its place, and the copy is the sustained figure.
    """
    # A floor keeps its own source; the overhead beside it has this one.
    kept = (hardware.launch.source,) if hardware.launch.floor_s else ()
    launch_source = "; overhead: ".join((*kept, figures.source))
    main = hardware.main_memory
    level = dataclasses.replace(main, sustained_bytes_per_s=figures.copy_bytes_per_s)
    if memory_is_measured:
        level = _measured_memory(level, figures)
    return dataclasses.replace(
        hardware,
        memory=(level, *hardware.memory[1:]),
        peaks=tuple(_with_rate(peak, hardware, figures) for peak in hardware.peaks),
        launch=dataclasses.replace(
            hardware.launch,
            overhead_s=figures.call_overhead_s,
            source=launch_source,
        ),
        sustained_source=figures.source,
        sources=MappingProxyType({**hardware.sources, "sustained": figures.source, "launch": launch_source}),
        notes=MappingProxyType({**hardware.notes, "sustained": figures.method}),
    )


def _measured_memory(level: MemoryLevel, figures: Figures) -> MemoryLevel:
    return dataclasses.replace(
        level,
        bandwidth_bytes_per_s=figures.fastest_bytes_per_s,
        note="bandwidth: the fastest sample that was measured, since the operating system knows no peak",
    )


def _with_rate(peak: Peak, hardware: Hardware, figures: Figures) -> Peak:
    """Return a peak with its measured rate, on the engine that matrix products of its dtype run on.

    A dtype that the CPU's arithmetic is not known for is bounded by float32's peak, into which it is converted:
    the rate of its matrix product alone would be no bound.
    """
    rate = figures.flop_per_s.get(peak.dtype)
    if rate is None or hardware.native_peak(peak.dtype) is not peak:
        return peak
    if hardware.kind == "cpu" and peak.flop_per_clock_per_sm is None and peak.dtype not in ("fp32", "fp64"):
        full = hardware.find_peak("fp32", peak.engine)
        if full and full.flop_per_s > peak.flop_per_s:
            return dataclasses.replace(
                peak,
                flop_per_s=full.flop_per_s,
                sustained_flop_per_s=rate,
                source=full.source,
                note="bounded by the peak of fp32, in which it is computed where the CPU has no such arithmetic",
            )
    return dataclasses.replace(peak, sustained_flop_per_s=rate)
