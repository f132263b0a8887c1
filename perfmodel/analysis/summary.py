"""What to say below a table of predictions: totals, where the figures come from, and advice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.core.results import Prediction
from perfmodel.core.units import format_si

#: Operators named in one line of advice before the rest is counted.
MOST_NAMES = 6


def summarize(predictions: Sequence[Prediction]) -> list[str]:
    """Return sentences for people about some predictions.

    Totals where operators are counted or listed (calls one after another, nothing overlapped), the basis of
    the predictions, working sets that exceed the machine's caches or memory, and the advice.
    """
    return [*_totals(predictions), *_bases(predictions), *_cached(predictions), *_advice(predictions)]


def _totals(predictions: Sequence[Prediction]) -> list[str]:
    """Sum the times of each machine's operators, for lists of single calls; a sweep has no total."""
    said = []
    for machine in dict.fromkeys(p.hardware for p in predictions):
        mine = [p for p in predictions if p.hardware == machine]
        calls = sum(p.count for p in mine)
        if calls < 2 or any(np.ndim(p.bound_time_s) for p in mine):
            continue
        bound = sum(p.count * float(p.bound_time_s) for p in mine)
        predicted = sum(p.count * float(p.predicted_time_s) for p in mine)
        said.append(
            f"{machine}: {calls} calls one after another: bound {format_si(bound, 's')}, "
            f"predicted {format_si(predicted, 's')}."
        )
    return said


def _bases(predictions: Sequence[Prediction]) -> list[str]:
    bases: dict[str, list[str]] = {}
    for p in predictions:
        bases.setdefault(p.prediction_basis, []).append(f"{p.label} on {p.hardware}")
    if len(bases) == 1:
        return [f"Predicted by {predictions[0].prediction_model}: {next(iter(bases))}."]
    return [f"Predicted from {basis}: {_join(names)}." for basis, names in bases.items()]


def _cached(predictions: Sequence[Prediction]) -> list[str]:
    """Say which operators fit a cache, where a run with warm data is faster than the bound for a cold one."""
    said = []
    for p in predictions:
        if np.ndim(p.bound_time_s) or not p.fits_in:
            continue
        said.append(
            f"{p.label} on {p.hardware} fits in {p.fits_in} ({format_si(float(p.working_set_bytes), 'B')}): with its "
            f"data already there the bound is {format_si(float(p.resident_bound_time_s), 's')} ({p.resident_limiter})."
        )
    return said[:MOST_NAMES]


def _advice(predictions: Sequence[Prediction]) -> list[str]:
    advised: dict[str, list[str]] = {}
    for p in predictions:
        for text in np.unique(np.asarray(p.advice)).tolist():
            advised.setdefault(text, []).append(f"{p.label} on {p.hardware}")
    several = len({p.hardware for p in predictions}) > 1
    return [
        f"{_join(names if several else [name.rpartition(' on ')[0] for name in names])}: {text}."
        for text, names in advised.items()
    ]


def _join(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return ", ".join(unique[:MOST_NAMES]) + more
