"""Reports of models: the list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_large
from perfmodel.workloads.catalog import aliases_of
from perfmodel.workloads.listing import ModelListing


def _count(parameters: float) -> str:
    return format_large(parameters, 3)


_COLUMNS = (
    Column("name"),
    Column("asked_as", "also"),
    Column("aliases", shown=False),
    Column("model_type", "type", drop=2),
    Column("parameters", show=_count),
    Column("active_parameters", "active", show=_count),
    Column("layers"),
    Column("hidden"),
    Column("heads", drop=3),
    Column("kv_heads", "kv heads", drop=4),
    Column("experts", drop=1),
    Column("positions", drop=1),
)


def saved(table: Report) -> Report:
    """Return models that were read from JSON as `models` lists them."""
    return with_columns(table, _COLUMNS)


@report.register
def _(listing: ModelListing, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return one row for each model: its name, type, parameters and sizes; 0 experts where it has none.

    People see the other name that holds the words that they ask for where the first one does not.
    """
    rows = [
        {
            **{column.key: getattr(model, column.key, None) for column in _COLUMNS},
            "asked_as": listing.asked_as.get(model.name, ""),
            "aliases": [*aliases_of(model.name)],
        }
        for model in listing.models
    ]
    notes = ("A config.json, its folder, or a shape in quotes is a model, too.",)
    return Report("models", _COLUMNS, rows, context or {}, notes, "Models of the catalog")
