"""What the collectives share: a message, the GPUs that take part, and the bytes that each sends to the others."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Collective(Operator):
    """An exchange among ``num_gpus`` GPUs of one node; counts are those of one GPU.

    ``bytes`` is the size that nccl-tests prints: the whole buffer of a rank, the larger of what it holds before and
    after. For an all-gather that is the gathered result, so that a rank brings bytes / num_gpus; for a
    reduce-scatter it is what a rank brings, and it keeps bytes / num_gpus of the sum. Measured rows leave no other
    reading: an all-gather of 512 MiB between two L40S takes 13.7 ms; a rank that brought 512 MiB would send
    39 GB/s through a link of 31.5 GB/s.

    The bytes cross the fastest link between the GPUs, which `link_traffic` calls "nvlink"; on a machine without
    NVLink the analysis charges them to xGMI or PCIe.

    Parameters
    ----------
    bytes : size of the message of a rank [B].
    num_gpus : GPUs that take part; of one alone nothing crosses a link.
    """

    bytes: Number = size(doc="whole buffer of a rank in bytes, as nccl-tests counts it")
    num_gpus: Number = size(doc="GPUs that take part")

    @abc.abstractmethod
    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return the bytes that one GPU sends to the others, and receives from them [B].

        ``in_switch`` allows reductions in the switch between the GPUs, where that moves fewer bytes.
        """

    def link_traffic(self) -> Mapping[str, Number]:
        """Return the bytes that one GPU sends, in a ring or directly, under the name of the usual link [B]."""
        return {"nvlink": self.peer_bytes()}

    def share(self) -> Number:
        """Return (num_gpus - 1) / num_gpus: the part of a message that concerns the other GPUs."""
        return (self.num_gpus - 1.0) / self.num_gpus

    def reduced_flop(self) -> Number:
        """Return the additions of one GPU that reduces its part of the message from all ranks [FLOP].

        It joins bytes / (num_gpus dtype size) elements of num_gpus ranks: num_gpus - 1 additions for each.
        """
        return self.share() * self.bytes / dtype_bytes(self.dtype)

    def buffer(self, parts: Number = 1.0) -> tuple[Number]:
        """Return the shape of a buffer that holds one of ``parts`` equal parts of the message."""
        return (self.bytes / (dtype_bytes(self.dtype) * parts),)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the send and the receive buffer, each the whole message; a collective may shorten one."""
        return (Tensor.input("send", self.buffer(), self.dtype), Tensor.output("receive", self.buffer(), self.dtype))
