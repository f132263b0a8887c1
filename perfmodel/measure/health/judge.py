"""Judging a device: its readings against its specification and earlier records, each figure ok, low or wrong.

Pure functions over `Readings`; nothing is measured here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfmodel.core.hardware import Hardware
from perfmodel.measure.health.causes import NOMINAL, busy, slow_compute, slow_link, slow_memory, throttled
from perfmodel.measure.health.readings import Readings
from perfmodel.measure.health.verdict import Check, Reference, Verdict
from perfmodel.measure.telemetry.nvml import POWER_CAP, default_clock_hz

#: least share of a rate that was measured on this product before: a tenth is for boards, temperatures and drivers
_OK_SHARE = 0.90
#: share of the lowest rate that is ok below which something is broken or set wrongly: boards do not differ that much
_WRONG_SHARE = 0.70
#: least share of a peak where the product was never measured: what the worst of the shipped specs sustains (P4: 0.751
#: of the bandwidth, L40S: 0.512 of the fp8 products; a test looks them up)
LEAST_SHARE_OF_PEAK: Mapping[str, float] = MappingProxyType({"bandwidth": 0.75, "compute": 0.50})
#: share of the peak above which neither the events' resolution nor a rounded datasheet explains the rate
_ABOVE_PEAK = 1.02
#: nvbench discards samples below three quarters of the default clock; below half the clocks are held down
_OK_CLOCK, _WRONG_CLOCK = 0.75, 0.5
#: headers of 24 bytes on payloads of 128 leave 0.84 of a PCIe link (PCI Express Base Specification: 20 to 28 bytes per
#: packet), acknowledgements take some more. Half the lanes, or a generation less, leave half of that, 0.42.
_OK_LINK, _WRONG_LINK = 0.75, 0.55
#: a CPU with one vector unit per core instead of the assumed two reaches half, good products 0.8 of that
_OK_ARITHMETIC, _WRONG_ARITHMETIC = 0.40, 0.15
#: the arithmetic uses the clock that the system knows; turbo clocks are up to twice as high
_TURBO = 2.0
#: plausible bandwidth of a CPU's memory [B/s]: from half of one channel of DDR4-2133 (17 GB/s), shared with others, to
#: two sockets of HBM2e (2 x 1.64 TB/s, Intel Xeon Max 9480); below 2 GB/s even one DDR3 channel is six times as fast
_OK_DRAM, _WRONG_DRAM, _MOST_DRAM = 8e9, 2e9, 3.3e12


def judge(readings: Readings, hardware: Hardware | None, records: tuple[Reference, ...] = ()) -> list[Check]:
    """Return the verdict on each figure.

    Parameters
    ----------
    readings : of the device.
    hardware : the machine that the device should be; None for a CPU of which nothing is known.
    records : rates of the same product in earlier records; they take precedence over the specification.
    """
    return [
        *_bandwidth(readings, hardware, records),
        *_compute(readings, hardware, records),
        *_clocks(readings, hardware),
        *_pcie(readings, hardware),
        *_settings(readings, hardware),
        _load(readings),
    ]


def _bandwidth(readings: Readings, hardware: Hardware | None, records: tuple[Reference, ...]) -> Iterator[Check]:
    copy = readings.bandwidth_bytes_per_s.get("copy")
    if copy is None:
        return
    main = hardware.main_memory if hardware else None
    figure = f"{main.name if main else 'dram'} copy"
    if main is None or not (main.bandwidth_bytes_per_s or main.sustained_bytes_per_s):
        verdict = _graded(copy, _OK_DRAM, _WRONG_DRAM, _MOST_DRAM)
        source = "plausible for a CPU's memory: half a channel of DDR4-2133 to two sockets of HBM"
        cause = "" if verdict == Verdict.OK else slow_memory(readings, hardware)
        yield Check("bandwidth", figure, verdict, copy, _OK_DRAM, _MOST_DRAM, "B/s", source, cause)
        return
    recorded = [(record.bandwidth_bytes_per_s, record.source) for record in records if record.bandwidth_bytes_per_s]
    sustained = (main.sustained_bytes_per_s, hardware.sustained_source if hardware else "")
    expected = _expected("bandwidth", recorded, sustained, main.bandwidth_bytes_per_s)
    yield _rate_check("bandwidth", figure, copy, "B/s", expected, slow_memory(readings, hardware))


def _compute(readings: Readings, hardware: Hardware | None, records: tuple[Reference, ...]) -> Iterator[Check]:
    for dtype, rate in readings.flop_per_s.items():
        figure = f"{dtype} product"
        if hardware is None or dtype not in hardware.dtypes():
            yield Check(
                "compute",
                figure,
                Verdict.NOT_JUDGED,
                rate,
                unit="FLOP/s",
                cause=f"no peak in {dtype} is known for this machine",
            )
            continue
        peak = hardware.native_peak(dtype)
        if readings.kind == "cpu" and not peak.sustained_flop_per_s:
            yield _by_arithmetic(figure, rate, peak.flop_per_s, readings, hardware)
            continue
        recorded = [(record.flop_per_s[dtype], record.source) for record in records if dtype in record.flop_per_s]
        sustained = (peak.sustained_flop_per_s, hardware.sustained_source)
        expected = _expected("compute", recorded, sustained, peak.flop_per_s)
        check = _rate_check("compute", figure, rate, "FLOP/s", expected, slow_compute(readings, hardware))
        yield _excused(check, readings, expected)


def _by_arithmetic(figure: str, rate: float, peak: float, readings: Readings, hardware: Hardware) -> Check:
    """Judge a CPU's products by cores x lanes x units x clock; units and clock are known only to a factor of two."""
    low, high = _OK_ARITHMETIC * peak, _TURBO * peak
    verdict = _graded(rate, low, _WRONG_ARITHMETIC * peak, high)
    cause = "" if verdict == Verdict.OK else slow_compute(readings, hardware)
    return Check("compute", figure, verdict, rate, low, high, "FLOP/s", "arithmetic of the CPU", cause)


