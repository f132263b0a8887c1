"""Advice for kernels: a data type for the tensor cores, attention in one kernel, kernels far above their prediction."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.fusion import times
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.decompose import dimension_of
from perfmodel.diagnosis.execution_order import call_s, entries_in_order, modelled
from perfmodel.diagnosis.limits import Basis, Limit
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.predict import predict
from perfmodel.profile import effort

#: data types for products of fp32 tensors, the least intrusive first: tf32 rounds only inside the tensor cores
_FASTER = ("tf32", "bf16", "fp16")
#: operators allowed between the products and the softmax of unfused attention: scale, mask, dropout, cast
_BETWEEN = 4
#: a kernel is worth tuning if it is this many times slower than its prediction; so many are listed
_SLOWER, _TUNED = 1.5, 3


def kernel_advice(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield advice for the kernels of a profile whose operators are known."""
    if run.hardware is None:
        return
    yield _dtype(run, run.hardware)
    if run.decomposition is not None:
        yield from _attention(run, run.hardware)
    yield from _tune(run)


def _share_of_wall(run: MeasuredRun, limit: Limit) -> float:
    """Return the share of an entry's time in the wall time: below 1 if kernels overlap or for several GPUs."""
    entry = run.wall_entries.get(limit.entry.name)
    return entry.time_s / limit.entry.time_s if entry and limit.entry.time_s else 0.0


def _predicted_s(op: Operator, hardware: Hardware) -> float | None:
    """Return the predicted time of one call [s], or None where the machine cannot compute it."""
    try:
        return float(predict(dataclasses.replace(op, count=1), hardware).predicted_time_s)
    except UsageError:
        return None


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
    for limit in run.limits.values():
        op = limit.entry.op
        if limit.basis != Basis.MODEL or op is None or op.dtype != "fp32" or op.preferred_engine != "tensor":
            continue
        now_s, then_s = _predicted_s(op, hardware), _predicted_s(with_dtype(op, faster), hardware)
        if now_s and then_s and then_s < now_s:
            time_s = limit.entry.time_s * _share_of_wall(run, limit)
            saved_s += time_s * (1.0 - then_s / now_s)
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
        basis=f"{len(targets)} kinds of fp32 products take {format_si(before_s, 's')}; the model predicts "
        f"{before_s / (before_s - saved_s):.2f}x faster products in {faster}",
    )


def _attention(run: MeasuredRun, hardware: Hardware) -> Iterator[Advice | None]:
    """Yield the advice to replace product, softmax and product by one attention kernel."""
    limits = [modelled(run, index) for index in range(len(run.profile.entries))]
    for chain, count in _unfused_attentions(run, limits).most_common():
        parts = [limit for index in chain if (limit := limits[index]) is not None]
        scores = parts[0].entry.op
        assert isinstance(scores, Gemm)
        flash = Attention(heads=scores.batch, seq_q=scores.m, seq_kv=scores.n, head_dim=scores.k, dtype=scores.dtype)
        then_s, now_s = _predicted_s(flash, hardware), sum(call_s(limit) for limit in parts)
        if then_s is None:
            continue
        yield suggest(
            run,
            effort.ATTENTION,
            Dimension.MEMORY,
            name="SDPA instead of bmm, softmax, bmm",
            text="use torch.nn.functional.scaled_dot_product_attention: it never writes the scores to memory",
            targets=tuple(dict.fromkeys(limit.entry.name for limit in parts)),
            saved_s=(now_s - then_s) * count / run.num_gpus,
            basis=f"{times(count)} {format_si(now_s, 's')} for {scores.batch:.0f} heads, {scores.m:.0f} queries and "
            f"{scores.n:.0f} keys of size {scores.k:.0f}; the model predicts {format_si(then_s, 's')} for flash "
            "attention",
        )


def _unfused_attentions(run: MeasuredRun, limits: Sequence[Limit | None]) -> Counter[tuple[int, ...]]:
    """Return how often each chain of entries that computes attention occurs."""
    found: Counter[tuple[int, ...]] = Counter()
    # the last element stands for the index -1, an event without an entry
    products = np.array([limit is not None and isinstance(limit.entry.op, Gemm) for limit in limits] + [False])
    for entries in entries_in_order(run):
        for start in np.flatnonzero(products[entries]).tolist():
            window = entries[start : start + 2 * _BETWEEN + 3].tolist()
            chain = _unfused(window, [limits[index] if index >= 0 else None for index in window])
            if chain:
                found[chain] += 1
    return found


def _unfused(indices: Sequence[int], limits: Sequence[Limit | None]) -> tuple[int, ...]:
    """Return the entries of an attention that starts with the first product, or an empty tuple.

    These are a product that computes scores [batch, m, n], at most four operators on all scores, a softmax over n,
    again at most four operators, and a product that contracts n; all with the same number of heads.
    """
    first = limits[0]
    assert first is not None
    scores = first.entry.op
    assert isinstance(scores, Gemm)
    numel = float(scores.batch) * float(scores.m) * float(scores.n)
    has_softmax = False
    for place, limit in enumerate(limits[1:], start=1):
        op = limit.entry.op if limit is not None else None
        if isinstance(op, Softmax) and not has_softmax:
            if float(op.cols) != float(scores.n) or float(op.rows) * float(op.cols) != numel:
                return ()
            has_softmax = True
        elif isinstance(op, Gemm):
            fits = float(op.k) == float(scores.n) and float(op.m) == float(scores.m) and op.batch == scores.batch
            return tuple(indices[: place + 1]) if has_softmax and fits else ()
        elif not isinstance(op, Elementwise) or float(op.numel) != numel:
            return ()
    return ()


class _Slow(NamedTuple):
    """A kernel above its prediction, and the time that a good kernel would save [s]."""

    saved_s: float
    limit: Limit
    predicted_s: float


def _tune(run: MeasuredRun) -> Iterator[Advice | None]:
    """Yield the kernels that take much longer than the model predicts for good kernels of their shape."""
    slow = []
    for limit in run.limits.values():
        time_s, predicted_s, high_s = limit.entry.time_s, limit.predicted_time_s, limit.predicted_high_s
        is_kernel = limit.basis == Basis.MODEL and limit.entry.category == EventKind.KERNEL
        if is_kernel and predicted_s is not None and high_s is not None and time_s > max(_SLOWER * predicted_s, high_s):
            slow.append(_Slow((time_s - predicted_s) * _share_of_wall(run, limit), limit, predicted_s))
    slow.sort(key=lambda kernel: -kernel.saved_s)
    for saved_s, limit, predicted_s in slow[:_TUNED]:
        entry, bound_s = limit.entry, limit.attainable_time_s or 0.0
        if bound_s > predicted_s:
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
            saved_s=saved_s,
            basis=f"{format_si(entry.time_s, 's')} in {entry.calls} call{'s' if entry.calls != 1 else ''}; the model "
            f"predicts {format_si(predicted_s, 's')} for good kernels, and the bound is {format_si(bound_s, 's')}",
        )
