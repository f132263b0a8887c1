"""``torch.compile`` of the naive compositions: the kernels that inductor generates for them."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel, Prepare

#: what a function returns: a tensor, or several
Result = TypeVar("Result")
#: compilers that inductor uses on a CPU unless CXX names another
_COMPILERS = ("g++", "clang++")


def compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that is compiled as one graph for one shape, in its first call.

    Earlier results of compilation are discarded, since torch keeps only a few shapes of each function.
    """
    torch.compiler.reset()
    call = torch.compile(function, fullgraph=True, dynamic=False)
    compiles = [True]

    @functools.wraps(function)
    def quietly(*arguments: Any) -> Result:
        if not compiles:
            return call(*arguments)
        with warnings.catch_warnings():
            # The compiler advises another precision than the one that was asked for, among other things.
            warnings.filterwarnings("ignore", module=r"torch\.")
            result = call(*arguments)
        compiles.clear()
        return result

    return quietly


def compiled_kernel(
    operator: str,
    prepare: Prepare,
    supports: Callable[[Any, Device], str],
    *,
    name: str = "compiled",
    **facts: Any,
) -> Kernel:
    """Return the kernel of a composition that is compiled: it runs where its calls do and there is a compiler.

    Parameters
    ----------
    operator, prepare, name, facts : as `Kernel` has them.
    supports : why the same calls cannot run without a compiler, or an empty string.
    """

    def runs(op: Any, device: Device) -> str:
        return supports(op, device) or no_compiler(device)

    return Kernel(name, operator, "torch", prepare, runs, compiles=True, **facts)


def no_compiler(device: Device) -> str:
    """Return why torch cannot compile for a device, or an empty string."""
    if device.kind == "cuda":
        return "" if importlib.util.find_spec("triton") else "torch.compile needs triton for a GPU (pip install triton)"
    named = os.environ.get("CXX", "")
    if any(shutil.which(name) for name in (named, *_COMPILERS) if name):
        return ""
    return f"torch.compile needs a C++ compiler for a CPU: {' or '.join(_COMPILERS)}"