@dataclass(frozen=True)
class _Expected:
    """The lowest rate that is ok, the peak, the source of both, and whether the lowest rate is only assumed."""

    low: float
    peak: float | None
    source: str
    assumed: bool


def _expected(
    area: str, records: list[tuple[float, str]], sustained: tuple[float | None, str], peak: float | None
) -> _Expected:
    """Return the expectation: the best record, else the specification's sustained rate, else a share of its peak."""
    if records:
        rate, source = max(records)
        return _Expected(_OK_SHARE * rate, peak, f"record {source}", assumed=False)
    if sustained[0]:
        source = f"sustained figure of the specification: {sustained[1]}"
        return _Expected(_OK_SHARE * sustained[0], peak, source, assumed=False)
    share = LEAST_SHARE_OF_PEAK[area]
    return _Expected(share * (peak or 0.0), peak, f"{100 * share:.0f} to 100 % of the datasheet", assumed=True)


def _rate_check(area: str, figure: str, rate: float, unit: str, expected: _Expected, cause: str) -> Check:
    high = _ABOVE_PEAK * expected.peak if expected.peak else None
    verdict = _graded(rate, expected.low, _WRONG_SHARE * expected.low, high)
    if high is not None and rate > high:
        cause = "above the peak: the specification is another product's or wrong; name the right one with --on"
    cause = "" if verdict == Verdict.OK else cause
    return Check(area, figure, verdict, rate, expected.low, high, unit, expected.source, cause)


def _graded(value: float, low: float, wrong: float, high: float | None) -> Verdict:
    """Return ok from ``low`` to ``high``, low below that, and wrong below ``wrong`` or above ``high``."""
    if value < wrong or (high is not None and value > high):
        return Verdict.WRONG
    return Verdict.LOW if value < low else Verdict.OK


def _excused(check: Check, readings: Readings, expected: _Expected) -> Check:
    """Return a wrong rate as low if it is compared with the datasheet only, and the power limit explains it."""
    capped = POWER_CAP in readings.loaded.get("throttle_reasons", ())
    below = check.verdict == Verdict.WRONG and check.measured is not None and check.measured < expected.low
    return dataclasses.replace(check, verdict=Verdict.LOW) if below and expected.assumed and capped else check


