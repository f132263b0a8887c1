"""The result of setting an operator against a machine: bound and prediction, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.report import Column, Report
from perfmodel.core.work import Number

Text = str | NDArray[np.str_]


@dataclass(frozen=True)
class Prediction:
    """Bound and expected time of one operator on one machine. Numbers are floats, or arrays in a sweep.

    The attributes are the keys of the JSON rows. Five kinds of figure that are never mixed:
    peak (datasheet) > sustained (best microbenchmark) >= attainable (bound for this work) >= achieved
    (measured, in bench records only), and predicted, which is the time to expect.

    Attributes
    ----------
    op, name, params, dtype, engine, count, hardware : what was set against which machine; ``given`` names the
        params that are not defaults, which is what people are shown.
    flop : floating-point operations of one call [FLOP].
    bytes_read, bytes_written : traffic to device memory with nothing cached [B].
    working_set_bytes : size of all tensors [B].
    arithmetic_intensity_flop_per_byte, ridge_point_flop_per_byte : [FLOP/B].
    limiter : the ceiling that sets the bound: "compute", a memory level, a link, or "launch".
    bound_time_s : no honest measurement of a cold call is faster [s].
    fits_in : the smallest level that holds the working set: a cache, the main memory, or "nothing".
    resident_bound_time_s : the bound when the data already lies in that cache [s]; NaN where it fits none,
        or the bandwidth of that cache is not known.
    resident_limiter : the ceiling that sets the resident bound, or "".
    timing, cache, library : the view of time that is predicted, the state of the caches, and whose kernels run.
    predicted_time_s : the time to expect [s]; ``prediction_basis`` says from which constants.
    predicted_time_low_s, predicted_time_high_s : 80 % interval [s].
    predicted_limiter : what most of the predicted time goes to: the largest of ``predicted_terms_s``.
    predicted_terms_s : what the predicted time is the sum of [s], by name.
    alone_s : the time that each resource alone would take [s]; resources overlap, so these do not add up.
    family, calibration, regime : the formula; how well its constants know this machine ("calibrated", "same
        generation", "never seen"); and which residuals the interval comes from ("launch", "mid", "large").
    attainable_flop_per_s, attainable_bytes_per_s : rates at the bound.
    advice : what to do about it, in a sentence.
    """

    op: str
    name: str
    params: Mapping[str, Any]
    given: tuple[str, ...]
    dtype: str
    engine: str
    count: int
    hardware: str
    flop: Number
    bytes_read: Number
    bytes_written: Number
    working_set_bytes: Number
    arithmetic_intensity_flop_per_byte: Number
    ridge_point_flop_per_byte: float
    limiter: Text
    bound_time_s: Number
    fits_in: Text
    resident_bound_time_s: Number
    resident_limiter: Text
    timing: str
    cache: str
    library: str
    predicted_time_s: Number
    predicted_time_low_s: Number
    predicted_time_high_s: Number
    predicted_limiter: Text
    predicted_terms_s: Mapping[str, Number]
    alone_s: Mapping[str, Number]
    family: Text
    calibration: Text
    regime: Text
    prediction_basis: str
    attainable_flop_per_s: Number
    attainable_bytes_per_s: Number
    advice: Text

    @property
    def label(self) -> str:
        """The name to show: the given one, or the operator's."""
        return self.name or self.op

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping a point, with plain values; a scalar prediction gives one row."""
        made = ("params", "dimensions", "predicted_terms_s")
        keys = [column.key for column in PREDICTION_COLUMNS if column.key not in made]
        fields = {key: getattr(self, key) for key in keys}
        shape = np.broadcast_shapes(*(np.shape(value) for value in (*fields.values(), *self.params.values())))
        params = {key: _flat(value, shape) for key, value in self.params.items()}
        columns = {key: _flat(value, shape) for key, value in fields.items()}
        terms = {name: _flat(value, shape) for name, value in self.predicted_terms_s.items()}
        return [
            self._row(
                {key: _whole(values[index]) for key, values in params.items()},
                {key: values[index] for key, values in columns.items()}
                | {"predicted_terms_s": {name: values[index] for name, values in terms.items() if values[index]}},
            )
            for index in range(int(np.prod(shape)))
        ]

    def _row(self, params: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        """Return one row with its keys in the order of the columns."""
        dimensions = " ".join(f"{key}={_shown(params[key])}" for key in self.given)
        return {**{c.key: None for c in PREDICTION_COLUMNS}, **fields, "params": params, "dimensions": dimensions}

    def report(self) -> Report:
        """Return this prediction as a report."""
        return prediction_report([self])

    def _repr_html_(self) -> str:
        """Show the prediction as a table in a notebook."""
        return self.report()._repr_html_()


def _flat(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """Broadcast a value to the sweep's shape and return its plain Python values in order."""
    if isinstance(value, np.ndarray):
        flat: list[Any] = np.broadcast_to(value, shape).ravel().tolist()
        return flat
    return [value] * int(np.prod(shape))


def _whole(value: Any) -> Any:
    """Return a dimension as an int where it is one: sweeps hold their sizes as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: Any) -> str:
    """Return a dimension as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


PREDICTION_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator"),
    Column("dimensions"),
    Column("params", shown=False),
    Column("dtype"),
    Column("engine", shown=False),
    Column("count", shown=False),
    Column("hardware", drop=2),
    Column("flop", "work", "FLOP", drop=4),
    Column("bytes_read", unit="B", shown=False),
    Column("bytes_written", unit="B", shown=False),
    Column("working_set_bytes", unit="B", shown=False),
    Column("arithmetic_intensity_flop_per_byte", "intensity", "FLOP/B", drop=1),
    Column("ridge_point_flop_per_byte", "ridge", "FLOP/B", drop=4),
    Column("limiter", "limited by"),
    Column("bound_time_s", "bound", "s"),
    Column("fits_in", "fits in", drop=3),
    Column("resident_bound_time_s", unit="s", shown=False),
    Column("resident_limiter", shown=False),
    Column("timing", shown=False),
    Column("cache", shown=False),
    Column("library", shown=False),
    Column("predicted_time_s", "predicted", "s"),
    Column("predicted_time_low_s", "low", "s", drop=2),
    Column("predicted_time_high_s", "high", "s", drop=2),
    Column("predicted_limiter", "spent on", drop=3),
    Column("predicted_terms_s", shown=False),
    Column("family", shown=False),
    Column("calibration", shown=False),
    Column("regime", shown=False),
    Column("prediction_basis", shown=False),
    Column("attainable_flop_per_s", "attainable", "FLOP/s"),
    Column("attainable_bytes_per_s", "bandwidth", "B/s", drop=1),
    Column("advice", shown=False),
)


def prediction_report(
    predictions: Iterable[Prediction],
    *,
    command: str = "analyze",
    context: Mapping[str, Any] | None = None,
    title: str = "",
    notes: tuple[str, ...] = (),
) -> Report:
    """Return the report of some predictions, one row a point."""
    predictions = list(predictions)
    rows = [row for prediction in predictions for row in prediction.rows()]
    for row in rows:
        row["name"] = row["name"] or row["op"]
    hardware = list(dict.fromkeys(prediction.hardware for prediction in predictions))
    columns: tuple[Column, ...] = PREDICTION_COLUMNS
    if len(hardware) > 1:
        columns = tuple(replace(column, drop=0) if column.key == "hardware" else column for column in columns)
    return Report(command, columns, rows, {"hardware": hardware, **(context or {})}, notes=notes, title=title)
