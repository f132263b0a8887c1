"""What NVML says about each NVIDIA GPU; `pynvml` (package nvidia-ml-py) is optional."""

from __future__ import annotations

import importlib
from typing import Any

from perfmodel.hardware_catalog.gpu_reading import GpuReading


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

    memory, ecc = ask("nvmlDeviceGetMemoryInfo", handle), ask("nvmlDeviceGetEccMode", handle)
    capability, place = ask("nvmlDeviceGetCudaComputeCapability", handle), ask("nvmlDeviceGetPciInfo", handle)
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
        compute_capability=".".join(map(str, capability)) if capability else "",
        bus_bits=ask("nvmlDeviceGetMemoryBusWidth", handle),
        ecc=bool(ecc[0]) if ecc else None,
        # the name with a domain of four digits, as CUDA has it
        bus_id=_text(getattr(place, "busIdLegacy", None) or getattr(place, "busId", "")),
    )


def _text(value: Any) -> str:
    """Return text; older versions of pynvml return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
