"""Reports of predictions, their explanations, and the times of whole models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Limiter
from perfmodel.prediction.algorithms.choice import Choice
from perfmodel.prediction.algorithms.report import choice_report
from perfmodel.prediction.explain import Explained, IntervalShares, meaning
from perfmodel.prediction.measured import Measured
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.uncertainty import MEANINGS, half_width
from perfmodel.prediction.whole_model import Part, WholeModel

_NO_CONTEXT: Mapping[str, Any] = MappingProxyType({})
#: share of the predicted time that a hidden resource must take alone to be listed
_NOTABLE = 0.05


def _operator(row: Mapping[str, Any]) -> str:
    """Return the name of an operator with its dimensions and dtype."""
    return " ".join(str(row[key]) for key in ("name", "dimensions", "dtype") if row.get(key))


def _interval(row: Mapping[str, Any]) -> str:
    """Return the 80 % interval of the predicted time, with one unit where both ends have the same."""
    ends = (row.get("predicted_time_low_s"), row.get("predicted_time_high_s"))
    if any(end is None or not math.isfinite(end) for end in ends):
        return "-"
    (low, unit), (high, last) = (format_si(float(end), "s", 3).split() for end in ends if end is not None)
    return f"{low}-{high} {last}" if unit == last else f"{low} {unit}-{high} {last}"


def _alone(row: Mapping[str, Any]) -> str:
    """Return the interval of measured / predicted that one source of error alone would give, less 1."""
    return f"{100 * (row['low'] - 1):+.1f} % to {100 * (row['high'] - 1):+.1f} %"


def _attainable(row: Mapping[str, Any]) -> str:
    """Return the attainable rate: in FLOP/s for a compute-bound row, in B/s for one that memory or a link bounds."""
    return "-" if row.get("limiter") in (Limiter.LAUNCH, None) else _rate(row, "attainable")


def _rate(row: Mapping[str, Any], kind: str = "predicted") -> str:
    """Return a rate of a row: in FLOP/s where the arithmetic bounds it or it moves nothing, else in B/s."""
    flop_per_s, bytes_per_s = row.get(f"{kind}_flop_per_s"), row.get(f"{kind}_bytes_per_s")
    if flop_per_s is not None and (row.get("limiter") == Limiter.COMPUTE or not bytes_per_s):
        return format_si(flop_per_s, "FLOP/s", 3)
    return "-" if bytes_per_s is None else format_si(bytes_per_s, "B/s", 3)


def _rate_of_peak(row: Mapping[str, Any]) -> str:
    """Return the expected rate and the share of the peak of what is used most."""
    share, rate = row.get("predicted_utilization"), _rate(row)
    return rate if share is None or not math.isfinite(share) else f"{rate} {100 * share:.0f}"


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
    Column("predicted_time_high_s", unit="s", shown=False),
    Column("predicted_limiter", shown=False),
    Column("largest_term", "largest term", drop=3),
    Column("predicted_terms_s", shown=False),
    Column("family", shown=False),
    Column("calibration", shown=False),
    Column("regime", shown=False),
    Column("prediction_basis", shown=False),
    Column("not_seen", shown=False),
    Column("interval_shares", shown=False),
    Column("predicted_flop_per_s", "rate, % of peak", "FLOP/s", show_row=_rate_of_peak),
    Column("predicted_bytes_per_s", unit="B/s", shown=False),
    Column("predicted_utilization", unit="fraction", shown=False),
    Column("attainable_flop_per_s", "attainable", "FLOP/s", show_row=_attainable, drop=2),
    Column("attainable_bytes_per_s", unit="B/s", shown=False),
    Column("advice", shown=False),
)
TERM_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator", merge=True, show_row=_operator),
    Column("dimensions", shown=False),
    Column("dtype", shown=False),
    Column("hardware", merge=True, shown=False),
    Column("term"),
    Column("time_s", "adds", "s"),
    Column("share", unit="fraction"),
    Column("alone_time_s", "alone", "s", drop=1),
    Column("meaning", shown=False),
)
ERROR_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator", merge=True, show_row=_operator),
    Column("dimensions", shown=False),
    Column("dtype", shown=False),
    Column("hardware", merge=True, shown=False),
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
    Column("predicted_bytes_per_s", unit="B/s", shown=False),
    Column("predicted_utilization", unit="fraction", shown=False),
    Column("limiter", shown=False),
    Column("family", drop=4),
    Column("largest_term", "largest term", drop=3),
)


@report.register(Prediction)
def _(
    predictions: Prediction | Sequence[Prediction],
    *,
    command: str = "analyze",
    context: Mapping[str, Any] = _NO_CONTEXT,
    title: str = "",
    notes: tuple[str, ...] = (),
) -> Report:
    """Return one row for each point of one prediction or several, as of a sweep."""
    listed = [predictions] if isinstance(predictions, Prediction) else list(predictions)
    rows = [row for prediction in listed for row in prediction.rows()]
    for row in rows:
        row["name"] = row["name"] or row["op"]
    hardware = list(dict.fromkeys(prediction.hardware for prediction in listed))
    return Report(
        command,
        _keep_hardware(PREDICTION_COLUMNS, hardware),
        rows,
        {"hardware": hardware, **context},
        notes=notes,
        title=title,
    )


@report.register(Measured)
def _(
    judged: Measured | Sequence[Measured],
    *,
    context: Mapping[str, Any] = _NO_CONTEXT,
    title: str = "",
    notes: tuple[str, ...] = (),
) -> Report:
    """Return one row for each judged time: the keys of a prediction, measured_time_s, efficiency, verdict, causes."""
    listed = [judged] if isinstance(judged, Measured) else list(judged)
    table = report([item.prediction for item in listed], context=context, title=title)
    rows = [row for item in listed for row in item.rows()]
    for row in rows:
        row["name"] = row["name"] or row["op"]
    sentences = [line for item in listed for line in _verdict_lines(item)]
    return replace(table, columns=_with_verdict(table.columns), rows=rows, notes=(*sentences, *notes))


def _verdict_lines(judged: Measured) -> list[str]:
    """Return the verdict, and its likely causes numbered in their order."""
    causes = [f"{number}. {cause[0].upper()}{cause[1:]}." for number, cause in enumerate(judged.causes, start=1)]
    return [judged.sentence, *(["Likely causes, in order:"] if causes else []), *causes]


def _with_verdict(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a prediction with those of a measured time; the expected rate makes room for them."""
    kept = [replace(column, drop=1) if column.key == "predicted_flop_per_s" else column for column in columns]
    place = next(index for index, column in enumerate(kept) if column.key == "predicted_flop_per_s")
    measured = (
        Column("measured_time_s", "measured", "s"),
        Column(
            "efficiency", "of bound", "fraction", show=lambda share: "faster" if share > 1 else f"{100 * share:.0f} %"
        ),
        Column("verdict", shown=False),
        Column("causes", shown=False),
    )
    return (*kept[:place], *measured, *kept[place:])


