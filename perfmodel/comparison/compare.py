"""Two benchmark records: which rows changed, by how much, and which changes are more than noise and drift.

Two runs of the same code differ for two reasons. Samples scatter: the block bootstrap of each row's samples, or its
statistics, give the error of their median (`perfmodel.comparison.noise`). And a run as a whole drifts: clocks settle a
step apart, memory has another layout, a neighbour is busy. No number of samples of one run shows its drift, so an
allowance is made for it, or repeated runs measure it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.comparison.noise import Centre, student_quantile
from perfmodel.comparison.pairing import BenchRun, Pair, Pairs, pair_rows
from perfmodel.core.report import Reportable

FASTER, SLOWER, SAME, UNCLEAR = "faster", "slower", "same", "unclear"
VERDICTS = (SLOWER, FASTER, UNCLEAR, SAME)

#: default for the smallest change that matters, as a fraction
THRESHOLD = 0.02
#: half the width of an interval above which the samples tell nothing, unless a gate sets a limit
_TOO_WIDE = 0.10
_CONFIDENCE = 0.95
#: Standard deviation of ln(median) from run to run of the same code, without repeats. A GPU's clock moves in steps of
#: 15 MHz, 0.8 % of 1.98 GHz: the difference between runs that settle a step apart. CPU: two series of 12 and 10 runs of
#: 13 kernels on an otherwise idle machine with 2 virtual CPUs, 2026-11-21: 9.4 and 15.8 % in the root mean square over
#: the kernels.
_DRIFT = {"cuda": 0.005, "cpu": 0.15, "": 0.15}
#: the least drift of repeats that lie close together, as on a dedicated CPU: assumed
_LEAST_DRIFT = {"cuda": 0.005, "cpu": 0.02, "": 0.02}
#: largest number whose exponential is finite, nearly
_LARGEST_LOG = 700.0
#: weight of the least drift beside measured repeats, in runs
_PRIOR_FREEDOM = 4.0


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


@dataclass(frozen=True)
class Drift:
    """How much runs of the same code differ beyond the scatter of their samples.

    Attributes
    ----------
    variance : variance of ln(median) of one run, for each side.
    freedom : its degrees of freedom.
    basis : where it comes from, in words.
    """

    variance: tuple[float, float]
    freedom: float
    basis: str


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


@dataclass(frozen=True)
class Overall:
    """Geometric mean of after / before over some rows, and its 95 % interval."""

    rows: int
    ratio: float
    low: float
    high: float


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

    def gate_failures(self, limit: float) -> list[str]:
        """Return a sentence for each row that is significantly slower by more than a limit, or has lost its time."""
        slower = [
            f"{change.pair.after.label}: slower by {format_change(change.change)} "
            f"({format_interval(change.low, change.high)}), beyond {100 * limit:g} %."
            for change in self.changes
            if change.verdict == SLOWER and change.change > limit
        ]
        return [*slower, *(f"{row.label}: had a time before, now {now.outcome}." for row, now in self.pairs.lost)]

    def overall(self, changes: Sequence[Change] | None = None) -> Overall | None:
        """Return the geometric mean of the ratios of some rows, by default all; None without rows.

        The noise of the rows is independent and averages out; drift moves all rows of a run together.
        """
        changes = self.changes if changes is None else changes
        if not changes:
            return None
        mean = float(np.mean([math.log(change.after_s) - math.log(change.before_s) for change in changes]))
        noise = sum((change.noise or 0.0) ** 2 for change in changes) / len(changes) ** 2
        drift = float(np.mean([change.drift**2 for change in changes]))
        half = student_quantile((1 - _CONFIDENCE) / 2, self.drift.freedom) * math.sqrt(noise + drift)
        return Overall(len(changes), *(math.exp(min(log, _LARGEST_LOG)) for log in (mean, mean - half, mean + half)))


def compare(
    before: Sequence[BenchRun], after: Sequence[BenchRun], rules: Rules | None = None, across: Sequence[str] = ()
) -> Comparison:
    """Return what changed from one side to the other.

    With d = ln(after / before), n1, n2 the standard errors of the two medians and s1, s2 their drift, the interval is
    exp(d +- t sqrt(n1^2 + n2^2 + s1^2 + s2^2)) - 1. t is Student's quantile for 95 % over all m rows together
    (Bonferroni: each row at 1 - 0.05 / m), with the degrees of freedom of Welch and Satterthwaite.

    - slower, faster: the interval lies on one side of 0, and the change is beyond the threshold;
    - unclear: 0 is inside, and the scatter of the samples alone, t sqrt(n1^2 + n2^2) with t for 95 % of one row, hides
      the limit of the gate (10 % without one) and exceeds drift; or there is only one sample. More samples help;
    - same: everything else, and equal times. If drift makes the interval wide, this means that the runs differ no more
      than two runs of the same code would.

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
    drift = _drift(before, after, pairs.pairs, rules.drift)
    tail = (1 - _CONFIDENCE) / 2 / max(1, len(pairs.pairs))
    changes = tuple(_change(pair, drift, tail, rules) for pair in pairs.pairs)
    return Comparison(changes, pairs, drift, rules, tuple(before), tuple(after))


