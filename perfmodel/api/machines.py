"""What stands for a machine or a model: a name, an alias, a spec file, or the thing itself."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Union

from perfmodel.core.hardware import Hardware
from perfmodel.errors import expect

if TYPE_CHECKING:
    from perfmodel.workloads.config import ModelConfig

#: a machine, or how the catalog finds it: name, alias, path of a spec file
Machine = Hardware | str | os.PathLike[str]
#: a model, or how `perfmodel.find_model` finds it: path of a config.json, shape, name
Model = Union["ModelConfig", str, "os.PathLike[str]"]


def find_machine(machine: Machine) -> Hardware:
    """Return the machine that a name, an alias or a spec file stands for.

    Raises
    ------
    UsageError, InputFileError
        When the catalog has no such name, the file is wrong, or it is neither a machine nor a name.
    """
    if isinstance(machine, Hardware):
        return machine
    remedy = 'Give a name of the catalog, "h100", the path of a spec file, or what pm.hardware returns.'
    expect(machine, str | os.PathLike, "machine", place="hardware", remedy=remedy)
    return _catalog()(os.fspath(machine))


@functools.cache
def _catalog() -> Callable[[str], Hardware]:
    """Return `perfmodel.hardware_catalog.hardware`; Python looks for 1 us whether a module is imported already."""
    from perfmodel.hardware_catalog import hardware

    return hardware


def known_machines(names: Iterable[str]) -> list[Hardware]:
    """Return the machines with some names, without those that neither the catalog nor a file has."""
    from perfmodel.errors import PerfModelError

    found = []
    for name in names:
        with contextlib.suppress(PerfModelError):
            found.append(find_machine(name))
    return found


def machine_or_none(machine: Machine | None) -> Hardware | None:
    """Return the machine that is meant, or None where none is named."""
    return None if machine is None else find_machine(machine)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None: the room's function has the default of the others."""
    return {name: value for name, value in options.items() if value is not None}
