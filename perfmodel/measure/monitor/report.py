"""A session of the monitor as a table: the latest value of each metric with its course, and what is wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column, Report, printable
from perfmodel.core.units import format_binary, format_si
from perfmodel.measure.monitor.findings import Finding
from perfmodel.measure.monitor.panels import monitor_panels
from perfmodel.measure.monitor.series import Floats, Series

_BARS = "▁▂▃▄▅▆▇█"
#: samples that a sparkline shows
WIDTH = 16
_NARROWEST = 20
#: endings of metrics -> unit in SI
_UNITS = {"_watts": "W", "_hertz": "Hz", "_seconds": "s", "_bytes_per_second": "B/s"}


def monitor_report(series: Series, findings: Sequence[Finding], *, context: Mapping[str, Any] | None = None) -> Report:
    """Return one row for each metric, with its latest, smallest and largest value.

    Parameters
    ----------
    series, findings : of a session.
    context : facts for JSON.
    """
    rows = []
    for metric, of in sorted(series.names(), key=lambda name: name[1]):
        times, values = series.get(metric, of)
        kinds = "; ".join(one.kind for one in findings if one.of == of)
        rows.append(
            {
                "of": of, "metric": metric, "value": float(values[-1]), "minimum": float(values.min()),
                "maximum": float(values.max()), "samples": int(values.size), "time": float(times[-1]),
                "course": sparkline(values), "finding": kinds,
            }
        )  # fmt: skip
    facts = {**(context or {}), "findings": [vars(one) for one in findings]}
    notes = tuple(str(one) for one in findings) or ("Nothing stands out.",)
    return Report("monitor", READING_COLUMNS, rows, facts, notes, "Readings", panels=monitor_panels(series))


READING_COLUMNS = (
    Column("of", merge=True),
    Column("metric"),
    Column("value", show_row=lambda row: shown(row["metric"], row["value"])),
    Column("minimum", drop=3, show_row=lambda row: shown(row["metric"], row["minimum"])),
    Column("maximum", drop=2, show_row=lambda row: shown(row["metric"], row["maximum"])),
    Column("samples", shown=False),
    Column("time", shown=False),
    Column("course", drop=1),
    Column("finding", shown=False),
)


def live_text(series: Series, findings: Sequence[Finding], width: int) -> str:
    """Return the latest readings as lines for a terminal, the findings first; made in a millisecond, unlike a table.

    Parameters
    ----------
    series, findings : of a session.
    width : of the terminal [characters].
    """
    lines = [line for one in findings for line in textwrap.wrap(printable(str(one)), max(width, _NARROWEST))]
    latest = {name: series.get(*name)[1] for name in sorted(series.names(), key=lambda name: name[1])}
    cells = [
        (printable(of), printable(metric), shown(metric, float(values[-1])), sparkline(values))
        for (metric, of), values in latest.items()
    ]
    wide = [max((len(row[at]) for row in cells), default=0) for at in range(3)]
    last = None
    for of, metric, value, course in cells:
        lines.append(f"{'' if of == last else of:{wide[0]}}  {metric:{wide[1]}}  {value:>{wide[2]}}  {course}")
        last = of
    return "\n".join(line[:width] for line in lines)


def sparkline(values: Floats) -> str:
    """Return the latest values as bars between their smallest and largest; a constant is one line of the lowest.

    >>> import numpy as np
    >>> sparkline(np.array([0.0, 1.0, 2.0, 7.0]))
    '▁▂▃█'
    """
    recent = values[-WIDTH:]
    low, high = float(recent.min()), float(recent.max())
    if high <= low:
        return _BARS[0] * recent.size
    return "".join(_BARS[round((float(value) - low) / (high - low) * (len(_BARS) - 1))] for value in recent)


def shown(metric: str, value: float) -> str:
    """Return a value for people in the unit that ends its metric's name.

    >>> shown("gpu_power_watts", 312.0), shown("host_cpu_ratio", 0.5), shown("process_memory_resident_bytes", 2**30)
    ('312 W', '50 %', '1 GiB')
    """
    if metric.endswith("_ratio"):
        return f"{100 * value:.3g} %"
    if metric.endswith("_bytes"):
        return format_binary(value)
    if metric.endswith("_celsius"):
        return f"{value:.0f} °C"
    unit = next((unit for ending, unit in _UNITS.items() if metric.endswith(ending)), "")
    return format_si(value, unit, 3) if unit else f"{value:.4g}"
