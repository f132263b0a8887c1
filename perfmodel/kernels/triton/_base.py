"""What every Triton kernel here needs to know of its surroundings: is there a GPU, which one, which dtypes."""

from __future__ import annotations

import functools
import importlib.util
import re
from types import MappingProxyType
from typing import Any

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import FP8_CAPABILITY, TORCH_DTYPES

#: the oldest compute capability that these kernels are written for: the first with bf16 and asynchronous copies
_LEAST_CAPABILITY = (8, 0)
#: the tensor memory accelerator, which copies tiles by descriptor
TMA_CAPABILITY = (9, 0)
#: bytes to which descriptors want base addresses and the strides of all but the last axis (PTX ISA, "tensor-map")
TMA_ALIGNMENT_BYTES = 16
#: a multiplication and an addition become one instruction, said because Triton's default is about to change
LAUNCH_OPTIONS = MappingProxyType({"enable_fp_fusion": True})
#: the oldest Triton with descriptors made on the host
_LEAST_TRITON = (3, 4)
#: elements that offsets of 32 bits reach
NARROW_LIMIT = 2**31


def capability() -> tuple[int, int]:
    """Return the compute capability of the current GPU; (0, 0) where there is none."""
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


@functools.cache
def multiprocessors() -> int:
    """Return the streaming multiprocessors of the current GPU; 2 stand for them under the interpreter."""
    if not torch.cuda.is_available():
        return 2
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def untaken(allowed: tuple[str, ...], *dtypes: str) -> str:
    """Return which of some dtypes a kernel is not written for, or an empty string."""
    for dtype in dtypes:
        if dtype not in allowed:
            return f"this Triton kernel takes no {dtype}; it takes {', '.join(allowed)}"
    return ""


def unavailable(device: Device, allowed: tuple[str, ...], *dtypes: str, least: tuple[int, int] = (0, 0)) -> str:
    """Return why Triton kernels cannot run on a device in some dtypes, or an empty string.

    Parameters
    ----------
    device : where they are to run.
    allowed : the dtypes that the kernel is written for.
    dtypes : those of the operator.
    least : the compute capability that the kernel itself asks for.
    """
    refused = untaken(allowed, *dtypes)
    if refused:
        return refused
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (pip install triton)"
    if device.kind != "cuda":
        return "Triton needs a GPU"
    if _triton_version() < _LEAST_TRITON:
        return f"it needs triton {_LEAST_TRITON[0]}.{_LEAST_TRITON[1]} or newer"
    if least >= TMA_CAPABILITY and torch.version.hip:
        return "it needs the tensor memory accelerator of an NVIDIA GPU"
    needed = max(_LEAST_CAPABILITY, least, FP8_CAPABILITY if "fp8" in dtypes else (0, 0))
    if capability() < needed:
        found, asked = (".".join(map(str, pair)) for pair in (capability(), needed))
        return f"it needs compute capability {asked}; this GPU has {found}"
    return ""


@functools.cache
def _triton_version() -> tuple[int, ...]:
    # what is installed under another name, as some vendors' builds are, tells its version only when imported
    import triton

    return tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2])


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype of a canonical name."""
    return TORCH_DTYPES[name]


def is_wide(*tensors: torch.Tensor) -> bool:
    """Whether offsets into one of some tensors need 64 bits."""
    return any(tensor.numel() >= NARROW_LIMIT for tensor in tensors)


def product_modes(dtype: str) -> dict[str, Any]:
    """Return how ``tl.dot`` takes its operands in a dtype: compile-time parameters of a kernel.

    Under the interpreter bf16 lies in 16-bit integers, which its ``dot`` would multiply as integers, so that the
    operands are widened to float32 there; on a GPU they never are.
    """
    import triton

    interpreted = bool(triton.knobs.runtime.interpret)
    precision = "tf32" if dtype == "tf32" else "ieee"
    return {"UPCAST": interpreted and dtype == "bf16", "PRECISION": precision, **LAUNCH_OPTIONS}
