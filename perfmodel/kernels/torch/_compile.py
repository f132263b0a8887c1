"""``torch.compile`` of the naive compositions: the kernels that inductor makes of them."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable

import torch

from perfmodel.kernels.device import Device

#: what inductor compiles C++ with on a CPU, where CXX names nothing else
_COMPILERS = ("g++", "clang++")


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function as one compiled graph for one shape; it is compiled in its first call.

    What was compiled before is forgotten, since torch keeps only a few shapes of each function.
    """
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def no_compiler(device: Device) -> str:
    """Return why torch cannot compile for a device, or an empty string."""
    if device.kind == "cuda":
        return "" if importlib.util.find_spec("triton") else "torch.compile needs triton for a GPU (pip install triton)"
    named = os.environ.get("CXX", "")
    if any(shutil.which(name) for name in (named, *_COMPILERS) if name):
        return ""
    return f"torch.compile needs a C++ compiler for a CPU: {' or '.join(_COMPILERS)}"
