"""What every Triton kernel checks: whether there is a GPU, its compute capability, and the dtypes."""

from __future__ import annotations

import functools
import importlib.util
import re
from types import MappingProxyType
from typing import Any

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import FP8_CAPABILITY, TORCH_DTYPES

#: lowest compute capability for these kernels: the first with bf16 and asynchronous copies
_LEAST_CAPABILITY = (8, 0)
#: lowest compute capability with a tensor memory accelerator, which copies tiles by descriptor
TMA_CAPABILITY = (9, 0)
#: alignment of the base address and of all strides but the last in a descriptor [B] (PTX ISA, "tensor-map")
TMA_ALIGNMENT_BYTES = 16
#: fuse multiplications and additions; explicit, because Triton's default is about to change
LAUNCH_OPTIONS = MappingProxyType({"enable_fp_fusion": True})
#: the first Triton with descriptors that are created on the host
_LEAST_TRITON = (3, 4)
#: elements within the reach of 32-bit offsets
NARROW_LIMIT = 2**31


def capability() -> tuple[int, int]:
    """Return the compute capability of the current GPU, or (0, 0)."""
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


@functools.cache
def multiprocessors() -> int:
    """Return the number of streaming multiprocessors of the current GPU; 2 in the interpreter."""
    if not torch.cuda.is_available():
        return 2
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def unsupported_dtype(allowed: tuple[str, ...], *dtypes: str) -> str:
    """Return which dtype a kernel does not support, or an empty string."""
    for dtype in dtypes:
        if dtype not in allowed:
            return f"this Triton kernel does not support {dtype}, only {', '.join(allowed)}"
    return ""


def unavailable(device: Device, allowed: tuple[str, ...], *dtypes: str, least: tuple[int, int] = (0, 0)) -> str:
    """Return why a Triton kernel cannot run on a device with some dtypes, or an empty string.

    Parameters
    ----------
    device : the device.
    allowed : the dtypes that the kernel supports.
    dtypes : the dtypes of the operator.
    least : the lowest compute capability for the kernel.
    """
    reason = unsupported_dtype(allowed, *dtypes)
    if reason:
        return reason
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (pip install triton)"
    if device.kind != "cuda":
        return "Triton needs a GPU"
    if _triton_version() < _LEAST_TRITON:
        return f"it needs triton {_LEAST_TRITON[0]}.{_LEAST_TRITON[1]} or later"
    if least >= TMA_CAPABILITY and torch.version.hip:
        return "it needs the tensor memory accelerator of an NVIDIA GPU"
    needed = max(_LEAST_CAPABILITY, least, FP8_CAPABILITY if "fp8" in dtypes else (0, 0))
    if capability() < needed:
        own, required = (".".join(map(str, pair)) for pair in (capability(), needed))
        return f"it needs compute capability {required}; this GPU has {own}"
    return ""


@functools.cache
def _triton_version() -> tuple[int, ...]:
    # Some vendors' builds are installed under another name, so that only the imported module has the version.
    import triton

    return tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2])


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype with a canonical name."""
    return TORCH_DTYPES[name]


def is_wide(*tensors: torch.Tensor) -> bool:
    """Return whether offsets into one of the tensors need 64 bits."""
    return any(tensor.numel() >= NARROW_LIMIT for tensor in tensors)


def product_modes(dtype: str) -> dict[str, Any]:
    """Return how ``tl.dot`` multiplies operands of a dtype: compile-time parameters of a kernel.

    The interpreter stores bf16 in 16-bit integers, which its ``dot`` would multiply as integers; only there the
    operands are converted to float32.
    """
    import triton

    interpreted = bool(triton.knobs.runtime.interpret)
    precision = "tf32" if dtype == "tf32" else "ieee"
    return {"UPCAST": interpreted and dtype == "bf16", "PRECISION": precision, **LAUNCH_OPTIONS}
