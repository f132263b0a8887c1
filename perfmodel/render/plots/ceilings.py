"""The ceilings of a machine as lines with names: compute ceilings and bandwidth slopes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.core.hardware import ENGINES, Hardware, Peak
from perfmodel.core.units import format_si

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


def ceilings(hardware: Hardware, engines: Iterable[tuple[str, str]], dtype: str | None = None) -> list[Ceiling]:
    """Return the compute ceilings of a machine. Peaks of one rate share a line, and the line names them all.

    Parameters
    ----------
    hardware : the machine.
    engines : engine and dtype of each operator that is drawn, as in its row: ("tensor fp16", "fp16"). Only their peaks
        are returned.
    dtype : the dtype whose peaks are returned where ``engines`` is empty; None: the best peak of each dtype.
    """
    peaks = _used(hardware, engines) or _main(hardware, dtype)
    lines = []
    for rate in sorted({peak.flop_per_s for peak in peaks}):
        same = [peak for peak in peaks if peak.flop_per_s == rate]
        lines.append(Ceiling(f"{_names(same)}: {_rate(rate, same)}", rate))
    for rate in sorted({peak.sustained_flop_per_s for peak in peaks if peak.sustained_flop_per_s}):
        same = [peak for peak in peaks if peak.sustained_flop_per_s == rate]
        lines.append(Ceiling(f"{_names(same)}: {_rate(rate, same)} sustained", rate, sustained=True))
    return lines


def _used(hardware: Hardware, engines: Iterable[tuple[str, str]]) -> list[Peak]:
    """Return the peaks of some engines; a row without an engine runs on the tensor engine where that has its dtype."""
    peaks: list[Peak | None] = []
    for engine_text, dtype in dict.fromkeys(engines):
        engine, _, engine_dtype = engine_text.partition(" ")
        if engine_dtype:
            peaks.append(hardware.find_peak(engine_dtype, engine))
        else:
            peaks.append(hardware.find_peak(dtype, "tensor") or hardware.find_peak(dtype, "vector"))
    return list(dict.fromkeys(peak for peak in peaks if peak))


def _main(hardware: Hardware, dtype: str | None) -> list[Peak]:
    """Return both engines' peaks of one dtype; or each dtype's best peak, and the vector engine's fp32."""
    if dtype:
        peaks = [hardware.find_peak(canonical_dtype(dtype), engine) for engine in ENGINES]
        return [peak for peak in peaks if peak]
    peaks = [*(hardware.best_peak(name) for name in hardware.dtypes()), hardware.find_peak("fp32", "vector")]
    return list(dict.fromkeys(peak for peak in peaks if peak))


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
    lines = []
    for level in hardware.memory:
        name = level.technology or (level.name.upper() if len(level.name) <= 4 else level.name)
        main = level is hardware.main_memory
        if level.bandwidth_bytes_per_s:
            label = f"{name} {_bandwidth(level.bandwidth_bytes_per_s)}"
            lines.append(Slope(label, level.bandwidth_bytes_per_s, sustained=False, main=main))
        if level.sustained_bytes_per_s:
            label = f"{name} {_bandwidth(level.sustained_bytes_per_s)}"
            lines.append(Slope(label, level.sustained_bytes_per_s, sustained=True, main=main))
    return lines


def _bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in GB/s up to 10 TB/s, as datasheets print it."""
    return f"{bytes_per_s / 1e9:.4g} GB/s" if 1e9 <= bytes_per_s < 1e13 else format_si(bytes_per_s, "B/s")
