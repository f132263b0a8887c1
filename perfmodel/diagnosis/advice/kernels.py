"""Advice for kernels: a data type for the tensor cores, attention in one kernel, kernels far from their prediction."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis.advice.fusion import times
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import COMPUTE, MEMORY
from perfmodel.diagnosis.limits import BY_MODEL, Limit
from perfmodel.diagnosis.result import Advice
from perfmodel.diagnosis.sequence import call_s, modelled, sequences
from perfmodel.errors import UsageError
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.predict import predict
from perfmodel.profile import effort
from perfmodel.profile.profile import KERNEL

#: what a product of fp32 tensors may be done in instead, the least intrusive first: tf32 rounds inside the tensor cores
_FASTER = ("tf32", "bf16", "fp16")
#: operators allowed between the products and the softmax of unfused attention: scale, mask, dropout, cast
_BETWEEN = 4
#: a kernel this many times slower than its prediction is worth looking at, and so many are listed
_SLOWER, _TUNED = 1.5, 3


def kernel_advice(case: Case) -> Iterator[Advice | None]:
    """Yield advice for the kernels of a profile whose operators are known."""
    if case.hardware is None:
        return
    yield _dtype(case, case.hardware)
    if case.decomposition is not None:
        yield from _attention(case, case.hardware)
    yield from _tune(case)


def _in_wall(case: Case, limit: Limit) -> float:
    """Return the share of an entry's time that the wall sees: less than 1 where kernels overlap, or of several GPUs."""
    seen = case.wall_entries.get(limit.entry.name)
    return seen.time_s / limit.entry.time_s if seen and limit.entry.time_s else 0.0


def _time_s(op: Operator, hardware: Hardware) -> float | None:
    """Return the predicted time of one call [s], or None where the machine cannot do it."""
    try:
        return float(predict(dataclasses.replace(op, count=1), hardware).predicted_time_s)
    except UsageError:
        return None


def with_dtype(op: Operator, dtype: str) -> Operator:
    """Return an operator in another data type; what it writes stays fp32 where tf32 only rounds inside."""
    changed: dict[str, Any] = {"dtype": dtype}
    if dtype != "tf32" and getattr(op, "out_dtype", "") == op.dtype:
        changed["out_dtype"] = dtype
    return dataclasses.replace(op, **changed)


def _dtype(case: Case, hardware: Hardware) -> Advice | None:
    """Return the advice to let fp32 products use the tensor cores: the ratio of the two predictions of each."""
    faster = next((dtype for dtype in _FASTER if hardware.find_peak(dtype, "tensor")), None)
    if faster is None:
        return None
    saved_s, before_s, targets = 0.0, 0.0, []
    for limit in case.limits.values():
        op = limit.entry.op
        if limit.basis != BY_MODEL or op is None or op.dtype != "fp32" or op.preferred_engine != "tensor":
            continue
        now_s, then_s = _time_s(op, hardware), _time_s(with_dtype(op, faster), hardware)
        if now_s and then_s and then_s < now_s:
            time_s = limit.entry.time_s * _in_wall(case, limit)
            saved_s += time_s * (1.0 - then_s / now_s)
            before_s += time_s
            targets.append(limit.entry.name)
    if not targets:
        return None
    basis = (
        f"{len(targets)} kinds of fp32 products take {format_si(before_s, 's')}; in {faster} the model predicts "
        f"{before_s / (before_s - saved_s):.2f}x faster"
    )
    how = {"tf32": "torch.set_float32_matmul_precision('high')"}.get(faster, f"torch.autocast(dtype {faster})")
    text = f"use the tensor cores for fp32 products: {how}; fewer bits of the mantissa, so check the results"
    return case.advise(effort.DTYPE, COMPUTE, f"{faster} products", text, targets, saved_s, basis)


