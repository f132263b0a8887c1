"""What stands for the figures that a GPU's specification leaves out, and how far that may be off.

A prediction needs the SMs, the clock, the fp32 rate of the vector engine, the capacity of the L2 and the power limit.
Where a specification lacks one of them, a usual figure takes its place (`completed`), and the interval reaches those of
the machines with the ends of what is plausible (`left_out`, `extremes`). Bounds know nothing of usual figures.

Usual figures are those of the GPUs of the catalog, fitted to the figures that a specification is more likely to have:
with W the bandwidth of device memory in TB/s and P the fp32 rate in TFLOP/s, 75 W^0.56 SMs, or 20 P^0.39 W^0.33 where P
is stated; 0.44 TFLOP/s an SM, and at most half of the tensor engine's 16-bit rate; 1.8 GHz; 0.25 MiB of L2 an SM; 300
W^0.6 watts. The factors within which 80 % of these GPUs lie are `Figure.off` (a test recomputes both).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.fitted_with import compared_as
from perfmodel.core.hardware import Hardware, MemoryLevel, Peak, cached_per_machine
from perfmodel.core.units import format_si

_FP32_PER_SM, _CLOCK_HZ, _L2_PER_SM = 0.44e12, 1.8e9, 0.25 * 2**20
#: the least that tensor engines do in 16 bits, over the fp32 rate of the vector engine
_LEAST_RATIO = 2.0


@dataclass(frozen=True)
class Figure:
    """One figure of a specification that predictions need.

    Attributes
    ----------
    key : where it stands in the file.
    is_missing : whether a machine lacks it.
    usual : the figure that stands for it, in SI units, of a machine that has all figures before it.
    put : (machine, figure) -> the machine with it.
    off : 80 % of GPUs lie within this factor of the usual figure.
    shown : the figure for people.
    """

    key: str
    is_missing: Callable[[Hardware], bool]
    usual: Callable[[Hardware], float]
    put: Callable[[Hardware, float], Hardware]
    off: float
    shown: Callable[[float], str]


@dataclass(frozen=True)
class LeftOut:
    """A figure that a specification leaves out.

    Attributes
    ----------
    key : where it would stand in the file.
    words : the usual figure and the plausible ones, for people.
    ends : the machine with the lowest and with the highest plausible figure, and usual ones for all others.
    """

    key: str
    words: str
    ends: tuple[Hardware, Hardware]


def _terabytes(hardware: Hardware) -> float:
    return (hardware.main_memory.bandwidth_bytes_per_s or 1e12) / 1e12


def _sms(hardware: Hardware) -> float:
    fp32 = hardware.find_peak("fp32", "vector")
    if fp32 is None:
        return 75.0 * math.pow(_terabytes(hardware), 0.56)
    return 20.0 * math.pow(fp32.flop_per_s / 1e12, 0.39) * math.pow(_terabytes(hardware), 0.33)


def _put_sms(hardware: Hardware, count: float) -> Hardware:
    return replace(hardware, sm_count=max(1, round(count)))


def _fp32(hardware: Hardware) -> float:
    tensor = [0.5 * dtype_bytes(peak.dtype) * peak.flop_per_s for peak in hardware.peaks if peak.engine == "tensor"]
    return min((_FP32_PER_SM * (hardware.sm_count or 1), *(rate / _LEAST_RATIO for rate in tensor)))


def _put_fp32(hardware: Hardware, rate: float) -> Hardware:
    return replace(hardware, peaks=(*hardware.peaks, Peak("fp32", "vector", rate)))


def _lacks_clock(hardware: Hardware) -> bool:
    return not hardware.clocks_hz and not any(peak.clock_hz for peak in hardware.peaks)


def _put_clock(hardware: Hardware, clock_hz: float) -> Hardware:
    return replace(hardware, clocks_hz=MappingProxyType({"vector": clock_hz, "tensor": clock_hz}))


def _put_l2(hardware: Hardware, capacity: float) -> Hardware:
    level = replace(hardware.level("l2") or MemoryLevel("l2"), capacity_bytes=capacity)
    return replace(hardware, memory=(*(other for other in hardware.memory if other.name != "l2"), level))


FIGURES = (
    Figure("chip.sm_count", lambda gpu: not gpu.sm_count, _sms, _put_sms, 1.6, lambda count: f"{count:.0f} SMs"),
    Figure(
        "peak.vector.fp32",
        lambda gpu: gpu.find_peak("fp32", "vector") is None,
        _fp32,
        _put_fp32,
        1.8,
        lambda rate: f"{format_si(rate, 'FLOP/s', 2)} in fp32 on the vector engine",
    ),
    Figure(
        "chip.vector_clock",
        _lacks_clock,
        lambda gpu: _CLOCK_HZ,
        _put_clock,
        1.35,
        lambda clock: f"a clock of {format_si(clock, 'Hz', 2)}",
    ),
    Figure(
        "memory.l2.capacity",
        lambda gpu: not gpu.caches,
        lambda gpu: _L2_PER_SM * (gpu.sm_count or 1),
        _put_l2,
        3.6,
        lambda size: f"an L2 of {size / 2**20:.2g} MiB",
    ),
    Figure(
        "chip.tdp",
        lambda gpu: gpu.tdp_w is None,
        lambda gpu: 300.0 * math.pow(_terabytes(gpu), 0.6),
        lambda gpu, watts: replace(gpu, tdp_w=watts),
        1.4,
        lambda watts: f"a power limit of {watts:.0f} W",
    ),
)


def missing(hardware: Hardware) -> tuple[Figure, ...]:
    """Return the figures that the specification of a GPU leaves out; none of a CPU."""
    return () if hardware.kind != "gpu" else tuple(figure for figure in FIGURES if figure.is_missing(hardware))


@cached_per_machine
def completed(hardware: Hardware) -> Hardware:
    """Return a machine with usual figures in place of those that its specification leaves out; itself if it has all."""
    return _filled(hardware)[0] if missing(hardware) else hardware


@cached_per_machine
def left_out(hardware: Hardware) -> tuple[LeftOut, ...]:
    """Return what a specification leaves out."""
    usual = _filled(hardware)[1]
    return tuple(
        LeftOut(
            figure.key,
            f"{figure.shown(usual[figure.key])} (within a factor of {figure.off:g})",
            (_filled(hardware, {figure.key: 1.0 / figure.off})[0], _filled(hardware, {figure.key: figure.off})[0]),
        )
        for figure in missing(hardware)
    )


@cached_per_machine
def extremes(hardware: Hardware) -> tuple[Hardware, Hardware]:
    """Return the machine with the lowest, and with the highest plausible one of all figures that are left out."""
    lowest = {figure.key: 1.0 / figure.off for figure in missing(hardware)}
    return _filled(hardware, lowest)[0], _filled(hardware, {key: 1.0 / factor for key, factor in lowest.items()})[0]


@cached_per_machine
def with_largest_cache(hardware: Hardware) -> Hardware:
    """Return the machine with the largest plausible L2, which floors of warm calls need; itself if it states one."""
    if not any(figure.put is _put_l2 for figure in missing(hardware)):
        return hardware
    return _put_l2(hardware, extremes(hardware)[1].caches[-1].capacity_bytes or 0.0)


def _filled(
    hardware: Hardware, factors: Mapping[str, float] = MappingProxyType({})
) -> tuple[Hardware, Mapping[str, float]]:
    """Return a machine with all figures, and the usual ones among them by key, each of which follows from those before.

    Some are so many times the usual ones; ``factors`` says which.
    """
    stated, figures = hardware, {}
    for figure in missing(stated):
        figures[figure.key] = figure.usual(hardware) * factors.get(figure.key, 1.0)
        hardware = figure.put(hardware, figures[figure.key])
    return compared_as(hardware, stated), figures
