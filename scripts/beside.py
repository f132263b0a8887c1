"""One measured time beside its prediction and its interval, as the scripts that judge predictions hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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


def figures(rows: Sequence[Beside], count: int | None = None) -> list[str]:
    """Return how many rows there are, or ``count``, their mean error, bias, share in the interval and median width."""
    errors = np.array([row.error for row in rows])
    width = float(np.median([row.high_s / row.low_s for row in rows]))
    inside = np.mean([row.inside for row in rows])
    mean, bias = 100.0 * np.mean(abs(errors)), 100.0 * np.mean(errors)
    return [
        f"{len(rows) if count is None else count}", f"{mean:.1f} %", f"{bias:+.1f} %", f"{100.0 * inside:.0f} %",
        f"{width:.2f}",
    ]  # fmt: skip
