"""Measured calls set beside what the model says of them, each in its own view of time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.measured import MeasuredCalls, Measurements, Skipped, Skips, reason_of
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.prediction.predict import predict
from perfmodel.prediction.result import Prediction, Text

Floats = NDArray[np.float64]
#: rows that are predicted at once: what a sweep needs for each stays bounded
CHUNK = 50_000


@dataclass(frozen=True)
class JudgedCalls:
    """Measured calls beside what the model says of them; arrays have the length of the calls.

    Attributes
    ----------
    calls : what was measured.
    hardware : the machine that they were predicted on.
    predicted_s, low_s, high_s : the time to expect and its 80 % interval [s].
    bound_s : the datasheet roofline [s].
    family, calibration, regime : as in `Prediction`.
    """

    calls: MeasuredCalls
    hardware: Hardware
    predicted_s: Floats
    low_s: Floats
    high_s: Floats
    bound_s: Floats
    family: Text
    calibration: Text
    regime: Text

    def label(self, key: str) -> Any:
        """Return what a grouping key says of the calls: one label, or an array of them."""
        if key in GROUPINGS:
            return GROUPINGS[key](self)
        value = self.calls.op.params().get(key, "")
        return str(value).lower() if isinstance(value, bool) else value

    def prediction(self, index: int) -> Prediction:
        """Return the prediction of one row again, with its terms."""
        return _predict(self.calls.one(index), self.hardware)


#: what rows can be grouped by, beside the dimensions of their operators
GROUPINGS: dict[str, Callable[[JudgedCalls], Any]] = {
    "family": lambda judged: judged.family,
    "hardware": lambda judged: judged.hardware.name,
    "dtype": lambda judged: judged.calls.op.dtype,
    "regime": lambda judged: judged.regime,
    "calibration": lambda judged: judged.calibration,
    "op": lambda judged: judged.calls.op.op,
    "implementation": lambda judged: judged.calls.implementation,
    "library": lambda judged: judged.calls.library,
    "timing": lambda judged: judged.calls.timing,
    "cache": lambda judged: judged.calls.cache,
    "table": lambda judged: os.path.basename(judged.calls.place),
}


def judged_calls(
    tables: Iterable[Measurements], find: Callable[[str], Hardware], *, flagged: bool = False
) -> tuple[tuple[JudgedCalls, ...], tuple[Skipped, ...]]:
    """Predict the rows of some tables; see `perfmodel.accuracy.validate.judge`."""
    skips = Skips()
    judged: list[JudgedCalls] = []
    for table in tables:
        skips.update(table.skipped)
        for calls in table.calls:
            kept = calls if flagged else _unflagged(calls, skips)
            if kept is None:
                continue
            try:
                judged.extend(_judged(kept, find(calls.hardware), skips))
            except UsageError as error:
                skips.add(reason_of(error), calls.place, kept.line)
    return tuple(judged), skips.all()


def _unflagged(calls: MeasuredCalls, skips: Skips) -> MeasuredCalls | None:
    """Return the calls that nobody doubts, None where there are none."""
    doubted = calls.flags != ""
    for flag in np.unique(calls.flags[doubted]):
        skips.add(f"flagged {flag}", calls.place, calls.line[calls.flags == flag])
    if doubted.all():
        return None
    return calls.take(~doubted) if doubted.any() else calls


def _judged(calls: MeasuredCalls, hardware: Hardware, skips: Skips) -> list[JudgedCalls]:
    """Predict calls a chunk at a time, so that the memory a sweep needs stays bounded."""
    made = []
    for start in range(0, len(calls), CHUNK):
        part = calls.take(slice(start, start + CHUNK)) if len(calls) > CHUNK else calls
        predicted = _predict(part, hardware)
        good = np.isfinite(np.broadcast_to(predicted.predicted_time_s, len(part)))
        if not good.all():
            skips.add(f"no prediction on {hardware.name}", part.place, part.line[~good])
            part = part.take(good)
            predicted = _predict(part, hardware) if len(part) else predicted
        if len(part):
            made.append(_beside(part, hardware, predicted))
    return made


def _predict(calls: MeasuredCalls, hardware: Hardware) -> Prediction:
    conditions = calls.conditions
    return predict(calls.op, hardware, timing=conditions.timing, cache=conditions.cache, library=conditions.library)


def _beside(calls: MeasuredCalls, hardware: Hardware, predicted: Prediction) -> JudgedCalls:
    def whole(value: Any) -> Floats:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (len(calls),))

    return JudgedCalls(
        calls=calls,
        hardware=hardware,
        predicted_s=whole(predicted.predicted_time_s),
        low_s=whole(predicted.predicted_time_low_s),
        high_s=whole(predicted.predicted_time_high_s),
        bound_s=whole(predicted.bound_time_s),
        family=predicted.family,
        calibration=predicted.calibration,
        regime=predicted.regime,
    )
