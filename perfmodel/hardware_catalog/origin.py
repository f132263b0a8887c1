"""Copies of a machine's file with other figures: whose measurements they hold, and what these are worth there.

A copy has the constants of ``[latency]`` and the rates of ``[sustained]`` of the shipped machine that was measured.
Predictions are told what figures that machine has (`Hardware.fitted_with`); a rate stays the share of the peak that it
was measured as.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from perfmodel.core.fitted_with import figures
from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.files import read_text, shipped_folder
from perfmodel.hardware_catalog.schema import HardwareSpec


def is_shipped(place: str) -> bool:
    """Return whether a file is one of perfmodel's own."""
    return Path(place).parent == shipped_folder()


def possible_lenders(spec: HardwareSpec) -> Iterator[Path]:
    """Yield the shipped files that name a source of measurements as a specification does."""
    sources = {spec.sustained.source, *(table.source for table in spec.latency.values())} - {""}
    texts = [json.dumps(source, ensure_ascii=False) for source in sources]
    for path in sorted(shipped_folder().glob("*.toml")):
        if any(text in _text(path) for text in texts):
            yield path


@functools.cache
def _text(path: Path) -> str:
    return read_text(path)


def lent_families(spec: HardwareSpec, other: HardwareSpec) -> list[str]:
    """Return the families whose constants a specification shares with another one, table by table."""
    return [name for name, table in spec.latency.items() if table.source and other.latency.get(name) == table]


def number_lent(spec: HardwareSpec, other: HardwareSpec) -> int:
    """Return how many tables of measurements a specification shares with another one."""
    same_rates = bool(spec.sustained.source) and spec.sustained == other.sustained
    return len(lent_families(spec, other)) + same_rates


def fitted_with(hardware: Hardware, families: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
    """Return the figures of the machine that the constants of some families were fitted on."""
    return MappingProxyType(dict.fromkeys(families, figures(hardware)))


def as_lent(hardware: Hardware, families: Iterable[str], lender: Hardware) -> Hardware:
    """Return a machine that has the constants of some families from another one, and rates where they are the same."""
    memory = tuple(_level(level, lender.level(level.name)) for level in hardware.memory)
    peaks = tuple(_peak(peak, lender.find_peak(peak.dtype, peak.engine)) for peak in hardware.peaks)
    source = hardware.sustained_source
    if (memory, peaks) != (hardware.memory, hardware.peaks):
        source = f"{source}; the same shares of the peaks as measured on {lender.name}"
    known = MappingProxyType({**hardware.fitted_with, **fitted_with(lender, families)})
    return replace(hardware, memory=memory, peaks=peaks, sustained_source=source, fitted_with=known)


def _level(level: MemoryLevel, lenders: MemoryLevel | None) -> MemoryLevel:
    if lenders is None:
        return level
    rates = (level.sustained_bytes_per_s, level.bandwidth_bytes_per_s)
    rate = _rate(*rates, lenders.sustained_bytes_per_s, lenders.bandwidth_bytes_per_s)
    return replace(level, sustained_bytes_per_s=rate)


def _peak(peak: Peak, lenders: Peak | None) -> Peak:
    if lenders is None:
        return peak
    rates = (peak.sustained_flop_per_s, peak.flop_per_s)
    return replace(peak, sustained_flop_per_s=_rate(*rates, lenders.sustained_flop_per_s, lenders.flop_per_s))


def _rate(rate: float | None, peak: float | None, lenders: float | None, lenders_peak: float | None) -> float | None:
    """Return a sustained rate: where it is the lender's, the lender's share of this machine's peak."""
    if rate is None or rate != lenders or not peak or not lenders_peak or peak == lenders_peak:
        return rate
    return rate * peak / lenders_peak
