"""Finding kernels: each module ``kernels/<backend>/<operator>.py`` has a tuple ``KERNELS``.

A plugin's module is named after the operator by an entry point in ``perfmodel.kernels``; several may add kernels to one
operator.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import perfmodel.kernels
from perfmodel.errors import UsageError, nearest
from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.operators import Operator
from perfmodel.plugins import load_plugins, plugins, warn_of_plugin

Call = Callable[[], Any]


#: packages of this folder that hold no kernels
HELPERS = ("algorithms", "device", "distributed", "reference")


class Prepare(Protocol):
    """Turns an operator and its inputs into the call that is timed. Its own work is not timed."""

    def __call__(self, op: Any, inputs: Mapping[str, Any], /) -> Call:
        """Return a call without arguments that computes the output."""
        ...


def _nothing(op: Any, device: Device) -> str:
    return ""


def _no_bytes(op: Any) -> float:
    return 0.0


def _once(op: Any) -> int:
    return 1


def _always(op: Any) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """One implementation of an operator.

    Attributes
    ----------
    name : its name in results and for ``--kernel`` ("torch.matmul", "naive").
    operator, backend : the operator that it computes, and the package that it comes from.
    prepare : makes the call that is timed. The call returns the output and does not change its inputs.
    supports : returns why it cannot run an operator on a device, or an empty string.
    applies : False where it would be the same program as another kernel of the operator; it is then left out.
    workspace_bytes : memory that it needs beside inputs and output [B].
    own_operator : the operator with the kernel's actual traffic, where that differs: an unfused composition writes its
        intermediates to memory.
    composition : the operators that the kernel runs one after another, each ``count`` times; the model predicts their
        sum. None, or no operators, where it runs the operator itself as one kernel.
    in_place : it updates its inputs, as an optimizer does, and returns one of them.
    compiles : its first call compiles for seconds, so that a short run leaves it out unless it is asked for by name.
    gradient : it computes the backward pass (``backward=true``), not the operator; None computes both.
    rounded_sums : how many partial sums of an output it rounds to the operator's dtype, which its check allows for.
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
    in_place: bool = False
    compiles: bool = False
    gradient: bool | None = False
    rounded_sums: Callable[[Any], int] = _once

    def parts(self, op: Any) -> Sequence[Operator]:
        """Return the operators that it runs one after another; none where it runs the operator itself."""
        return self.composition(op) if self.composition else ()

    def computes(self, op: Any) -> bool:
        """Return whether it computes an operator: the backward pass or the forward one, and not as another does."""
        backward = bool(getattr(op, "backward", False))
        return self.gradient in (None, backward) and self.applies(op)

    def refuses(self, op: Any, device: Device) -> str:
        """Return why it cannot run an operator on a device, or an empty string."""
        if self.gradient not in (None, bool(getattr(op, "backward", False))):
            return f"{self.name} computes {'the gradient of ' * bool(self.gradient)}{op.op}, not what was asked for"
        return self.supports(op, device)


@functools.cache
def backends() -> tuple[str, ...]:
    """Return the names of the packages that hold kernels."""
    packages = pkgutil.iter_modules(perfmodel.kernels.__path__)
    return tuple(sorted(package.name for package in packages if package.ispkg and package.name not in HELPERS))


def find_kernels(operator: str) -> list[Kernel]:
    """Return every kernel of an operator: backend by backend, then those of plugins; empty where there is none.

    Only the modules of this operator are imported.
    """
    kernels: list[Kernel] = [kernel for module in _own_modules(operator) for kernel in module.KERNELS]
    return [*kernels, *_plugin_kernels(operator, {kernel.name for kernel in kernels})]


def parts_of(op: Operator, name: str) -> tuple[Sequence[Operator], str]:
    """Return the operators that a kernel runs one after another in place of an operator, and why they are not known.

    One of the two is empty. The kernel's module states them, so that torch has to be installed.

    Parameters
    ----------
    op : a scalar operator.
    name : the kernel, as a record names it.
    """
    try:
        kernels = find_kernels(op.op)
    except ImportError as error:
        return (), f"{error.name} is not installed, which the kernels that state their parts need"
    kernel = next((kernel for kernel in kernels if kernel.name == name), None)
    if kernel is None:
        return (), f"no kernel {name!r} of {op.op} is known"
    parts = kernel.parts(op)
    return parts, "" if parts else f"{name} of {op.op} does not state its parts"


