"""How much memory a calibration or a preset may use, and how much an operator takes while it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perfmodel.errors import UsageError
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel, find_kernels
from perfmodel.operators import Operator

#: share of the free memory that may be used: the rest is for other programs
SHARE_OF_FREE = 0.25
#: most memory of what runs without being asked for: a quick calibration, the preset quick [B]
QUICK_BYTES = 1.75 * 2**30
#: what Python and torch take on a CPU before anything is measured [B]; measured 0.32e9 with torch 2.13
_INTERPRETER_BYTES = 0.35e9
#: memory that a flush of a CPU's caches reads, as a multiple of the last level
_FLUSH_CACHES = 2.0
#: what one operator takes while it is checked and timed, measured on a CPU: so many times its tensors and workspace
#: (inputs drawn anew, the outputs of two calls), so much for each element that is compared in float64 [B], at most
#: `perfmodel.kernels.check` compares, and so much for small things [B]
_TIMES_TENSORS, _COMPARED_BYTES, _SMALL_BYTES = 2.0, 96.0, 128e6
_MOST_COMPARED = 2**22


@dataclass(frozen=True)
class MemoryLimit:
    """The memory that a run may use on a device.

    Attributes
    ----------
    limit_bytes : for everything [B]; of the process on a CPU, of the device on a GPU.
    reserved_bytes : the part that is in use before anything is measured [B].
    by_kernel : whether a kernel that needs more is left out. Otherwise sizes are reduced until each kernel fits, since
        a CPU has no large point to lose.
    """

    limit_bytes: float
    reserved_bytes: float
    by_kernel: bool = False

    @classmethod
    def of(cls, device: Device, most_bytes: float = math.inf, *, flush: bool = True) -> MemoryLimit:
        """Return a quarter of the free memory of a device, and at most some number of bytes.

        ``flush`` says whether caches are flushed, which takes memory on a CPU.
        """
        reserved = 0.0
        if device.kind == "cpu":
            reserved = _INTERPRETER_BYTES + (_FLUSH_CACHES * device.cache_bytes if flush else 0.0)
        return cls(min(SHARE_OF_FREE * device.free_memory_bytes(), most_bytes), reserved, device.kind != "cpu")

    @property
    def usable_bytes(self) -> float:
        """The memory that is left for what is measured [B]."""
        return max(0.0, self.limit_bytes - self.reserved_bytes)

    def fits(self, op: Operator) -> bool:
        """Whether an operator can be measured within the limit: by every kernel, or where it is by kernel, by some."""
        return needed_bytes(op, min if self.by_kernel else max) <= self.usable_bytes

    def holds(self, op: Operator, kernel: Kernel | None) -> bool:
        """Whether one kernel of an operator can be measured within the limit."""
        return kernel is None or _measuring_bytes(op, kernel.workspace_bytes(op)) <= self.usable_bytes

    def reduced(self, op: Operator) -> Operator:
        """Return an operator that fits, its largest size halved until it does; as it is where that is not possible."""
        smaller = op
        while not self.fits(smaller):
            halved = _halved(smaller)
            if halved is None:
                return op
            smaller = halved
        return smaller


def needed_bytes(op: Operator, of: Callable[[Iterable[float]], float] = max) -> float:
    """Return the memory that measuring an operator takes, for the kernel that takes most, or with ``min`` least [B]."""
    workspaces = [kernel.workspace_bytes(op) for kernel in find_kernels(op.op) if kernel.computes(op)]
    return _measuring_bytes(op, of(workspaces or [0.0]))


def _measuring_bytes(op: Operator, workspace_bytes: float) -> float:
    """Return the memory that measuring a kernel with some workspace takes [B]."""
    outputs = sum(float(math.prod(map(float, t.shape))) for t in op.tensors() if t.writes)
    tensors = float(op.work().working_set_bytes) + workspace_bytes
    return _TIMES_TENSORS * tensors + _COMPARED_BYTES * min(outputs, _MOST_COMPARED) + _SMALL_BYTES


def _halved(op: Operator) -> Operator | None:
    """Return an operator with its largest size halved; None where no size can be halved."""
    given = op.given()
    sizes = {
        name: int(getattr(op, name))
        for name, rule in op.dimensions().items()
        if rule["kind"] == "size" and name in given and getattr(op, name) > 1
    }
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        try:
            return op.changed(**{name: sizes[name] // 2})
        except UsageError:  # another size has to fit this one
            continue
    return None
