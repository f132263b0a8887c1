"""Why a device is slower than it should be: what its readings say, most telling first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si

if TYPE_CHECKING:
    from perfmodel.measure.health.judge import Readings

#: throttle reasons that say the hardware protects itself, with what to look at
_FAULTS = {
    "hardware slowdown": "hardware slowdown: heat or power supply; see nvidia-smi -q -d PERFORMANCE",
    "hardware thermal slowdown": "throttled by heat: clean or check the cooling",
    "hardware power brake slowdown": "power brake: the server's power supply signals too little power",
}
#: and those that someone's setting, or the usual state under load, is
_SETTINGS = {
    "software thermal slowdown": "throttled by heat: the GPU is at its target temperature",
    "software power cap": "throttled by the power limit",
    "applications clocks setting": "clocks are set lower (nvidia-smi -ac); reset with nvidia-smi -rac",
    "sync boost": "clocks follow the slowest GPU of a sync-boost group",
    "display clock setting": "clocks are bound by the display's",
}
#: utilization before anything was started, and load on the CPUs, from which on others disturb: one core's worth of
#: four takes a quarter of the memory bandwidth
_BUSY_GPU, _BUSY_CPU = 0.05, 0.25
#: this process is one of those that NVML counts
_OWN_PROCESSES = 1


def throttled(readings: Readings) -> tuple[str, bool]:
    """Return why the clocks are held back, or an empty string, and whether that is a fault of the hardware."""
    reasons = readings.loaded.get("throttle_reasons", ())
    faults = [text for name, text in _FAULTS.items() if name in reasons]
    if faults:
        return "; ".join(faults), True
    return "; ".join(text for name, text in _SETTINGS.items() if name in reasons), False


def busy(readings: Readings) -> tuple[float | None, str]:
    """Return the share of the device that was in use before, None where it is not known, and what that means."""
    if readings.kind == "cpu":
        if readings.load_average is None:
            return None, ""
        share = readings.load_average / readings.cpu_count
        return share, "other processes use the CPUs" if share >= _BUSY_CPU else ""
    used = readings.before.get("utilization")
    processes = readings.before.get("processes")
    others = processes is not None and processes > _OWN_PROCESSES
    if used is None and processes is None:
        return None, ""
    if (used or 0.0) > _BUSY_GPU:
        return used, "the GPU was busy: other processes compute on it"
    return used or 0.0, "other processes hold the GPU, and may wake up" if others else ""


def slow_memory(readings: Readings, hardware: Hardware | None) -> str:
    """Return the likely causes of a low bandwidth."""
    return _joined(_slow_memory(readings, hardware)) or "no cause is seen in the readings; measure again"


def _slow_memory(readings: Readings, hardware: Hardware | None) -> Iterator[str]:
    yield busy(readings)[1]
    yield _slice(readings, hardware)
    technology = hardware.main_memory.technology if hardware else ""
    if readings.facts.get("ecc") and technology.upper().startswith("GDDR"):
        yield "ECC is on, which takes bandwidth from GDDR memory (HBM has room of its own for it)"
    clock, top = readings.loaded.get("memory_clock_hz"), readings.facts.get("max_memory_clock_hz")
    if clock and top and clock < 0.95 * top:
        yield f"the memory runs at {format_si(clock, 'Hz')} instead of {format_si(top, 'Hz')}"
    reason, is_fault = throttled(readings)
    yield reason if is_fault else ""
    if readings.kind == "cpu":
        yield "fewer memory channels or threads than the machine has, or a virtual machine's share"


def slow_compute(readings: Readings, hardware: Hardware | None) -> str:
    """Return the likely causes of a low rate of products."""
    return _joined(_slow_compute(readings, hardware)) or "no cause is seen in the readings; measure again"


def _slow_compute(readings: Readings, hardware: Hardware | None) -> Iterator[str]:
    yield busy(readings)[1]
    yield _slice(readings, hardware)
    limit, usual = readings.facts.get("power_limit_w"), readings.facts.get("default_power_limit_w")
    if limit and usual and limit < 0.95 * usual:
        yield f"the power limit was lowered from {usual:.0f} to {limit:.0f} W"
    yield throttled(readings)[0]
    if readings.kind == "cpu":
        threads, capability = readings.facts.get("threads"), str(readings.facts.get("cpu_capability", ""))
        if threads and hardware and hardware.sm_count and threads < hardware.sm_count:
            yield f"{threads} threads on {hardware.sm_count} cores"
        if capability.upper().startswith(("DEFAULT", "NO ")):
            yield "torch does not use this CPU's vector units"
        yield "one vector unit a core instead of two, a lower clock under vector load, or a virtual machine's share"


def slow_link(readings: Readings) -> str:
    """Return the likely causes of a slow link to the host."""
    facts = readings.facts
    found = []
    width, most = facts.get("pcie_width"), facts.get("max_pcie_width")
    if width and most and width < most:
        found.append(f"the link runs on {width} of {most} lanes: reseat the card, check slot, riser and bifurcation")
    generation, newest = facts.get("pcie_generation"), facts.get("max_pcie_generation")
    if generation and newest and generation < newest:
        found.append(f"the link runs at generation {generation} of {newest}, also at work: check BIOS and riser")
    if not found and width and generation:
        found.append(
            f"the link is generation {generation} x{width}, all that slot and GPU agree on; is the specification's "
            "faster? Or the process runs on a CPU far from the GPU (numactl), or other devices share the switch"
        )
    return _joined(iter(found)) or "NVML tells nothing of the link; is the process on a CPU far from the GPU (numactl)?"


def _slice(readings: Readings, hardware: Hardware | None) -> str:
    """Return that the device is a part of a GPU, where it is."""
    count, whole = readings.facts.get("sm_count"), hardware.sm_count if hardware else None
    if readings.facts.get("mig"):
        part = f" of {count} of {whole} SMs" if count and whole else ""
        return f"a MIG slice{part}"
    if count and whole and count < 0.95 * whole:
        return f"{count} SMs where the specification has {whole}: another product, or a virtual GPU"
    return ""


def _joined(texts: Iterator[str]) -> str:
    return "; ".join(text for text in texts if text)
