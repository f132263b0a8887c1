"""Two benchmark records: which rows changed, by how much, and which changes are more than noise and drift.

Two runs of the same code differ for two reasons. Samples scatter: the block bootstrap of each row's samples, or its
statistics, give the error of their median (`perfmodel.comparison.noise`). And a run as a whole drifts: clocks settle a
step apart, memory has another layout, a neighbour is busy. No number of samples of one run shows its drift, so an
allowance is made for it, or repeated runs measure it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.comparison.drift import Drift, drift_of, log_mean
from perfmodel.comparison.noise import Centre, student_quantile
from perfmodel.comparison.pairing import BenchRun, Pair, Pairs, pair_rows
from perfmodel.core.report import Reportable

FASTER, SLOWER, SAME, UNCLEAR = "faster", "slower", "same", "unclear"
VERDICTS = (SLOWER, FASTER, UNCLEAR, SAME)

#: default for the smallest change that matters, as a fraction
THRESHOLD = 0.02
#: what is the same has to rule out a change of this size, unless a gate sets a limit
SAME_WITHIN = 0.10
_CONFIDENCE = 0.95
#: largest number whose exponential is finite, nearly
_LARGEST_LOG = 700.0
#: factor above which a change is not written in per cent: an interval that reaches it says nothing
_LARGEST_FACTOR = 1000.0
#: changes from here on are printed as factors: ten times the time
_AS_FACTOR = 9.0


@dataclass(frozen=True)
class Rules:
    """What counts as a change.

    Attributes
    ----------
    threshold : smallest change that matters, as a fraction.
    limit : the slowdown at which a gate fails, as a fraction, or None without a gate.
    drift : standard deviation of medians from run to run, as a fraction; None measures it from repeats, or else assumes
        it for the kind of device.
    """

    threshold: float = THRESHOLD
    limit: float | None = None
    drift: float | None = None

    @classmethod
    def of(cls, *, threshold: float | None = None, limit: float | None = None, drift: float | None = None) -> Rules:
        """Return rules whose threshold is that of a gate with a smaller limit, where none is given."""
        usual = THRESHOLD if limit is None else min(THRESHOLD, limit)
        return cls(usual if threshold is None else threshold, limit, drift)

    @property
    def margin(self) -> float:
        """The size of a change that has to be ruled out for the same, as a fraction."""
        return max(SAME_WITHIN if self.limit is None else self.limit, self.threshold)


@dataclass(frozen=True)
class Change:
    """One row on both sides.

    Attributes
    ----------
    pair : the rows.
    before_s, after_s : medians; for repeats, their geometric mean [s].
    change : after / before - 1; ``low`` and ``high`` are the ends of its interval, None if samples are too few.
    noise, drift : standard errors of ln(after / before) from the scatter of the samples, and from drift.
    verdict : faster, slower, same or unclear.
    smallest : the smallest change that this row would have shown, as a fraction; None if samples are too few.
    """

    pair: Pair
    before_s: float
    after_s: float
    change: float
    low: float | None
    high: float | None
    noise: float | None
    drift: float
    verdict: str
    smallest: float | None = None


@dataclass(frozen=True)
class Overall:
    """Geometric mean of after / before over some rows, its 95 % interval, and the verdict on it.

    The interval is None where a row has too few samples for its own.
    """

    rows: int
    ratio: float
    low: float | None
    high: float | None
    verdict: str = UNCLEAR

    @property
    def interval(self) -> str:
        """The interval of the change in per cent, for sentences."""
        if self.low is None or self.high is None:
            return "interval unknown"
        return format_interval(self.low - 1, self.high - 1)


@dataclass(frozen=True)
class Comparison(Reportable):
    """The changes between two sides.

    Attributes
    ----------
    changes : the rows with a time on both sides.
    pairs : how the rows were paired, with those that could not be compared.
    drift : the allowance for drift.
    rules : what counts as a change.
    before, after : the runs of each side.
    """

    changes: tuple[Change, ...]
    pairs: Pairs
    drift: Drift
    rules: Rules
    before: tuple[BenchRun, ...]
    after: tuple[BenchRun, ...]

    def gate_failures(self, limit: float | None = None) -> list[str]:
        """Return a sentence for each row that is significantly slower by more than a limit, or has lost its time.

        Without a limit it is that of the rules; where these have none, nothing fails.
        """
        limit = self.rules.limit if limit is None else limit
        if limit is None:
            return []
        slower = [
            f"{change.pair.after.label}: slower by {format_change(change.change)} "
            f"({format_interval(change.low, change.high)}), beyond {100 * limit:g} %."
            for change in self.changes
            if change.verdict == SLOWER and change.change > limit
        ]
        whole = self.overall()
        if whole is not None and whole.rows > 1 and whole.verdict == SLOWER and whole.ratio - 1 > limit:
            change = format_change(whole.ratio - 1)
            slower.append(f"the run as a whole: slower by {change} ({whole.interval}), beyond {100 * limit:g} %.")
        return [*slower, *(f"{row.label}: had a time before, now {now.outcome}." for row, now in self.pairs.lost)]

    def overall(self, changes: Sequence[Change] | None = None) -> Overall | None:
        """Return the geometric mean of the ratios of some rows, by default all; None without rows.

        The noise of the rows is independent and averages out; drift moves all rows of a run together.
        """
        changes = self.changes if changes is None else changes
        if not changes:
            return None
        mean = float(np.mean([math.log(change.after_s) - math.log(change.before_s) for change in changes]))
        if any(change.noise is None for change in changes):
            return Overall(len(changes), _ratio(mean), None, None, UNCLEAR if mean else SAME)
        noise = sum((change.noise or 0.0) ** 2 for change in changes) / len(changes) ** 2
        drift = float(np.mean([change.drift**2 for change in changes]))
        half = student_quantile((1 - _CONFIDENCE) / 2, self.drift.freedom) * math.sqrt(noise + drift)
        ratio, low, high = map(_ratio, (mean, mean - half, mean + half))
        return Overall(len(changes), ratio, low, high, _verdict(mean, half, self.rules))

    def repeats_needed(self) -> int | None:
        """Return how many runs of each side would make the least certain row clear; None where none is unclear.

        The interval of n runs of each side is sqrt(n) times narrower: n = (t s / ln(1 + margin))^2, with the error s of
        one run of each side, and at least one run more than there are; a million where the margin is 0.
        """
        unclear = [change for change in self.changes if change.verdict == UNCLEAR]
        have = min((min(len(c.pair.centres_before), len(c.pair.centres_after)) for c in unclear), default=0)
        if not unclear:
            return None
        margin = math.log1p(self.rules.margin) / 2  # so that a change of the margin lies outside of its interval
        tail = (1 - _CONFIDENCE) / 2 / max(1, len(self.changes))
        half = student_quantile(tail, math.inf) * self._worst_error(unclear, have)
        needed = (half / margin) ** 2 if margin else math.inf
        return max(have + 1, math.ceil(min(needed, 1e6)))

    def smallest_after(self, runs: int) -> float:
        """Return the smallest change that some runs of each side would show in every unclear row, as a fraction."""
        unclear = [change for change in self.changes if change.verdict == UNCLEAR]
        have = min((min(len(c.pair.centres_before), len(c.pair.centres_after)) for c in unclear), default=0)
        tail = (1 - _CONFIDENCE) / 2 / max(1, len(self.changes))
        half = student_quantile(tail, math.inf) * self._worst_error(unclear, have) / math.sqrt(runs)
        return max(_growth(half), self.rules.threshold)

    @staticmethod
    def _worst_error(unclear: Sequence[Change], have: int) -> float:
        """Return the largest standard error of ln(after / before) of one run of each side."""
        return max(math.hypot(c.noise or 0.0, c.drift) * math.sqrt(have) for c in unclear)


def compare(
    before: Sequence[BenchRun], after: Sequence[BenchRun], rules: Rules | None = None, across: Sequence[str] = ()
) -> Comparison:
    """Return what changed from one side to the other.

    With d = ln(after / before), n1, n2 the standard errors of the two medians and s1, s2 their drift, the interval is
    exp(d +- t sqrt(n1^2 + n2^2 + s1^2 + s2^2)) - 1. t is Student's quantile for 95 % over all m rows together
    (Bonferroni: each row at 1 - 0.05 / m), with the degrees of freedom of Welch and Satterthwaite.

    - slower, faster: the interval lies on one side of 0, and the change is beyond the threshold;
    - same: the interval rules out a change of the gate's limit (10 % without one), or the times are equal;
    - unclear: everything else, and rows of a single sample. More repeats help, see `Comparison.repeats_needed`.

    The run as a whole is judged in the same way, by the geometric mean of its rows. Runs beside which other work ran
    drift more, so that what counts as a change is wider.

    Parameters
    ----------
    before, after : the runs of each side; several runs are repeats, and measure the drift.
    rules : what counts as a change.
    across : what may differ, see `pair_rows`.

    Raises
    ------
    UsageError, InputFileError
        As `pair_rows`.
    """
    rules = rules or Rules()
    pairs = pair_rows(before, after, across)
    drift = drift_of(before, after, pairs.pairs, rules.drift)
    tail = (1 - _CONFIDENCE) / 2 / max(1, len(pairs.pairs))
    changes = tuple(_change(pair, drift, tail, rules) for pair in pairs.pairs)
    return Comparison(changes, pairs, drift, rules, tuple(before), tuple(after))


def format_change(change: float | None) -> str:
    """Return a change in per cent with its sign and one decimal, from ten times the time on as a factor.

    Beyond a factor of 1000 either way it says only that the change is beyond it.

    >>> format_change(0.0312), format_change(None), format_change(186.2)
    ('+3.1 %', '-', '187x')
    >>> format_change(1e20), format_change(1e-20 - 1)
    ('more than 1000x', 'less than 0.001x')
    """
    if change is None:
        return "-"
    factor = f"{1 + change:.3g}x" if change >= _AS_FACTOR else ""
    return beyond(change) or factor or f"{100 * change:+.1f} %"


def format_ratio(ratio: float | None) -> str:
    """Return after / before with four digits; beyond a factor of 1000 either way only that it is beyond.

    >>> format_ratio(1.50112), format_ratio(4e-36), format_ratio(5e37), format_ratio(None)
    ('1.501', '< 0.001', '> 1000', '-')
    """
    if ratio is None:
        return "-"
    past = f"> {_LARGEST_FACTOR:g}" if ratio > _LARGEST_FACTOR else f"< {1 / _LARGEST_FACTOR:g}"
    return past if beyond(ratio - 1) else f"{ratio:.4g}"


def format_interval(low: float | None, high: float | None) -> str:
    """Return an interval of changes in per cent.

    >>> format_interval(-0.01, 0.03), format_interval(None, None), format_interval(-0.5, 1e20)
    ('-1.0 to +3.0 %', 'unknown', '-50.0 % to more than 1000x')
    >>> format_interval(0.2, 14.0)
    '+20.0 % to 15x'
    """
    if low is None or high is None:
        return "unknown"
    if beyond(low) or beyond(high) or high >= _AS_FACTOR:
        return f"{format_change(low)} to {format_change(high)}"
    return f"{100 * low:+.1f} to {100 * high:+.1f} %"


def beyond(change: float) -> str:
    """Return "more than 1000x" or "less than 0.001x" for a change (a fraction) beyond that factor, else ""."""
    if 1 + change > _LARGEST_FACTOR:
        return f"more than {_LARGEST_FACTOR:g}x"
    return f"less than {1 / _LARGEST_FACTOR:g}x" if 1 + change < 1 / _LARGEST_FACTOR else ""


def _change(pair: Pair, drift: Drift, tail: float, rules: Rules) -> Change:
    sides = (pair.centres_before, pair.centres_after)
    logs = [log_mean(side) for side in sides]
    before_s, after_s = map(math.exp, logs)
    d = logs[1] - logs[0]
    drifts = [(variance / len(side), drift.freedom) for variance, side in zip(drift.variance, sides, strict=True)]
    spread = math.sqrt(sum(v for v, _ in drifts))
    noises = [error for error in map(_error, sides) if error is not None]
    if len(noises) < len(sides):
        verdict = UNCLEAR if d else SAME
        return Change(pair, before_s, after_s, _growth(d), None, None, None, spread, verdict)
    noise = math.sqrt(sum(v for v, _ in noises))
    half = student_quantile(tail, _freedom([*drifts, *noises])) * math.hypot(noise, spread)
    low, high = _growth(d - half), _growth(d + half)
    smallest = max(_growth(half), rules.threshold)
    return Change(pair, before_s, after_s, _growth(d), low, high, noise, spread, _verdict(d, half, rules), smallest)


def _verdict(d: float, half: float, rules: Rules) -> str:
    """Return the verdict on a difference d of logarithms that is known within +- half."""
    if abs(d) > half and abs(_growth(d)) > rules.threshold:
        return SLOWER if d > 0 else FASTER
    margin = math.log1p(rules.margin)
    return SAME if d == 0 or abs(d) + half <= margin else UNCLEAR


def _ratio(log: float) -> float:
    """Return exp(log); beyond the range of numbers nearly the largest one."""
    return math.exp(min(log, _LARGEST_LOG))


def _growth(log: float) -> float:
    """Return exp(log) - 1; beyond the range of numbers, as of an interval that says nothing, nearly the largest one."""
    return math.expm1(min(log, _LARGEST_LOG))


def _error(centres: Sequence[Centre]) -> tuple[float, float] | None:
    """Return the variance of the mean ln(median) of some repeats and its degrees of freedom; None if unknown."""
    known = [(centre.error**2, centre.freedom) for centre in centres if centre.error is not None]
    if len(known) < len(centres):
        return (0.0, math.inf) if len(centres) > 1 else None  # the spread of repeats includes their noise
    count = len(centres)
    return sum(v for v, _ in known) / count**2, _freedom(known)


def _freedom(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of variances (Satterthwaite 1946, Biometrics Bulletin 2:110)."""
    total = sum(v for v, _ in parts)
    used = sum(v**2 / freedom for v, freedom in parts if v)
    return total**2 / used if used else math.inf
