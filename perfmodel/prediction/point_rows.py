"""The rows of a prediction: one mapping of plain values for each point of a sweep, as JSON and tables have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.vocabulary import ErrorSource

#: keys of the rows in their order
ROW_KEYS = (
    *("op", "name", "dimensions", "params", "dtype", "engine", "count", "hardware"),
    *("flop", "bytes_read", "bytes_written", "link_bytes", "bus_bytes", "working_set_bytes"),
    *("arithmetic_intensity_flop_per_byte", "ridge_point_flop_per_byte", "limiter", "bound_time_s"),
    *("fits_in", "resident_bound_time_s", "resident_limiter", "timing", "cache", "library", "load"),
    *("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s", "predicted_limiter", "largest_term"),
    *("predicted_terms_s", "family", "calibration", "regime", "prediction_basis"),
    *("attainable_flop_per_s", "attainable_bytes_per_s", "predicted_flop_per_s", "predicted_bytes_per_s"),
    *("predicted_utilization", "advice", "not_seen", "interval_shares"),
)
_MADE_KEYS = ("dimensions", "params", "predicted_terms_s", "not_seen", "interval_shares")
#: keys whose values are numbers or texts of a prediction, one for each point or one for all
PLAIN_KEYS = tuple(key for key in ROW_KEYS if key not in _MADE_KEYS)


def point_rows(
    values: Mapping[str, Any],
    params: Mapping[str, Any],
    given: Sequence[str],
    terms_s: Mapping[Any, Any],
    variances: Mapping[ErrorSource, Any],
) -> list[dict[str, Any]]:
    """Return one row for each point, with its keys in the order of `ROW_KEYS`.

    Parameters
    ----------
    values : what `PLAIN_KEYS` names; like all that follows a scalar, or an array over the points.
    params : the operator's dimensions by name.
    given : the names of the dimensions that tables for people show.
    terms_s : the parts of the predicted time [s] by name.
    variances : the variance of the logarithm of the time, by its source.
    """
    shape = np.broadcast_shapes(*(np.shape(value) for value in (*values.values(), *params.values())))
    sizes = {key: _flat(value, shape) for key, value in params.items()}
    columns = {key: _flat(value, shape) for key, value in values.items()}
    terms = {name: _flat(value, shape) for name, value in terms_s.items()}
    errors = {name: _flat(value, shape) for name, value in variances.items()}
    return [
        _row(
            given,
            {key: _whole(points[index]) for key, points in sizes.items()},
            {key: points[index] for key, points in columns.items()}
            | {"predicted_terms_s": {name: points[index] for name, points in terms.items() if points[index]}}
            | _errors({name: points[index] for name, points in errors.items() if points[index]}),
        )
        for index in range(int(np.prod(shape)))
    ]


def _row(given: Sequence[str], params: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return one row with its keys in their order, the dimensions for people after the name."""
    dimensions = " ".join(f"{key}={_shown(params[key])}" for key in given)
    return {**dict.fromkeys(ROW_KEYS), **values, "params": params, "dimensions": dimensions}


def _errors(variances: Mapping[ErrorSource, float]) -> dict[str, Any]:
    """Return what the constants have not seen, and the share of each source of error in the variance."""
    total = sum(variances.values())
    return {
        "not_seen": [str(source) for source in variances if source is not ErrorSource.SHAPE],
        "interval_shares": {str(source): variance / total for source, variance in variances.items()},
    }


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