def operators_with_kernels() -> list[str]:
    """Return the names of the operators that some kernel, or a plugin's, computes; no kernel is imported."""
    names = {plugin.name for plugin in plugins("kernels")}
    for backend in backends():
        names |= _module_names(backend)
    return sorted(names)


def benchmark_cases(operator: str) -> list[BenchmarkCases]:
    """Return the sizes that the modules of an operator's kernels state for the presets."""
    cases = [module.CASES for module in _own_modules(operator) if hasattr(module, "CASES")]
    for module in load_plugins("kernels", operator):
        added = getattr(module, "CASES", None)
        if isinstance(added, BenchmarkCases):
            cases.append(added)
        elif added is not None:
            warn_of_plugin(operator, module.__name__, "CASES is not a BenchmarkCases")
    return cases


def _own_modules(operator: str) -> list[ModuleType]:
    """Import the modules of an operator's kernels, one of each backend that has some."""
    return [
        importlib.import_module(f"perfmodel.kernels.{backend}.{operator}")
        for backend in backends()
        if operator in _module_names(backend)
    ]


@functools.cache
def _module_names(backend: str) -> frozenset[str]:
    """Return the operators that a backend has a module for."""
    folders = importlib.import_module(f"perfmodel.kernels.{backend}").__path__
    return frozenset(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))


def _plugin_kernels(operator: str, taken: set[str]) -> Iterator[Kernel]:
    """Yield the kernels of plugins for an operator; ``taken`` are the names that exist already."""
    for module in load_plugins("kernels", operator):
        for kernel in getattr(module, "KERNELS", ()):
            if not isinstance(kernel, Kernel) or kernel.operator != operator:
                warn_of_plugin(operator, module.__name__, f"{kernel!r} in KERNELS is not a Kernel of {operator}")
            elif kernel.name in taken:
                warn_of_plugin(operator, module.__name__, f"{operator} has a kernel {kernel.name!r} already")
            else:
                taken.add(kernel.name)
                yield kernel


def load_kernel(spec: str, operator: str) -> Kernel:
    """Return a user's own function as a kernel of an operator, with backend "user" and the name ``spec``.

    The function takes the operator's input tensors by position, in the order in which ``op.tensors()`` declares them,
    and the operator itself as ``op=`` if it has a parameter of that name. It returns the output tensor. For a backward
    pass it takes the inputs of the forward pass and the gradient of its output, and returns the gradients of these
    inputs, one tensor or a tuple. Modules in the current directory come first.

    Parameters
    ----------
    spec : "my_module:my_function"; dots lead into packages, and after the colon into classes.
    operator : the operator that it computes.

    Raises
    ------
    UsageError
        When there is no such module, importing it fails, or it has no such function. On ``prepare``, when the
        function does not take the operator's inputs.
    """
    module_name, colon, attribute = spec.partition(":")
    if not (colon and module_name and attribute):
        raise UsageError(f"{spec!r} does not name a function.", place="--kernel", remedy="Write my_module:my_function.")
    function: Any = _import(module_name, spec)
    for part in attribute.split("."):
        if not hasattr(function, part):
            functions = [name for name in dir(function) if name[0] != "_" and callable(getattr(function, name, None))]
            listed = ", ".join(functions[:10])
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

    return Kernel(spec, operator, "user", prepare, gradient=None)


def _import(name: str, spec: str) -> Any:
    """Import a user's module; the current directory comes first."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and name.startswith(error.name or "\0"):
            message = f"there is no module {name!r} in {here} or among the installed packages."
            remedy = "Run in the module's directory, or set PYTHONPATH."
        else:
            message = f"importing {name} raises {error!r}."
            remedy = f"Try: python -c 'import {name}'."
        raise UsageError(message, place=f"--kernel {spec}", remedy=remedy) from error


def _bound(function: Callable[..., Any], op: Any, inputs: Mapping[str, Any], spec: str) -> Call:
    """Return the call of a user's function with some inputs.

    Raises
    ------
    UsageError
        When its signature does not accept them.
    """
    tensors = list(inputs.values())
    named: dict[str, Any] = {}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return lambda: function(*tensors)
    if "op" in signature.parameters:
        named["op"] = op
    try:
        signature.bind(*tensors, **named)
    except TypeError as error:
        raise UsageError(
            f"{function.__name__}{signature} does not take the inputs of {op.op}: {error}.",
            place=f"--kernel {spec}",
            remedy=f"Its parameters have to be the tensors {', '.join(inputs)}, in this order, and op if it needs it.",
        ) from None
    return lambda: function(*tensors, **named)
