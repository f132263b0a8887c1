"""Advice for kernels: a data type for the tensor cores, attention in one kernel, kernels far above their prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from perfmodel.core.hardware import Hardware
from perfmodel.core.kernel_name import short_name
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.attention import attention_advice
from perfmodel.diagnosis.advice.padding import padding_advice
from perfmodel.diagnosis.advice.predicted import Span, predicted_span
from perfmodel.diagnosis.advice.suggest import LEAST_SAVING, suggest
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.limits import Basis, Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.diagnosis.whose_kernels import library_of
from perfmodel.operators import Operator
from perfmodel.prediction.uncertainty import UNMEASURED, unmeasured
from perfmodel.profile import effort

#: data types for products of fp32 tensors, the least intrusive first: tf32 rounds only inside the tensor cores
_FASTER = ("tf32", "bf16", "fp16")
#: a kernel is worth tuning if it is this many times slower than its prediction; so many are listed
_SLOWER, _TUNED = 1.5, 3


def kernel_advice(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield advice for the kernels of a profile whose operators are known."""
    if run.hardware is None:
        return
    yield _dtype(run, run.hardware)
    if run.decomposition is not None:
        yield from attention_advice(run, run.hardware)
    yield from padding_advice(run, run.hardware)
    yield from _tune(run)


def share_of_wall(run: MeasuredRun, limit: Limit) -> float:
    """Return the share of an entry's time in the wall time: below 1 if kernels overlap or for several GPUs."""
    entry = run.wall_entries.get(limit.entry.name)
    return entry.time_s / limit.entry.time_s if entry and limit.entry.time_s else 0.0


def with_dtype(op: Operator, dtype: str) -> Operator:
    """Return an operator in another data type; the output stays fp32 for tf32, which rounds only inside."""
    changed: dict[str, Any] = {"dtype": dtype}
    if dtype != "tf32" and getattr(op, "out_dtype", "") == op.dtype:
        changed["out_dtype"] = dtype
    return dataclasses.replace(op, **changed)


def _dtype(run: MeasuredRun, hardware: Hardware) -> Advice | None:
    """Return the advice to compute fp32 products on the tensor cores; the saving follows the two predictions."""
    faster = next((dtype for dtype in _FASTER if hardware.find_peak(dtype, "tensor")), None)
    if faster is None:
        return None
    saved_s, before_s, targets = 0.0, 0.0, []
    least_s = most_s = 0.0
    for limit in run.limits.values():
        op = limit.entry.op
        if limit.basis != Basis.MODEL or op is None or op.dtype != "fp32" or op.preferred_engine != "tensor":
            continue
        library = library_of(limit.entry)
        now, then = (predicted_span(each, hardware, library) for each in (op, with_dtype(op, faster)))
        if now and then and then.time_s < now.time_s:
            time_s = limit.entry.time_s * share_of_wall(run, limit)
            saved_s += time_s * (1.0 - then.time_s / now.time_s)
            least_s += time_s * (1.0 - then.high_s / now.time_s)
            most_s += time_s * (1.0 - then.low_s / now.time_s)
            before_s += time_s
            targets.append(limit.entry.name)
    if not targets:
        return None
    how = {"tf32": "torch.set_float32_matmul_precision('high')"}.get(faster, f"torch.autocast(dtype {faster})")
    return suggest(
        run,
        effort.DTYPE,
        Dimension.COMPUTE,
        name=f"{faster} products",
        text=f"compute fp32 products on the tensor cores: {how}; it has fewer mantissa bits, so check the results",
        targets=targets,
        saved_s=saved_s,
        saved_range_s=(least_s, most_s),
        basis=f"{len(targets)} kinds of fp32 products take {format_si(before_s, 's')}; the model predicts "
        f"{before_s / (before_s - saved_s):.2f}x faster products in {faster}",
    )


class _Slow(NamedTuple):
    """A kernel above its prediction."""

    limit: Limit
    span: Span
    share: float


