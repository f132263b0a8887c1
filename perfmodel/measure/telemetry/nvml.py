"""Readings of a GPU by NVML while it works: clocks, power, temperature, reasons for throttling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from perfmodel.kernels.device import Device

#: bit -> name, from nvml.h (nvmlClocksEventReason*)
THROTTLE_REASONS = {
    0x001: "gpu idle",
    0x002: "applications clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake slowdown",
    0x100: "display clock setting",
}
#: not a reason for slow work: the GPU has none
IDLE = THROTTLE_REASONS[0x001]
#: the usual state during large matrix products
POWER_CAP = THROTTLE_REASONS[0x004]


class Telemetry(Protocol):
    """The source of a device's readings."""

    def facts(self) -> dict[str, Any]:
        """Return the facts that do not change during a run."""
        ...

    def moment(self) -> dict[str, Any]:
        """Return the part of the current state that can be read quickly."""
        ...

    def read(self) -> dict[str, Any]:
        """Return the whole current state."""
        ...


class NoTelemetry:
    """The telemetry of a device without any: a CPU, or a GPU without NVML."""

    def facts(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def moment(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def read(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


class NvmlTelemetry:
    """Telemetry of one GPU through NVML. A reading that the GPU or driver refuses is left out."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def facts(self) -> dict[str, Any]:
        """Return the facts that do not change during a run.

        driver; power_limit_w and default_power_limit_w [W]; max_sm_clock_hz, default_sm_clock_hz,
        max_memory_clock_hz [Hz]; ecc and mig (whether they are on); pcie_generation, pcie_width, and what GPU and slot
        allow, max_pcie_generation and max_pcie_width. The link of an idle GPU may show a lower generation than under
        load.
        """
        nvml, handle = self._nvml, self._handle
        return _readings(
            nvml,
            {
                "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
                "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) * 1e-3,
                "default_power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) * 1e-3,
                "max_sm_clock_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
                "default_sm_clock_hz": lambda: (
                    nvml.nvmlDeviceGetDefaultApplicationsClock(handle, nvml.NVML_CLOCK_SM) * 1e6
                ),
                "max_memory_clock_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
                "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
                "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
                "pcie_generation": lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
                "pcie_width": lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
                "max_pcie_generation": lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
                "max_pcie_width": lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
            },
        )

    def moment(self) -> dict[str, Any]:
        """Return the part of the current state that can be read quickly.

        sm_clock_hz and memory_clock_hz [Hz], power_w [W], temperature_c, throttle_reasons by name, utilization (the
        share of NVML's last sampling period in which a kernel ran).
        """
        nvml, handle = self._nvml, self._handle
        return _readings(
            nvml,
            {
                "sm_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
                "memory_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
                "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3,
                "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                "throttle_reasons": lambda: throttle_names(_throttle_bits(nvml, handle)),
                "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu * 1e-2,
            },
        )

    def read(self) -> dict[str, Any]:
        """Return the whole current state: also ``processes``, the number of processes that compute on the GPU."""
        nvml, handle = self._nvml, self._handle
        processes = {"processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))}
        return {**self.moment(), **_readings(nvml, processes)}


def throttle_names(bits: int) -> list[str]:
    """Return the throttle reasons in NVML's bit mask by name.

    >>> throttle_names(0x5)
    ['gpu idle', 'software power cap']
    """
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def default_clock_hz(facts: Mapping[str, Any]) -> float | None:
    """Return the default SM clock of a GPU [Hz], None where it does not say.

    It is the default of its application clocks, as in nvbench, or the top clock where there is no such default.
    """
    clock = facts.get("default_sm_clock_hz") or facts.get("max_sm_clock_hz")
    return float(clock) if clock else None


def open_telemetry(device: Device) -> NoTelemetry | NvmlTelemetry:
    """Return the telemetry of a device: NVML's for a CUDA GPU that it can find by its UUID, else none."""
    if device.kind != "cuda":
        return NoTelemetry()
    try:
        import pynvml
    except ImportError:
        return NoTelemetry()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return NoTelemetry()
    # torch gives the identifier without its prefix, and for a MIG slice that of the slice
    for kind in ("GPU", "MIG"):
        uuid = device.uuid if device.uuid.startswith(("GPU-", "MIG-")) else f"{kind}-{device.uuid}"
        with contextlib.suppress(pynvml.NVMLError):
            return NvmlTelemetry(pynvml, _whole_gpu(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())))
    return NoTelemetry()


def _whole_gpu(nvml: Any, handle: Any) -> Any:
    """Return the GPU that a MIG slice belongs to, since a slice has neither clocks nor power; else the GPU itself."""
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return handle


def _throttle_bits(nvml: Any, handle: Any) -> int:
    """Return NVML's bit mask of throttle reasons, by the function's name until driver 530 or by the newer one."""
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))


def _readings(nvml: Any, sources: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    values = {}
    for name, source in sources.items():
        # An older pynvml lacks newer functions.
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            values[name] = source()
    return values


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
