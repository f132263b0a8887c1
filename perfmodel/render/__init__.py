"""Renderers: one module for each output format, found by its name. Each turns a `Report` into text.

A module of this folder, or one that the entry-point group ``perfmodel.renderers`` names, has

    SUFFIXES = (".json",)     # of the files that are written in this format
    COMMANDS = ("bench",)     # optional: the only commands whose reports it can write

    def render(report: Report) -> str: ...

Its ``render`` may also take ``width`` [characters], ``color`` or ``wide`` by keyword; the caller passes what the
signature names. Plots are no renderers: they live in ``perfmodel.render.plots``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import unknown_name
from perfmodel.plugins import load_attribute, load_module, module_names

if TYPE_CHECKING:
    from perfmodel.core.report import Report

#: the format of what is printed, and of files without a suffix
DEFAULT = "table"
_HELPERS = ("plots",)
_PACKED = ".gz"


@dataclass(frozen=True)
class Renderer:
    """One output format.

    Attributes
    ----------
    name : of the format.
    suffixes : of the files that are written in it.
    commands : the only commands whose reports it can write; empty for every command.
    options : the keywords that its function takes besides the report.
    """

    name: str
    suffixes: tuple[str, ...]
    commands: tuple[str, ...]
    options: frozenset[str]
    function: Callable[..., str]

    def writes(self, command: str) -> bool:
        """Whether the format can write what a command reports."""
        return not self.commands or command in self.commands

    def render(self, report: Report, **offered: object) -> str:
        """Return a report in this format, with those of the offered keywords that the format uses."""
        return self.function(report, **{name: value for name, value in offered.items() if name in self.options})


def _modules() -> Mapping[str, str]:
    return module_names(__name__, "renderers", _HELPERS)


def _is_plugin(name: str) -> bool:
    return not _modules()[name].startswith(f"{__name__}.")


@functools.cache
def _load(name: str) -> Renderer | None:
    """Import a format; None, with a warning, for a plugin without a function ``render``."""
    function, module = load_attribute(name, _modules(), "render"), load_module(name, _modules())
    if function is None:
        return None
    suffixes, commands = getattr(module, "SUFFIXES", ()), getattr(module, "COMMANDS", ())
    options = frozenset(inspect.signature(function).parameters)
    return Renderer(name, tuple(suffixes), tuple(commands), options, function)


def _loaded(command: str, *, plugins: bool) -> Iterator[Renderer]:
    """Import perfmodel's own formats, or those of plugins, and yield the ones that a command can write."""
    for name in sorted(_modules()):
        made = _load(name) if _is_plugin(name) is plugins else None
        if made is not None and made.writes(command):
            yield made


def format_names(command: str = "") -> tuple[str, ...]:
    """Return the names of the formats that a command can write; without a command, those that every command can.

    Plugins are listed without importing them.
    """
    own = (made.name for made in _loaded(command, plugins=False))
    return tuple(sorted([*own, *filter(_is_plugin, _modules())]))


def renderer(name: str, command: str = "") -> Renderer:
    """Return a format by its name.

    Raises
    ------
    UsageError
        When there is no such format, or it cannot write what the command reports.
    """
    allowed = format_names(command)
    made = _load(name) if name in allowed else None
    if made is None or not made.writes(command):
        raise unknown_name("format", name, allowed, place="--format")
    return made


def format_of_suffix(path: Path, command: str = "") -> str | None:
    """Return the format that the suffix of a file names, None where it names none; ``.gz`` behind it is passed over.

    The longest suffix decides: ``.csv.gz`` may name another format than ``.csv``. Plugins are asked only where none of
    perfmodel's own formats has the suffix.
    """
    name = path.name.lower()
    for plugins in (False, True):
        suffixes = {suffix: made.name for made in _loaded(command, plugins=plugins) for suffix in made.suffixes}
        for candidate in (name, name.removesuffix(_PACKED)):
            for suffix in sorted(suffixes, key=len, reverse=True):
                if candidate.endswith(suffix):
                    return suffixes[suffix]
        if "." not in path.name:
            return DEFAULT
    return None


def known_suffixes(command: str = "") -> list[str]:
    """Return the suffixes of files that a command can write."""
    every = (*_loaded(command, plugins=False), *_loaded(command, plugins=True))
    return [suffix for made in every for suffix in made.suffixes]
