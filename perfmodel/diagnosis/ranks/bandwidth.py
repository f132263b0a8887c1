"""What the exchanges of a job reach, by operation and message, beside what is expected of the link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.diagnosis.ranks.job import Job
from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.errors import PerfModelError
from perfmodel.operators import load_operator, operator_names
from perfmodel.operators.collective import Collective
from perfmodel.prediction.predict import predict
from perfmodel.prediction.topology import most_joined, nodes_of

#: a time and its interval where nothing is expected
_UNKNOWN = (math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class ExchangeKind:
    """All exchanges of one operation, process group and message.

    Attributes
    ----------
    operation, group, bytes, ranks : what they have in common; ``bytes`` is NaN where the traces do not say. Exchanges
        in which the ranks have messages of different sizes are one kind, of the median of the largest ones. ``ranks``
        counts those that take part, with those that are not given.
    hosts : on how many hosts the ranks are at least; None where the traces do not say.
    calls : how many there are.
    time_s : median from the last start to the last end [s].
    skew_s : median of the wait of the first rank for the last one [s].
    algorithm_bytes_per_s, bus_bytes_per_s : as nccl-tests defines them, of the median time [B/s]; NaN where unknown.
    predicted_s, low_s, high_s : expected time and its 80 % interval on a machine [s]; NaN without one.
    """

    operation: str
    group: str
    bytes: float
    ranks: int
    hosts: int | None
    calls: int
    time_s: float
    skew_s: float
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    predicted_s: float
    low_s: float
    high_s: float


class _Same(NamedTuple):
    """What the exchanges of a kind have in common; ``hosts`` is 0 where the traces do not tell.

    ``bytes`` is None where the ranks have different messages.
    """

    operation: str
    group: str
    bytes: float | None
    ranks: int
    hosts: int


def exchange_kinds(job: Job, hardware: Hardware | None = None) -> list[ExchangeKind]:
    """Return the exchanges of a job by kind, those that take the most time first.

    Parameters
    ----------
    job : the ranks.
    hardware : the machine; without it nothing is expected.
    """
    groups: dict[_Same, list[Matched]] = {}
    for one in job.exchanges:
        hosts = job.hosts_of(one.ranks.tolist()) or 0
        size = one.key.bytes if one.even else None
        key = _Same(one.key.operation, one.key.group, size, one.size, hosts)
        groups.setdefault(key, []).append(one)
    kinds = [_kind(key, members, hardware) for key, members in groups.items()]
    return sorted(kinds, key=lambda kind: -kind.calls * (kind.time_s + kind.skew_s))


def _kind(key: _Same, members: list[Matched], hardware: Hardware | None) -> ExchangeKind:
    operation, group, _, ranks, hosts = key
    size = float(np.median([one.key.bytes for one in members]))
    time_s = float(np.median([one.time_s for one in members]))
    op = _operator(operation, size, ranks)
    known = op is not None and time_s > 0
    whole = all(one.whole for one in members)
    predicted = _predicted(op, hardware, hosts, whole=whole) if op is not None and hardware is not None else _UNKNOWN
    return ExchangeKind(
        operation,
        group,
        size or np.nan,
        ranks,
        hosts or None,
        len(members),
        time_s,
        float(np.median([one.skew_s for one in members])),
        float(size / time_s) if known else np.nan,
        float(op.peer_bytes()) / time_s if op is not None and known else np.nan,
        *predicted,
    )


def _operator(operation: str, size: float, ranks: int) -> Collective | None:
    """Return the operator of an exchange, or None for one that the model does not have or of unknown size."""
    if operation not in operator_names() or not size > 0:
        return None
    kind: Any = load_operator(operation)
    op = kind(bytes=round(size), num_gpus=ranks, dtype="bf16")
    return op if isinstance(op, Collective) else None


def _predicted(op: Collective, hardware: Hardware, hosts: int, *, whole: bool) -> tuple[float, float, float]:
    """Return the expected time and its interval; unless the ranks are ``whole``, others may be on more hosts."""
    nodes = nodes_of(hosts if whole or hosts > 1 else 0, hardware, op.num_gpus)
    if nodes is not None and not whole:
        nodes = max(nodes, math.ceil(op.num_gpus / most_joined(hardware)))
    try:
        placed = op.changed(nodes=nodes)
        prediction = predict(placed, hardware, library="nccl")
    except PerfModelError:  # ranks beyond one node and an unknown network, or a machine without a link
        return _UNKNOWN
    return (
        float(prediction.predicted_time_s),
        float(prediction.predicted_time_low_s),
        float(prediction.predicted_time_high_s),
    )
