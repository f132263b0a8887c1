"""What the CUDA driver says about a GPU and NVML does not: its L2 and multiprocessors, without torch or a context."""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType
from typing import Any

#: attribute -> its number (CUDA driver API, CUdevice_attribute)
_ATTRIBUTES = MappingProxyType({"sm_count": 16, "l2_bytes": 38})
_LIBRARIES = MappingProxyType({"linux": "libcuda.so.1", "win32": "nvcuda.dll"})


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
    device, value = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuDeviceGetByPCIBusId(ctypes.byref(device), bus_id.encode()) != 0:
        return {}
    found: dict[str, Any] = {}
    for name, number in _ATTRIBUTES.items():
        if driver.cuDeviceGetAttribute(ctypes.byref(value), number, device) == 0 and value.value > 0:
            found[name] = value.value
    return found
