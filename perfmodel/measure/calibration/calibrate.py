"""Measuring what a machine sustains: memory and caches, arithmetic, launches, copies to and from the host."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from perfmodel.core.units import format_binary
from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.cpu_caches import CacheSize, WorkingSet, cache_levels, working_sets
from perfmodel.measure.calibration.launch import GRAPH_CALLS, QUEUED_CALLS, call_overhead_s, empty_kernel_s
from perfmodel.measure.calibration.memory import buffer_elements, gpu_levels, main_memory
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.products import product_rates, vector_rates
from perfmodel.measure.calibration.rates import Status, rounded
from perfmodel.measure.calibration.transfer import Transfer, transfers
from perfmodel.measure.machine_facts import now_utc
from perfmodel.measure.memory_limit import MemoryLimit

#: from these on other work spoils a rate: the share of the time that threads wait, and the ratio of two passes, which
#: agree within some percent on a machine at rest
_WAITED, _APART = 0.1, 1.25


@dataclass(frozen=True)
class Figures:
    """What was measured, in SI units; empty where a machine lacks it or it was not asked for.

    Attributes
    ----------
    bandwidth_bytes_per_s : access pattern of main memory ("read", "write", "copy", "triad") -> best median, all
        directions counted [B/s].
    fastest_bytes_per_s : the fastest single sample of any pattern [B/s]: the ceiling of a memory without datasheet.
        The copy alone is not one on a CPU: its stores first fetch the lines that they overwrite, which is not counted,
        so that another pattern can show a higher bandwidth.
    flop_per_s : dtype -> best rate of a matrix product [FLOP/s].
    call_overhead_s : time of a call with next to no work [s].
    source, method : by what and when it was measured, and how, for the specification.
    levels_bytes_per_s : cache or other level -> read bandwidth, all cores together [B/s].
    working_sets : read bandwidth of a CPU by working set.
    vector_flop_per_s : dtype -> rate of multiply-adds on a GPU's vector engine [FLOP/s].
    empty_kernel_s : "stream" and "graph" -> time of an empty kernel of a GPU [s].
    transfers : copies between host and GPU.
    left_out : what could not be measured, and why.
    waited : rate -> share of the time for which the threads of a CPU were ready and had none, in the better pass.
    apart : rate -> how many times as high it came out in the best pass as in the worst.
    """

    bandwidth_bytes_per_s: Mapping[str, float]
    fastest_bytes_per_s: float
    flop_per_s: Mapping[str, float]
    call_overhead_s: float
    source: str
    method: str
    levels_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    working_sets: tuple[WorkingSet, ...] = ()
    vector_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    empty_kernel_s: Mapping[str, float] = field(default_factory=dict)
    transfers: tuple[Transfer, ...] = ()
    left_out: tuple[str, ...] = ()
    waited: Mapping[str, float] = field(default_factory=dict)
    apart: Mapping[str, float] = field(default_factory=dict)

    @property
    def rates(self) -> Mapping[str, float]:
        """Every rate by its name for people: "memory read", "l2 read", "fp32 product", "fp32 multiply-adds"."""
        return {
            **{f"memory {pattern}": rate for pattern, rate in self.bandwidth_bytes_per_s.items()},
            **{f"{level} read": rate for level, rate in self.levels_bytes_per_s.items()},
            **{f"{dtype} product": rate for dtype, rate in self.flop_per_s.items()},
            **{f"{dtype} multiply-adds": rate for dtype, rate in self.vector_flop_per_s.items()},
        }

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on why the figures are no ceilings: other work had the machine, as far as can be seen."""
        waited = {name: share for name, share in self.waited.items() if share > _WAITED}
        apart = {name: ratio for name, ratio in self.apart.items() if ratio > _APART}
        sentences = []
        if waited:
            most = max(waited, key=waited.__getitem__)
            sentences.append(
                f"In {len(waited)} of {len(self.waited)} measurements the threads waited for CPUs that other work had, "
                f"up to {100 * waited[most]:.0f} % of the time ({most}): their rates are too low"
            )
        if apart:
            most = max(apart, key=apart.__getitem__)
            sentences.append(
                f"{len(apart)} of {len(self.apart)} rates differ between the passes by a factor of more than "
                f"{_APART:g}, up to {apart[most]:.2f} ({most})"
            )
        return (*sentences, "Measure again when nothing else runs") if sentences else ()

    @property
    def copy_bytes_per_s(self) -> float:
        """Sustained copy bandwidth, both directions counted [B/s]."""
        return self.bandwidth_bytes_per_s["copy"]


