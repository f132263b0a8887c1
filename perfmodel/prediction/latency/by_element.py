"""Kernels of serving libraries that load element by element: embedding look-up, and rotary position embedding.

Rows of the embedding's table are copied from places at random; queries and keys are rotated in place. Both are limited
by the instructions that each element takes, more than by their bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from perfmodel.operators.base import Operator
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.rope import Rope
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values, forward_only
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

SERVES = {"embedding": ("embedding",), "rope": ("rope",)}

#: elements whose instructions take as long as the fixed part of a token's block; set on A100 and H100 together, where
#: 1152 elements of a token take 6.3 ps each and 16,384 take 4.6, as RMSNorm's `ROW`
BLOCK = 400.0
#: constants of both; the cycles of an element differ
_STREAM = (ETA, replace(START, library=True), FEED, FILL)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of t = launch + ||issue tokens (dim + fixed) / (SM f), hbm + l2|| [s].

    A block turns the heads of one token, which takes it a fixed time besides.
    """
    op = cast(Embedding | Rope, op)
    work = op.work()
    fixed = BLOCK if isinstance(op, Rope) else 0.0
    issued = issue_s(op.tokens * (op.dim + fixed), machine, c)
    return beside_math(issued, *stream_times(work.bytes, work.working_set_bytes, machine, c, conditions), c)


FAMILIES = (
    Family(
        "embedding",
        (*_STREAM, replace(ISSUE, default=1.8)),
        formula,
        STREAM_TERMS,
        forward_only,
        by_library=True,
        of_framework=True,
    ),
    Family("rope", (*_STREAM, replace(ISSUE, default=0.6)), formula, STREAM_TERMS, forward_only, by_library=True),
)
