"""The collectives of torch.distributed as calls on buffers, each with its exact result to check against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.kernels.distributed.group import Group
from perfmodel.operators.collective import Collective

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
#: largest whole number below which bf16, the narrowest of the dtypes, represents all: sums stay below it
_EXACT = 256
#: int8 holds sums up to this
_EXACT_INT8 = 127


@dataclass(frozen=True)
class Exchange:
    """One collective on its own buffers.

    Attributes
    ----------
    call : runs it once; all ranks have to call it equally often.
    fill : writes this rank's part, whole numbers that the sum represents exactly.
    received : what this rank has after `fill` and one `call`.
    expected : what it should have.
    """

    call: Callable[[], object]
    fill: Callable[[], None]
    received: Callable[[], torch.Tensor]
    expected: Callable[[], torch.Tensor]

    def is_correct(self) -> bool:
        """Run it once on fresh values and compare every element."""
        self.fill()
        self.call()
        return bool(torch.equal(self.received(), self.expected()))


def why_not(op: Collective, group: Group) -> str:
    """Return why a collective cannot run in a group, or an empty string."""
    if op.dtype not in DTYPES:
        return f"torch.distributed does not exchange {op.dtype}; it does {', '.join(DTYPES)}"
    whole = dtype_bytes(op.dtype) * (group.size if op.op in _SPLIT else 1)
    if float(op.bytes) % whole:
        return f"{op.bytes:.0f} B are no multiple of {whole:g} B: an element for each rank"
    if op.dtype == "int8" and op.op in ("all_reduce", "reduce_scatter") and group.size > _EXACT_INT8:
        return "the sum of so many ranks does not fit int8"
    return ""


def exchange(op: Collective, group: Group) -> Exchange:
    """Return a collective on buffers of its size."""
    count = round(float(op.bytes) / dtype_bytes(op.dtype))
    return _MAKERS[op.op](_Values(count, DTYPES[op.dtype], group))


class _Values:
    """The numbers that each rank sends: element i of rank r is (7 i + 3 r) modulo a small number."""

    def __init__(self, count: int, dtype: torch.dtype, group: Group) -> None:
        self.count, self.dtype, self.group = count, dtype, group
        largest = _EXACT_INT8 if dtype == torch.int8 else _EXACT
        self.modulus = max(2, largest // group.size) if group.size > 1 else 13

    def of(self, rank: int, count: int | None = None) -> torch.Tensor:
        """Return what a rank sends."""
        index = torch.arange(self.count if count is None else count, device=self.group.device)
        return ((7 * index + 3 * rank) % self.modulus).to(self.dtype)

    def total(self) -> torch.Tensor:
        """Return the sum over all ranks, whose terms and partial sums are all exact."""
        result = self.of(0)
        for rank in range(1, self.group.size):
            result += self.of(rank)
        return result

    def empty(self, count: int | None = None) -> torch.Tensor:
        """Return a buffer of zeros, so that a sum that runs a thousand times stays finite."""
        return torch.zeros(self.count if count is None else count, dtype=self.dtype, device=self.group.device)

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a message."""
        return whole.chunk(self.group.size)[self.group.rank]


def _all_reduce(values: _Values) -> Exchange:
    buffer = values.empty()

    def expected() -> torch.Tensor:
        return values.total()

    def received() -> torch.Tensor:
        result = buffer.clone()
        buffer.zero_()  # in place: a sum of sums would grow beyond every dtype
        return result

    return Exchange(
        lambda: dist.all_reduce(buffer), lambda: _copy(buffer, values.of(values.group.rank)), received, expected
    )


def _all_gather(values: _Values) -> Exchange:
    share = values.count // values.group.size
    send, receive = values.empty(share), values.empty()
    # torch 2.13 renames both functions
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

    def expected() -> torch.Tensor:
        return torch.cat([values.of(rank, share) for rank in range(values.group.size)])

    return Exchange(
        lambda: gather(receive, send),
        lambda: _copy(send, values.of(values.group.rank, share)),
        lambda: receive,
        expected,
    )


def _reduce_scatter(values: _Values) -> Exchange:
    send, receive = values.empty(), values.empty(values.count // values.group.size)
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return Exchange(
        lambda: scatter(receive, send),
        lambda: _copy(send, values.of(values.group.rank)),
        lambda: receive,
        lambda: values.part(values.total()),
    )


def _alltoall(values: _Values) -> Exchange:
    send, receive = values.empty(), values.empty()

    def expected() -> torch.Tensor:
        return torch.cat([values.part(values.of(rank)) for rank in range(values.group.size)])

    return Exchange(
        lambda: dist.all_to_all_single(receive, send),
        lambda: _copy(send, values.of(values.group.rank)),
        lambda: receive,
        expected,
    )


def _broadcast(values: _Values) -> Exchange:
    buffer = values.empty()
    return Exchange(
        lambda: dist.broadcast(buffer, src=0),
        lambda: _copy(buffer, values.of(values.group.rank)),
        lambda: buffer,
        lambda: values.of(0),
    )


def _send_recv(values: _Values) -> Exchange:
    send, receive = values.empty(), values.empty()
    group = values.group
    before, after = (group.rank - 1) % group.size, (group.rank + 1) % group.size

    def call() -> None:
        if group.size == 1:
            _copy(receive, send)
            return
        work = dist.batch_isend_irecv([dist.P2POp(dist.isend, send, after), dist.P2POp(dist.irecv, receive, before)])
        for request in work:
            request.wait()

    return Exchange(call, lambda: _copy(send, values.of(group.rank)), lambda: receive, lambda: values.of(before))


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source)


_MAKERS: dict[str, Callable[[_Values], Exchange]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "send_recv": _send_recv,
}
#: collectives that split the message into a part for each rank
_SPLIT = ("all_gather", "reduce_scatter", "alltoall")
#: collectives that can be measured
NAMES = tuple(_MAKERS)