def calibrate(
    device: Device, dtypes: Sequence[str], plan: CalibrationPlan, status: Status, caches: Sequence[CacheSize] = ()
) -> Figures:
    """Measure main memory, matrix products in some dtypes, and the cost of a call.

    With ``plan.everything`` also caches, shared memory, the vector engine, empty kernels on a stream and in a graph,
    and copies over PCIe.

    Parameters
    ----------
    device : what to measure.
    dtypes : dtypes of matrix products; those that the device cannot run are left out.
    plan : how thorough the calibration is.
    status : receives a line on what is being measured.
    caches : the caches of a CPU, as the system describes them; the device knows those of a GPU.
    """
    passes = [_one_pass(device, dtypes, plan, status, caches)]
    for number in range(2, plan.passes + 1):
        status(f"once more, pass {number} of {plan.passes}: the best of them counts")
        passes.append(_one_pass(device, dtypes, plan, status, caches))
    figures = functools.reduce(better, passes)
    apart = {name: rate / min(one.rates.get(name, rate) for one in passes) for name, rate in figures.rates.items()}
    return dataclasses.replace(figures, apart=apart)


def better(one: Figures, other: Figures) -> Figures:
    """Return the higher of each rate and the shorter of each time of two calibrations of one device."""
    sets = (
        max(mine, theirs, key=lambda one: one.bytes_per_s)
        for mine, theirs in zip(one.working_sets, other.working_sets, strict=True)
    )
    copies = (
        dataclasses.replace(mine, times_s=tuple(map(min, mine.times_s, theirs.times_s)))
        for mine, theirs in zip(one.transfers, other.transfers, strict=True)
    )
    return dataclasses.replace(
        one,
        bandwidth_bytes_per_s=_each(max, one.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s),
        fastest_bytes_per_s=max(one.fastest_bytes_per_s, other.fastest_bytes_per_s),
        flop_per_s=_each(max, one.flop_per_s, other.flop_per_s),
        call_overhead_s=min(one.call_overhead_s, other.call_overhead_s),
        levels_bytes_per_s=_each(max, one.levels_bytes_per_s, other.levels_bytes_per_s),
        working_sets=tuple(sets),
        vector_flop_per_s=_each(max, one.vector_flop_per_s, other.vector_flop_per_s),
        empty_kernel_s=_each(min, one.empty_kernel_s, other.empty_kernel_s),
        transfers=tuple(copies),
        waited=_each(min, one.waited, other.waited),
    )


def _each(
    choose: Callable[[float, float], float], one: Mapping[str, float], other: Mapping[str, float]
) -> dict[str, float]:
    return {**other, **{name: choose(value, other.get(name, value)) for name, value in one.items()}}


def _one_pass(
    device: Device, dtypes: Sequence[str], plan: CalibrationPlan, status: Status, caches: Sequence[CacheSize]
) -> Figures:
    status("measuring memory bandwidth")
    memory = main_memory(device, plan)
    device.release_memory()
    rates, left_out = product_rates(device, dtypes, plan, status)
    status("measuring the cost of a call")
    overhead = call_overhead_s(device)
    device.release_memory()
    more = _More()
    if plan.everything:
        more = _gpu(device, dtypes, plan, status) if device.kind == "cuda" else _cpu(device, plan, status, caches)
    bandwidth = {pattern: rounded(rate.sustained) for pattern, rate in memory.items()}
    if more.working_sets:  # the largest lies beyond the caches, like the buffers, and reads in another way
        bandwidth["read"] = max(bandwidth["read"], rounded(more.working_sets[-1].bytes_per_s))
    return Figures(
        bandwidth_bytes_per_s=bandwidth,
        fastest_bytes_per_s=max(*(rounded(rate.fastest) for rate in memory.values()), *bandwidth.values()),
        flop_per_s={dtype: rounded(rate.sustained) for dtype, rate in rates.items()},
        call_overhead_s=rounded(more.empty_kernel_s.get("stream", overhead)),
        source=_source(device),
        method=_method(device, plan, memory),
        levels_bytes_per_s=_rounded(more.levels_bytes_per_s),
        working_sets=more.working_sets,
        vector_flop_per_s=_rounded(more.vector_flop_per_s),
        empty_kernel_s=_rounded(more.empty_kernel_s),
        transfers=more.transfers,
        left_out=(*left_out, *more.left_out),
        waited={
            **{f"memory {pattern}": rate.waited for pattern, rate in memory.items()},
            **{f"{dtype} product": rate.waited for dtype, rate in rates.items()},
            **{f"{format_binary(one.bytes_per_thread)} of a thread": one.waited for one in more.working_sets},
        },
    )


