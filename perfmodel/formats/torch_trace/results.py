"""The sizes of what an operator returns, which no trace has: they follow from the operator that reads it next.

Only convolutions and pools of traces without values need them. Strides follow from the sizes of input and output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from perfmodel.formats.torch_trace.columns import CallTexts, Recorded

#: operators whose results are looked for
CONVOLUTIONS = ("aten::cudnn_convolution", "aten::miopen_convolution", "aten::thnn_conv2d", "aten::_conv_depthwise2d")
POOLS = ("aten::max_pool2d_with_indices", "aten::avg_pool2d")
_WANTED = frozenset((*CONVOLUTIONS, *POOLS))
#: operators of the same thread that are looked at: PyTorch's own around the convolution, and counters of batch norms
MOST_BETWEEN = 24


def with_results(recorded: Recorded) -> Recorded:
    """Return the events with the sizes of each convolution's result beside its call, where an operator reads it next.

    The next operator of the thread that has images as its first argument reads the result, if there are as many images
    and channels as the convolution returns.
    """
    if _WANTED.isdisjoint(recorded.names):
        return recorded
    wanted = np.array([name in _WANTED for name in recorded.names], dtype=bool)
    ops = recorded.ops
    without = np.array([texts.values in (b"", b"[]") for texts in recorded.calls], dtype=bool)
    chosen = np.flatnonzero(wanted[ops.name])
    chosen = chosen[without[ops.call[chosen]]]
    if not chosen.size:
        return recorded
    calls, numbers = list(recorded.calls), dict[tuple[int, str], int]()
    images = _Images(recorded.calls)
    call, end_us = ops.call.copy(), ops.end_us
    for index in chosen.tolist():
        own = int(call[index])
        result = _result(recorded, index, own, images, float(end_us[index]))
        if result:
            key = (own, str(result))
            if key not in numbers:
                numbers[key] = len(calls)
                calls.append(calls[own]._replace(result=msgspec.json.encode(result)))
            call[index] = numbers[key]
    return replace(recorded, ops=replace(ops, call=call), calls=tuple(calls))


class _Images(dict[int, list[int]]):
    """Number of a call -> `_first_image` of it, which is looked at when it is first asked for."""

    def __init__(self, calls: Sequence[CallTexts]) -> None:
        self._calls = calls

    def __missing__(self, call: int) -> list[int]:
        image = self[call] = _first_image(self._calls[call])
        return image


def _result(recorded: Recorded, index: int, own: int, images: _Images, end_us: float) -> list[int]:
    """Return the sizes of what a convolution returns, or an empty list."""
    ops = recorded.ops
    is_pool = recorded.names[ops.name[index]] in POOLS
    channels = images[own][1:2] if is_pool else _filters(recorded.calls[own])
    for later in range(index + 1, min(index + 1 + MOST_BETWEEN, len(ops))):
        if ops.thread[later] != ops.thread[index] or ops.start_us[later] < end_us:
            continue
        image = images[int(ops.call[later])]
        if image:
            return image if image[:2] == [*images[own][:1], *channels] else []
    return []


def _first_image(texts: CallTexts) -> list[int]:
    """Return the sizes of the first argument if it has four."""
    sizes = _sizes(texts)
    first = sizes[0] if sizes else []
    is_image = isinstance(first, list) and len(first) == 4 and all(type(size) is int for size in first)
    return first if is_image else []


def _filters(texts: CallTexts) -> list[int]:
    """Return the number of filters of a convolution, the first size of its second argument; none if it has none."""
    sizes = _sizes(texts)
    weight = sizes[1] if len(sizes) > 1 else []
    return weight[:1] if isinstance(weight, list) and len(weight) == 4 and type(weight[0]) is int else []


def _sizes(texts: CallTexts) -> list[Any]:
    try:
        sizes = msgspec.json.decode(texts.dims) if texts.dims else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return sizes if isinstance(sizes, list) else []
