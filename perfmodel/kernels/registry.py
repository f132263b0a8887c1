"""Finding kernels: one module ``kernels/<backend>/<operator>.py`` with a tuple ``KERNELS`` each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import perfmodel.kernels
from perfmodel.kernels.device import Device
from perfmodel.operators import Operator

Call = Callable[[], Any]


class Prepare(Protocol):
    """Turns an operator and its inputs into the call that is timed; what it does itself is not timed."""

    def __call__(self, op: Any, inputs: Mapping[str, Any], /) -> Call:
        """Return a call without arguments that computes the output."""
        ...


def _nothing(op: Any, device: Device) -> str:
    return ""


def _no_bytes(op: Any) -> float:
    return 0.0


def _always(op: Any) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """One implementation of an operator.

    Attributes
    ----------
    name : how people call it ("torch.matmul", "naive").
    operator, backend : which operator it computes, and the package that it comes from.
    prepare : makes the call that is timed. The call returns the output and leaves its inputs alone.
    supports : the reason why it cannot run this operator on this device, or an empty string.
    applies : False where it would be the same program as another kernel of the operator, so that it is left out.
    workspace_bytes : memory that it needs beside inputs and output [B].
    own_operator : the operator whose traffic the kernel really has, where that is another one: an unfused
        composition writes its intermediates to memory.
    """

    name: str
    operator: str
    backend: str
    prepare: Prepare
    supports: Callable[[Any, Device], str] = _nothing
    applies: Callable[[Any], bool] = _always
    workspace_bytes: Callable[[Any], float] = _no_bytes
    own_operator: Callable[[Any], Operator] | None = None


def backends() -> list[str]:
    """Return the names of the packages that hold kernels."""
    found = pkgutil.iter_modules(perfmodel.kernels.__path__)
    return sorted(m.name for m in found if m.ispkg and m.name != "reference")


def find_kernels(operator: str) -> list[Kernel]:
    """Return every kernel of an operator, backend by backend; an empty list where there is none.

    Only the modules of this operator are imported.
    """
    kernels: list[Kernel] = []
    for backend in backends():
        package = importlib.import_module(f"perfmodel.kernels.{backend}")
        if operator in {m.name for m in pkgutil.iter_modules(package.__path__)}:
            module = importlib.import_module(f"perfmodel.kernels.{backend}.{operator}")
            kernels.extend(module.KERNELS)
    return kernels
