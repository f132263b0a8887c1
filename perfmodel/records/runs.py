"""Benchmark records of any tool as rows that `compare` can pair.

Each module of `perfmodel.records.benchmark_formats` reads the JSON of one tool:

- ``recognises(document)``: whether a parsed JSON document is of this tool. No other module may recognise it too.
- ``read(document, place)``: its rows as a `BenchRun`; ``place`` is the file, for messages. A
  `msgspec.ValidationError` becomes a message with the key.

Entry points of the group ``perfmodel.benchmark_formats`` add modules of other distributions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol, cast

import msgspec

from perfmodel.comparison.pairing import BenchRun
from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.plugins import load_attribute, load_module, module_names
from perfmodel.records.record import SUFFIXES, reason_of

_PACKAGE = "perfmodel.records.benchmark_formats"


class BenchmarkFormat(Protocol):
    """A module that reads the benchmark records of one tool."""

    __name__: str

    def recognises(self, document: Any) -> bool:
        """Whether a parsed JSON document is of this tool."""
        ...

    def read(self, document: Any, place: str) -> BenchRun:
        """Return the rows of a document that is recognised."""
        ...


def benchmark_formats() -> Iterator[BenchmarkFormat]:
    """Yield the modules that read benchmark records; a plugin that lacks a function is skipped with a warning."""
    modules = module_names(_PACKAGE, "benchmark_formats")
    for name in sorted(modules):
        if all(load_attribute(name, modules, function) for function in ("recognises", "read")):
            yield cast(BenchmarkFormat, load_module(name, modules))


def format_of(document: Any) -> BenchmarkFormat | None:
    """Return the format that recognises a parsed document, or None."""
    return next((module for module in benchmark_formats() if module.recognises(document)), None)


def read_bench_run(path: str | os.PathLike[str]) -> BenchRun:
    """Return the benchmark record in a JSON file of any tool that is known.

    Raises
    ------
    InputFileError
        When the file cannot be read, is not a benchmark record of a known tool, or has no rows.
    """
    place = os.fspath(path)
    document = read_document(path, SUFFIXES, remedy=f"A record is JSON. {_remedy()}")
    reader = format_of(document)
    if reader is None:
        keys = ", ".join(list(document)[:6]) or "none" if isinstance(document, dict) else "not a JSON object"
        raise InputFileError(
            f"is not a benchmark record of a known tool; its keys: {keys}.", place=place, remedy=_remedy()
        )
    try:
        run = reader.read(document, place)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InputFileError(f"is not a record: {reason_of(error)}.", place=place) from None
    except InputFileError as error:
        raise InputFileError(error.message, place=error.place or place, remedy=error.remedy) from None
    if not run.rows:
        raise InputFileError("the record has no rows.", place=place, remedy=_remedy())
    return run


def _remedy() -> str:
    tools = ", ".join(name.replace("_", "-") for name in sorted(module_names(_PACKAGE, "benchmark_formats")))
    return f"Write one with: perfmodel bench OPS... -o record.json. Formats: {tools}."
