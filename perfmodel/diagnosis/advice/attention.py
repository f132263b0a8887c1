"""Advice to replace attention that runs as separate operators, forward or backward, by one kernel.

PyTorch's eager modules compute attention as a product, some operators on the scores, a softmax and a second product.
Which ones lie between is a matter of taste: scale, mask, dropout, a cast, copies of values or of an expanded mask. So
the products and the softmax decide, by their sizes; what lies between them on all scores belongs to the attention, and
other operators do not break it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.advice.fusion import times
from perfmodel.diagnosis.advice.predicted import Span, predicted_span
from perfmodel.diagnosis.advice.suggest import suggest
from perfmodel.diagnosis.execution_order import entries_in_order
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Advice
from perfmodel.operators.attention import Attention
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.padding import multiple_of, padded
from perfmodel.profile import effort
from perfmodel.profile.profile import ProfileEntry

#: most operators from the first product of an attention to its second one, and from a softmax's gradient to a product
_LONGEST, _AROUND = 24, 12
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
_SOFTMAX_BACKWARD = re.compile(r"softmax_backward", re.IGNORECASE)
#: the shape of the first tensor in the name of an entry: "aten::masked_fill_(16x8x512x512, 1x1x512x512) fp32"
_FIRST_SHAPE = re.compile(r"\((?:\[|bias )?(\d+(?:x\d+)*)")

Entries = tuple[int, ...]


class Scores(NamedTuple):
    """The scores of an attention: heads of all sequences together, queries, keys, and the size of a head."""

    heads: float
    queries: float
    keys: float
    head_dim: float
    dtype: str

    @property
    def numel(self) -> float:
        """Number of scores."""
        return self.heads * self.queries * self.keys


class Unfused(NamedTuple):
    """An attention that runs as separate operators: the entries that one kernel replaces, and its scores."""

    entries: Entries
    scores: Scores
    backward: bool


class _Step:
    """One entry as the search sees it."""

    def __init__(self, entry: ProfileEntry) -> None:
        self.entry = entry
        self.name = entry.launched_by or entry.name
        self.gemm = entry.op if isinstance(entry.op, Gemm) else None

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The sizes of its first tensor, empty where its name does not have them."""
        match = _FIRST_SHAPE.search(self.entry.name)
        return tuple(map(int, match.group(1).split("x"))) if match else ()

    @cached_property
    def numel(self) -> float:
        """Number of elements of its first tensor or of its operator; 0 where nothing tells it."""
        counted = getattr(self.entry.op, "numel", None)
        return float(counted) if counted is not None else float(math.prod(self.dims)) if self.dims else 0.0

    @property
    def is_softmax(self) -> bool:
        """Whether it is a softmax, or its gradient."""
        return bool(_SOFTMAX.search(self.name))

    @property
    def call_s(self) -> float:
        """The time of one call [s]."""
        return self.entry.time_s / (self.entry.calls or 1)


def attention_advice(run: MeasuredRun, hardware: Hardware) -> Iterator[Advice | None]:
    """Yield the advice to compute attention in one kernel, the most frequent one first, forward and backward."""
    steps = [_Step(entry) for entry in run.profile.entries]
    for unfused, count in _find(run, steps).most_common():
        flash = _flash(unfused, hardware)
        if flash is not None:
            parts = [steps[index] for index in unfused.entries]
            yield _advice(run, parts, unfused, flash, count, _padding_text(parts, hardware, count / run.num_gpus))


def _flash(unfused: Unfused, hardware: Hardware) -> Span | None:
    """Return the expected time of one fused kernel for the same scores, None where the machine lacks the dtype.

    None as well where scores are smaller than queries, as those of a router over a few experts: one kernel would save
    little traffic.
    """
    scores = unfused.scores
    if scores.keys < scores.head_dim:
        return None
    op = Attention(
        heads=scores.heads,
        seq_q=scores.queries,
        seq_kv=scores.keys,
        head_dim=scores.head_dim,
        dtype=scores.dtype,
        backward=unfused.backward,
    )
    return predicted_span(op, hardware, "torch")


def _padding_text(parts: Sequence[_Step], hardware: Hardware, count: float) -> str:
    """Return what padding the products of an attention would gain that stays as it is; empty for whole loads."""
    gains, words = 0.0, []
    for step in parts:
        new, sizes = padded(step.gemm) if step.gemm is not None else (None, "")
        span = predicted_span(new, hardware, "torch") if new is not None and sizes else None
        if span is not None:
            gains += max(span.saved_s(step.call_s), 0.0) * count
            words.append(sizes)
    if not words:
        return ""
    dtype = next(step.gemm.dtype for step in parts if step.gemm is not None)
    return (
        f"; where it stays unfused, pad {', '.join(dict.fromkeys(words))} (a multiple of {multiple_of(dtype)}), which "
        f"gains about {format_si(gains, 's', 3)}"
    )


