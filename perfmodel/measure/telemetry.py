"""What NVML says about a GPU while it works: clocks, power, temperature, why it throttles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from perfmodel.kernels.device import Device

#: bit -> name, from nvml.h (nvmlClocksEventReason*); gpu idle (bit 0) is left out, since it is no fault
THROTTLE_REASONS = {
    0x002: "applications clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake slowdown",
    0x100: "display clock setting",
}


class NoTelemetry:
    """Telemetry where there is none: a CPU, or no NVML."""

    def facts(self) -> dict[str, Any]:
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
        """Return what does not change during a run: driver, power limit [W], top SM and memory clocks [Hz], ECC."""
        nvml, handle = self._nvml, self._handle
        return _readings(
            nvml,
            {
                "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
                "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) * 1e-3,
                "max_sm_clock_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
                "max_memory_clock_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
                "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            },
        )

    def read(self) -> dict[str, Any]:
        """Return the state now: SM and memory clock [Hz], power [W], temperature [C], throttle reasons by name."""
        nvml, handle = self._nvml, self._handle
        return _readings(
            nvml,
            {
                "sm_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
                "memory_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
                "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3,
                "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                "throttle_reasons": lambda: throttle_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            },
        )


def throttle_names(bits: int) -> list[str]:
    """Return the throttle reasons in NVML's bit mask by name.

    >>> throttle_names(0x5)
    ['software power cap']
    """
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def open_telemetry(device: Device) -> NoTelemetry | NvmlTelemetry:
    """Return the telemetry of a device: NVML's for a CUDA GPU that it finds by its UUID, else none."""
    if device.kind != "cuda":
        return NoTelemetry()
    try:
        import pynvml
    except ImportError:
        return NoTelemetry()
    try:
        pynvml.nvmlInit()
        uuid = device.uuid if device.uuid.startswith("GPU-") else f"GPU-{device.uuid}"
        return NvmlTelemetry(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
    except pynvml.NVMLError:
        return NoTelemetry()


def _readings(nvml: Any, sources: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    made = {}
    for name, source in sources.items():
        with contextlib.suppress(nvml.NVMLError):
            made[name] = source()
    return made


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
