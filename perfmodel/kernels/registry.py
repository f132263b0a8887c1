"""Finding kernels: one module ``kernels/<backend>/<operator>.py`` with a tuple ``KERNELS`` each."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import perfmodel.kernels
from perfmodel.errors import UsageError, nearest
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
    composition : the operators that the kernel really runs one after another, each ``count`` times: what the model
        is to predict for it. None where it runs the operator itself as one kernel.
    compiles : its first call compiles for seconds, so that a short run leaves it out unless it is asked for by name.
    """

    name: str
    operator: str
    backend: str
    prepare: Prepare
    supports: Callable[[Any, Device], str] = _nothing
    applies: Callable[[Any], bool] = _always
    workspace_bytes: Callable[[Any], float] = _no_bytes
    own_operator: Callable[[Any], Operator] | None = None
    composition: Callable[[Any], Sequence[Operator]] | None = None
    compiles: bool = False


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


def load_kernel(spec: str, operator: str) -> Kernel:
    """Return a user's own function as a kernel of an operator: backend "user", named as it was asked for.

    The function is given the operator's input tensors by position, in the order in which ``op.tensors()`` declares
    them, and ``op=`` the operator where it has a parameter of that name; it returns the output tensor. A module is
    looked for in the current directory first.

    Parameters
    ----------
    spec : "my_module:my_function"; dots lead into packages, and behind the colon into classes.
    operator : the operator that it computes.

    Raises
    ------
    UsageError
        When there is no such module, importing it fails, or it has no such function; on ``prepare``, when the
        function cannot take as many tensors as the operator has.
    """
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise UsageError(f"{spec!r} names no function.", place="--kernel", remedy="Write my_module:my_function.")
    function: Any = _import(module_name, spec)
    for part in attribute.split("."):
        if not hasattr(function, part):
            functions = [name for name, value in vars(function).items() if callable(value)]
            listed = ", ".join(sorted(name for name in functions if not name.startswith("_"))[:10])
            remedy = f"{nearest(part, functions)} It has: {listed or 'no functions'}.".strip()
            raise UsageError(f"{module_name} has no {part!r}.", place=f"--kernel {spec}", remedy=remedy)
        function = getattr(function, part)
    if not callable(function):
        raise UsageError(
            f"{attribute} is {type(function).__name__}, not a function.",
            place=f"--kernel {spec}",
            remedy="Name a function that takes the operator's input tensors and returns its output.",
        )

    def prepare(op: Any, inputs: Mapping[str, Any], /) -> Call:
        return _bound(function, op, inputs, spec)

    return Kernel(spec, operator, "user", prepare)


def _import(name: str, spec: str) -> Any:
    """Import a user's module, from the current directory first."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or "\0")
        message = (
            f"no module {name!r} in {here} or among the installed ones." if missing else f"importing it: {error!r}."
        )
        remedy = "Run in the module's directory, or set PYTHONPATH." if missing else f"Try: python -c 'import {name}'."
        raise UsageError(message, place=f"--kernel {spec}", remedy=remedy) from error


def _bound(function: Callable[..., Any], op: Any, inputs: Mapping[str, Any], spec: str) -> Call:
    """Return the call of a user's function on some inputs.

    Raises
    ------
    UsageError
        When its signature does not take them.
    """
    tensors = list(inputs.values())
    named: dict[str, Any] = {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions tell no signature
        return lambda: function(*tensors)
    if "op" in signature.parameters:
        named["op"] = op
    try:
        signature.bind(*tensors, **named)
    except TypeError as error:
        raise UsageError(
            f"{function.__name__}{signature} does not take the inputs of {op.op}: {error}.",
            place=f"--kernel {spec}",
            remedy=f"Its parameters are the tensors {', '.join(inputs)}, in this order, and op where it wants one.",
        ) from None
    return lambda: function(*tensors, **named)
