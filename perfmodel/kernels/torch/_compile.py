"""``torch.compile`` of the naive compositions: the kernels that inductor generates for them."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import TypeVar

import torch

from perfmodel.kernels.device import Device

#: what a function returns: a tensor, or several
Result = TypeVar("Result")
#: compilers that inductor uses on a CPU unless CXX names another
_COMPILERS = ("g++", "clang++")


def compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that is compiled as one graph for one shape, in its first call.

    Earlier results of compilation are discarded, since torch keeps only a few shapes of each function.
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
