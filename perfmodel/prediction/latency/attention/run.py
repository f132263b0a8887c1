"""What the kernels of a decode take on the SMs, whoever built them."""

from __future__ import annotations

from perfmodel.core.record import record
from perfmodel.core.work import Number

#: step of keys of a block, and the share of the tensor peak in it
KEYS, TILE_MATH = 128.0, 0.8


@record
class Run:
    """A decode on the SMs: busy time without the traffic, parts of the keys, and launches over a usual call's."""

    busy: Number
    parts: Number
    launches: Number = 1.0
