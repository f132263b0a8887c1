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
    compute_capability : "9.0".
    bus_bits : width of the memory's bus [bit].
    ecc : whether the memory corrects errors.
    bus_id : where it is on the PCI bus, by which the CUDA driver finds it.
    sm_count, l2_bytes : multiprocessors, and size of the L2 [B], from the CUDA driver.
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
    compute_capability: str = ""
    bus_bits: int | None = None
    ecc: bool | None = None
    bus_id: str = ""
    sm_count: int | None = None
    l2_bytes: float | None = None

    @property
    def memory_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of the memory at its highest clock [B/s]: two transfers a clock, as wide as the bus."""
        if self.memory_clock_hz is None or self.bus_bits is None:
            return None
        return 2.0 * self.memory_clock_hz * self.bus_bits / 8.0


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
