"""What a simulated engine did over time: sums that are exact, and samples of its state for a plot."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

#: bins of the gaps between tokens a factor e: 0.5 % wide
_BINS = 200.0
#: makes the numbers of all bins positive, so that truncation rounds down
_SHIFT = 10_000
#: samples that are kept before every second one is dropped
_MOST_SAMPLES = 8192


class Gaps:
    """A histogram of the times between two tokens of a sequence, in bins 0.5 % wide; the mean is exact."""

    __slots__ = ("count", "sum_s", "weights")

    def __init__(self) -> None:
        self.weights: dict[int, int] = defaultdict(int)
        self.count = 0
        self.sum_s = 0.0

    def add(self, gap_s: float, count: int) -> None:
        """Count some gaps of one length."""
        self.weights[int(math.log(gap_s) * _BINS + _SHIFT)] += count
        self.count += count
        self.sum_s += gap_s * count

    def merged(self, other: Gaps) -> Gaps:
        """Return the gaps of both."""
        both = Gaps()
        for part in (self, other):
            for index, count in part.weights.items():
                both.weights[index] += count
            both.count += part.count
            both.sum_s += part.sum_s
        return both

    def quantile(self, share: float) -> float:
        """Return the gap that a share of all gaps does not exceed [s]; NaN without any."""
        if not self.count:
            return math.nan
        indices = np.array(sorted(self.weights))
        total = np.cumsum([self.weights[index] for index in indices])
        index = indices[int(np.searchsorted(total, share * total[-1]))]
        return float(math.exp((index - _SHIFT + 0.5) / _BINS))

    @property
    def mean_s(self) -> float:
        """The mean gap [s]; NaN without any."""
        return self.sum_s / self.count if self.count else math.nan


class Tally:
    """Sums over the time of a simulation, and samples of the state at the ends of events.

    Attributes
    ----------
    busy_s : time in which the engine computed [s].
    running_s, queued_s, blocks_s : integrals over time of the sequences that run, of those that wait, and of the
        blocks in use.
    steps, tokens : steps, and tokens that were computed in them: prompts, recomputed ones, and decoded ones.
    generated : tokens that were given out.
    skip, skipped : events between two samples, and events since the last one.
    prompt_steps : steps with prompts, or parts of them.
    decode_steps, decode_contexts : sums over decode steps of the sequences, and of their tokens in the cache.
    """

    __slots__ = (
        "_samples",
        "blocks_s",
        "busy_s",
        "decode_contexts",
        "decode_steps",
        "decoded",
        "gaps",
        "generated",
        "preemptions",
        "prompt_steps",
        "queued_s",
        "running_s",
        "skip",
        "skipped",
        "steps",
        "tokens",
    )

    def __init__(self) -> None:
        self.busy_s = self.running_s = self.queued_s = self.blocks_s = 0.0
        self.steps = self.tokens = self.generated = self.preemptions = 0
        self.prompt_steps = self.decode_steps = self.decoded = 0
        self.decode_contexts = 0.0
        self.gaps = Gaps()
        self._samples: list[tuple[float, int, int, float]] = []
        self.skip, self.skipped = 1, 0

    def sample(self, time_s: float, running: int, queued: int, blocks: float) -> None:
        """Keep the state at a time; to be called after ``skip`` events, which grow with the length of a simulation."""
        self.skipped = 0
        self._samples.append((time_s, running, queued, blocks))
        if len(self._samples) >= _MOST_SAMPLES:
            del self._samples[::2]
            self.skip *= 2

    @property
    def samples(self) -> NDArray[np.float64]:
        """Columns time [s], running, queued, blocks in use."""
        return np.array(self._samples, dtype=np.float64).reshape(-1, 4)