def _slow(run: MeasuredRun) -> list[_Slow]:
    """Return the kernels that take much longer than predicted, those with the largest difference first."""
    slow = []
    for limit in run.limits.values():
        time_s, predicted_s, low_s, high_s = (
            limit.entry.time_s,
            limit.predicted_time_s,
            limit.predicted_low_s,
            limit.predicted_high_s,
        )
        is_kernel = limit.basis == Basis.MODEL and limit.entry.category == EventKind.KERNEL
        if not is_kernel or predicted_s is None or low_s is None or high_s is None:
            continue
        if time_s > max(_SLOWER * predicted_s, high_s):
            slow.append(_Slow(limit, Span(predicted_s, low_s, high_s), share_of_wall(run, limit)))
    return sorted(slow, key=lambda kernel: -kernel.span.saved_s(kernel.limit.entry.time_s) * kernel.share)


def _has_seen(limit: Limit) -> bool:
    """Whether the constants of a prediction have seen the machine, the library and the dtype."""
    return not UNMEASURED & set(limit.not_seen)


def _tune(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield the kernels that take much longer than measured ones of their machine, library and dtype."""
    for limit, span, share in [kernel for kernel in _slow(run) if _has_seen(kernel.limit)][:_TUNED]:
        entry, bound_s = limit.entry, limit.attainable_time_s or 0.0
        if bound_s > span.time_s:
            # Winograd computes fewer products than the direct convolution whose FLOP the bound counts.
            bound_s = limit.floor_time_s or 0.0
        computes = dimension_of(limit.limiter) == Dimension.COMPUTE
        yield suggest(
            run,
            effort.TUNE,
            Dimension.COMPUTE if computes else Dimension.MEMORY,
            name=f"tune {entry.name}",
            text="good kernels for this shape are faster: try another layout, library or version",
            targets=(entry.name,),
            saved_s=span.saved_s(entry.time_s) * share,
            saved_range_s=span.saved_range_s(entry.time_s, share),
            basis=f"{format_si(entry.time_s, 's')} in {entry.calls} call{'s' if entry.calls != 1 else ''}; the model "
            f"predicts {span.text} for good kernels, and the bound is {format_si(bound_s, 's')}",
        )


def not_tuned(run: MeasuredRun) -> list[str]:
    """Return a sentence on kernels that look slow by constants that have not seen their machine, library or dtype."""
    if run.hardware is None:
        return []
    doubtful = [
        kernel
        for kernel in _slow(run)
        if not _has_seen(kernel.limit)
        and kernel.span.saved_s(kernel.limit.entry.time_s) * kernel.share >= LEAST_SAVING * run.total_s
    ]
    if not doubtful:
        return []
    listed = ", ".join(
        f"{short_name(limit.entry.name)} ({limit.entry.time_s / span.time_s:.2g} times; no table of its "
        f"{unmeasured(limit.not_seen)})"
        for limit, span, _ in doubtful[:_TUNED]
    )
    more = f" and {len(doubtful) - _TUNED} more" if len(doubtful) > _TUNED else ""
    return [
        f"Slower than expected, but from constants that nobody measured there, so that tuning is not advised: {listed}"
        f"{more}. `perfmodel bench` measures what good kernels reach."
    ]


def faster_than_expected(run: MeasuredRun) -> list[str]:
    """Return a sentence on the kernels that are faster than the interval of their prediction."""
    faster = [
        limit
        for limit in run.limits.values()
        if limit.faster_than_expected and limit.entry.category == EventKind.KERNEL
    ]
    share = sum(limit.entry.time_s for limit in faster) / (run.profile.total_time_s or 1.0)
    if share < LEAST_SAVING:
        return []
    faster.sort(key=lambda limit: -limit.entry.time_s)
    listed = ", ".join(short_name(limit.entry.name) for limit in faster[:_TUNED])
    more = f" and {len(faster) - _TUNED} more" if len(faster) > _TUNED else ""
    return [f"Faster than their expectation's interval ({100 * share:.3g} % of the time): {listed}{more}."]
