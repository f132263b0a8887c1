"""What can be added from outside: modules of a package of perfmodel, and entry points of installed packages.

Adding a machine, operator, kernel, profile format, benchmark format, renderer or command is one new file in its folder.
The same file in another distribution is found by an entry point, as pytest and fsspec find theirs:

    [project.entry-points."perfmodel.operators"]
    group_norm = "my_package.group_norm"

A plugin that cannot be imported is named in one warning and skipped; perfmodel works without it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType

#: groups of entry points, each for one kind of addition
GROUPS = ("operators", "formats", "kernels", "renderers", "commands", "hardware", "latency", "benchmark_formats")
_PREFIX = "perfmodel."


@functools.cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=_PREFIX + group))


@functools.cache
def module_names(package: str, group: str) -> Mapping[str, str]:
    """Return what a kind of addition holds, found without importing any of it: public name -> module to import.

    Parameters
    ----------
    package : package of perfmodel with one module, or one package, for each; names with a leading underscore are
        parts of others.
    group : one of `GROUPS`. A name that perfmodel itself has stays perfmodel's: a plugin cannot change a count or a
        bound that others rely on.
    """
    found = importlib.util.find_spec(package)
    folders = found.submodule_search_locations if found else None
    own = {m.name: f"{package}.{m.name}" for m in pkgutil.iter_modules(folders) if not m.name.startswith("_")}
    added = {point.name: point.value for point in _entry_points(group) if point.name not in own}
    return MappingProxyType({**own, **added})


def load_module(name: str, modules: Mapping[str, str]) -> ModuleType | None:
    """Import one of the modules that `module_names` found; None, with one warning, where a plugin cannot be imported.

    perfmodel's own modules are expected to import: their errors are faults and are raised.
    """
    module = modules[name]
    if module.startswith(_PREFIX):
        return importlib.import_module(module)
    return _import_plugin(name, module)


@functools.cache
def _import_plugin(name: str, module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 -- whatever a plugin does, perfmodel goes on without it
        warn_of_plugin(name, module, f"{type(error).__name__}: {error}")
        return None


def folders(group: str) -> tuple[Path, ...]:
    """Return the folders of data files that plugins bring, as spec files of machines.

    The entry point names a package; its folder, or the one that its ``FOLDER`` attribute names, is searched.
    """
    found = []
    for point in _entry_points(group):
        module = _import_plugin(point.name, point.value)
        if module is not None and module.__file__:
            found.append(Path(getattr(module, "FOLDER", Path(module.__file__).parent)))
    return tuple(found)


@functools.cache
def warn_of_plugin(name: str, module: str, reason: str) -> None:
    """Print one warning, once, for a plugin that is skipped."""
    sys.stderr.write(f"perfmodel: warning: plugin {name!r} ({module}) is skipped: {' '.join(reason.split())}\n")