def _attention(case: Case, hardware: Hardware) -> Iterator[Advice | None]:
    """Yield the advice to replace product, softmax, product by one attention kernel."""
    found: Counter[tuple[int, ...]] = Counter()
    limits = [modelled(case, index) for index in range(len(case.profile.entries))]
    products = np.array([isinstance(one.entry.op, Gemm) if one is not None else False for one in limits] + [False])
    for items in sequences(case):
        # -1, what no entry counts, is the last place
        for start in np.flatnonzero(products[items]).tolist():
            window = items[start : start + 2 * _BETWEEN + 3].tolist()
            chain = _unfused(window, [limits[index] if index >= 0 else None for index in window])
            if chain:
                found[chain] += 1
    for chain, count in found.most_common():
        parts = [one for one in (modelled(case, index) for index in chain) if one is not None]
        first, last = parts[0].entry.op, parts[-1].entry.op
        assert isinstance(first, Gemm)
        assert isinstance(last, Gemm)
        flash = Attention(heads=first.batch, seq_q=first.m, seq_kv=first.n, head_dim=first.k, dtype=first.dtype)
        then_s, now_s = _time_s(flash, hardware), sum(call_s(one) for one in parts)
        if then_s is None:
            continue
        basis = (
            f"{times(count)} {format_si(now_s, 's')} for {first.batch:.0f} heads, {first.m:.0f} queries, {first.n:.0f} "
            f"keys of {first.k:.0f}; flash attention is predicted to take {format_si(then_s, 's')}"
        )
        yield case.advise(
            effort.ATTENTION,
            MEMORY,
            "SDPA instead of bmm, softmax, bmm",
            "torch.nn.functional.scaled_dot_product_attention: the scores never reach memory",
            tuple(dict.fromkeys(one.entry.name for one in parts)),
            (now_s - then_s) * count / case.gpus,
            basis,
        )


def _unfused(items: Sequence[int], limits: Sequence[Limit | None]) -> tuple[int, ...]:
    """Return the entries of an attention that begins with the product in front, or nothing.

    Scores [batch, m, n], at most four operators on all of them, a softmax over n, again at most four, and a product
    that contracts n: all with one number of heads.
    """
    first = limits[0]
    assert first is not None
    scores = first.entry.op
    assert isinstance(scores, Gemm)
    numel = float(scores.batch) * float(scores.m) * float(scores.n)
    softmax_at = 0
    for place, limit in enumerate(limits[1:], start=1):
        op = limit.entry.op if limit is not None else None
        if isinstance(op, Softmax) and not softmax_at:
            if float(op.cols) != float(scores.n) or float(op.rows) * float(op.cols) != numel:
                return ()
            softmax_at = place
        elif isinstance(op, Gemm):
            fits = float(op.k) == float(scores.n) and float(op.m) == float(scores.m) and op.batch == scores.batch
            return tuple(items[: place + 1]) if softmax_at and fits else ()
        elif not isinstance(op, Elementwise) or float(op.numel) != numel:
            return ()
    return ()


def _tune(case: Case) -> Iterator[Advice | None]:
    """Yield the kernels that take much longer than good ones of their shape do, by the model."""
    slow = []
    for limit in case.limits.values():
        time_s, predicted_s, high_s = limit.entry.time_s, limit.predicted_time_s, limit.predicted_high_s
        if limit.basis != BY_MODEL or limit.entry.category != KERNEL or predicted_s is None or high_s is None:
            continue
        if time_s > max(_SLOWER * predicted_s, high_s):
            slow.append(((time_s - predicted_s) * _in_wall(case, limit), limit))
    slow.sort(key=lambda pair: -pair[0])
    for saved_s, limit in slow[:_TUNED]:
        entry = limit.entry
        predicted_s, bound_s = limit.predicted_time_s or 0.0, limit.attainable_time_s or 0.0
        if bound_s > predicted_s:
            # Winograd does fewer products than the direct count of the bound
            bound_s = limit.floor_time_s or 0.0
        basis = (
            f"{format_si(entry.time_s, 's')} in {entry.calls} call{'s' if entry.calls != 1 else ''}; the model expects "
            f"{format_si(predicted_s, 's')} of good kernels, the bound is {format_si(bound_s, 's')}"
        )
        text = "a good kernel for this shape is faster: try another layout, library or version"
        dimension = COMPUTE if limit.limiter == "compute" else MEMORY
        yield case.advise(effort.TUNE, dimension, f"tune {entry.name}", text, (entry.name,), saved_s, basis)
