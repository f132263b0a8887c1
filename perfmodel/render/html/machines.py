"""The figures of machines that numbers on a page rest on, each with its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.prediction.latency.nearest_tables import fitted_table

Figure = dict[str, Any]


def machine_figures(machines: Iterable[Hardware], families: Iterable[str] = ()) -> dict[str, Any]:
    """Return the figures of machines by name, with the texts of their sources once each.

    Parameters
    ----------
    machines : whose figures a page shows.
    families : of the latency model whose constants it shows.
    """
    sources: dict[str, int] = {}
    wanted = sorted(set(families))
    return {
        "machines": {
            machine.name: {
                "title": machine.title or machine.name,
                "figures": [_numbered(figure, sources) for figure in _figures(machine, wanted)],
            }
            for machine in machines
        },
        "sources": list(sources),
    }


def _numbered(figure: Figure, sources: dict[str, int]) -> Figure:
    """Return a figure with the numbers of its sources in the place of their texts."""
    for key in ("source", "sustained_source"):
        text = figure.pop(key, "")
        if text:
            figure[key] = sources.setdefault(text, len(sources))
    return figure


def _figures(machine: Hardware, families: Sequence[str]) -> Iterator[Figure]:
    for level in machine.memory:
        if level.bandwidth_bytes_per_s or level.sustained_bytes_per_s:
            yield {
                "group": "memory", "key": level.name, "value": level.bandwidth_bytes_per_s,
                "sustained": level.sustained_bytes_per_s, "unit": "B/s", "source": level.source,
                "sustained_source": machine.sustained_source if level.sustained_bytes_per_s else "",
            }  # fmt: skip
    for peak in machine.peaks:
        yield {
            "group": "peak", "key": peak.dtype, "engine": str(peak.engine), "value": peak.flop_per_s,
            "sustained": peak.sustained_flop_per_s, "unit": "FLOP/s", "source": peak.source,
            "sustained_source": machine.sustained_source if peak.sustained_flop_per_s else "",
        }  # fmt: skip
    for link in machine.links:
        yield {
            "group": "link", "key": link.name, "value": link.bandwidth_bytes_per_s, "unit": "B/s",
            "source": link.source,
        }  # fmt: skip
    launch = machine.launch
    for name, value in launch.known.items():
        yield {"group": "launch", "key": name, "value": value, "unit": "s", "source": launch.source}
    yield from _constants(machine, families)


def _constants(machine: Hardware, families: Sequence[str]) -> Iterator[Figure]:
    for family in families:
        table = fitted_table(family, machine) if family in machine.latency else None
        if table is None:
            continue
        source = f"{table.source}, {table.date}" if table.date else table.source
        for key, value in table.constants.items():
            yield {"group": f"latency {family}", "key": key, "value": float(value), "unit": "", "source": source}


def names_in(rows: Iterable[Mapping[str, Any]], context: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the machines that a report names, and the families of the latency model that its rows come from."""
    machines: dict[str, None] = {}
    families: dict[str, None] = {}
    named = context.get("hardware")
    for name in [named] if isinstance(named, str) else named or []:
        machines[str(name)] = None
    for row in rows:
        if row.get("hardware"):
            machines[str(row["hardware"])] = None
        if row.get("family"):
            families[str(row["family"])] = None
    return list(machines), list(families)
