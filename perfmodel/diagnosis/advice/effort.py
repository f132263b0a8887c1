"""What each kind of advice is taken to cost: days of development and risk. Assumptions, meant to be overridden."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfmodel.errors import UsageError, unknown_name
from perfmodel.profile.candidate import RISKS


@dataclass(frozen=True)
class Effort:
    """Days of development of one engineer, and the risk that the change does not work out."""

    dev_days: float
    risk: str


CUDA_GRAPH, BATCH_SYNCS, PIN_MEMORY, OVERLAP_COPIES = "cuda-graph", "batch-syncs", "pin-memory", "overlap-copies"
OVERLAP_COMMUNICATION, INPUT_PIPELINE, HOST_WORK = "overlap-communication", "input-pipeline", "host-work"
FUSE, DTYPE, ATTENTION, TUNE = "fuse", "dtype", "attention", "tune-kernel"
COALESCE, OCCUPANCY = "coalesce", "occupancy"

#: kind of advice -> effort. Our own assumption, for ranking before anybody has looked at the code: a switch (pinned
#: memory, workers of a loader, tf32, SDPA) half a day to a day with its test, a change of a training loop two days, a
#: kernel of one's own a week. `perfmodel diagnose --effort KIND=DAYS:RISK` replaces each.
EFFORT: Mapping[str, Effort] = MappingProxyType(
    {
        PIN_MEMORY: Effort(0.5, "low"),
        INPUT_PIPELINE: Effort(0.5, "low"),
        DTYPE: Effort(1.0, "medium"),
        ATTENTION: Effort(1.0, "low"),
        BATCH_SYNCS: Effort(1.0, "low"),
        OVERLAP_COPIES: Effort(1.0, "low"),
        CUDA_GRAPH: Effort(2.0, "medium"),
        FUSE: Effort(2.0, "medium"),
        HOST_WORK: Effort(2.0, "medium"),
        OVERLAP_COMMUNICATION: Effort(3.0, "medium"),
        COALESCE: Effort(3.0, "medium"),
        OCCUPANCY: Effort(3.0, "medium"),
        TUNE: Effort(5.0, "high"),
    }
)


def parse_effort(texts: Iterable[str]) -> dict[str, Effort]:
    """Return the table with what was written as ``KIND=DAYS`` or ``KIND=DAYS:RISK`` put in place.

    Raises
    ------
    UsageError
        For an unknown kind or risk, or days that are not above 0.

    >>> parse_effort(["cuda-graph=5:high"])["cuda-graph"]
    Effort(dev_days=5.0, risk='high')
    """
    table = dict(EFFORT)
    for text in texts:
        kind, found, rest = text.partition("=")
        days, _, risk = rest.partition(":")
        if not found:
            raise UsageError(
                f"{text!r} is no effort.", place="--effort", remedy="Write KIND=DAYS or KIND=DAYS:RISK, as in fuse=3."
            )
        if kind not in table:
            raise unknown_name("kind of advice", kind, table, place="--effort")
        if risk and risk not in RISKS:
            raise unknown_name("risk", risk, RISKS, place="--effort")
        table[kind] = Effort(_days(days, text), risk or table[kind].risk)
    return table


def _days(written: str, text: str) -> float:
    try:
        days = float(written)
    except ValueError:
        days = math.nan
    if not 0 < days < math.inf:
        raise UsageError(
            f"{text!r}: {written!r} is no number of days above 0.", place="--effort", remedy="Write it as in fuse=3."
        )
    return days
