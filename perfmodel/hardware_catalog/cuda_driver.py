"""What the CUDA driver says about a GPU, without torch or a context: beside NVML, and where NVML is absent."""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType
from typing import Any

from perfmodel.hardware_catalog.gpu_reading import GpuReading

#: attribute -> its number (CUDA driver API, CUdevice_attribute)
_ATTRIBUTES = MappingProxyType({"sm_count": 16, "l2_bytes": 38})
_CLOCK, _MEMORY_CLOCK, _BUS_BITS, _MAJOR, _MINOR = 13, 36, 37, 75, 76
_LIBRARIES = MappingProxyType({"linux": "libcuda.so.1", "win32": "nvcuda.dll"})
_NAME_BYTES = 256


def open_driver() -> Any:
    """Return the driver's library, started, or None where there is none or it finds no GPU."""
    if sys.platform not in _LIBRARIES:
        return None
    try:
        driver = ctypes.CDLL(_LIBRARIES[sys.platform])
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def read_attributes(bus_id: str, driver: Any) -> dict[str, Any]:
    """Return ``sm_count`` and ``l2_bytes`` [B] of the GPU with a PCI bus id, each only where the driver says it.

    CUDA numbers GPUs in another order than NVML, so that the bus id names the GPU. ``driver`` is that of `open_driver`.
    """
    device = ctypes.c_int()
    if driver is None or driver.cuDeviceGetByPCIBusId(ctypes.byref(device), bus_id.encode()) != 0:
        return {}
    return _sizes(driver, device)


def read_driver(driver: Any) -> tuple[GpuReading, ...]:
    """Return the GPUs that the driver of `open_driver` lists, for a machine without `pynvml`; none without a driver."""
    count = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_reading(driver, index) for index in range(count.value))


def _reading(driver: Any, index: int) -> GpuReading:
    device, name, total = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, _NAME_BYTES, device)
    read = driver.cuDeviceTotalMem_v2(ctypes.byref(total), device) == 0
    clocks = (_attribute(driver, number, device) for number in (_CLOCK, _MEMORY_CLOCK))
    clock_hz, memory_clock_hz = (kilohertz and kilohertz * 1e3 for kilohertz in clocks)
    major, minor = (_attribute(driver, number, device) for number in (_MAJOR, _MINOR))
    return GpuReading(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        memory_bytes=float(total.value) if read else None,
        sm_clock_hz=clock_hz,
        memory_clock_hz=memory_clock_hz,
        compute_capability=f"{major}.{minor or 0}" if major else "",
        bus_bits=_attribute(driver, _BUS_BITS, device),
        source="CUDA driver",
        **_sizes(driver, device),
    )


def _sizes(driver: Any, device: ctypes.c_int) -> dict[str, Any]:
    found = {name: _attribute(driver, number, device) for name, number in _ATTRIBUTES.items()}
    return {name: value for name, value in found.items() if value is not None}


def _attribute(driver: Any, number: int, device: ctypes.c_int) -> int | None:
    """Return one attribute of a GPU, or None where the driver does not say it."""
    value = ctypes.c_int()
    read = driver.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0
    return value.value if read and value.value > 0 else None
