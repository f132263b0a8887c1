"""What the model expects of a training step, and a measured step against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Expectation:
    """A step as the model expects it; None for what is not known.

    Attributes
    ----------
    time_s, high_s : expected time, and the slow end of its 80 % interval [s].
    tokens, flop : of the step over all GPUs.
    peak_flop_per_s : of all GPUs [FLOP/s].
    """

    time_s: float | None = None
    high_s: float | None = None
    tokens: float | None = None
    flop: float | None = None
    peak_flop_per_s: float | None = None

    @classmethod
    def of(cls, step: Any) -> Expectation:
        """Return what a result of `perfmodel.train` expects; anything with some of its attributes will do."""
        if step is None:
            return cls()
        peak, gpus = _positive(step, "peak_flop_per_s"), _positive(getattr(step, "cluster", None), "gpus")
        return cls(
            _positive(step, "time_s"), _positive(step, "high_s"), _positive(step, "tokens"), _positive(step, "flop"),
            peak * gpus if peak and gpus else None,
        )  # fmt: skip

    def judged(
        self, time_s: float, tokens: float | None, flop: float | None, peak_flop_per_s: float | None
    ) -> dict[str, float]:
        """Return metric -> value of a step that took some time [s], each where it is known."""
        tokens = self.tokens if tokens is None else tokens
        flop = self.flop if flop is None else flop
        peak = self.peak_flop_per_s if peak_flop_per_s is None else peak_flop_per_s
        values = {"training_step_seconds": time_s}
        if time_s <= 0:
            return values
        if tokens:
            values["training_tokens_per_second"] = tokens / time_s
        if flop and peak:
            values["training_mfu_ratio"] = flop / time_s / peak
        if self.high_s:
            values["training_expected_high_seconds"] = self.high_s
        if self.time_s:
            values["training_expected_seconds"] = self.time_s
            values["training_speed_ratio"] = self.time_s / time_s
            if tokens:
                values["training_expected_tokens_per_second"] = tokens / self.time_s
        return values


def _positive(source: Any, name: str) -> float | None:
    value = getattr(source, name, None)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
