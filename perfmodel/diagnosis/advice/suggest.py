"""A piece of advice with its candidate, from the saving that a rule has estimated."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.profile.candidate import Candidate

#: a change that saves less than this share of the run's time is not advised
LEAST_SAVING = 0.01


def suggest(
    run: MeasuredRun,
    kind: str,
    dimension: Dimension,
    *,
    name: str,
    text: str,
    targets: Sequence[str],
    saved_s: float,
    basis: str,
    saved_range_s: tuple[float, float] | None = None,
) -> Advice | None:
    """Return advice for a change, or None where it saves less than `LEAST_SAVING` of the run's time.

    A saving that was predicted has an interval. Where the interval is wider than the saving, nobody knows whether the
    change saves anything, and there is no advice.

    Parameters
    ----------
    run : the run.
    kind : the kind of change, a key of `perfmodel.profile.effort.EFFORT`.
    dimension : the dimension that becomes shorter.
    name, text : name of the candidate, and what to do.
    targets : entries of ``run.wall``; names that are none are left out.
    saved_s : estimated saving [s]; it counts up to the time of the targets together.
    basis : how the saving was estimated.
    saved_range_s : the least and the most that the change may save [s]; None for a saving that was measured.
    """
    entries = [run.wall_entries[target] for target in targets if target in run.wall_entries]
    before_s = sum(entry.time_s for entry in entries)
    if saved_range_s is not None and saved_range_s[1] - saved_range_s[0] > saved_s:
        return None
    low_s, high_s = (None, None) if saved_range_s is None else (min(end_s, before_s) for end_s in saved_range_s)
    saved_s = min(saved_s, before_s)
    if not entries or not saved_s >= LEAST_SAVING * run.total_s:
        return None
    effort = run.effort[kind]
    candidate = Candidate(
        name,
        tuple(entry.name for entry in entries),
        new_time_s=before_s - saved_s,
        dev_days=effort.dev_days,
        risk=effort.risk,
        kind=kind,
    )
    return Advice(kind, dimension, text, saved_s, basis, candidate, low_s, high_s)
