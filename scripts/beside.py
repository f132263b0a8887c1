"""One measured time beside its prediction and its interval, as the scripts that judge predictions hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One measured time and its prediction.

    Attributes
    ----------
    measured_s, predicted_s, low_s, high_s : times [s].
    """

    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the 80 % interval."""
        return self.low_s <= self.measured_s <= self.high_s
