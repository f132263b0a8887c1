"""Predicting the time to expect: the interface of a latency model, and the simplest honest one.

A model takes an operator, a machine and the counted work, and returns an `Estimate`. `predict` uses
`DEFAULT_MODEL`; a better model replaces it without any change outside this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfmodel.analysis.ceilings import Ceilings, ceiling_times, sustained_ceilings
from perfmodel.core import roofline
from perfmodel.core.hardware import Hardware, Peak
from perfmodel.core.work import Number, Work
from perfmodel.operators._base import Operator


@dataclass(frozen=True)
class Estimate:
    """The time to expect.

    Attributes
    ----------
    time_s : expected time of one call [s].
    low_s, high_s : 80 % interval [s]; NaN where the model states none.
    basis : from which figures of the machine it was made, for people.
    """

    time_s: Number
    low_s: Number
    high_s: Number
    basis: str


class LatencyModel(Protocol):
    """What a latency model must offer."""

    name: str

    def estimate(self, op: Operator, hardware: Hardware, peak: Peak | None, work: Work) -> Estimate:
        """Return the time to expect for one call."""
        ...


class SustainedRoofline:
    """t = launch overhead + max over ceilings of (work / sustained rate).

    The roofline with what good microbenchmarks reach in place of the datasheet, plus the cost of starting
    a kernel. Figures that the spec lacks fall back to the datasheet, and the basis says which. It knows
    nothing of tiles, waves or caches, so it states no interval.
    """

    name = "sustained-roofline"

    def estimate(self, op: Operator, hardware: Hardware, peak: Peak | None, work: Work) -> Estimate:
        """Return the estimate; scalar or array like the operator's dimensions."""
        links = op.link_traffic()
        ceilings = sustained_ceilings(hardware, peak, links, pinned=getattr(op, "pinned", True))
        slowest = roofline.bound(ceiling_times(work, ceilings, links))
        limiting = dict.fromkeys(np.ravel(slowest.limiter).tolist())
        launch = ceilings.launch_s or 0.0
        return Estimate(slowest.time_s + launch, np.nan, np.nan, _basis(limiting, ceilings))


def _basis(limiting: Iterable[str], ceilings: Ceilings) -> str:
    """Say which figures set the prediction: sustained ones, or the datasheet's where none was measured."""
    sustained = [name for name in limiting if name in ceilings.sustained]
    missing = [name for name in limiting if name not in ceilings.sustained]
    if ceilings.launch_s is not None:
        sustained.append("launch")
    said = []
    if sustained:
        said.append(f"sustained {' + '.join(sustained)}")
    if missing:
        said.append(f"datasheet {' + '.join(missing)}")
    if ceilings.launch_s is None:
        said.append("no launch figure")
    return ", ".join(said)


DEFAULT_MODEL: LatencyModel = SustainedRoofline()
