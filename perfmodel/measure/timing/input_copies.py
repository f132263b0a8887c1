"""Calls of one kernel on copies of its inputs, so that each call finds other data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators import Operator

#: rotating inputs are together this many times the cache: a cache that replaces at random keeps some of what was
#: used longest ago, half of it after once its size
_CACHES = 2.0
#: most copies: of a handful of bytes no reasonable number fills a cache
MOST_COPIES = 64
#: share of the free memory that copies may take
_USABLE = 0.4


class InputCopies:
    """Calls of a kernel on copies of its inputs, made when asked for and kept.

    Parameters
    ----------
    op, kernel : what is called.
    inputs : the operator's inputs by name; tensors, which know how to ``clone``.
    call : the kernel prepared on these inputs; the first of all calls.
    device : where it runs.
    """

    def __init__(self, op: Operator, kernel: Kernel, inputs: Mapping[str, Any], call: Call, device: Device) -> None:
        self._op = op
        self._kernel = kernel
        self._inputs = inputs
        self._device = device
        self._made: list[Call] = [call]
        self.bytes_each = sum(float(t.size_bytes) for t in op.tensors() if t.name in inputs)

    def calls(self, count: int) -> Sequence[Call]:
        """Return so many calls, each on inputs of its own, the first on the original ones; fewer if memory is short."""
        # a call that keeps its output needs room for that too
        room = _USABLE * self._device.free_memory_bytes() / max(float(self._op.work().working_set_bytes), 1.0)
        missing = min(count, MOST_COPIES, len(self._made) + int(room)) - len(self._made)
        for _ in range(missing):
            copied = {name: value.clone() for name, value in self._inputs.items()}
            self._made.append(self._kernel.prepare(self._op, copied))
        return self._made[:count]

    def beyond_cache(self) -> Sequence[Call]:
        """Return calls, two at least, whose inputs together are larger than twice the cache; at most 64."""
        return self.calls(max(2, math.ceil(_CACHES * self._device.cache_bytes / max(self.bytes_each, 1.0))))