def _advice(
    run: MeasuredRun, parts: Sequence[_Step], unfused: Unfused, flash: Span, count: int, padding: str
) -> Advice | None:
    scores, now_s = unfused.scores, sum(step.call_s for step in parts)
    what = "gradient of attention" if unfused.backward else "attention"
    basis = (
        f"{times(count)} {format_si(now_s, 's')} for {scores.heads:.0f} heads, {scores.queries:.0f} queries and "
        f"{scores.keys:.0f} keys of size {scores.head_dim:.0f}; the model predicts {flash.text} for fused {what}"
    )
    return suggest(
        run,
        effort.ATTENTION,
        Dimension.MEMORY,
        name=f"fused {what} (SDPA) instead of {_chain(parts)}",
        text="use torch.nn.functional.scaled_dot_product_attention: it never writes the scores to memory" + padding,
        targets=tuple(dict.fromkeys(step.entry.name for step in parts)),
        saved_s=flash.saved_s(now_s) * count / run.num_gpus,
        saved_range_s=flash.saved_range_s(now_s, count / run.num_gpus),
        basis=basis,
    )


def _chain(parts: Sequence[_Step]) -> str:
    """Return the operators of an attention in a few words: "bmm, mul, softmax, bmm"."""
    names = [step.name.removeprefix("aten::").lstrip("_") for step in parts]
    return ", ".join(name for place, name in enumerate(names) if place == 0 or names[place - 1] != name)


def _find(run: MeasuredRun, steps: Sequence[_Step]) -> Counter[Unfused]:
    """Return how often each unfused attention occurs."""
    found: Counter[Unfused] = Counter()
    # the last element stands for the index -1, an event without an entry
    starts = np.array([step.gemm is not None or bool(_SOFTMAX_BACKWARD.search(step.name)) for step in steps] + [False])
    for entries in entries_in_order(run):
        order = entries.tolist()
        end = 0  # an operator belongs to one attention
        for place in np.flatnonzero(starts[entries]).tolist():
            if place < end:
                continue
            if steps[order[place]].gemm is not None:
                unfused, length = _forward(order[place : place + _LONGEST], steps)
                end = place + length
            else:
                unfused = _backward(order, place, steps)
            if unfused is not None:
                found[unfused] += 1
    return found


def _is_kernel(step: _Step) -> bool:
    return step.entry.category in (EventKind.KERNEL, EventKind.MEMCPY, "")


def _forward(window: Sequence[int], steps: Sequence[_Step]) -> tuple[Unfused | None, int]:
    """Return the attention that starts with the first product of a window, or None, and how many operators it spans.

    A product computes scores [heads, m, n]; a softmax works along n, or along m where the scores are transposed; a
    product of as many heads contracts what the softmax has worked along.
    """
    first = steps[window[0]].gemm
    assert first is not None
    heads, m, n, head_dim = (float(size) for size in (first.batch, first.m, first.n, first.k))
    queries = keys = 0.0
    chosen = [window[0]]
    for place, index in enumerate(window[1:], start=1):
        if index < 0:
            continue
        step = steps[index]
        if step.gemm is not None:
            second = step.gemm
            fits = keys and float(second.batch) == heads and float(second.k) == keys
            if fits and queries in (float(second.m), float(second.n)):
                scores = Scores(heads, queries, keys, head_dim, first.dtype)
                return Unfused((*chosen, index), scores, backward=False), place + 1
            break
        if _SOFTMAX_BACKWARD.search(step.name):
            break
        if step.is_softmax and not keys:
            cols = float(step.dims[-1]) if step.dims else float(getattr(step.entry.op, "cols", n))
            if cols not in (m, n) or (step.dims and step.numel != heads * m * n):
                break
            keys, queries = (n, m) if cols == n else (m, n)
            chosen.append(index)
        elif _is_kernel(step) and step.numel == heads * m * n:
            chosen.append(index)
    return None, 0


def _backward(order: Sequence[int], place: int, steps: Sequence[_Step]) -> Unfused | None:
    """Return the gradient of an attention around the gradient of its softmax, or None.

    Before it, products give the gradients of the probabilities [heads, queries, keys] and of the values; after it,
    those of the queries and of the keys.
    """
    middle = steps[order[place]]
    if len(middle.dims) < 2:
        return None
    keys, queries = float(middle.dims[-1]), float(middle.dims[-2])
    heads = middle.numel / (keys * queries)
    before = _gradients(order[max(0, place - _AROUND) : place][::-1], steps, (heads, queries, keys))
    after = _gradients(order[place + 1 : place + 1 + _AROUND], steps, (heads, queries, keys))
    products = [steps[index].gemm for index in before]
    probabilities = [g for g in products if g is not None and float(g.m) * float(g.n) == queries * keys]
    if not probabilities or not any(steps[index].gemm for index in after):
        return None
    gemm = probabilities[0]
    scores = Scores(heads, queries, keys, float(gemm.k), gemm.dtype)
    return Unfused((*reversed(before), order[place], *after), scores, backward=True)


def _gradients(window: Sequence[int], steps: Sequence[_Step], sizes: tuple[float, float, float]) -> Entries:
    """Return the entries next to a softmax's gradient that belong to it: at most two products, and work on scores."""
    heads, queries, keys = sizes
    chosen, products = [], 0
    for index in window:
        step = steps[index] if index >= 0 else None
        if step is None:
            continue
        if step.gemm is not None:
            gemm = step.gemm
            around = {float(gemm.m), float(gemm.n), float(gemm.k)}
            if products == 2 or float(gemm.batch) != heads or not {queries, keys} <= around:
                break
            products += 1
            chosen.append(index)
        elif step.is_softmax:
            break
        elif products < 2 and _is_kernel(step) and step.numel == heads * queries * keys:
            chosen.append(index)
    return tuple(chosen)
