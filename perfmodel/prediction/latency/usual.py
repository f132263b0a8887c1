"""The time to expect where a specification leaves figures out: by usual ones, and as unsure as these are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.work import Number, anywhere, maximum
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.estimate import Estimate, reaching_further
from perfmodel.prediction.latency.model import estimate
from perfmodel.prediction.usual_figures import completed, extremes, left_out

#: what nothing stands for, since most times go with it
BANDWIDTH = "bandwidth of its main memory"
#: a figure that changes the time by less is not named
NEGLIGIBLE = 1e-3


def estimate_by_usual(
    op: Operator,
    hardware: Hardware,
    peak: Peak | None,
    conditions: Conditions,
    floor_s: Number,
    parts: Sequence[Operator] = (),
) -> Estimate:
    """Return the time to expect on a machine that may lack figures; parameters as for `estimate`.

    The interval reaches those of the machines with the ends of what is plausible, of each figure and of all of them, so
    that who knows less is never surer.
    """
    whole = completed(hardware)
    if whole is hardware:
        return estimate(op, hardware, peak, conditions, floor_s, parts=parts)

    def on(machine: Hardware) -> Estimate:
        # where the specification has no rate of such arithmetic, the machine has a usual one
        known = resolve_peak(op, machine) if peak is None and anywhere(op.flop() > 0) else peak
        return estimate(op, machine, known, conditions, floor_s, parts=parts)

    found = on(whole)
    if hardware.main_memory.bandwidth_bytes_per_s is None:
        return replace(found, basis=f"{found.basis}; but no time, since the specification has no {BANDWIDTH}")
    figures = [(figure, _moved(found, [on(machine) for machine in figure.ends])) for figure in left_out(hardware)]
    together = _moved(found, [on(machine) for machine in extremes(hardware)])
    down, up = (functools.reduce(maximum, (moved[which] for _, moved in figures), together[which]) for which in (0, 1))
    if not (_counts(down) or _counts(up)):
        return found
    words = [figure.words for figure, moved in figures if any(map(_counts, moved))]
    assumed = ", ".join(words or [figure.words for figure, _ in figures])
    basis = f"{found.basis}; assumed, since the specification leaves it out: {assumed}"
    return replace(reaching_further(found, down, up), basis=basis)


def _counts(distance: Number) -> bool:
    return bool(anywhere(distance > NEGLIGIBLE))


def _moved(one: Estimate, others: Sequence[Estimate]) -> tuple[Number, Number]:
    """Return how much further down, and up, the intervals of some estimates reach, in the logarithm of the time."""
    low, high = one.spread.factors
    down: Number = 0.0 * one.time_s
    up = down
    for other in others:
        ratio = np.divide(other.time_s, one.time_s)
        down = maximum(down, -np.log(ratio * other.spread.factors[0] / low))
        up = maximum(up, np.log(ratio * other.spread.factors[1] / high))
    return down, up