def _keep_hardware(columns: tuple[Column, ...], hardware: Sequence[str]) -> tuple[Column, ...]:
    """Return columns of which that of the machine stays, however narrow the table, if there are several machines."""
    if len(hardware) < 2:
        return columns
    places = {"hardware": 0, "predicted_flop_per_s": 1}
    return tuple(
        replace(column, drop=places[column.key], shown=True) if column.key in places else column for column in columns
    )


@report.register(Explained)
def _(points: Explained | Sequence[Explained], *, command: str = "analyze") -> Report:
    """Return the terms of one point or several, one row for each term.

    A resource that adds nothing is listed if it alone would take a notable part of the time: the largest hides it.
    """
    listed = [points] if isinstance(points, Explained) else points
    rows = [row for point in listed for row in _term_rows(point)]
    columns = _keep_hardware(TERM_COLUMNS, list(dict.fromkeys(row["hardware"] for row in rows)))
    meanings = {row["term"]: meaning(row["term"]) for row in rows}
    notes = tuple(f"{term}: {text}." for term, text in meanings.items() if text)
    return Report(command, columns, rows, notes=notes, title="Terms that add up to the predicted times")


def _term_rows(point: Explained) -> Iterable[dict[str, Any]]:
    keys = ("op", "name", "dimensions", "dtype", "hardware")
    common = {key: point.row[key] for key in keys} | {"name": point.row["name"] or point.row["op"]}
    hidden = [name for name in point.alone if name not in point.adds and point.alone[name] > _NOTABLE * point.time_s]
    for name in (*point.adds, *hidden):
        time = point.adds.get(name, 0.0)
        text = meaning(name)
        yield {
            **common,
            "term": str(name),
            "time_s": time,
            "share": time / point.time_s,
            "alone_time_s": point.alone.get(name),
            "meaning": text if time else f"{text} (hidden)".strip(),
        }


