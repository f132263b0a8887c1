"""Live readings of GPUs by NVML: what the driver or the GPU refuses is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfmodel.measure.monitor.sources import Rates, Sample
from perfmodel.measure.telemetry.nvml import IDLE, THROTTLE_REASONS, NvmlTelemetry

#: throttle reasons that say nothing about a fault
_HARMLESS = (IDLE, THROTTLE_REASONS[0x002], THROTTLE_REASONS[0x100])
_MOMENT = {
    "utilization": "gpu_utilization_ratio",
    "sm_clock_hz": "gpu_sm_clock_hertz",
    "memory_clock_hz": "gpu_memory_clock_hertz",
    "power_w": "gpu_power_watts",
    "temperature_c": "gpu_temperature_celsius",
}
#: processes of a GPU that are listed, those with the most memory
_MOST_PROCESSES = 8
#: all links of a GPU together (nvml.h, nvmlFieldValue_t.scopeId)
_ALL_LINKS = 0xFFFFFFFF


class GpuSource:
    """The GPUs that NVML sees."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml = nvml
        self._gpus = [(f"gpu {index}", NvmlTelemetry(nvml, handle), handle) for index, handle in enumerate(handles)]
        self._rates = Rates()
        self._errors = _Errors(nvml, handles)

    def read(self, elapsed_s: float) -> Iterator[Sample]:
        """Yield the readings of each GPU."""
        self._errors.collect()
        for index, (label, telemetry, handle) in enumerate(self._gpus):
            moment = telemetry.moment()
            for key, name in _MOMENT.items():
                if key in moment:
                    yield Sample(name, label, float(moment[key]))
            for reason in THROTTLE_REASONS.values():
                if reason not in _HARMLESS and "throttle_reasons" in moment:
                    held = float(reason in moment["throttle_reasons"])
                    yield Sample(f"gpu_throttled_{reason.replace(' ', '_')}", label, held)
            yield from self._memory(label, handle)
            yield from self._pcie(label, handle)
            yield from self._nvlink(label, handle, elapsed_s)
            yield from self._processes(label, handle)
            yield from self._errors.samples(index, label)

    def _memory(self, label: str, handle: Any) -> Iterator[Sample]:
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield Sample("gpu_memory_used_bytes", label, float(memory.used))
            yield Sample("gpu_memory_total_bytes", label, float(memory.total))

    def _pcie(self, label: str, handle: Any) -> Iterator[Sample]:
        """Yield the traffic over PCIe, which NVML states in KB/s of its last 20 ms."""
        nvml = self._nvml
        for name, counter in (("sent", "NVML_PCIE_UTIL_TX_BYTES"), ("received", "NVML_PCIE_UTIL_RX_BYTES")):
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                rate = nvml.nvmlDeviceGetPcieThroughput(handle, getattr(nvml, counter)) * 1e3
                yield Sample(f"gpu_pcie_{name}_bytes_per_second", label, float(rate))

    def _nvlink(self, label: str, handle: Any, elapsed_s: float) -> Iterator[Sample]:
        """Yield the payload over all NVLinks of a GPU; NVML counts it in KiB."""
        nvml = self._nvml
        for name, field in (
            ("sent", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
            ("received", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
        ):
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                (value,) = nvml.nvmlDeviceGetFieldValues(handle, [(getattr(nvml, field), _ALL_LINKS)])
                if value.nvmlReturn != nvml.NVML_SUCCESS:
                    continue
                rate = self._rates.rate(f"{label} {name}", 1024.0 * value.value.ullVal, elapsed_s)
                if rate is not None:
                    yield Sample(f"gpu_nvlink_{name}_bytes_per_second", label, rate)

    def _processes(self, label: str, handle: Any) -> Iterator[Sample]:
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            yield Sample("gpu_processes", label, float(len(running)))
            known = [one for one in running if getattr(one, "usedGpuMemory", None)]
            for one in sorted(known, key=lambda one: -one.usedGpuMemory)[:_MOST_PROCESSES]:
                yield Sample("gpu_process_memory_bytes", f"{label} process {one.pid}", float(one.usedGpuMemory))


class _Errors:
    """The latest XID error of each GPU, and its memory errors that could not be corrected."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._xid = [0] * len(handles)
        self._events: Any = None
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            events = nvml.nvmlEventSetCreate()
            for handle in handles:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            self._events = events

    def collect(self) -> None:
        """Take the events that came since the last call."""
        nvml = self._nvml
        while self._events is not None:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                self._xid[nvml.nvmlDeviceGetIndex(event.device)] = int(event.eventData)
            except (nvml.NVMLError, AttributeError, IndexError):
                return  # no more events, or none that can be told apart

    def samples(self, index: int, label: str) -> Iterator[Sample]:
        """Yield the number of the latest XID error, 0 for none, and the count of memory errors."""
        nvml = self._nvml
        if self._events is not None:
            yield Sample("gpu_xid", label, float(self._xid[index]))
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            count = nvml.nvmlDeviceGetTotalEccErrors(
                self._handles[index], nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            yield Sample("gpu_uncorrected_memory_errors", label, float(count))


def gpu_source() -> GpuSource | None:
    """Return the GPUs of this machine, None where NVML or a GPU is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return None
    return GpuSource(pynvml, handles) if handles else None
