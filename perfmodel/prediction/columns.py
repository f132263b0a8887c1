"""The columns of reports of predictions, their explanations and whole models, and the text of cells for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column
from perfmodel.core.units import format_interval, format_si
from perfmodel.core.vocabulary import Limiter


def _operator(row: Mapping[str, Any]) -> str:
    """Return the name of an operator with its dimensions and dtype."""
    return " ".join(str(row[key]) for key in ("name", "dimensions", "dtype") if row.get(key))


def _interval(row: Mapping[str, Any]) -> str:
    """Return the 80 % interval of the predicted time, with one unit where both ends have the same."""
    return format_interval(row.get("predicted_time_low_s"), row.get("predicted_time_high_s"), "s")


def _alone(row: Mapping[str, Any]) -> str:
    """Return the interval of measured / predicted that one source of error alone would give, less 1."""
    return f"{100 * (row['low'] - 1):+.1f} % to {100 * (row['high'] - 1):+.1f} %"


def _attainable(row: Mapping[str, Any]) -> str:
    """Return the attainable rate: in FLOP/s for a compute-bound row, in B/s for one that memory or a link bounds."""
    return "-" if row.get("limiter") in (Limiter.LAUNCH, None) else _rate(row, "attainable")


#: the time that a kind of rate refers to
_TIMES = {"predicted": "predicted_time_s", "attainable": "bound_time_s", "achieved": "measured_time_s"}


def _rate(row: Mapping[str, Any], kind: str = "predicted") -> str:
    """Return a rate of a row: in FLOP/s where the arithmetic bounds it or it moves nothing, else in B/s.

    Where the launch bounds it, the rate is that of what takes longest beside it, which the share of the peak is of.
    Where a link bounds it, the bytes are those that cross the link, whose share of the peak stands beside the rate. The
    rate of a collective is its bus bandwidth, whatever bounds it, so that rows of one table compare.
    """
    flop_per_s, bytes_per_s = row.get(f"{kind}_flop_per_s"), row.get(f"{kind}_bytes_per_s")
    crossing = row.get("bus_bytes") or (row.get("link_bytes") if row.get("limiter") == Limiter.LINK else None)
    if crossing and row.get(_TIMES[kind]):
        bytes_per_s = crossing / row[_TIMES[kind]]
    if flop_per_s is not None and (_computes(row) or not bytes_per_s):
        return format_si(flop_per_s, "FLOP/s", 3)
    return "-" if bytes_per_s is None else format_si(bytes_per_s, "B/s", 3)


def _computes(row: Mapping[str, Any]) -> bool:
    """Return whether the arithmetic of a row takes longest: beside the launch it does from the ridge point on."""
    if row.get("limiter") != Limiter.LAUNCH:
        return row.get("limiter") == Limiter.COMPUTE
    intensity, ridge = (row.get(f"{key}_flop_per_byte") for key in ("arithmetic_intensity", "ridge_point"))
    return intensity is not None and ridge is not None and not row.get("link_bytes") and bool(intensity > ridge)


def achieved(row: Mapping[str, Any]) -> str:
    """Return the rate at a measured time: in FLOP/s for a compute-bound row, else in B/s."""
    return _rate(row, "achieved")


#: the least share that is printed as a number
_A_PER_CENT = 0.01


def _rate_of_peak(row: Mapping[str, Any]) -> str:
    """Return the expected rate and its share of the peak.

    A rate above the peak of the memory is that of a cache: it has no share.
    """
    share, rate = row.get("predicted_utilization"), _rate(row)
    if share is None or not math.isfinite(share) or _is_from_cache(row):
        return rate
    return f"{rate} {100 * share:.0f}" if share >= _A_PER_CENT else f"{rate} <1"


def _is_from_cache(row: Mapping[str, Any]) -> bool:
    """Return whether an expected time is below the bound of a cold call, which rows of whole models do not have."""
    bound_s, predicted_s = row.get("bound_time_s"), row.get("predicted_time_s")
    return bound_s is not None and predicted_s is not None and bound_s > predicted_s * (1.0 + 1e-9)


PREDICTION_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator", show_row=_operator),
    Column("dimensions", shown=False),
    Column("params", shown=False),
    Column("dtype", shown=False),
    Column("engine", shown=False),
    Column("count", shown=False),
    Column("hardware", shown=False),
    Column("flop", "work", "FLOP", drop=6),
    Column("bytes_read", unit="B", shown=False),
    Column("bytes_written", unit="B", shown=False),
    Column("link_bytes", unit="B", shown=False),
    Column("bus_bytes", unit="B", shown=False),
    Column("working_set_bytes", unit="B", shown=False),
    Column("arithmetic_intensity_flop_per_byte", "intensity", "FLOP/B", drop=4),
    Column("ridge_point_flop_per_byte", "ridge", "FLOP/B", drop=6),
    Column("limiter", "limit"),
    Column("bound_time_s", "bound", "s"),
    Column("fits_in", "smallest level that holds it", drop=5),
    Column("resident_bound_time_s", unit="s", shown=False),
    Column("resident_limiter", shown=False),
    Column("timing", shown=False),
    Column("cache", shown=False),
    Column("library", shown=False),
    Column("load", shown=False),
    Column("predicted_time_s", "predicted", "s"),
    Column("predicted_time_low_s", "low-high", "s", show_row=_interval),
    Column("predicted_time_high_s", "high", "s", shown=False),
    Column("predicted_limiter", shown=False),
    Column("largest_term", "largest term", drop=3),
    Column("predicted_terms_s", "terms", "s", shown=False, digits=3),
    Column("family", shown=False),
    Column("calibration", shown=False),
    Column("regime", shown=False),
    Column("prediction_basis", shown=False),
    Column("not_seen", shown=False),
    Column("interval_shares", shown=False),
    Column("predicted_flop_per_s", "rate, % of peak", "FLOP/s", show_row=_rate_of_peak),
    Column("predicted_bytes_per_s", "predicted bandwidth", "B/s", shown=False),
    Column("predicted_utilization", unit="fraction", shown=False),
    Column("attainable_flop_per_s", "attainable", "FLOP/s", show_row=_attainable, drop=2),
    Column("attainable_bytes_per_s", "attainable bandwidth", "B/s", shown=False),
    Column("advice", shown=False),
)
#: whose rows follow: an operator on a machine, once above all of its rows
_WHOSE = (
    Column("op", shown=False),
    Column("name", "operator", merge=True, show_row=_operator),
    Column("dimensions", shown=False),
    Column("dtype", shown=False),
    Column("hardware", merge=True, shown=False),
)
TERM_COLUMNS = (
    *_WHOSE,
    Column("term"),
    Column("time_s", "adds", "s"),
    Column("share", unit="fraction"),
    Column("alone_time_s", "alone", "s", drop=1),
    Column("meaning", shown=False),
)
ERROR_COLUMNS = (
    *_WHOSE,
    Column("source"),
    Column("share", "of the variance", "fraction"),
    Column("alone", "interval of it alone", show_row=_alone),
    Column("low", unit="fraction", shown=False),
    Column("high", unit="fraction", shown=False),
    Column("meaning", shown=False),
)
MODEL_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator"),
    Column("dimensions", drop=1),
    Column("dtype", drop=3),
    Column("count", "calls"),
    Column("predicted_time_s", "one call", "s", drop=2),
    Column("time_s", "time", "s"),
    Column("share", unit="fraction"),
    Column("predicted_flop_per_s", "rate, % of peak", "FLOP/s", show_row=_rate_of_peak, drop=1),
    Column("predicted_bytes_per_s", "predicted bandwidth", "B/s", shown=False),
    Column("predicted_utilization", unit="fraction", shown=False),
    Column("link_bytes", unit="B", shown=False),
    Column("bus_bytes", unit="B", shown=False),
    Column("limiter", shown=False),
    Column("family", drop=4),
    Column("largest_term", "largest term", drop=3),
)