@report.register(IntervalShares)
def _(points: IntervalShares | Sequence[IntervalShares], *, command: str = "analyze") -> Report:
    """Return the sources of error behind the interval of one point or several, one row for each source."""
    listed = [points] if isinstance(points, IntervalShares) else points
    rows = [row for point in listed for row in _source_rows(point)]
    columns = _keep_hardware(ERROR_COLUMNS, list(dict.fromkeys(row["hardware"] for row in rows)))
    notes = tuple(f"{source}: {text}." for source, text in {row["source"]: row["meaning"] for row in rows}.items())
    return Report(command, columns, rows, notes=notes, title="What the 80 % intervals are made of")


def _source_rows(point: IntervalShares) -> Iterable[dict[str, Any]]:
    keys = ("op", "name", "dimensions", "dtype", "hardware")
    common = {key: point.row[key] for key in keys} | {"name": point.row["name"] or point.row["op"]}
    total = sum(point.variances.values())
    for source, variance in point.variances.items():
        high = math.exp(half_width([variance]))
        yield {
            **common,
            "source": str(source),
            "share": variance / total,
            "alone": high - 1.0,
            "low": 1.0 / high,
            "high": high,
            "meaning": MEANINGS[source],
        }


@report.register
def _(model: WholeModel, *, context: Mapping[str, Any] = _NO_CONTEXT, title: str = "") -> Report:
    """Return one row for each operator of the list, with the time of all its calls."""
    rows = [_part_row(part, model) for part in model.parts]
    calls = sum(part.prediction.count for part in model.parts)
    interval = f"{format_si(model.low_s, 's')} to {format_si(model.high_s, 's')}"
    total = (
        f"{calls} calls take {format_si(model.time_s, 's')} ({interval}): kernels {format_si(model.kernels_s, 's')}, "
        f"gaps between them {format_si(model.gaps_s, 's')}; the host needs {format_si(model.host_s, 's')} to dispatch "
        f"them, so that the {model.limiter} sets the time."
    )
    figures = {"time_s": model.time_s, "time_low_s": model.low_s, "time_high_s": model.high_s,
               "kernels_s": model.kernels_s, "gaps_s": model.gaps_s, "host_s": model.host_s,
               "limiter": model.limiter}  # fmt: skip
    return Report(
        "predict_model",
        MODEL_COLUMNS,
        rows,
        {"hardware": [model.hardware], **figures, **context},
        notes=(total,),
        title=title or f"Predicted time of the operators on {model.hardware}",
    )


def _part_row(part: Part, model: WholeModel) -> dict[str, Any]:
    (row,) = part.prediction.rows()
    keys = (
        "op",
        "dimensions",
        "params",
        "dtype",
        "count",
        "predicted_time_s",
        "family",
        "predicted_limiter",
        "limiter",
    )
    rates = ("predicted_flop_per_s", "predicted_bytes_per_s", "predicted_utilization")
    return {
        **{key: row[key] for key in (*keys, *rates)},
        "name": row["name"] or row["op"],
        "time_s": part.time_s,
        "share": part.time_s / model.kernels_s,
        "largest_term": row["largest_term"],
        "terms_s": {str(name): time for name, time in part.terms_s.items()},
    }


report.register(Choice)(choice_report)
