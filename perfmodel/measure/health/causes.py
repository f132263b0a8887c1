"""Likely causes of a slow device, from its readings; the most telling first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.measure.health.readings import Readings

#: throttle reasons by which the hardware protects itself, with what to look at
_FAULTS = {
    "hardware slowdown": "hardware slowdown: heat or power supply; see nvidia-smi -q -d PERFORMANCE",
    "hardware thermal slowdown": "throttled by heat: clean or check the cooling",
    "hardware power brake slowdown": "power brake: the server's power supply signals too little power",
}
#: throttle reasons that are a setting, or the usual state under load
_SETTINGS = {
    "software thermal slowdown": "throttled by heat: the GPU is at its target temperature",
    "software power cap": "throttled by the power limit",
    "applications clocks setting": "clocks are set lower (nvidia-smi -ac); reset with nvidia-smi -rac",
    "sync boost": "clocks follow the slowest GPU of a sync-boost group",
    "display clock setting": "clocks are bound by the display's",
}
#: utilization before anything was started, and load per CPU, from which on others disturb: one busy core of four takes
#: a quarter of the memory bandwidth
_BUSY_GPU, _BUSY_CPU = 0.05, 0.25
#: NVML counts this process too
_OWN_PROCESSES = 1
#: share of a clock, a power limit or a number of SMs below which it is lower than it should be, and not rounded
NOMINAL = 0.95
_NO_CAUSE = "no cause is visible in the readings; measure again"


def throttled(readings: Readings) -> tuple[str, bool]:
    """Return why the clocks are held back, or an empty string, and whether that is a fault of the hardware."""
    reasons = readings.loaded.get("throttle_reasons", ())
    faults = [text for name, text in _FAULTS.items() if name in reasons]
    if faults:
        return "; ".join(faults), True
    return "; ".join(text for name, text in _SETTINGS.items() if name in reasons), False


def busy(readings: Readings) -> tuple[float | None, str]:
    """Return the share of the device that was in use before, None where it is unknown, and what that means."""
    if readings.kind == "cpu":
        if readings.load_average is None:
            return None, ""
        share = readings.load_average / readings.cpu_count
        return share, "other processes use the CPUs" if share >= _BUSY_CPU else ""
    used = readings.before.get("utilization")
    processes = readings.before.get("processes")
    if used is None and processes is None:
        return None, ""
    if (used or 0.0) > _BUSY_GPU:
        return used, "the GPU was busy: other processes compute on it"
    others = processes is not None and processes > _OWN_PROCESSES
    return used or 0.0, "other processes hold the GPU, and may wake up" if others else ""


def slow_memory(readings: Readings, hardware: Hardware | None) -> str:
    """Return the likely causes of a low bandwidth."""
    return _joined(_slow_memory(readings, hardware)) or _NO_CAUSE


def _slow_memory(readings: Readings, hardware: Hardware | None) -> Iterator[str]:
    yield busy(readings)[1]
    yield _part_of_gpu(readings, hardware)
    technology = hardware.main_memory.technology if hardware else ""
    if readings.facts.get("ecc") and technology.upper().startswith("GDDR"):
        yield "ECC is on, which takes bandwidth from GDDR memory (HBM stores it separately)"
    clock, top = readings.loaded.get("memory_clock_hz"), readings.facts.get("max_memory_clock_hz")
    if clock and top and clock < NOMINAL * top:
        yield f"the memory runs at {format_si(clock, 'Hz')} instead of {format_si(top, 'Hz')}"
    reason, is_fault = throttled(readings)
    yield reason if is_fault else ""
    if readings.kind == "cpu":
        yield "fewer memory channels or threads than the machine has, or a virtual machine's share"


def slow_compute(readings: Readings, hardware: Hardware | None) -> str:
    """Return the likely causes of a low rate of matrix products."""
    return _joined(_slow_compute(readings, hardware)) or _NO_CAUSE


def _slow_compute(readings: Readings, hardware: Hardware | None) -> Iterator[str]:
    yield busy(readings)[1]
    yield _part_of_gpu(readings, hardware)
    limit, usual = readings.facts.get("power_limit_w"), readings.facts.get("default_power_limit_w")
    if limit and usual and limit < NOMINAL * usual:
        yield f"the power limit was lowered from {usual:.0f} to {limit:.0f} W"
    yield throttled(readings)[0]
    if readings.kind == "cpu":
        threads, capability = readings.facts.get("threads"), str(readings.facts.get("cpu_capability", ""))
        if threads and hardware and hardware.sm_count and threads < hardware.sm_count:
            yield f"{threads} threads on {hardware.sm_count} cores"
        if capability.upper().startswith(("DEFAULT", "NO ")):
            yield "torch does not use this CPU's vector units"
        yield "one vector unit per core instead of two, a lower clock under vector load, or a virtual machine's share"


def slow_link(readings: Readings) -> str:
    """Return the likely causes of a slow link to the host."""
    facts = readings.facts
    causes = []
    width, widest = facts.get("pcie_width"), facts.get("max_pcie_width")
    if width and widest and width < widest:
        causes.append(f"the link runs on {width} of {widest} lanes: reseat the card, check slot, riser and bifurcation")
    generation, newest = facts.get("pcie_generation"), facts.get("max_pcie_generation")
    if generation and newest and generation < newest:
        causes.append(f"the link runs at generation {generation} of {newest} under load: check BIOS and riser")
    if not causes and width and generation:
        causes.append(
            f"the link is generation {generation} x{width}, the most that slot and GPU agree on; is that of the "
            "specification faster? Or the process runs on a CPU far from the GPU (numactl), or other devices share the "
            "switch"
        )
    return _joined(causes) or "NVML gives no facts of the link; is the process on a CPU far from the GPU (numactl)?"


def _part_of_gpu(readings: Readings, hardware: Hardware | None) -> str:
    """Return that the device is a part of a GPU, or an empty string."""
    count, whole = readings.facts.get("sm_count"), hardware.sm_count if hardware else None
    if readings.facts.get("mig"):
        part = f" of {count} of {whole} SMs" if count and whole else ""
        return f"a MIG slice{part}"
    if count and whole and count < NOMINAL * whole:
        return f"{count} SMs where the specification has {whole}: another product, or a virtual GPU"
    return ""


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(text for text in texts if text)
