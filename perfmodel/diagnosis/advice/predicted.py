"""Expected times of what a change would run instead, with their intervals."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis.profiled import gap_time, profiled_time
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.prediction.predict import predict


class Span(NamedTuple):
    """An expected time and its 80 % interval [s]."""

    time_s: float
    low_s: float
    high_s: float

    @property
    def text(self) -> str:
        """The time and the ends of its interval as text."""
        return f"{format_si(self.time_s, 's')} ({format_si(self.low_s, 's', 3)} to {format_si(self.high_s, 's', 3)})"

    def saved_s(self, now_s: float) -> float:
        """Return what a change to this time saves [s]."""
        return now_s - self.time_s

    def saved_range_s(self, now_s: float, count: float) -> tuple[float, float]:
        """Return the least and the most that a change to this time saves in some calls [s]."""
        return (now_s - self.high_s) * count, (now_s - self.low_s) * count


def predicted_span(op: Operator, hardware: Hardware, library: str = "", *, factor: float = 1.0) -> Span | None:
    """Return the expected time of one call, times a factor, or None where the machine cannot compute it.

    It is that of a profile (`perfmodel.diagnosis.profiled`), beside which it stands.
    """
    try:
        p = predict(dataclasses.replace(op, count=1), hardware, library=library)
    except UsageError:
        return None
    low_s, high_s = float(p.predicted_time_low_s) - gap_time(hardware), float(p.predicted_time_high_s)
    return Span(profiled_time(p, hardware) * factor, low_s * factor, high_s * factor)
