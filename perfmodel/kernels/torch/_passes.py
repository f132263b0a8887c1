"""The passes over memory that a naive composition makes, as the operators that the model predicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.reduction import Reduction


def streamed(numel: Any, dtype: str, *kinds: str, tensors: int = 1) -> tuple[Elementwise, ...]:
    """Return one pass for each kind over ``numel`` elements of some tensors; equal ones are one with a count."""
    return tuple(
        Elementwise(numel=numel, kind=kind, num_inputs=tensors, dtype=dtype, count=count)
        for kind, count in Counter(kinds).items()
    )


def rowwise(op: Any, *, reductions: int, kinds: tuple[str, ...]) -> tuple[Operator, ...]:
    """Return the passes of a composition over rows: reductions of them, and kinds with a row or a column as operand.

    The other operand of such a kind is a row or a column, whose bytes do not count beside those of the whole.
    """
    reduction = Reduction(rows=op.rows, cols=op.cols, dtype=op.dtype, count=reductions)
    return (reduction, *streamed(op.rows * op.cols, op.dtype, *kinds))


def column(op: Any, *kinds: str) -> tuple[Elementwise, ...]:
    """Return the passes over one element a row."""
    return streamed(op.rows, op.dtype, *kinds)
