"""How every kernel of a benchmark is measured."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.vocabulary import CacheState, Timing, spelt
from perfmodel.errors import UsageError, unknown_name
from perfmodel.kernels.device import Device
from perfmodel.measure.timing.sample import AUTO
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import TIMINGS, no_graphs


@dataclass(frozen=True)
class BenchSettings:
    """How every kernel of a benchmark is measured.

    Attributes
    ----------
    cache : what the caches hold before each sample.
    seed : of the random inputs.
    rule : when there are enough samples.
    timing : "auto" or a `Timing`, as in `perfmodel.measure.timing.timer.time_call`.
    keep_samples : whether rows keep the time of each sample.
    sustain_s : how long each kernel runs back to back after it was timed [s]; 0 for not at all.
    """

    cache: CacheState = CacheState.COLD
    seed: int = 0
    rule: StandardErrorRule = field(default_factory=StandardErrorRule)
    timing: str = AUTO
    keep_samples: bool = False
    sustain_s: float = 0.0

    def __post_init__(self) -> None:
        timing = spelt(self.timing, TIMINGS)
        if timing is None:
            shown = [word.replace("_", "-") for word in TIMINGS]
            raise unknown_name("timing", self.timing, shown, place="--timing")
        object.__setattr__(self, "timing", timing)
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"{self.seed} is not a seed.", place="--seed", remedy="Give 0 to 2^63 - 1.")
        if not 0 <= self.sustain_s < float("inf"):
            raise UsageError(f"{self.sustain_s} is not a number of seconds.", place="--sustain", remedy="Give 60, say.")

    def check_for(self, device: Device) -> None:
        """Check that a device can be measured with these settings.

        Raises
        ------
        UsageError
            When graphs are asked for and the device has none, or the dispatch of the host is to be included where it
            cannot be told from the kernel.
        """
        if self.timing == Timing.GRAPH and not device.has_graphs:
            raise no_graphs(device.kind)
        if self.timing in (Timing.EVENT, Timing.DO_BENCH) and device.kind == "cpu":
            raise UsageError(
                "on a CPU the time of a kernel always includes its dispatch.",
                place=f"--timing {self.timing}",
                remedy="Use --timing auto, or --device cuda.",
            )

    def facts(self) -> dict[str, Any]:
        """Return the settings as a record has them; runs with equal settings can be compared and joined."""
        return {
            "cache": str(self.cache),
            "timing": str(self.timing),
            "seed": self.seed,
            "samples": self.keep_samples,
            "sustain_s": self.sustain_s,
            **dataclasses.asdict(self.rule),
        }


def stopping_rule(
    time_limit_s: float, min_time_s: float | None = None, relative_standard_error: float | None = None
) -> StandardErrorRule:
    """Return the stopping rule of a benchmark.

    Parameters
    ----------
    time_limit_s : longest time for one kernel's samples [s].
    min_time_s : shortest time for them [s]; None for a tenth of a second, or of the limit if that is shorter.
    relative_standard_error : target, a fraction; None for 1 %.

    Raises
    ------
    UsageError
        When a time is not a positive, finite number of seconds, the shortest time is above the limit, or the target
        is not between 0 and 1.
    """
    if not 0 < time_limit_s < math.inf:
        raise UsageError(f"a time limit of {time_limit_s} s is not positive.", place="--time-limit")
    if min_time_s is None:
        min_time_s = min(0.1, time_limit_s / 10)
    if not 0 <= min_time_s <= time_limit_s:
        raise UsageError(
            f"{min_time_s} s is not between 0 and the time limit of {time_limit_s} s.",
            place="--min-time",
            remedy="Raise --time-limit too.",
        )
    target = StandardErrorRule.relative_standard_error if relative_standard_error is None else relative_standard_error
    if not 0 < target < 1:
        raise UsageError(f"{target} is not between 0 and 1.", place="--error", remedy="Write 1% or 0.01.")
    return StandardErrorRule(target, time_limit_s=time_limit_s, min_time_s=min_time_s)
