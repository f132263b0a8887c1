"""Writing the profile of an engine as a file that `perfmodel.serving.engine.read_engine` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perfmodel.files import write_atomic
from perfmodel.serving.engine import QUANTITIES, Engine


def engine_text(engine: Engine) -> str:
    """Return a profile as TOML; values that are defaults are left out."""
    keys = {name: (key, unit) for key, (name, unit) in QUANTITIES.items()}
    lines, tables = [], []
    for item in fields(Engine):
        value = getattr(engine, item.name)
        if isinstance(value, Mapping):
            tables += _table(item.name, value)
        elif item.name in keys:
            key, unit = keys[item.name]
            lines.append(f'{key} = "{value:.6g} {unit}"')
        elif item.name == "name" or value != item.default:
            lines.append(f"{item.name} = {json.dumps(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    return ["", f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items())]


def write_engine(engine: Engine, path: str | os.PathLike[str]) -> None:
    """Write a profile to a file.

    Raises
    ------
    UsageError
        When the file cannot be written.
    """
    write_atomic(path, engine_text(engine))
