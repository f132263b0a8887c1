"""Advice to pad the sizes of matrix products to what the tensor cores' kernels load at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.predicted import Span, predicted_span
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.limits import Basis, Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.diagnosis.whose_kernels import library_of
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.padding import multiple_of, padded
from perfmodel.profile import effort

#: products that are listed
_LISTED = 3


class _Odd(NamedTuple):
    """A product whose rows are no multiple of a load, as it could be padded."""

    limit: Limit
    padded: Gemm
    sizes: str
    span: Span
    share: float


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
