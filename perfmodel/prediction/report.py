"""Reports of predictions, their explanations, and the times of whole models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import CacheState, ErrorSource
from perfmodel.prediction.algorithms.choice import Choice
from perfmodel.prediction.algorithms.report import choice_report
from perfmodel.prediction.columns import (
    ERROR_COLUMNS,
    MODEL_COLUMNS,
    PREDICTION_COLUMNS,
    TERM_COLUMNS,
    achieved,
)
from perfmodel.prediction.explain import Explained, IntervalShares, meaning
from perfmodel.prediction.measured import Measured
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.sweep_rows import SweepRows
from perfmodel.prediction.uncertainty import MEANINGS, half_width
from perfmodel.prediction.whole_model import RUN_DEVIATION, Part, WholeModel

_NO_CONTEXT: Mapping[str, Any] = MappingProxyType({})
#: share of the predicted time that a hidden resource must take alone to be listed
_NOTABLE = 0.05
#: points of sweeps that people are shown: nobody reads more, and a terminal takes a minute for 100,000
_MOST_POINTS = 1000
#: rows that are made at once; those of a longer sweep are made as they are asked for
_MOST_LISTED = 16384


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
    swept = SweepRows(listed)
    rows = swept if len(swept) > _MOST_LISTED else list(swept)
    hardware = list(dict.fromkeys(prediction.hardware for prediction in listed))
    return Report(
        command,
        _keep_hardware(_of_caches(PREDICTION_COLUMNS, listed), hardware),
        rows,
        {"hardware": hardware, **context},
        notes=notes,
        title=title,
        people_rows=list(itertools.islice(rows, _MOST_POINTS)) if len(rows) > _MOST_POINTS else None,
        unlisted=_more_points(len(rows)),
    )


def _more_points(points: int) -> str:
    """Return what a table for people says of the points that it leaves out."""
    more = points - _MOST_POINTS
    return f"{more} more points; JSON and CSV have them, as -o FILE.csv." if more > 0 else ""


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
    """Return the columns of a prediction with those of a measured time, whose rate stands in place of the expected."""
    kept = [replace(column, shown=False) if column.key == "predicted_flop_per_s" else column for column in columns]
    place = next(index for index, column in enumerate(kept) if column.key == "predicted_flop_per_s")
    measured = (
        Column("measured_time_s", "measured", "s"),
        Column("achieved_flop_per_s", "achieved", "FLOP/s", show_row=achieved, drop=1),
        Column("achieved_bytes_per_s", "achieved bandwidth", "B/s", shown=False),
        Column(
            "efficiency", "of bound", "fraction", show=lambda share: "faster" if share > 1 else f"{100 * share:.2g} %"
        ),
        Column("faster_than_bound", shown=False),
        Column("verdict", shown=False),
        Column("causes", shown=False),
    )
    return (*kept[:place], *measured, *kept[place:])


def _of_caches(columns: tuple[Column, ...], predictions: Sequence[Prediction]) -> tuple[Column, ...]:
    """Return columns whose bound says that it is of a cold call, where the predictions are of others."""
    if all(prediction.cache == CacheState.COLD for prediction in predictions):
        return columns
    return tuple(replace(column, title="cold bound") if column.key == "bound_time_s" else column for column in columns)


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
    """Return the terms of one point or several, one row for each term; people do not see negligible ones.

    A resource that adds next to nothing is listed if it alone would take a notable part of the time: the largest hides
    it.
    """
    listed = [points] if isinstance(points, Explained) else points
    by_point = [(point, list(_term_rows(point))) for point in listed]
    rows = [row for _, of_point in by_point for row in of_point]
    shown = by_point[:_MOST_POINTS]
    seen = [row for point, of_point in shown for row in of_point if row["term"] in (*point.notable, *_hidden(point))]
    columns = _keep_hardware(TERM_COLUMNS, list(dict.fromkeys(row["hardware"] for row in rows)))
    meanings = {row["term"]: meaning(row["term"]) for row in seen}
    notes = tuple(f"{term}: {text}." for term, text in meanings.items() if text)
    title = "Terms that add up to the predicted times"
    unlisted = _more_points(len(listed))
    return Report(command, columns, rows, notes=notes, title=title, people_rows=seen, unlisted=unlisted)


def _hidden(point: Explained) -> list[str]:
    """Return the resources that alone would take a notable part of the time, and add next to nothing to it."""
    return [name for name, time in point.alone.items() if time > _NOTABLE * point.time_s and name not in point.notable]


def _term_rows(point: Explained) -> Iterable[dict[str, Any]]:
    keys = ("op", "name", "dimensions", "dtype", "hardware")
    common = {key: point.row[key] for key in keys} | {"name": point.row["name"] or point.row["op"]}
    hidden = _hidden(point)
    for name in dict.fromkeys((*point.adds, *hidden)):
        time = point.adds.get(name, 0.0)
        text = meaning(name)
        yield {
            **common,
            "term": str(name),
            "time_s": time,
            "share": time / point.time_s,
            "alone_time_s": point.alone.get(name),
            "meaning": f"{text} (hidden)".strip() if name in hidden else text,
        }


@report.register(IntervalShares)
def _(points: IntervalShares | Sequence[IntervalShares], *, command: str = "analyze") -> Report:
    """Return the sources of error behind the interval of one point or several, one row for each source."""
    listed = [points] if isinstance(points, IntervalShares) else points
    by_point = [list(_source_rows(point)) for point in listed]
    rows, seen = ([row for of_point in some for row in of_point] for some in (by_point, by_point[:_MOST_POINTS]))
    columns = _keep_hardware(ERROR_COLUMNS, list(dict.fromkeys(row["hardware"] for row in rows)))
    notes = tuple(f"{source}: {text}." for source, text in {row["source"]: row["meaning"] for row in rows}.items())
    title, unlisted = "What the 80 % intervals are made of", _more_points(len(listed))
    return Report(command, columns, rows, notes=notes, title=title, people_rows=seen, unlisted=unlisted)


def _source_rows(point: IntervalShares) -> Iterable[dict[str, Any]]:
    keys = ("op", "name", "dimensions", "dtype", "hardware")
    common = {key: point.row[key] for key in keys} | {"name": point.row["name"] or point.row["op"]}
    total = sum(point.variances.values())
    for source, variance in point.variances.items():
        width = math.exp(half_width([variance]))
        yield {
            **common,
            "source": str(source),
            "share": variance / total,
            "alone": width - 1.0,
            "low": point.centre / width,
            "high": point.centre * width,
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
        notes=(total, *_of_runs(model)),
        title=title or f"Predicted time of the operators on {model.hardware}",
    )


def _of_runs(model: WholeModel) -> tuple[str, ...]:
    """Say where whole runs of a machine differ so much from its operators that this makes most of the interval."""
    variance = model.variances.get(ErrorSource.RUN, 0.0)
    if variance <= RUN_DEVIATION**2 or variance < 0.5 * sum(model.variances.values()):
        return ()
    return (
        f"Whole runs on {model.hardware} differ from its operators measured alone by {math.sqrt(variance):.0%} "
        f"(standard deviation): that makes most of the interval. Its clock depends on heat and on what ran before; its "
        f"specification says what was measured.",
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
    rates = (
        *("predicted_flop_per_s", "predicted_bytes_per_s", "predicted_utilization", "link_bytes", "bus_bytes"),
        *("arithmetic_intensity_flop_per_byte", "ridge_point_flop_per_byte"),
    )
    return {
        **{key: row[key] for key in (*keys, *rates)},
        "name": row["name"] or row["op"],
        "time_s": part.time_s,
        "share": part.time_s / model.kernels_s,
        "largest_term": row["largest_term"],
        "terms_s": {str(name): time for name, time in part.terms_s.items()},
    }


report.register(Choice)(choice_report)
