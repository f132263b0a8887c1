"""The passes over memory of a naive composition, as operators that the model can predict."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.reduction import Reduction


def streamed(numel: Any, dtype: str, *kinds: str, tensors: int = 1) -> tuple[Elementwise, ...]:
    """Return a pass for each kind over ``numel`` elements of each tensor; equal passes become one with a count."""
    return tuple(
        Elementwise(numel=numel, kind=kind, num_inputs=tensors, dtype=dtype, count=count)
        for kind, count in Counter(kinds).items()
    )


def rowwise(op: Any, *, reductions: int, kinds: tuple[str, ...]) -> tuple[Operator, ...]:
    """Return the passes of a composition over rows: reductions, and elementwise kinds.

    The second operand of these kinds is a row or a column; its bytes are negligible.
    """
    reduction = Reduction(rows=op.rows, cols=op.cols, dtype=op.dtype, count=reductions)
    return (reduction, *streamed(op.rows * op.cols, op.dtype, *kinds))


def column(op: Any, *kinds: str) -> tuple[Elementwise, ...]:
    """Return the passes over one element per row."""
    return streamed(op.rows, op.dtype, *kinds)
