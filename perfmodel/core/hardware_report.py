"""The report of one machine: its ceilings, the datasheet beside the sustained figures."""

from __future__ import annotations

from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_si

COLUMNS = (Column("ceiling"), Column("capacity_bytes", "capacity", "iB"), Column("datasheet"), Column("sustained"))


@report.register
def _(machine: Hardware, *, title: str = "") -> Report:
    """Return memory levels, peaks and links as rows."""
    rows: list[dict[str, Any]] = [
        {"ceiling": m.name, "capacity_bytes": m.capacity_bytes, "datasheet": _rate(m.bandwidth_bytes_per_s, "B/s"),
         "sustained": _rate(m.sustained_bytes_per_s, "B/s")}
        for m in machine.memory
    ]  # fmt: skip
    rows += [
        {"ceiling": f"{p.dtype} {p.engine}", "datasheet": _rate(p.flop_per_s, "FLOP/s"),
         "sustained": _rate(p.sustained_flop_per_s, "FLOP/s")}
        for p in machine.peaks
    ]  # fmt: skip
    rows += [
        {"ceiling": link.name, "datasheet": _rate(link.bandwidth_bytes_per_s, "B/s"),
         "sustained": _rate(machine.sustained_links.get(link.name), "B/s")}
        for link in machine.links
    ]  # fmt: skip
    rows += [
        {"ceiling": f"{link.name}, {op} of {line.ranks}", "sustained": _rate(line.bandwidth_bytes_per_s, "B/s")}
        for link in machine.links
        for op, line in link.lines.items()
    ]
    return Report("hardware", COLUMNS, rows, title=title or machine.title or machine.name)


def _rate(value: float | None, unit: str) -> str:
    """Return a rate as people read it, or an empty text."""
    return "" if value is None else format_si(value, unit)
