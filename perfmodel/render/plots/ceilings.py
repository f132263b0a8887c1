"""The ceilings of a machine as labelled lines: compute ceilings and bandwidth slopes."""

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
    """A bandwidth ceiling: its label, its rate [B/s], and whether it is sustained and belongs to main memory."""

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
    """Return the compute ceilings of a machine. Peaks with the same rate share a line, whose label names all of them.

    Parameters
    ----------
    hardware : the machine.
    engines : engine and dtype of each operator on the plot, as in its row: ("tensor fp16", "fp16"). Only peaks of
        these engines are returned.
    dtype : dtype of the peaks if ``engines`` is empty; None for the best peak of each dtype.
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
    """Return the peaks of some engines; for a row without one, the tensor engine if it supports the dtype."""
    peaks: list[Peak | None] = []
    for engine_text, dtype in dict.fromkeys(engines):
        engine, _, engine_dtype = engine_text.partition(" ")
        if engine_dtype:
            peaks.append(hardware.find_peak(engine_dtype, engine))
        else:
            peaks.append(hardware.find_peak(dtype, "tensor") or hardware.find_peak(dtype, "vector"))
    return list(dict.fromkeys(peak for peak in peaks if peak))


def _main(hardware: Hardware, dtype: str | None) -> list[Peak]:
    """Return the peaks of both engines for a dtype, or else each dtype's best peak and the fp32 vector peak."""
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
    """Return the rate as text; for integer dtypes in OP/s, as in datasheets."""
    text = format_si(flop_per_s, "FLOP/s")
    return text.replace("FLOP", "OP") if all(peak.dtype.startswith("int") for peak in peaks) else text


def slopes(hardware: Hardware) -> list[Slope]:
    """Return the datasheet and the sustained bandwidth of each memory level."""
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
    """Return a bandwidth as text, in GB/s below 10 TB/s, as datasheets print it."""
    return f"{bytes_per_s / 1e9:.4g} GB/s" if 1e9 <= bytes_per_s < 1e13 else format_si(bytes_per_s, "B/s")
