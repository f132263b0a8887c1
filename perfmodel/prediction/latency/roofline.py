"""The sustained roofline: for operators and machines without a closed form of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import MAIN_MEMORY, Hardware, Peak
from perfmodel.core.work import Work
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import (
    ASSUMED_BANDWIDTH,
    ASSUMED_COMPUTE,
    ASSUMED_LAUNCH_S,
    Ceilings,
    ceiling_times,
    launch_time,
    link_traffic,
    sustained_ceilings,
)
from perfmodel.prediction.latency.family import Family, Terms


def family(op: Operator, hardware: Hardware, peak: Peak | None, work: Work) -> tuple[Family, str]:
    """Return the family of one operator on one machine, and from which figures its time is made.

    The time is t = launch overhead + max over ceilings of (work / sustained rate).

    The roofline with what good kernels reach in place of the datasheet, plus the cost of starting a kernel. In
    place of a figure that the spec lacks stands the median share of the machines that were measured. It knows
    nothing of tiles, waves or caches.
    """
    links = link_traffic(op, hardware)
    ceilings = sustained_ceilings(hardware, peak, links, pinned=getattr(op, "pinned", True))
    times = ceiling_times(work, ceilings, links)
    slowest = roofline.bound(times)
    adds = {
        _TERMS.get(name, name): np.where(slowest.limiter_code == index, slowest.time_s, 0.0)
        for index, name in enumerate(slowest.names)
    }
    terms = Terms({**adds, "launch": launch_time(hardware)}, {_TERMS.get(name, name): t for name, t in times.items()})
    figures = [*dict.fromkeys(np.ravel(slowest.limiter).tolist()), "launch"]
    return Family("roofline", (), lambda *_: terms), _figures(figures, ceilings)


def _figures(names: Sequence[str], ceilings: Ceilings) -> str:
    """Say which figures set the prediction: sustained ones, assumed ones, or a link's datasheet."""
    shares = dict.fromkeys(ceilings.memory, f"{ASSUMED_BANDWIDTH:.0%} of datasheet ")
    shares["compute"] = f"{ASSUMED_COMPUTE:.0%} of datasheet "
    shares["launch"] = f"{ASSUMED_LAUNCH_S * 1e6:.1f} us of "
    said = [name for name in names if name in ceilings.sustained]
    assumed = [f"{shares[name]}{name}" for name in names if name not in said and name in shares]
    sheet = [name for name in names if name not in said and name not in shares]
    parts = (("sustained", said), ("assumed", assumed), ("datasheet", sheet))
    return ", ".join(f"{word} {' + '.join(names)}" for word, names in parts if names)


#: what the closed forms call these ceilings
_TERMS = {"compute": "math", **dict.fromkeys(MAIN_MEMORY, "dram")}

#: the constants are the specification's ``[sustained]`` and ``[launch]``; only the host's are fitted
FAMILY = Family("roofline", (), lambda *_: Terms({}))
