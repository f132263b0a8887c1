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
#: numbers of a row of steps that are alike, and rows after which they are added up
_COLUMNS, _MOST_ROWS = 6, 4096


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

    def add_all(self, gaps_s: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        """Count gaps of several lengths, so many of each."""
        some = counts > 0
        gaps_s, counts = gaps_s[some], counts[some]
        indices, places = np.unique((np.log(gaps_s) * _BINS + _SHIFT).astype(np.int64), return_inverse=True)
        for index, count in zip(indices.tolist(), np.bincount(places, counts).tolist(), strict=True):
            self.weights[index] += int(count)
        self.count += int(counts.sum())
        self.sum_s += float(gaps_s @ counts)

    def move(self, from_s: float, to_s: float, count: int) -> None:
        """Give some gaps another length."""
        self.add(from_s, -count)
        self.add(to_s, count)

    def merged(self, other: Gaps) -> Gaps:
        """Return the gaps of both."""
        both = Gaps()
        for part in (self, other):
            for index, count in part.weights.items():
                if count:
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

    Steps that are alike are written as a row of ``rows``, since many rows are added up faster together: the sums hold
    them once `settle` was called.

    Attributes
    ----------
    busy_s : time in which the engine computed [s].
    running_s, queued_s, blocks_s : integrals over time of the sequences that run, of those that wait, and of the
        blocks in use.
    read, firsts : tokens of prompts that were computed, also anew, and first tokens that were given out.
    gaps : times between two tokens of a sequence: each token after the first one has one.
    rows : what is not added up yet, one number after the other: time of a step [s], how many such steps, sequences that
        run and that decode in each, mean blocks in use, and tokens in the cache of those that decode before the steps.
    skip, skipped : events between two samples, and events since the last one.
    prompt_steps, decode_steps : steps with prompts, or parts of them, and steps in which sequences decode.
    both_steps : steps that are both.
    decoded, decode_contexts : sums over decode steps of the sequences, and of their tokens in the cache.
    """

    __slots__ = (
        "_samples",
        "blocks_s",
        "both_steps",
        "busy_s",
        "decode_contexts",
        "decode_steps",
        "decoded",
        "firsts",
        "gaps",
        "preemptions",
        "prompt_steps",
        "queued_s",
        "read",
        "rows",
        "running_s",
        "skip",
        "skipped",
    )

    def __init__(self) -> None:
        self.busy_s = self.running_s = self.queued_s = self.blocks_s = 0.0
        self.read = self.firsts = self.preemptions = 0
        self.prompt_steps = self.decode_steps = self.both_steps = self.decoded = 0
        self.decode_contexts = 0.0
        self.gaps = Gaps()
        self.rows: list[float] = []
        self._samples: list[tuple[float, int, int, float]] = []
        self.skip, self.skipped = 1, 0

    @property
    def steps(self) -> int:
        """Steps."""
        return self.prompt_steps + self.decode_steps - self.both_steps

    @property
    def tokens(self) -> int:
        """Tokens that were computed: of prompts, and decoded ones."""
        return self.read + self.decoded

    @property
    def generated(self) -> int:
        """Tokens that were given out."""
        return self.firsts + self.gaps.count

    def settle(self) -> None:
        """Add up the rows."""
        rows = np.array(self.rows, dtype=np.float64).reshape(-1, _COLUMNS).T
        self.rows.clear()
        step_s, steps, running, decoding, blocks, context = rows
        time_s, decoded = step_s * steps, steps * decoding
        self.busy_s += float(time_s.sum())
        self.running_s += float(time_s @ running)
        self.blocks_s += float(time_s @ blocks)
        self.decode_steps += int(steps @ (decoding > 0))
        self.decoded += int(decoded.sum())
        self.decode_contexts += float(steps @ context + 0.5 * (decoded @ (steps - 1.0)))
        self.gaps.add_all(step_s, decoded)

    def sample(self, time_s: float, running: int, queued: int, blocks: float) -> None:
        """Keep the state at a time; to be called after ``skip`` events, which grow with the length of a simulation."""
        self.skipped = 0
        if len(self.rows) >= _MOST_ROWS * _COLUMNS:
            self.settle()
        self._samples.append((time_s, running, queued, blocks))
        if len(self._samples) >= _MOST_SAMPLES:
            del self._samples[::2]
            self.skip *= 2

    @property
    def samples(self) -> NDArray[np.float64]:
        """Columns time [s], running, queued, blocks in use."""
        return np.array(self._samples, dtype=np.float64).reshape(-1, 4)
