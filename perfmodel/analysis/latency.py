"""Predicting the time to expect: the interface of a latency model, and the simplest honest one.

A model takes an operator, a machine and the counted work, and returns an `Estimate`. `predict` uses
`DEFAULT_MODEL`; a better model replaces it without any change outside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfmodel.analysis.ceilings import (
    ASSUMED_BANDWIDTH,
    ASSUMED_COMPUTE,
    ASSUMED_LAUNCH_S,
    Ceilings,
    ceiling_times,
    launch_time,
    sustained_ceilings,
)
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

    The roofline with what good kernels reach in place of the datasheet, plus the cost of starting a kernel. In
    place of a figure that the spec lacks stands the median share of the machines that were measured, and the
    basis says so. It knows nothing of tiles, waves or caches, so it states no interval.
    """

    name = "sustained-roofline"

    def estimate(self, op: Operator, hardware: Hardware, peak: Peak | None, work: Work) -> Estimate:
        """Return the estimate; scalar or array like the operator's dimensions."""
        links = op.link_traffic()
        ceilings = sustained_ceilings(hardware, peak, links, pinned=getattr(op, "pinned", True))
        slowest = roofline.bound(ceiling_times(work, ceilings, links))
        figures = [*dict.fromkeys(np.ravel(slowest.limiter).tolist()), "launch"]
        return Estimate(slowest.time_s + launch_time(hardware), np.nan, np.nan, _basis(figures, ceilings))


def _basis(figures: Sequence[str], ceilings: Ceilings) -> str:
    """Say which figures set the prediction: sustained ones, assumed ones, or a link's datasheet."""
    shares = dict.fromkeys(ceilings.memory, f"{ASSUMED_BANDWIDTH:.0%} of datasheet ")
    shares["compute"] = f"{ASSUMED_COMPUTE:.0%} of datasheet "
    shares["launch"] = f"{ASSUMED_LAUNCH_S * 1e6:.1f} us of "
    said = [name for name in figures if name in ceilings.sustained]
    assumed = [f"{shares[name]}{name}" for name in figures if name not in said and name in shares]
    sheet = [name for name in figures if name not in said and name not in shares]
    parts = (("sustained", said), ("assumed", assumed), ("datasheet", sheet))
    return ", ".join(f"{word} {' + '.join(names)}" for word, names in parts if names)


DEFAULT_MODEL: LatencyModel = SustainedRoofline()
