"""The lines of a roofline plot: compute ceilings and bandwidth slopes of one machine, with their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.core.hardware import ENGINES, Hardware, Peak
from perfmodel.core.units import format_si
from perfmodel.render.plots._roofline_points import Mark

Place = tuple[float, float]


@dataclass(frozen=True)
class Ceiling:
    """A compute ceiling: its label, rate [FLOP/s], and whether the rate is a sustained one."""

    label: str
    flop_per_s: float
    sustained: bool = False


@dataclass(frozen=True)
class Slope:
    """A bandwidth ceiling: its label, rate [B/s], whether it is a sustained one and whether of main memory."""

    label: str
    bytes_per_s: float
    sustained: bool
    main: bool

    def visible(self, axes: Axes, highest_flop_per_s: float) -> tuple[Place, Place]:
        """Return the ends of the line P = I x bandwidth inside the axes and under the highest ceiling."""
        left, right = axes.get_xlim()
        start = max(left, axes.get_ylim()[0] / self.bytes_per_s)
        end = min(right, highest_flop_per_s / self.bytes_per_s)
        return (start, start * self.bytes_per_s), (end, end * self.bytes_per_s)


def ceilings(hardware: Hardware, marks: Sequence[Mark], dtype: str | None = None) -> list[Ceiling]:
    """Return the ceilings that the marks stand under; without marks, those of ``dtype`` or the main ones.

    Peaks of one rate share a line, and the line names them all.
    """
    peaks = _used(hardware, marks) or _main(hardware, dtype)
    made = []
    for rate in sorted({peak.flop_per_s for peak in peaks}):
        same = [peak for peak in peaks if peak.flop_per_s == rate]
        made.append(Ceiling(f"{_names(same)}: {_rate(rate, same)}", rate))
    for rate in sorted({peak.sustained_flop_per_s for peak in peaks if peak.sustained_flop_per_s}):
        same = [peak for peak in peaks if peak.sustained_flop_per_s == rate]
        made.append(Ceiling(f"{_names(same)}: {_rate(rate, same)} sustained", rate, sustained=True))
    return made


def _used(hardware: Hardware, marks: Sequence[Mark]) -> list[Peak]:
    """Return the peaks that the marks' arithmetic runs on; rows may lack the engine."""
    found: list[Peak | None] = []
    for engine_text, dtype in dict.fromkeys((mark.engine, mark.dtype) for mark in marks):
        engine, _, engine_dtype = engine_text.partition(" ")
        if engine_dtype:
            found.append(hardware.find_peak(engine_dtype, engine))
        else:
            found.append(hardware.find_peak(dtype, "tensor") or hardware.find_peak(dtype, "vector"))
    return list(dict.fromkeys(peak for peak in found if peak))


def _main(hardware: Hardware, dtype: str | None) -> list[Peak]:
    """Return both engines' peaks of one dtype; or each dtype's best peak, and the vector engine's fp32."""
    if dtype:
        found = [hardware.find_peak(canonical_dtype(dtype), engine) for engine in ENGINES]
        return [peak for peak in found if peak]
    found = [*(hardware.best_peak(name) for name in hardware.dtypes()), hardware.find_peak("fp32", "vector")]
    return list(dict.fromkeys(peak for peak in found if peak))


def _names(peaks: Sequence[Peak]) -> str:
    """Return "bf16, fp16 tensor" for the peaks that share a line."""
    engines = {engine: sorted(p.dtype for p in peaks if p.engine == engine) for engine in ENGINES}
    return ", ".join(f"{', '.join(dtypes)} {engine}" for engine, dtypes in engines.items() if dtypes)


def _rate(flop_per_s: float, peaks: Sequence[Peak]) -> str:
    """Return the rate for people; integer arithmetic alone is counted in OP/s, as in datasheets."""
    text = format_si(flop_per_s, "FLOP/s")
    return text.replace("FLOP", "OP") if all(peak.dtype.startswith("int") for peak in peaks) else text


def slopes(hardware: Hardware) -> list[Slope]:
    """Return the bandwidth ceilings of each memory level: the datasheet's, and the sustained one."""
    made = []
    for level in hardware.memory:
        name = level.technology or (level.name.upper() if len(level.name) <= 4 else level.name)
        main = level is hardware.main_memory
        if level.bandwidth_bytes_per_s:
            label = f"{name} {_bandwidth(level.bandwidth_bytes_per_s)}"
            made.append(Slope(label, level.bandwidth_bytes_per_s, sustained=False, main=main))
        if level.sustained_bytes_per_s:
            label = f"{name} {_bandwidth(level.sustained_bytes_per_s)}"
            made.append(Slope(label, level.sustained_bytes_per_s, sustained=True, main=main))
    return made


def _bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in GB/s up to 10 TB/s, as datasheets print it."""
    return f"{bytes_per_s / 1e9:.4g} GB/s" if 1e9 <= bytes_per_s < 1e13 else format_si(bytes_per_s, "B/s")
