"""The result for one operator on one machine: bound and prediction, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import CacheState, ErrorSource, Load, Timing
from perfmodel.core.work import Number
from perfmodel.prediction.uncertainty import Uncertainty

Text = str | NDArray[np.str_]


@dataclass(frozen=True)
class Prediction(Reportable):
    """Bound and expected time of one operator on one machine. Numbers are floats, or arrays in a sweep.

    The attributes are the keys of the JSON rows. Five kinds of figure are never mixed: peak (datasheet) > sustained
    (best microbenchmark) >= attainable (bound for this work) >= achieved (measured, in bench records only), and
    predicted, which is the time to expect.

    Attributes
    ----------
    op, name, params, dtype, engine, count, hardware : the operator and the machine; ``given`` names the params that
        are not defaults, which tables for people show.
    flop : floating-point operations of one call [FLOP].
    bytes_read, bytes_written : traffic to device memory with nothing cached [B].
    working_set_bytes : size of all tensors [B].
    arithmetic_intensity_flop_per_byte, ridge_point_flop_per_byte : [FLOP/B].
    limiter : the ceiling that sets the bound (`perfmodel.core.vocabulary.Limiter`).
    bound_time_s : no honest measurement of a cold call is faster [s].
    fits_in : the smallest level that holds the working set: a cache, the main memory, or "nothing".
    resident_bound_time_s : the bound when the data already lies in that cache [s]; NaN where it fits none,
        or the bandwidth of that cache is not known.
    resident_limiter : the ceiling that sets the resident bound, or "".
    timing, cache, library, load : the interval that is predicted, the state of the caches, whose kernels run, and for
        how long the device has been at work.
    predicted_time_s : the time to expect [s]; ``prediction_basis`` says from which constants.
    predicted_time_low_s, predicted_time_high_s : 80 % interval [s].
    predicted_limiter : what most of the predicted time is spent on: the limiter whose terms add up to the most.
    largest_term : the largest of ``predicted_terms_s``.
    predicted_terms_s : the parts that add up to the predicted time [s], by name.
    alone_s : the time that each resource alone would take [s]; resources overlap, so these do not add up.
    family, calibration, regime : the formula; how well its constants know this machine
        (`perfmodel.core.vocabulary.Calibration`); and which residuals the interval comes from ("launch", "mid",
        "large").
    uncertainty : what the interval is made of; the rows list the shares of its sources (``interval_shares``), and
        what the constants have not seen (``not_seen``: machine, library, dtype or vendor).
    attainable_flop_per_s, attainable_bytes_per_s : rates at the bound.
    predicted_flop_per_s, predicted_bytes_per_s : rates at the predicted time.
    predicted_utilization : the expected share of the peak of the resource that is used most: FLOP/s of the engine,
        bytes/s of a memory or link.
    advice : the next step, in a sentence.
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
    timing: Timing
    cache: CacheState
    library: str
    load: Load
    predicted_time_s: Number
    predicted_time_low_s: Number
    predicted_time_high_s: Number
    predicted_limiter: Text
    largest_term: Text
    predicted_terms_s: Mapping[Any, Number]
    alone_s: Mapping[Any, Number]
    family: Text
    calibration: Text
    regime: Text
    prediction_basis: str
    uncertainty: Uncertainty
    attainable_flop_per_s: Number
    attainable_bytes_per_s: Number
    predicted_flop_per_s: Number
    predicted_bytes_per_s: Number
    predicted_utilization: Number
    advice: Text

    @property
    def label(self) -> str:
        """The name to show: the given one, or the operator's."""
        return self.name or self.op

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each point, with plain values; a scalar prediction gives one row."""
        values = {key: getattr(self, key) for key in _PLAIN_KEYS}
        shape = np.broadcast_shapes(*(np.shape(value) for value in (*values.values(), *self.params.values())))
        params = {key: _flat(value, shape) for key, value in self.params.items()}
        columns = {key: _flat(value, shape) for key, value in values.items()}
        terms = {name: _flat(value, shape) for name, value in self.predicted_terms_s.items()}
        errors = {name: _flat(value, shape) for name, value in self.uncertainty.variances(self.regime).items()}
        return [
            self._row(
                {key: _whole(points[index]) for key, points in params.items()},
                {key: points[index] for key, points in columns.items()}
                | {"predicted_terms_s": {name: points[index] for name, points in terms.items() if points[index]}}
                | _errors({name: points[index] for name, points in errors.items() if points[index]}),
            )
            for index in range(int(np.prod(shape)))
        ]

    def _row(self, params: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """Return one row with its keys in the order of the attributes, the dimensions for people after the name."""
        dimensions = " ".join(f"{key}={_shown(params[key])}" for key in self.given)
        return {**dict.fromkeys(ROW_KEYS), **values, "params": params, "dimensions": dimensions}


#: keys of the rows in their order
ROW_KEYS = (
    *("op", "name", "dimensions"),
    *(item.name for item in fields(Prediction) if item.name not in ("op", "name", "given", "alone_s", "uncertainty")),
    *("not_seen", "interval_shares"),
)
_MADE_KEYS = ("dimensions", "params", "predicted_terms_s", "not_seen", "interval_shares")
_PLAIN_KEYS = tuple(key for key in ROW_KEYS if key not in _MADE_KEYS)


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
