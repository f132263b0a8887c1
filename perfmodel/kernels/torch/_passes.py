"""The passes over memory of a naive composition, as operators that the model can predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from perfmodel.core.work import ceil
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.reduction import Reduction


def streamed(numel: Any, dtype: str, *kinds: str, tensors: int = 1, strided: bool = False) -> tuple[Elementwise, ...]:
    """Return a pass for each kind over ``numel`` elements of each tensor; equal passes become one with a count.

    A share of the elements, as three quarters for six bytes of eight, is rounded up to a whole number.
    ``strided`` says that an operand is a view with gaps or broadcast, which PyTorch reads element by element in place
    of vectors (aten/src/ATen/native/cuda/Loops.cuh, gpu_kernel_impl: contiguous operands only are vectorised).
    """
    return tuple(
        Elementwise(numel=ceil(numel), kind=kind, num_inputs=tensors, dtype=dtype, count=count, strided=strided)
        for kind, count in Counter(kinds).items()
    )


def rowwise(
    op: Any, *, reductions: int, kinds: tuple[str, ...] = (), broadcast: tuple[str, ...] = ()
) -> tuple[Operator, ...]:
    """Return the passes of a composition over rows: reductions, and elementwise kinds.

    The second operand of the ``broadcast`` kinds is a row or a column, whose bytes are negligible.
    """
    reduction = Reduction(rows=op.rows, cols=op.cols, dtype=op.dtype, count=reductions)
    numel = op.rows * op.cols
    return (reduction, *streamed(numel, op.dtype, *kinds), *streamed(numel, op.dtype, *broadcast, strided=True))


def twice(steps: Callable[[Any], tuple[Operator, ...]]) -> Callable[[Any], tuple[Operator, ...]]:
    """Return the kernels of autograd over a loop of ``steps``: about two for each of the forward pass."""
    return lambda op: (*steps(op), *steps(op))


def column(op: Any, *kinds: str) -> tuple[Elementwise, ...]:
    """Return the passes over one element per row."""
    return streamed(op.rows, op.dtype, *kinds)