def _clocks(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    clock = readings.loaded.get("sm_clock_hz")
    if clock is None:
        cause = "the system gives no clock under load" if readings.kind == "cpu" else "NVML gives no clock"
        yield Check("clocks", "clock under load", Verdict.NOT_JUDGED, cause=cause)
        return
    usual, source = default_clock_hz(readings.facts), "default clock by NVML; nvbench's threshold of 75 %"
    if usual is None and readings.kind == "cpu" and hardware:
        usual, source = hardware.clocks_hz.get("vector"), "75 % of the clock that the operating system gives"
    reason, is_fault = throttled(readings)
    if usual is None:
        verdict = Verdict.WRONG if is_fault else Verdict.NOT_JUDGED
        yield Check(
            "clocks", "clock under load", verdict, clock, unit="Hz", cause=reason or "no default clock is known"
        )
        return
    low, top = _OK_CLOCK * usual, readings.facts.get("max_sm_clock_hz") or usual
    verdict = Verdict.WRONG if is_fault or clock < _WRONG_CLOCK * usual else Verdict.LOW if clock < low else Verdict.OK
    reason = reason or "there is no throttle reason; are the clocks locked (nvidia-smi -lgc)?"
    cause = "" if verdict == Verdict.OK else reason
    yield Check("clocks", "clock under load", verdict, clock, low, float(top), "Hz", source, cause)


def _pcie(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    if readings.kind == "cpu":
        yield Check("pcie", "copies", Verdict.NOT_JUDGED, cause="a CPU has no link to its memory")
        return
    facts = readings.facts
    for key, figure in (("width", "link lanes"), ("generation", "link generation")):
        now, most = facts.get(f"pcie_{key}"), facts.get(f"max_pcie_{key}")
        if now and most:
            # an idle link lowers its generation, never its number of lanes
            verdict = Verdict.OK if now >= most else Verdict.WRONG if key == "width" else Verdict.LOW
            cause = "" if verdict == Verdict.OK else slow_link(readings)
            source = "maximum of GPU and slot by NVML"
            yield Check("pcie", figure, verdict, float(now), float(most), float(most), "", source, cause)
    link = next((one for one in hardware.links if one.name == "pcie"), None) if hardware else None
    for direction, rate in readings.transfer_bytes_per_s.items():
        figure = f"{direction} pinned"
        if link is None:
            yield Check(
                "pcie", figure, Verdict.NOT_JUDGED, rate, unit="B/s", cause="the specification has no PCIe link"
            )
            continue
        peak = link.bandwidth_bytes_per_s
        verdict = _graded(rate, _OK_LINK * peak, _WRONG_LINK * peak, _ABOVE_PEAK * peak)
        cause = "" if verdict == Verdict.OK else slow_link(readings)
        yield Check(
            "pcie", figure, verdict, rate, _OK_LINK * peak, peak, "B/s", "75 to 100 % of the link's rate", cause
        )


def _settings(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    """Judge the settings that an administrator can change: the power limit, and partitions by MIG."""
    facts = readings.facts
    limit, usual = facts.get("power_limit_w"), facts.get("default_power_limit_w") or (hardware and hardware.tdp_w)
    if limit and usual:
        verdict = Verdict.OK if limit >= NOMINAL * usual else Verdict.LOW
        cause = "" if verdict == Verdict.OK else "the power limit was lowered (nvidia-smi -pl)"
        source = "default limit by NVML" if facts.get("default_power_limit_w") else "datasheet"
        yield Check("power", "power limit", verdict, limit, NOMINAL * usual, None, "W", source, cause)
    if facts.get("mig"):
        count = facts.get("sm_count")
        cause = "the GPU is partitioned by MIG; all rates are those of one slice"
        whole = float(hardware.sm_count) if hardware and hardware.sm_count else None
        measured = float(count) if count else None
        yield Check(
            "partition", "SMs", Verdict.LOW, measured, whole, whole, "", "specification of the whole GPU", cause
        )


def _load(readings: Readings) -> Check:
    share, cause = busy(readings)
    if share is None:
        return Check(
            "load", "other programs", Verdict.NOT_JUDGED, cause="the system does not say how busy the device was"
        )
    figure = "GPU in use before" if readings.kind == "cuda" else "CPUs in use before"
    source = "share of time with work running or waiting before anything was started"
    return Check("load", figure, Verdict.LOW if cause else Verdict.OK, share, 0.0, None, "fraction", source, cause)
