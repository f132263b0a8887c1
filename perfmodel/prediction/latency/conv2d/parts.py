"""What all algorithms of convolutions share: sizes, terms, and how terms go together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.record import record
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, maximum, where
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.latency.gemm import POWER
from perfmodel.prediction.latency.terms import HBM, Term, Terms, smooth_max

IM2COL = Term("im2col", Limiter.HBM, "unfolding the images in a kernel of its own")
TRANSFORMS = Term("transforms", Limiter.HBM, "Winograd's transforms of filters, images and outputs")
GATHERING = Term("gathering", Limiter.COMPUTE, "finding the pixels that the taps of a filter meet")
LAYOUT = Term("layout", Limiter.HBM, "transposing images, filters and outputs for kernels that want NHWC")
IMPOSSIBLE = Term("impossible", Limiter.UNKNOWN, "an algorithm that cannot be used here")


@record
class Sizes:
    """The sizes of a convolution, and of its tensors in bytes; the gradient of the weights sums over the pixels."""

    images: Number
    channels: Number
    filters: Number
    p: Number
    q: Number
    size: float
    x: Number
    weight: Number
    y: Number
    over_pixels: bool = False

    @classmethod
    def of(cls, op: Conv2d) -> Sizes:
        """Return the sizes of a convolution, or of that which a gradient is."""
        tensors = {tensor.name.removeprefix("d"): tensor.size_bytes for tensor in op.counted()[0]}
        x, weight, y = (tensors[name] for name in ("x", "weight", "y"))
        over_pixels = op.backward and op.gradient == "weight"
        return cls(op.n, op.c, op.k, op.p, op.q, dtype_bytes(op.dtype), x, weight, y, over_pixels)

    @property
    def compulsory(self) -> Number:
        """The tensors together [B]."""
        return self.x + self.weight + self.y


def with_memory(arithmetic: Terms, memory: Number) -> Terms:
    """Return arithmetic with what device memory, which works at the same time, adds to it."""
    total = arithmetic.time_s
    adds = plus(arithmetic, HBM, maximum(smooth_max(POWER, total, memory) - total, 0.0)).adds
    return Terms(adds, {**arithmetic.alone, HBM: memory})


def plus(terms: Terms, name: Term, time: Number) -> Terms:
    """Return terms with one more time."""
    return Terms({**terms.adds, name: terms.adds.get(name, 0.0) + time}, terms.alone)


def only(can: Any, terms: Terms) -> Terms:
    """Return terms that never win where an algorithm cannot be used."""
    return Terms({**terms.adds, IMPOSSIBLE: where(can, 0.0, math.inf)}, terms.alone)


def between(first: Terms, second: Terms, share: Number) -> Terms:
    """Return terms whose time is t1^(1 - share) t2^share: the mean of ln t where the second is that likely to run."""
    t1, t2 = first.time_s, second.time_s
    apart = where(t2 == t1, 1.0, t2 - t1)
    of_second = (t1 * (t2 / t1) ** share - t1) / apart

    def mixed(one: Mapping[Term, Number], other: Mapping[Term, Number]) -> dict[Term, Number]:
        names = dict.fromkeys((*one, *other))
        return {n: (1.0 - of_second) * one.get(n, 0.0) + of_second * other.get(n, 0.0) for n in names}

    return Terms(mixed(first.adds, second.adds), mixed(first.alone, second.alone))


def fastest(algorithms: Sequence[Terms]) -> Terms:
    """Return, point by point, the terms of the fastest algorithm; a term that only another one has is 0."""
    names = dict.fromkeys(name for terms in algorithms for name in terms.adds if name != IMPOSSIBLE)
    alone = dict.fromkeys(name for terms in algorithms for name in terms.alone)
    times = [terms.time_s for terms in algorithms]
    if not any(isinstance(time, np.ndarray) and time.ndim for time in times):
        one = algorithms[times.index(min(times))]
        return Terms({n: one.adds.get(n, 0.0) for n in names}, {n: one.alone.get(n, 0.0) for n in alone})
    totals = np.stack(np.broadcast_arrays(*times))
    best = np.argmin(totals, axis=0)

    def chosen(parts: list[Number]) -> Number:
        return np.asarray(np.choose(best, [np.broadcast_to(part, best.shape) for part in parts]))

    adds = {name: chosen([terms.adds.get(name, 0.0) for terms in algorithms]) for name in names}
    return Terms(adds, {name: chosen([terms.alone.get(name, 0.0) for terms in algorithms]) for name in alone})
