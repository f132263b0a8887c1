"""Advice to pad the sizes of matrix products to what the tensor cores' kernels load at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.predicted import Span, predicted_span
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.limits import Basis, Limit, library_of
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.operators.gemm import Gemm
from perfmodel.profile import effort

#: bytes that one load moves to the tensor cores: rows have to be a multiple of it (NVIDIA, "Matrix multiplication
#: background user's guide", section 4.1: multiples of 16 B; 8 elements of 16 bits, 16 of 8 bits, 4 of TF32)
_LOADED_BYTES = 16
#: products that are listed
_LISTED = 3


class _Odd(NamedTuple):
    """A product whose rows are no multiple of a load, as it could be padded."""

    limit: Limit
    padded: Gemm
    sizes: str
    span: Span
    share: float


def multiple_of(dtype: str) -> int:
    """Return the multiple that the rows of matrices have to be for whole loads [elements].

    >>> multiple_of("bf16"), multiple_of("fp8"), multiple_of("tf32")
    (8, 16, 4)
    """
    return max(1, int(_LOADED_BYTES / dtype_bytes(dtype)))


def padded(op: Gemm) -> tuple[Gemm, str]:
    """Return a product with its row lengths n and k padded, and what is padded in words; empty if nothing has to be.

    The rows of A and B, or of its transpose, and of the result are k and n long; m only counts rows.
    """
    multiple = multiple_of(op.dtype)
    sizes = {name: float(getattr(op, name)) for name in ("n", "k")}
    new = {name: int(-(-size // multiple) * multiple) for name, size in sizes.items() if size % multiple}
    words = ", ".join(f"{name} {sizes[name]:.0f} to {size}" for name, size in new.items())
    return (op.changed(**new) if new else op), words


def padding_advice(run: MeasuredRun, hardware: Hardware) -> Iterator[Advice | None]:
    """Yield the advice to pad products, those that would gain most."""
    odd = [found for limit in run.limits.values() if (found := _odd(run, limit, hardware)) is not None]
    odd.sort(key=lambda item: -item.span.saved_s(item.limit.entry.time_s))
    for item in odd[:_LISTED]:
        entry = item.limit.entry
        yield suggest(
            run,
            effort.PAD,
            Dimension.COMPUTE,
            name=f"pad {entry.name}",
            text=f"pad {item.sizes}, a multiple of {multiple_of(item.padded.dtype)} elements (16 B): kernels of the "
            "tensor cores load whole rows, and mask or cut off what was added",
            targets=(entry.name,),
            saved_s=item.span.saved_s(entry.time_s) * item.share,
            saved_range_s=item.span.saved_range_s(entry.time_s, item.share),
            basis=f"{format_si(entry.time_s, 's')} in {entry.calls} calls; the model predicts {item.span.text} for the "
            "padded product",
        )


def _odd(run: MeasuredRun, limit: Limit, hardware: Hardware) -> _Odd | None:
    """Return a product of odd sizes that takes longer than the padded one may, or None."""
    entry = limit.entry
    op = entry.op
    is_product = limit.basis is Basis.MODEL and entry.category == EventKind.KERNEL and isinstance(op, Gemm)
    if not is_product or not isinstance(op, Gemm) or not hardware.find_peak(op.dtype, "tensor") or float(op.m) == 1.0:
        return None
    new, sizes = padded(op)
    calls = (entry.calls or 1) * op.count
    span = predicted_span(new, hardware, library_of(entry), factor=calls) if sizes else None
    wall = run.wall_entries.get(entry.name)
    if span is None or wall is None or entry.time_s <= span.high_s:
        return None
    return _Odd(limit, new, sizes, span, wall.time_s / entry.time_s)
