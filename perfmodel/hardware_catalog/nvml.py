"""What NVML says about each NVIDIA GPU; `pynvml` (package nvidia-ml-py) is optional."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GpuReading:
    """One GPU as NVML reports it; None where the driver does not say.

    Attributes
    ----------
    memory_bytes : memory that the driver reports, reserved part included [B].
    sm_clock_hz, memory_clock_hz : highest clocks [Hz].
    pcie_generation, pcie_width : of the link as it is trained at most on this machine; width in lanes.
    power_limit_w : enforced limit [W].
    """

    index: int
    name: str
    memory_bytes: float | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_limit_w: float | None = None
    driver: str = ""


def read_gpus(nvml: Any = None) -> tuple[GpuReading, ...]:
    """Return a reading of each GPU; none where there is no `pynvml`, no driver or no GPU.

    ``nvml`` stands in for the module `pynvml` in tests.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(_reading(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def _reading(nvml: Any, index: int) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(call: str, *arguments: Any) -> Any:
        """Return what one query says, None where this driver or GPU does not support it."""
        try:
            return getattr(nvml, call)(*arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    return GpuReading(
        index=index,
        name=_text(ask("nvmlDeviceGetName", handle)),
        memory_bytes=float(memory.total) if memory else None,
        sm_clock_hz=_scaled(ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM), 1e6),
        memory_clock_hz=_scaled(ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM), 1e6),
        pcie_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_width=ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        power_limit_w=_scaled(ask("nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
        driver=_text(ask("nvmlSystemGetDriverVersion")),
    )


def _text(value: Any) -> str:
    """Return text; older versions of pynvml return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
