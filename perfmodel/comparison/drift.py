"""How much two runs of the same code differ as a whole: stated, measured by repeats, or assumed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.comparison.noise import Centre
from perfmodel.comparison.pairing import BenchRun, Pair

#: Standard deviation of ln(median) from run to run of the same code, without repeats. A GPU whose clock is not locked
#: settles at one of several, 5 % apart: 1.8 % lets runs of two such clocks pass as the same, 1.96 sqrt(2) 1.8 % = 5 %.
#: CPU: two series of 12 and 10 runs of 13 kernels on an otherwise idle machine with 2 virtual CPUs, 2026-11-21: 9.4 and
#: 15.8 % in the root mean square over the kernels.
_DRIFT = {"cuda": 0.018, "cpu": 0.15, "": 0.15}
#: and of a run beside which other work ran: a kernel that gets half of a machine takes twice as long, a factor of two
#: within one standard deviation and a half; a GPU's kernels only start later. Assumed
_BUSY_DRIFT = {"cuda": 0.05, "cpu": 0.45, "": 0.45}
#: the least drift of repeats that lie close together, as on a dedicated CPU: assumed
_LEAST_DRIFT = {"cuda": 0.005, "cpu": 0.02, "": 0.02}
#: weight of the least drift beside measured repeats, in runs
_PRIOR_FREEDOM = 4.0


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


def log_mean(centres: Sequence[Centre]) -> float:
    """Return the mean of ln(time) of some repeats."""
    return sum(math.log(centre.time_s) for centre in centres) / len(centres)


def drift_of(
    before: Sequence[BenchRun], after: Sequence[BenchRun], pairs: Sequence[Pair], given: float | None
) -> Drift:
    """Return the requested drift, else that of the repeats, else the assumed one."""
    if given is not None:
        return Drift((given**2, given**2), math.inf, f"{_percent(given)} per run, as requested")
    repeats = max((len(pair.centres_before) + len(pair.centres_after) - 2 for pair in pairs), default=0)
    if repeats:
        return _repeated((_assumed(before, _LEAST_DRIFT), _assumed(after, _LEAST_DRIFT)), pairs, repeats)
    assumed = (_assumed(before, _DRIFT), _assumed(after, _DRIFT))
    mean = _percent(math.sqrt((assumed[0] ** 2 + assumed[1] ** 2) / 2))
    busy = " for a busy machine" if any(run.busy for run in (*before, *after)) else ""
    return Drift((assumed[0] ** 2, assumed[1] ** 2), math.inf, f"{mean} per run, assumed{busy}; repeats measure it")


def _assumed(runs: Sequence[BenchRun], drift: Mapping[str, float]) -> float:
    """Return the standard deviation that is assumed for the runs of one side; more if other work ran."""
    tables = [_BUSY_DRIFT if run.busy and drift is _DRIFT else drift for run in runs]
    return max(table.get(run.kind, table[""]) for run, table in zip(runs, tables, strict=True))


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
            squares = sum(sum((math.log(c.time_s) - log_mean(side)) ** 2 for c in side) for side in sides)
            noise = float(np.mean([(c.error or 0.0) ** 2 for side in sides for c in side]))
            variances.append(max(0.0, squares / spare - noise))
    measured = float(np.mean(variances))
    freedom = _PRIOR_FREEDOM + repeats
    variance = [(_PRIOR_FREEDOM * low**2 + repeats * measured) / freedom for low in least]
    total, alone = _percent(math.sqrt(max(variance))), _percent(math.sqrt(measured))
    return Drift((variance[0], variance[1]), freedom, f"{total} per run, from repeats ({alone} without the prior)")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
