"""Calls of one kernel on copies of its inputs, so that each call reads other memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators import Operator

#: rotating inputs together are this many times the cache: a cache that replaces at random still keeps half of what
#: was used longest ago after it was filled once
_CACHES = 2.0
#: most copies: inputs of a few bytes would need too many to fill a cache
MOST_COPIES = 64
#: share of the free memory that copies may take
_USABLE = 0.4


class InputCopies:
    """Calls of a kernel on copies of its inputs, made on demand and kept.

    Parameters
    ----------
    op, kernel : what is called.
    inputs : the operator's inputs by name; tensors that can ``clone``.
    call : the kernel prepared on these inputs; the first of all calls.
    device : where it runs.
    """

    def __init__(self, op: Operator, kernel: Kernel, inputs: Mapping[str, Any], call: Call, device: Device) -> None:
        self._op = op
        self._kernel = kernel
        self._inputs = inputs
        self._device = device
        self._prepared: list[Call] = [call]
        self._bytes_each = sum(float(t.size_bytes) for t in op.tensors() if t.name in inputs)

    def calls(self, count: int) -> Sequence[Call]:
        """Return ``count`` calls, each on its own inputs, the first on the original ones; fewer if memory is short."""
        # a call that keeps its output needs memory for that too
        room = _USABLE * self._device.free_memory_bytes() / max(float(self._op.work().working_set_bytes), 1.0)
        missing = min(count, MOST_COPIES, len(self._prepared) + int(room)) - len(self._prepared)
        if missing > 0:
            from perfmodel.kernels.inputs import copied_inputs

            for _ in range(missing):
                self._prepared.append(self._kernel.prepare(self._op, copied_inputs(self._inputs)))
        return self._prepared[:count]

    def beyond_cache(self) -> Sequence[Call]:
        """Return 2 to 64 calls whose inputs together are larger than twice the cache, as far as 64 suffice."""
        return self.calls(max(2, math.ceil(_CACHES * self._device.cache_bytes / max(self._bytes_each, 1.0))))