def format_change(change: float | None) -> str:
    """Return a change in per cent with its sign and one decimal.

    >>> format_change(0.0312), format_change(None)
    ('+3.1 %', '-')
    """
    return "-" if change is None else f"{100 * change:+.1f} %"


def format_interval(low: float | None, high: float | None) -> str:
    """Return an interval of changes in per cent.

    >>> format_interval(-0.01, 0.03), format_interval(None, None)
    ('-1.0 to +3.0 %', 'unknown')
    """
    return "unknown" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f} %"


def _change(pair: Pair, drift: Drift, tail: float, rules: Rules) -> Change:
    sides = (pair.centres_before, pair.centres_after)
    logs = [_log_mean(side) for side in sides]
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
    if (low > 0 or high < 0) and abs(_growth(d)) > rules.threshold:
        verdict = SLOWER if d > 0 else FASTER
    elif d and low <= 0 <= high and _hides(noise, _freedom(noises), spread, rules):
        verdict = UNCLEAR
    else:
        verdict = SAME
    return Change(pair, before_s, after_s, _growth(d), low, high, noise, spread, verdict)


def _growth(log: float) -> float:
    """Return exp(log) - 1; beyond the range of numbers, as of an interval that says nothing, nearly the largest one."""
    return math.expm1(min(log, _LARGEST_LOG))


def _hides(noise: float, freedom: float, spread: float, rules: Rules) -> bool:
    """Whether the scatter of the samples alone hides the limit of the gate, and exceeds drift."""
    t = student_quantile((1 - _CONFIDENCE) / 2, freedom)
    limit = _TOO_WIDE if rules.limit is None else rules.limit
    return t * noise > max(math.log1p(limit), t * spread)


def _log_mean(centres: Sequence[Centre]) -> float:
    return sum(math.log(centre.time_s) for centre in centres) / len(centres)


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


def _drift(before: Sequence[BenchRun], after: Sequence[BenchRun], pairs: Sequence[Pair], given: float | None) -> Drift:
    """Return the requested drift, else that of the repeats, else the assumed one."""
    if given is not None:
        return Drift((given**2, given**2), math.inf, f"{_percent(given)} per run, as requested")
    repeats = max((len(pair.centres_before) + len(pair.centres_after) - 2 for pair in pairs), default=0)
    if repeats:
        return _repeated((_assumed(before, _LEAST_DRIFT), _assumed(after, _LEAST_DRIFT)), pairs, repeats)
    assumed = (_assumed(before, _DRIFT), _assumed(after, _DRIFT))
    mean = _percent(math.sqrt((assumed[0] ** 2 + assumed[1] ** 2) / 2))
    return Drift((assumed[0] ** 2, assumed[1] ** 2), math.inf, f"{mean} per run, assumed; repeats measure it")


def _assumed(runs: Sequence[BenchRun], drift: Mapping[str, float]) -> float:
    return max(drift.get(run.kind, drift[""]) for run in runs)


def _repeated(least: tuple[float, float], pairs: Sequence[Pair], repeats: int) -> Drift:
    """Return the drift of repeats: the spread of their medians beyond noise, averaged over the rows.

    The least drift counts like `_PRIOR_FREEDOM` further runs, since few repeats may lie close together by chance. The
    rows of a run drift together, so they add no degrees of freedom.
    """
    variances = []
    for pair in pairs:
        sides = (pair.centres_before, pair.centres_after)
        spare = sum(len(side) - 1 for side in sides)
        if spare:
            squares = sum(sum((math.log(c.time_s) - _log_mean(side)) ** 2 for c in side) for side in sides)
            noise = float(np.mean([(c.error or 0.0) ** 2 for side in sides for c in side]))
            variances.append(max(0.0, squares / spare - noise))
    measured = float(np.mean(variances))
    freedom = _PRIOR_FREEDOM + repeats
    variance = [(_PRIOR_FREEDOM * low**2 + repeats * measured) / freedom for low in least]
    total, alone = _percent(math.sqrt(max(variance))), _percent(math.sqrt(measured))
    return Drift((variance[0], variance[1]), freedom, f"{total} per run, from repeats ({alone} without the prior)")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
