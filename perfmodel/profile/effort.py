"""The effort of each kind of change: days of development and risk. These are assumptions; users override them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfmodel.errors import UsageError, unknown_name
from perfmodel.profile.candidate import RISKS


@dataclass(frozen=True)
class Effort:
    """Days of development of one engineer, and the risk that the change fails."""

    dev_days: float
    risk: str


CUDA_GRAPH, BATCH_SYNCS, PIN_MEMORY, OVERLAP_COPIES = "cuda-graph", "batch-syncs", "pin-memory", "overlap-copies"
OVERLAP_COMMUNICATION, INPUT_PIPELINE, HOST_WORK = "overlap-communication", "input-pipeline", "host-work"
FUSE, DTYPE, ATTENTION, TUNE = "fuse", "dtype", "attention", "tune-kernel"
COALESCE, OCCUPANCY, PAD = "coalesce", "occupancy", "pad"

#: kind of change -> effort. Our own assumption, for a ranking before anybody has read the code: a switch (pinned
#: memory, data loader workers, tf32, SDPA) takes half a day to a day with its test, a change of the training loop two
#: days, a hand-written kernel a week. `perfmodel diagnose --effort KIND=DAYS:RISK` replaces them.
EFFORT: Mapping[str, Effort] = MappingProxyType(
    {
        PIN_MEMORY: Effort(0.5, "low"),
        INPUT_PIPELINE: Effort(0.5, "low"),
        DTYPE: Effort(1.0, "medium"),
        PAD: Effort(1.0, "low"),
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
    """Return `EFFORT` with the values from texts of the form ``KIND=DAYS`` or ``KIND=DAYS:RISK``.

    Raises
    ------
    UsageError
        For an unknown kind or risk, or if the days are not above 0.

    >>> parse_effort(["cuda-graph=5:high"])["cuda-graph"]
    Effort(dev_days=5.0, risk='high')
    """
    table = dict(EFFORT)
    for text in texts:
        kind, equals, rest = text.partition("=")
        days, _, risk = rest.partition(":")
        if not equals:
            raise UsageError(
                f"{text!r} is not an effort.",
                place="--effort",
                remedy="Write KIND=DAYS[:RISK], for example fuse=3.",
            )
        if kind not in table:
            raise unknown_name("kind of change", kind, table, place="--effort")
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
            f"{text!r}: {written!r} is not a number of days above 0.", place="--effort", remedy="Example: fuse=3."
        )
    return days
