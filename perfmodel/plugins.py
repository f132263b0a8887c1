"""Discovery of everything that can be added to perfmodel, inside it and in other distributions.

A machine, operator, latency family, kernel, profile format, benchmark format, renderer or command is one file in the
folder for its kind. A file of another distribution is found by an entry point, as pytest and fsspec find their plugins:

    [project.entry-points."perfmodel.operators"]
    channel_norm = "my_package.channel_norm"

The entry point's name stands for the file's name, and its value is a module. Nothing is imported until it is used. A
plugin that cannot be used is named in one warning on stderr and skipped.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

#: group -> what it adds. An entry point belongs to the group ``perfmodel.<group>``.
GROUPS = MappingProxyType(
    {
        "operators": "operator",
        "latency": "latency family",
        "kernels": "kernels of an operator",
        "formats": "profile format",
        "benchmark_formats": "benchmark format",
        "renderers": "renderer",
        "commands": "command",
        "hardware": "machines",
    }
)
_PREFIX = "perfmodel."


class Plugin(NamedTuple):
    """One entry point: its group without the prefix, its name, and the module or package that it names."""

    group: str
    name: str
    module: str


@functools.cache
def module_names(package: str, group: str, helpers: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Return public name -> module for everything of one kind. Nothing is imported but ``package`` itself.

    Parameters
    ----------
    package : package of perfmodel that holds one module, or one package, for each name. Names with a leading
        underscore are skipped.
    group : one of `GROUPS`. perfmodel's own names come first: a plugin with such a name is skipped with a warning,
        since it would change a count or a bound that others rely on.
    helpers : modules of ``package`` that are not of this kind.
    """
    spec = importlib.util.find_spec(package)
    paths = spec.submodule_search_locations if spec else None
    names = {
        module.name: f"{package}.{module.name}"
        for module in pkgutil.iter_modules(paths)
        if not module.name.startswith("_") and module.name not in helpers
    }
    for plugin in plugins(group):
        if plugin.name in names:
            warn_of_plugin(plugin.name, plugin.module, f"the {GROUPS[group]} {plugin.name!r} exists already")
        else:
            names[plugin.name] = plugin.module
    return MappingProxyType(names)


def load_module(name: str, modules: Mapping[str, str]) -> ModuleType | None:
    """Import one of the modules that `module_names` returned; None, with one warning, for a plugin that fails.

    Modules of perfmodel itself have to import: their errors are faults and are raised.
    """
    module = modules[name]
    return importlib.import_module(module) if module.startswith(_PREFIX) else _import_plugin(name, module)


def load_attribute(name: str, modules: Mapping[str, str], attribute: str) -> Any:
    """Return an attribute of one of the modules that `module_names` returned; None for a plugin without it.

    A plugin that cannot be imported, or lacks the attribute, is named in one warning.
    """
    module = load_module(name, modules)
    if module is None:
        return None
    if modules[name].startswith(_PREFIX):
        return getattr(module, attribute)
    if not hasattr(module, attribute):
        warn_of_plugin(name, modules[name], f"the module has no {attribute}")
    return getattr(module, attribute, None)


@functools.cache
def _import_plugin(name: str, module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- perfmodel works without any plugin
        warn_of_plugin(name, module, f"{type(error).__name__}: {error}")
        return None


def load_plugins(group: str, name: str) -> list[ModuleType]:
    """Import all plugins of a group that have this name; several may bring kernels for one operator."""
    modules = (_import_plugin(plugin.name, plugin.module) for plugin in plugins(group) if plugin.name == name)
    return [module for module in modules if module is not None]


@functools.cache
def plugin_folders(group: str) -> tuple[Path, ...]:
    """Return the folders of the packages that the entry points of a group name. Nothing of them is imported."""
    folders = []
    for plugin in plugins(group):
        top, *inner = plugin.module.split(".")
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        paths = [Path(path, *inner) for path in (spec and spec.submodule_search_locations) or ()]
        found = [path for path in paths if path.is_dir()]
        if not found:
            warn_of_plugin(plugin.name, plugin.module, "there is no such package")
        folders += found
    return tuple(folders)


def warn_of_plugin(name: str, module: str, reason: str) -> None:
    """Print one warning, once, for a plugin that is skipped."""
    warn_once(f"plugin {name!r} ({module}) is skipped: {reason}")


@functools.cache
def warn_once(text: str) -> None:
    """Print one warning, once, for what is added to perfmodel and cannot be used."""
    sys.stderr.write(f"perfmodel: warning: {' '.join(text.split())}\n")


def plugins(group: str) -> list[Plugin]:
    """Return the entry points of a group, in the order of ``sys.path``."""
    return [plugin for plugin in _installed() if plugin.group == group]


@functools.cache
def _installed() -> tuple[Plugin, ...]:
    """Read the entry points of all installed distributions.

    This does what ``importlib.metadata.entry_points`` does. Importing that module loads 100 others, email and socket
    among them, which adds a sixth to the time that ``perfmodel --help`` takes.
    """
    texts: dict[str, str] = {}
    for folder in sys.path:
        for distribution, text in _entry_point_files(folder or os.curdir):
            texts.setdefault(distribution, text)
    found = [plugin for text in texts.values() for plugin in _parse(text)]
    return tuple(plugin for plugin in found if _is_usable(plugin))


def _entry_point_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield distribution name -> text of ``entry_points.txt`` for each distribution in a folder of ``sys.path``."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # not there, a zip file, or not readable: importing from it does not fail either
        return
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix not in (".dist-info", ".egg-info"):
            continue
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            text = ""
        # An empty one counts too: it hides the same distribution in a later folder.
        yield stem.partition("-")[0].lower(), text


def _parse(text: str) -> Iterator[Plugin]:
    """Yield the entry points of perfmodel's groups in the text of an ``entry_points.txt``."""
    if f"[{_PREFIX}" not in text:
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group.startswith(_PREFIX) and "=" in line and not line.startswith(("#", ";")):
            name, _, module = line.partition("=")
            yield Plugin(group.removeprefix(_PREFIX), name.strip(), module.strip())


def _is_usable(plugin: Plugin) -> bool:
    """Whether an entry point is written as perfmodel needs it; a warning says what is wrong with it."""
    reason = ""
    if plugin.group not in GROUPS:
        reason = f"there is no group {_PREFIX}{plugin.group}; the groups are {', '.join(GROUPS)}"
    elif not plugin.name.isidentifier() or plugin.name != plugin.name.lower():
        reason = "a name consists of lower-case letters, digits and underscores, as a file's name does"
    elif ":" in plugin.module:
        reason = "it names an attribute; name the module alone"
    if reason:
        warn_of_plugin(plugin.name, plugin.module, reason)
    return not reason
