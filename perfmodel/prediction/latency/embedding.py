"""Embedding look-up: rows of a table at random, copied element by element."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from perfmodel.operators.base import Operator
from perfmodel.operators.embedding import Embedding
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import (
    ETA,
    FEED,
    FILL,
    ISSUE,
    START,
    STREAM_TERMS,
    beside_math,
    issue_s,
    stream_times,
)
from perfmodel.prediction.latency.terms import Terms

SERVES = {"embedding": ("embedding",)}

CONSTANTS = (ETA, replace(START, library=True), FEED, FILL, replace(ISSUE, default=1.8))


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||issue tokens dim / (SM f), hbm + l2|| [s]."""
    work = op.work()
    issued = issue_s(cast(Embedding, op).tokens * cast(Embedding, op).dim, machine, c)
    return beside_math(issued, *stream_times(work.bytes, work.working_set_bytes, machine, c, conditions), c)


FAMILIES = (Family("embedding", CONSTANTS, formula, STREAM_TERMS),)
