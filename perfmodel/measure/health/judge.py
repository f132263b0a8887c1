"""Is this device what it should be: its readings against its specification, each figure ok, low or wrong.

Pure functions over `Readings`: nothing is measured here. `perfmodel.measure.health.readings` takes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.measure.health.causes import busy, slow_compute, slow_link, slow_memory, throttled
from perfmodel.measure.telemetry.nvml import default_clock_hz

OK, LOW, WRONG, NOT_JUDGED = "ok", "low", "wrong", "not judged"

#: of a rate that was measured on this product before: we allow a tenth for boards, temperatures and drivers
_OK_SHARE = 0.90
#: below this share of what is low already, no such difference explains it: something is broken or set wrongly
_WRONG_SHARE = 0.70
#: of a peak where nobody measured the product: what the worst of the shipped specs sustains (P4: 0.751 of the
#: bandwidth, L40S: 0.512 of the fp8 products; a test looks them up)
LEAST_SHARE_OF_PEAK: Mapping[str, float] = MappingProxyType({"bandwidth": 0.75, "compute": 0.50})
#: above the peak by more than events and rounded datasheets can be off
_ABOVE_PEAK = 1.02
#: nvbench discards samples below three quarters of the default clock; below half the GPU is kept down
_OK_CLOCK, _WRONG_CLOCK = 0.75, 0.5
#: headers of 24 bytes on payloads of 128 leave 0.84 of a PCIe link (PCI Express Base Specification: 20 to 28 bytes a
#: packet), acknowledgements take some more. Half the lanes, or a generation less, leave half of that, 0.42.
_OK_LINK, _WRONG_LINK = 0.75, 0.55
#: a CPU with one vector unit a core instead of the two assumed reaches half, good products 0.8 of that
_OK_ARITHMETIC, _WRONG_ARITHMETIC = 0.40, 0.15
#: arithmetic takes the clock that the system knows; turbo clocks are up to twice as high
_TURBO = 2.0
#: plausible bandwidth of a CPU's memory [B/s]: from half of one channel of DDR4-2133 (17 GB/s), shared with others, to
#: two sockets of HBM2e (2 x 1.64 TB/s, Intel Xeon Max 9480); below 2 GB/s even one DDR3 channel is six times as fast
_OK_DRAM, _WRONG_DRAM, _MOST_DRAM = 8e9, 2e9, 3.3e12


@dataclass(frozen=True)
class Readings:
    """What was read of a device, in SI units; what it does not tell is absent.

    Attributes
    ----------
    kind : "cpu" or "cuda".
    bandwidth_bytes_per_s : pattern of main memory ("copy") -> rate [B/s].
    flop_per_s : dtype -> rate of matrix products [FLOP/s].
    transfer_bytes_per_s : "h2d", "d2h" -> rate of large pinned copies [B/s].
    facts : what telemetry and device say at work, as of `Telemetry.facts` and `Device.facts`.
    before : `Telemetry.read` before anything was started.
    loaded : `Telemetry.read` under load, clocks and power as medians, every throttle reason that came up.
    load_average, cpu_count : of the machine.
    """

    kind: str
    bandwidth_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    transfer_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    loaded: Mapping[str, Any] = field(default_factory=dict)
    load_average: float | None = None
    cpu_count: int = 1


@dataclass(frozen=True)
class Reference:
    """Rates of this product in an earlier record: bandwidth [B/s], FLOP/s by dtype, and where they stand."""

    source: str
    bandwidth_bytes_per_s: float | None = None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One figure and its verdict.

    Attributes
    ----------
    area : "bandwidth", "compute", "clocks", "pcie", "power", "partition", "load".
    figure : what was measured.
    verdict : "ok", "low", "wrong" or "not judged".
    measured, low, high, unit : the figure and the range that is expected, in SI units; None where there is none.
    source : where the range is from.
    cause : the likely cause of what is not ok, or why it is not judged.
    """

    area: str
    figure: str
    verdict: str
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    source: str = ""
    cause: str = ""


