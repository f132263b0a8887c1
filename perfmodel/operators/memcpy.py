"""Copies between host and device, and within the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Memcpy(Operator):
    """A copy of ``bytes`` bytes: host to device (h2d), device to host (d2h), or within the device (d2d).

    No FLOP. h2d writes device memory and d2h reads it, both over PCIe, or over what a machine has in its place; d2d
    reads and writes device memory, and so does every copy where CPU and GPU share one memory. Pinned and pageable host
    memory have the same bound. A copy from pageable memory passes through a pinned buffer; it is predicted with the
    sustained figure ``pcie_pageable`` of the link where the spec has one.

    Parameters
    ----------
    bytes : size of the copy [B].
    direction : "h2d", "d2h" or "d2d".
    pinned : the host memory is page-locked.
    """

    op: ClassVar[str] = "memcpy"

    bytes: Number = size(doc="size of the copy in bytes")
    direction: str = choice("h2d", ("h2d", "d2h", "d2d"), doc="host to device, device to host, within the device")
    pinned: bool = flag(True, doc="the host memory is page-locked")

    def flop(self) -> Number:
        """Return 0: data is moved, not computed."""
        return 0.0 * self.bytes

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors in device memory: the copy's source, its destination, or both."""
        source = Tensor.input("source", (self.bytes,), "int8")
        destination = Tensor.output("destination", (self.bytes,), "int8")
        return {"h2d": (destination,), "d2h": (source,), "d2d": (source, destination)}[self.direction]

    def link_traffic(self) -> Mapping[str, Number]:
        """Return the bytes that cross PCIe; none for a copy within the device [B]."""
        return {} if self.direction == "d2d" else {"pcie": 1.0 * self.bytes}
