"""Writing a specification file that `read_hardware` reads back to the same `Hardware`."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perfmodel.core.hardware import Hardware
from perfmodel.files import toml_string, write_atomic
from perfmodel.hardware_catalog.as_spec import to_spec
from perfmodel.hardware_catalog.read import read_spec
from perfmodel.hardware_catalog.schema import HardwareSpec
from perfmodel.prediction.latency.tables import LatencySpec

#: the order of the tables in a file
_TABLES = ("chip", "memory", "peak", "link", "launch", "kernels", "cluster", "sustained", "latency")


def write_spec(hardware: Hardware | HardwareSpec, path: str | os.PathLike[str]) -> None:
    """Write a machine as a TOML specification file; ``-`` writes to standard output.

    Raises
    ------
    UsageError
        When the place cannot be written.
    """
    write_atomic(path, spec_text(hardware))


def spec_text(hardware: Hardware | HardwareSpec) -> str:
    """Return the TOML text of a machine.

    What a `Hardware` does not keep (bus widths, memory clocks, link generations) is in the text only when
    a `HardwareSpec` is given.
    """
    spec = to_spec(hardware) if isinstance(hardware, Hardware) else hardware
    table = _without_defaults(msgspec.to_builtins(spec))
    ordered = {key: table[key] for key in (*(key for key in table if key not in _TABLES), *_TABLES) if key in table}
    return "\n\n".join(_blocks((), ordered)) + "\n"


def template_text(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the specification in a file as a template for another machine, and what it leaves out, or "".

    It has none of the constants that were fitted on this machine, and a comment says so.

    Raises
    ------
    InputFileError
        When the file cannot be read or is wrong.
    """
    spec = read_spec(path)
    fitted, spec.latency = bool(spec.latency), {}
    if not fitted:
        return spec_text(spec), ""
    left_out = (
        f"without the [latency] constants that were fitted on {spec.name}: predictions with this file differ from "
        "those of the catalog's machine"
    )
    comment = f"Template for another machine, {left_out}. Give it a name of its own."
    return "".join(f"# {line}\n" for line in textwrap.wrap(comment, 100)) + "\n" + spec_text(spec), left_out


def latency_text(specs: Mapping[str, LatencySpec]) -> str:
    """Return the TOML text of some ``[latency]`` tables."""
    table = _without_defaults({name: msgspec.to_builtins(spec) for name, spec in specs.items()})
    return "\n\n".join(_blocks(("latency",), table)) + "\n"


def _without_defaults(value: Any) -> Any:
    """Return nested dicts without what says nothing: None, empty texts, lists and tables."""
    if not isinstance(value, dict):
        return value
    kept = {key: _without_defaults(item) for key, item in value.items()}
    return {key: item for key, item in kept.items() if item not in (None, "", [], {})}


def _blocks(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a table and then of the tables in it; a rate is written on one line."""
    inline = len(path) == 2 and path[0] == "peak"
    nested = [] if inline else [key for key, item in table.items() if isinstance(item, dict)]
    lines = [f"{_key(key)} = {_value(item)}" for key, item in table.items() if key not in nested]
    if lines:
        head = [f"[{'.'.join(map(_key, path))}]"] if path else []
        yield "\n".join([*head, *lines])
    for key in nested:
        yield from _blocks((*path, key), table[key])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, bool):
        return str(value).lower()
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_string(name)