def judge(readings: Readings, hardware: Hardware | None, records: tuple[Reference, ...] = ()) -> list[Check]:
    """Return the verdict on each figure.

    Parameters
    ----------
    readings : what was read.
    hardware : the machine that the device should be; None for a CPU of which nothing is known.
    records : earlier records of the same product; a rate in one of them goes before the specification's.
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
        cause = "" if verdict == OK else slow_memory(readings, hardware)
        yield Check("bandwidth", figure, verdict, copy, _OK_DRAM, _MOST_DRAM, "B/s", source, cause)
        return
    found = [(record.bandwidth_bytes_per_s, record.source) for record in records if record.bandwidth_bytes_per_s]
    sustained = (main.sustained_bytes_per_s, hardware.sustained_source if hardware else "")
    expected = _expected("bandwidth", found, sustained, main.bandwidth_bytes_per_s)
    yield _rate_check("bandwidth", figure, copy, "B/s", expected, slow_memory(readings, hardware))


def _compute(readings: Readings, hardware: Hardware | None, records: tuple[Reference, ...]) -> Iterator[Check]:
    for dtype, rate in readings.flop_per_s.items():
        figure = f"{dtype} product"
        if hardware is None or dtype not in hardware.dtypes():
            yield Check(
                "compute",
                figure,
                NOT_JUDGED,
                rate,
                unit="FLOP/s",
                cause=f"no peak in {dtype} is known for this machine",
            )
            continue
        peak = hardware.native_peak(dtype)
        if readings.kind == "cpu" and not peak.sustained_flop_per_s:
            yield _by_arithmetic(figure, rate, peak.flop_per_s, readings, hardware)
            continue
        found = [(record.flop_per_s[dtype], record.source) for record in records if dtype in record.flop_per_s]
        sustained = (peak.sustained_flop_per_s, hardware.sustained_source)
        expected = _expected("compute", found, sustained, peak.flop_per_s)
        check = _rate_check("compute", figure, rate, "FLOP/s", expected, slow_compute(readings, hardware))
        yield _excused(check, readings, expected)


def _by_arithmetic(figure: str, rate: float, peak: float, readings: Readings, hardware: Hardware) -> Check:
    """Judge a CPU's products by cores x lanes x units x clock; units and clock are known to a factor of two only."""
    low, high = _OK_ARITHMETIC * peak, _TURBO * peak
    verdict = _graded(rate, low, _WRONG_ARITHMETIC * peak, high)
    cause = "" if verdict == OK else slow_compute(readings, hardware)
    return Check("compute", figure, verdict, rate, low, high, "FLOP/s", "arithmetic of the CPU", cause)


@dataclass(frozen=True)
class _Expected:
    """The least that a rate should be, the peak that it cannot pass, their source, and whether it is only assumed."""

    low: float
    peak: float | None
    source: str
    assumed: bool


def _expected(
    area: str, records: list[tuple[float, str]], sustained: tuple[float | None, str], peak: float | None
) -> _Expected:
    """Return what is expected: the best record, else the specification's sustained rate, else a share of its peak."""
    if records:
        rate, source = max(records)
        return _Expected(_OK_SHARE * rate, peak, f"record {source}", assumed=False)
    if sustained[0]:
        source = f"sustained figure of the specification: {sustained[1]}"
        return _Expected(_OK_SHARE * sustained[0], peak, source, assumed=False)
    share = LEAST_SHARE_OF_PEAK[area]
    # A level or a dtype without any figure does not come here.
    return _Expected(share * (peak or 0.0), peak, f"{100 * share:.0f} to 100 % of the datasheet", assumed=True)


def _rate_check(area: str, figure: str, rate: float, unit: str, expected: _Expected, cause: str) -> Check:
    high = _ABOVE_PEAK * expected.peak if expected.peak else None
    verdict = _graded(rate, expected.low, _WRONG_SHARE * expected.low, high)
    if high is not None and rate > high:
        cause = "above the peak: the specification is another product's or wrong; name the right one with --on"
    return Check(area, figure, verdict, rate, expected.low, high, unit, expected.source, "" if verdict == OK else cause)


def _graded(value: float, low: float, wrong: float, high: float | None) -> str:
    """Return ok from ``low`` to ``high``, low below that, wrong below ``wrong`` and above ``high``."""
    if value < wrong or (high is not None and value > high):
        return WRONG
    return LOW if value < low else OK


def _excused(check: Check, readings: Readings, expected: _Expected) -> Check:
    """Return a wrong rate as low where only the datasheet speaks against it and the power cap, as set, explains it."""
    capped = "software power cap" in readings.loaded.get("throttle_reasons", ())
    below = check.verdict == WRONG and check.measured is not None and check.measured < expected.low
    return dataclasses.replace(check, verdict=LOW) if below and expected.assumed and capped else check


