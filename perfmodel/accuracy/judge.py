"""Measured calls beside their predictions, each under its own conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel import storage
from perfmodel.accuracy.measured import MeasuredCalls, Measurements, Skipped, Skips, reason_of
from perfmodel.core.hardware import Hardware
from perfmodel.core.work import Text
from perfmodel.errors import UsageError
from perfmodel.prediction.implementations import named
from perfmodel.prediction.predict import floor_time, predict, predict_piece
from perfmodel.prediction.result import Prediction

Floats = NDArray[np.float64]
#: a row that is faster than the floor by more than a clock can boost is an artefact
BOOST = 1.1
#: label, in place of a family, of calls that run several operators one after another
COMPOSITION = "composition"
#: rows that are predicted at once, which bounds the memory of a sweep
CHUNK = 50_000


#: attributes of `JudgedCalls` that have one value per row
_OF_ROWS = ("predicted_s", "low_s", "high_s", "bound_s", "family", "calibration", "regime")


@dataclass(frozen=True)
class JudgedCalls:
    """Measured calls beside their predictions; arrays have one value per call.

    Attributes
    ----------
    calls : the measured calls.
    hardware : the machine of the predictions.
    predicted_s, low_s, high_s : the expected time and its 80 % interval [s].
    bound_s : the datasheet roofline [s].
    family, calibration, regime : as in `Prediction`; the family of calls with parts is `COMPOSITION`.
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
        """Return the label of the calls under a grouping key, or an array of labels."""
        if key in GROUPINGS:
            return GROUPINGS[key](self)
        value = self.calls.op.params().get(key, "")
        return str(value).lower() if isinstance(value, bool) else value

    def too_fast(self) -> NDArray[np.bool_]:
        """Return which calls are faster than their bound: see `faster_than_bound`."""
        return faster_than_bound(self.calls, self.hardware)

    def take(self, chosen: NDArray[np.bool_]) -> JudgedCalls:
        """Return the rows that a mask selects."""

        def part(value: Any) -> Any:
            return value[chosen] if isinstance(value, np.ndarray) and value.ndim else value

        return replace(
            self,
            calls=self.calls.take(chosen),
            **{name: part(getattr(self, name)) for name in _OF_ROWS},
        )

    def prediction(self, index: int) -> Prediction:
        """Return the prediction of one row with its terms."""
        return _predict(self.calls.one(index), self.hardware)


#: grouping key -> label of the calls; dimensions of operators are grouping keys too
GROUPINGS: dict[str, Callable[[JudgedCalls], Any]] = {
    "family": lambda judged: judged.family,
    "hardware": lambda judged: judged.hardware.name,
    "dtype": lambda judged: judged.calls.op.dtype,
    "regime": lambda judged: judged.regime,
    "calibration": lambda judged: judged.calibration,
    "op": lambda judged: judged.calls.op.op,
    "implementation": lambda judged: judged.calls.implementation,
    "library": lambda judged: judged.calls.library,
    "timing": lambda judged: str(judged.calls.timing),
    "cache": lambda judged: str(judged.calls.cache),
    "load": lambda judged: str(judged.calls.load),
    "source": lambda judged: judged.calls.source,
    "table": lambda judged: storage.name_of(judged.calls.place),
}


def faster_than_bound(calls: MeasuredCalls, hardware: Hardware) -> NDArray[np.bool_]:
    """Return which calls took less than their floor, that of warm caches where they were warm, over `BOOST`.

    It counts only the FLOP that no known algorithm avoids, so that convolutions by Winograd are not among them.
    """
    floor_s = np.broadcast_to(floor_time(calls.op, hardware, calls.conditions.cache), calls.time_s.shape)
    found: NDArray[np.bool_] = calls.time_s * BOOST < floor_s
    return found


def judge_calls(
    tables: Iterable[Measurements], find: Callable[[str], Hardware], *, flagged: bool = False
) -> tuple[tuple[JudgedCalls, ...], tuple[Skipped, ...]]:
    """Predict the rows of some tables; see `perfmodel.accuracy.validate.judge`.

    Returns
    -------
    The judged calls, and the rows that are left out, by reason.
    """
    skips = Skips()
    judged: list[JudgedCalls] = []
    for table in tables:
        skips.update(table.skipped)
        for calls in table.calls:
            kept = calls if flagged else _unflagged(calls, skips)
            if kept is None:
                continue
            try:
                judged.extend(_predicted_parts(kept, find(calls.hardware), skips))
            except UsageError as error:
                skips.add(reason_of(error), calls.place, kept.line)
    return tuple(judged), skips.all()


def _unflagged(calls: MeasuredCalls, skips: Skips) -> MeasuredCalls | None:
    """Return the calls without a flag, or None if every call has one."""
    flagged = calls.flags != ""
    for flag in np.unique(calls.flags[flagged]):
        skips.add(f"flagged {flag}", calls.place, calls.line[calls.flags == flag])
    if flagged.all():
        return None
    return calls.take(~flagged) if flagged.any() else calls


def _predicted_parts(calls: MeasuredCalls, hardware: Hardware, skips: Skips) -> list[JudgedCalls]:
    """Predict calls in chunks; rows without a prediction are skipped."""
    parts = []
    for start in range(0, len(calls), CHUNK):
        part = calls.take(slice(start, start + CHUNK)) if len(calls) > CHUNK else calls
        prediction = _predict(part, hardware)
        finite = np.isfinite(np.broadcast_to(prediction.predicted_time_s, len(part)))
        if not finite.all():
            skips.add(f"no prediction on {hardware.name}", part.place, part.line[~finite])
            part = part.take(finite)
            prediction = _predict(part, hardware) if len(part) else prediction
        if len(part):
            parts.append(_judged(part, hardware, prediction))
    return parts


def _predict(calls: MeasuredCalls, hardware: Hardware) -> Prediction:
    conditions = calls.conditions
    if calls.parts:
        return predict_piece(calls.one(0).op, hardware, conditions, calls.parts)
    library = named(conditions.library, conditions.version)
    return predict(
        calls.op, hardware, timing=conditions.timing, cache=conditions.cache, library=library, load=conditions.load
    )


def _judged(calls: MeasuredCalls, hardware: Hardware, prediction: Prediction) -> JudgedCalls:
    """Return measured calls beside their prediction."""

    def whole(value: Any) -> Floats:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (len(calls),))

    return JudgedCalls(
        calls=calls,
        hardware=hardware,
        predicted_s=whole(prediction.predicted_time_s),
        low_s=whole(prediction.predicted_time_low_s),
        high_s=whole(prediction.predicted_time_high_s),
        bound_s=whole(prediction.bound_time_s),
        family=COMPOSITION if calls.parts else prediction.family,
        calibration=prediction.calibration,
        regime=prediction.regime,
    )
