"""What traces do not tell of an operator: which operands are the same tensor, and which rows a look-up reads.

Readers count the least that is possible, so that a bound stays a bound.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.gather import Gather
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.scatter_add import ScatterAdd

#: parameters of look-ups whose indices are spread at random
_AT_RANDOM = {"unique": None, "distribution": "even"}


def reading_once(op: Operator) -> Operator | None:
    """Return an elementwise operator of two tensors as one that reads a single tensor twice, None for others."""
    if isinstance(op, Elementwise) and float(op.num_inputs) == 2.0:
        return dataclasses.replace(op, num_inputs=1)
    return None


def spread_at_random(op: Operator) -> Operator | None:
    """Return a look-up whose indices are spread at random, as no program looks up one row only; None for others."""
    if not isinstance(op, (Embedding, Gather, IndexSelect, ScatterAdd)):
        return None
    spread: dict[str, Any] = {name: value for name, value in _AT_RANDOM.items() if name in op.params()}
    return dataclasses.replace(op, **spread)
