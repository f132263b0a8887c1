"""The columns of perfmodel's own JSON: units follow from the endings of keys, headings and order from its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column
from perfmodel.core.units import format_binary, format_si

Rows = Sequence[Mapping[str, Any]]

#: endings of keys -> unit
_ENDINGS = {
    "_flop_per_s": "FLOP/s", "_bytes_per_s": "B/s", "_flop_per_byte": "FLOP/B", "_tokens_per_s": "", "_per_s": "",
    "_share_of_bytes": "fraction", "_time_s": "s", "_s": "s",
    "memory_total_bytes": "iB", "memory_bytes": "iB", "kv_bytes": "iB", "_bytes": "B",
    "_flop": "FLOP", "_fraction": "fraction", "_share": "fraction", "_speedup": "x", "_factor": "x",
}  # fmt: skip
#: keys without such an ending -> unit
_UNITS = {
    "flop": "FLOP", "bytes": "B", "mfu": "fraction", "mfu_full_attention": "fraction", "hfu": "fraction",
    "fraction": "fraction", "share": "fraction", "efficiency": "fraction", "speedup": "x", "attainment": "fraction",
    "first": "iB", "last": "iB", "fullest": "iB", "roi_per_day": "", "change": "fraction", "threshold": "fraction",
    "imbalance": "fraction", "step_imbalance": "fraction",
}  # fmt: skip
#: keys whose unit is that of the command
_UNITS_OF: Mapping[str, Mapping[str, str]] = {"project": {"low": "s", "high": "s"}}
#: keys of a command that stand first, in this order, with their headings; the others show with "All columns"
_SHOWN: Mapping[str, Mapping[str, str]] = {
    "train": {
        "model": "model", "hardware": "machine", "gpus": "GPUs", "plan": "plan", "dtype": "dtype", "batch": "batch",
        "time_s": "step", "tokens_per_s_per_gpu": "tokens/s/GPU", "mfu": "MFU", "hfu": "HFU",
        "memory_total_bytes": "memory", "fits": "fits",
    },
    "search train": {
        "rank": "#", "hardware": "machine", "plan": "plan", "time_s": "step", "tokens_per_s_per_gpu": "tokens/s/GPU",
        "mfu": "MFU", "memory_total_bytes": "memory", "run_cost": "cost of a run",
    },
    "serve": {
        "deployment": "deployment", "concurrency": "users", "qps": "requests/s", "ttft_s": "TTFT", "tpot_s": "TPOT",
        "output_tokens_per_s": "tokens/s", "tokens_per_s_per_gpu": "tokens/s/GPU",
        "tokens_per_s_per_user": "tokens/s/user", "kv_share": "KV used", "cost_per_million_tokens": "cost/Mtok",
        "slo_met": "met", "limiter": "limiter",
    },
    "search serve": {
        "rank": "#", "deployment": "deployment", "gpus": "GPUs", "concurrency": "users", "ttft_s": "TTFT",
        "tpot_s": "TPOT", "tokens_per_s_per_gpu": "tokens/s/GPU", "tokens_per_s_per_user": "tokens/s/user",
        "cost_per_million_tokens": "cost/Mtok", "limiter": "limiter", "stops_at": "stops at",
    },
    "roi": {
        "rank": "#", "name": "change", "time_s": "time", "fraction": "share", "local_speedup": "local",
        "overall_speedup": "overall", "time_saved_s": "saved", "max_overall_speedup": "ceiling", "dev_days": "days",
        "roi_per_day": "ROI/day", "payback_days": "payback", "net_value": "net", "verdict": "verdict",
    },
    "whatif": {
        "step": "#", "name": "step", "kind": "kind", "total_time_s": "total", "time_saved_s": "saved",
        "step_speedup": "step alone", "speedup": "cumulative", "throughput_per_s": "a second",
        "bottleneck": "bottleneck", "bottleneck_fraction": "its share", "flags": "check",
    },
    "diagnose": {
        "dimension": "dimension", "time_s": "time", "fraction": "share", "candidate": "best candidate",
        "time_saved_s": "saves",
    },
    "capture": {
        "module": "module", "phase": "phase", "name": "operator", "count": "calls", "flop": "FLOP", "bytes": "traffic",
        "predicted_time_s": "expected", "limiter": "limiter", "share": "share", "not_modelled": "not modelled",
    },
    "monitor": {
        "of": "of", "metric": "metric", "value": "latest", "minimum": "smallest", "maximum": "largest",
        "samples": "samples", "finding": "finding",
    },
}  # fmt: skip


def columns_of(command: str, rows: Rows, table: str = "") -> tuple[Column, ...]:
    """Return the columns of some rows of a command's JSON.

    Parameters
    ----------
    command : "train", "search serve", ...
    rows : of the table.
    table : key of a further table; "" for the rows of the command itself.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    shown = _SHOWN.get(command, {}) if not table else {}
    if not shown.keys() & keys:
        return tuple(_column(key, rows, unit_of(key, command)) for key in keys)
    first = [_column(key, rows, unit_of(key, command), title) for key, title in shown.items() if key in keys]
    rest = [_column(key, rows, unit_of(key, command), shown=False) for key in keys if key not in shown]
    return (*first, *rest)


def _column(key: str, rows: Rows, unit: str, title: str = "", *, shown: bool = True) -> Column:
    values = [row.get(key) for row in rows]
    if any(isinstance(value, Mapping) and "mean" in value for value in values):
        return Column(key, title, unit, shown=shown, show=lambda value: _mean_text(value, unit))
    if key == "flags":
        return Column(key, title, show=lambda flags: "doubtful" if flags else "ok", shown=shown)
    if key in ("value", "minimum", "maximum") and rows and "metric" in rows[0]:
        return Column(key, title, shown=shown, show_row=lambda row: _reading(row, key))
    return Column(key, title, unit, shown=shown and not any(isinstance(value, (dict, list)) for value in values))


def unit_of(key: str, command: str = "") -> str:
    """Return the unit of a key of JSON: "s" of "bound_time_s", "" where neither its name nor the command tells one.

    >>> unit_of("bound_time_s"), unit_of("mfu"), unit_of("rank")
    ('s', 'fraction', '')
    """
    named = {**_UNITS, **_UNITS_OF.get(command, {})}
    if key in named:
        return named[key]
    return next((unit for ending, unit in _ENDINGS.items() if key.endswith(ending)), "")


def _mean_text(value: Any, unit: str) -> str:
    """Return a mean with its interval: "107 ms (73.7 ms to 154 ms)"."""
    if not isinstance(value, Mapping) or value.get("mean") is None:
        return "-"
    low, high = value.get("mean_low"), value.get("mean_high")
    span = "" if low is None or high is None else f" ({format_si(low, unit, 3)} to {format_si(high, unit, 3)})"
    return f"{format_si(value['mean'], unit, 3)}{span}"


def _reading(row: Mapping[str, Any], key: str) -> str:
    """Return a reading of the monitor in the unit that ends its metric's name."""
    metric, value = str(row["metric"]), row.get(key)
    if not isinstance(value, (int, float)):
        return "-"
    if metric.endswith("_ratio"):
        return f"{100 * value:.3g} %"
    if metric.endswith("_bytes"):
        return format_binary(value)
    units = {"_watts": "W", "_hertz": "Hz", "_seconds": "s", "_per_second": "/s", "_celsius": "°C"}
    unit = (
        "B/s" if metric.endswith("_bytes_per_second") else next((u for e, u in units.items() if metric.endswith(e)), "")
    )
    return format_si(float(value), unit, 3)