@dataclass(frozen=True)
class _More:
    """The figures that only ``plan.everything`` measures; the attributes are those of `Figures`."""

    levels_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    working_sets: tuple[WorkingSet, ...] = ()
    vector_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    empty_kernel_s: Mapping[str, float] = field(default_factory=dict)
    transfers: tuple[Transfer, ...] = ()
    left_out: tuple[str, ...] = ()


def _cpu(device: Device, plan: CalibrationPlan, status: Status, caches: Sequence[CacheSize]) -> _More:
    left_out = ["copies over PCIe: a CPU has none between itself and its memory"]
    if not caches:
        return _More(left_out=(*left_out, "caches: the system does not say how large they are"))
    status("measuring the caches")
    threads = int(device.facts()["threads"])
    sets = tuple(working_sets(device, caches, plan))
    levels = cache_levels(sets, caches, threads)
    left_out += [
        f"{cache.name}: no larger for a thread than the level before it" for cache in caches if cache.name not in levels
    ]
    return _More(levels, sets, left_out=tuple(left_out))


def _gpu(device: Device, dtypes: Sequence[str], plan: CalibrationPlan, status: Status) -> _More:
    levels, no_levels = gpu_levels(device, plan, status)
    vector, no_vector = vector_rates(device, dtypes, plan, status)
    status("measuring empty kernels")
    empty = empty_kernel_s(device, plan)
    copies = tuple(transfers(device, plan, status))
    rates = {level: rate.sustained for level, rate in levels.items()}
    return _More(rates, (), vector, empty, copies, (*no_levels, *no_vector))


_OVERHEAD = MappingProxyType(
    {
        "cpu": "the call overhead is an addition of one element, alone, its caches flushed",
        "cuda": f"the call overhead is an addition of one element, one of a queue of {QUEUED_CALLS}",
    }
)
_EVERYTHING = MappingProxyType(
    {
        "cpu": f"caches read by scalar products; {_OVERHEAD['cpu']}",
        "cuda": "L2 read from a quarter or half of it, L1 and shared memory from 16 KiB a program; the call overhead "
        f"is an empty kernel, one of a queue of {QUEUED_CALLS} or of a graph of {GRAPH_CALLS}",
    }
)


def _method(device: Device, plan: CalibrationPlan, patterns: Iterable[str]) -> str:
    """Return how it was measured, a sentence for the specification."""
    rest = (_EVERYTHING if plan.everything else _OVERHEAD)[device.kind]
    limit = format_binary(MemoryLimit.of(device, plan.most_memory_bytes).limit_bytes)
    buffer = format_binary(4.0 * buffer_elements(device, plan))
    return (
        f"Best of {plan.passes} x {plan.rounds} medians of {plan.samples}; {', '.join(patterns)} of float32 "
        f"buffers of {buffer}, all directions counted; square matrix products of random data; {rest}; within "
        f"{limit} of memory"
    )


def _source(device: Device) -> str:
    facts = device.facts()
    where = f", threads: {facts['threads']}" if device.kind == "cpu" else f" on {device.name}"
    return f"perfmodel calibrate{where}, torch {facts['torch']}, {now_utc()}"


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: rounded(rate) for name, rate in rates.items()}
