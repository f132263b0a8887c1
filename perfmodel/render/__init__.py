"""Renderers: one module for each output format, named after it. Each turns a `Report` into text.

A module of this folder, or one that the entry-point group ``perfmodel.renderers`` names, has

    SUFFIXES = (".json",)     # suffixes of files in this format
    ALSO = (".jsonl",)        # optional: suffixes of other formats that its files may have as well
    COMMANDS = ("bench",)     # optional: the only commands whose reports the format can hold

    def render(report: Report) -> str: ...

    def pieces(report: Report, goes_on: GoesOn) -> Iterator[str]: ...    # optional: the same text, a piece at a time

Its ``render`` may also take the keywords ``width`` [characters], ``color`` or ``wide``; the caller passes
those that the signature has. Plots are not renderers; they are in ``perfmodel.render.plots``.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel import storage
from perfmodel.errors import unknown_name
from perfmodel.plugins import load_attribute, load_module, module_names

if TYPE_CHECKING:
    from perfmodel.core.report import GoesOn, Report

#: format of printed results, and of files without a suffix
DEFAULT = "table"
_HELPERS = ("plots",)
_PACKED = ".gz"


@dataclass(frozen=True)
class Renderer:
    """One output format.

    Attributes
    ----------
    name : name of the format.
    suffixes : suffixes of files in the format.
    also : suffixes of other formats that files in this one may have, where it is asked for by name.
    commands : the only commands whose reports the format can hold; empty for every command.
    options : keywords that the function takes besides the report.
    function : turns a report into text.
    pieces : yields the text of a very long report a piece at a time, while it ``goes_on``; None where the format needs
        the whole report.
    """

    name: str
    suffixes: tuple[str, ...]
    commands: tuple[str, ...]
    options: frozenset[str]
    function: Callable[..., str]
    pieces: Callable[[Report, GoesOn], Iterator[str]] | None = None
    also: tuple[str, ...] = ()

    def writes(self, command: str) -> bool:
        """Whether the format can hold the reports of a command."""
        return not self.commands or command in self.commands

    def render(self, report: Report, **options: object) -> str:
        """Return a report in this format. Keywords that the format does not take are ignored."""
        if self.pieces is None and not isinstance(report.rows, list):
            report = replace(report, rows=list(report.rows))  # it may go through them for each column
        return self.function(report, **{name: value for name, value in options.items() if name in self.options})


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
    pieces, also = getattr(module, "pieces", None), getattr(module, "ALSO", ())
    return Renderer(name, tuple(suffixes), tuple(commands), options, function, pieces, tuple(also))


def _loaded(command: str, *, plugins: bool) -> Iterator[Renderer]:
    """Import perfmodel's own formats, or those of plugins, and yield those that can hold the reports of a command."""
    for name in sorted(_modules()):
        format_ = _load(name) if _is_plugin(name) is plugins else None
        if format_ is not None and format_.writes(command):
            yield format_


def format_names(command: str = "") -> tuple[str, ...]:
    """Return the names of the formats that can hold the reports of a command, or with "" those of every command.

    Plugins are not imported, so all of them are listed.
    """
    own = (format_.name for format_ in _loaded(command, plugins=False))
    return tuple(sorted([*own, *filter(_is_plugin, _modules())]))


def renderer(name: str, command: str = "") -> Renderer:
    """Return a format by its name, or by a suffix of its files without the dot ("md").

    Raises
    ------
    UsageError
        When there is no such format, or it cannot hold the reports of the command.
    """
    allowed = format_names(command)
    own = _loaded(command, plugins=False)
    by_suffix = {suffix.removeprefix("."): format_.name for format_ in own for suffix in format_.suffixes}
    name = name if name in allowed else by_suffix.get(name, name)
    format_ = _load(name) if name in allowed else None
    if format_ is None or not format_.writes(command):
        raise unknown_name("format", name, allowed, place="--format")
    return format_


def format_of_suffix(path: str | os.PathLike[str], command: str = "") -> str | None:
    """Return the format for the suffix of a file, or None if no format has it; a final ``.gz`` is ignored.

    The longest suffix decides: ``.csv.gz`` may belong to another format than ``.csv``. Plugins are imported only if
    none of perfmodel's own formats has the suffix.
    """
    name = storage.name_of(path).lower()
    for plugins in (False, True):
        formats = _loaded(command, plugins=plugins)
        suffixes = {suffix: format_.name for format_ in formats for suffix in format_.suffixes}
        for candidate in (name, name.removesuffix(_PACKED)):
            for suffix in sorted(suffixes, key=len, reverse=True):
                if candidate.endswith(suffix):
                    return suffixes[suffix]
        if "." not in name:
            return DEFAULT
    return None


def known_suffixes(command: str = "") -> list[str]:
    """Return the suffixes of the files that a command can write."""
    every = (*_loaded(command, plugins=False), *_loaded(command, plugins=True))
    return [suffix for format_ in every for suffix in format_.suffixes]