def _clocks(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    clock = readings.loaded.get("sm_clock_hz")
    if clock is None:
        what = "the system tells no clock under load" if readings.kind == "cpu" else "NVML tells no clock"
        yield Check("clocks", "clock under load", NOT_JUDGED, cause=what)
        return
    usual, source = default_clock_hz(readings.facts), "default clock by NVML; nvbench's threshold of 75 %"
    if usual is None and readings.kind == "cpu" and hardware:
        usual, source = hardware.clocks_hz.get("vector"), "75 % of the clock that the operating system tells"
    reason, is_fault = throttled(readings)
    if usual is None:
        verdict = WRONG if is_fault else NOT_JUDGED
        yield Check(
            "clocks", "clock under load", verdict, clock, unit="Hz", cause=reason or "no default clock is known"
        )
        return
    low, top = _OK_CLOCK * usual, readings.facts.get("max_sm_clock_hz") or usual
    verdict = WRONG if is_fault or clock < _WRONG_CLOCK * usual else LOW if clock < low else OK
    cause = "" if verdict == OK else reason or "no throttle reason is seen; are the clocks locked (nvidia-smi -lgc)?"
    yield Check("clocks", "clock under load", verdict, clock, low, float(top), "Hz", source, cause)


def _pcie(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    if readings.kind == "cpu":
        yield Check("pcie", "copies", NOT_JUDGED, cause="a CPU has no link to its memory")
        return
    facts = readings.facts
    for key, what, unit in (("width", "lanes", ""), ("generation", "generation", "")):
        now, most = facts.get(f"pcie_{key}"), facts.get(f"max_pcie_{key}")
        if now and most:
            # half of the lanes is half of the bandwidth, and no sleep of the link; a generation may be
            verdict = OK if now >= most else WRONG if key == "width" else LOW
            cause = "" if verdict == OK else slow_link(readings)
            source = "the most that GPU and slot can do, by NVML"
            yield Check("pcie", f"link {what}", verdict, float(now), float(most), float(most), unit, source, cause)
    link = next((one for one in hardware.links if one.name == "pcie"), None) if hardware else None
    for direction, rate in readings.transfer_bytes_per_s.items():
        figure = f"{direction} pinned"
        if link is None:
            yield Check("pcie", figure, NOT_JUDGED, rate, unit="B/s", cause="the specification has no PCIe link")
            continue
        peak = link.bandwidth_bytes_per_s
        verdict = _graded(rate, _OK_LINK * peak, _WRONG_LINK * peak, _ABOVE_PEAK * peak)
        cause = "" if verdict == OK else slow_link(readings)
        yield Check(
            "pcie", figure, verdict, rate, _OK_LINK * peak, peak, "B/s", "75 to 100 % of the link's rate", cause
        )


def _settings(readings: Readings, hardware: Hardware | None) -> Iterator[Check]:
    """Judge what somebody has set: the power limit, and a division by MIG."""
    facts = readings.facts
    limit, usual = facts.get("power_limit_w"), facts.get("default_power_limit_w") or (hardware and hardware.tdp_w)
    if limit and usual:
        verdict = OK if limit >= 0.95 * usual else LOW
        cause = "" if verdict == OK else "the power limit was lowered (nvidia-smi -pl)"
        source = "default limit by NVML" if facts.get("default_power_limit_w") else "datasheet"
        yield Check("power", "power limit", verdict, limit, 0.95 * usual, None, "W", source, cause)
    if facts.get("mig"):
        count = facts.get("sm_count")
        cause = "the GPU is divided by MIG; this is a slice of it, and every rate is the slice's"
        whole = float(hardware.sm_count) if hardware and hardware.sm_count else None
        measured = float(count) if count else None
        yield Check("partition", "SMs", LOW, measured, whole, whole, "", "specification of the whole GPU", cause)


def _load(readings: Readings) -> Check:
    share, cause = busy(readings)
    if share is None:
        return Check("load", "other programs", NOT_JUDGED, cause="the system does not say how busy the device was")
    figure = "GPU in use before" if readings.kind == "cuda" else "CPUs in use before"
    source = "share of time in which work was waiting or running before anything was started"
    return Check("load", figure, LOW if cause else OK, share, 0.0, None, "fraction", source, cause)
