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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfmodel.core.report import Report
from perfmodel.errors import unknown_name
from perfmodel.plugins import load_attribute, load_module, module_names

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

    def render(self, report: Report, **offered: object) -> str:
        """Return a report in this format, with those of the offered keywords that the format uses."""
        return self.function(report, **{name: value for name, value in offered.items() if name in self.options})


@functools.cache
def renderers() -> Mapping[str, Renderer]:
    """Return every output format by its name; a plugin without a function ``render`` is skipped with a warning."""
    modules = module_names(__name__, "renderers", _HELPERS)
    formats = {}
    for name in sorted(modules):
        function, module = load_attribute(name, modules, "render"), load_module(name, modules)
        if function is not None:
            suffixes, commands = getattr(module, "SUFFIXES", ()), getattr(module, "COMMANDS", ())
            options = frozenset(inspect.signature(function).parameters)
            formats[name] = Renderer(name, tuple(suffixes), tuple(commands), options, function)
    return formats


def format_names(command: str = "") -> tuple[str, ...]:
    """Return the names of the formats that a command can write; without a command, those that every command can."""
    return tuple(
        name for name, renderer in renderers().items() if not renderer.commands or command in renderer.commands
    )


def renderer(name: str, command: str = "") -> Renderer:
    """Return a format by its name.

    Raises
    ------
    UsageError
        When there is no such format, or it cannot write what the command reports.
    """
    allowed = format_names(command)
    if name not in allowed:
        raise unknown_name("format", name, allowed, place="--format")
    return renderers()[name]


def format_of_suffix(path: Path, command: str = "") -> str | None:
    """Return the format that the suffix of a file names, None where it names none; ``.gz`` behind it is passed over.

    The longest suffix decides: ``.csv.gz`` may name another format than ``.csv``.
    """
    name = path.name.lower()
    suffixes = {suffix: made for made in format_names(command) for suffix in renderers()[made].suffixes}
    for candidate in (name, name.removesuffix(_PACKED)):
        for suffix in sorted(suffixes, key=len, reverse=True):
            if candidate.endswith(suffix):
                return suffixes[suffix]
    return DEFAULT if "." not in path.name else None


def known_suffixes(command: str = "") -> list[str]:
    """Return the suffixes of files that a command can write."""
    return [suffix for name in format_names(command) for suffix in renderers()[name].suffixes]
