"""The base class of the collectives: a message, the participating GPUs, and the bytes that each GPU sends."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, maximum
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Collective(Operator):
    """An exchange among ``num_gpus`` GPUs of one node. All counts are for one GPU.

    ``bytes`` is the size that nccl-tests prints: the larger of a rank's send and receive buffers. An all-gather sends
    bytes / num_gpus per rank and receives the gathered result; a reduce-scatter sends ``bytes`` and receives
    bytes / num_gpus of the sum. Measurements confirm this reading: an all-gather of 512 MiB between two L40S takes
    13.7 ms; if each rank sent 512 MiB, that would be 39 GB/s over a link of 31.5 GB/s.

    The bytes cross the fastest link between the GPUs. `link_traffic` calls it "nvlink"; a prediction for a machine
    without NVLink uses xGMI or PCIe.

    Parameters
    ----------
    bytes : size of a rank's message [B].
    num_gpus : number of participating GPUs; with a single one nothing crosses a link.
    """

    bytes: Number = size(doc="whole buffer of a rank in bytes, as nccl-tests counts it")
    num_gpus: Number = size(doc="participating GPUs")

    @abc.abstractmethod
    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return the bytes that one GPU sends to the others; it receives as many [B].

        ``in_switch`` allows the switch between the GPUs to reduce where that moves fewer bytes.
        """

    def link_traffic(self) -> Mapping[str, Number]:
        """Return the bytes that one GPU sends in a ring or directly, under the name of the usual link [B]."""
        return {"nvlink": self.peer_bytes()}

    def reached(self) -> Number:
        """Return how many GPUs a GPU exchanges with at once, itself among them."""
        return self.num_gpus

    def grouped_bytes(self, group: int) -> tuple[Number, Number]:
        """Return the least bytes that a GPU sends within its group of k, and out of it, where groups exchange as such.

        What the GPUs of a group need of the others arrives once, over k links; here without what they then send each
        other [B].
        """
        out = self.peer_bytes() * maximum(self.num_gpus - group, 0.0) / maximum(self.num_gpus - 1.0, 1.0)
        return 0.0 * out, out / group

    def steps(self) -> Number:
        """Return how many times a GPU waits for its neighbour one after the other: n - 1 around a ring."""
        return self.num_gpus - 1.0

    def own_bytes(self) -> Number:
        """Return the bytes of the message that a GPU copies to itself: its own part, bytes / num_gpus [B]."""
        return self.bytes / self.num_gpus

    def share(self) -> Number:
        """Return (num_gpus - 1) / num_gpus: the part of a message that goes to the other GPUs."""
        return (self.num_gpus - 1.0) / self.num_gpus

    def reduced_flop(self) -> Number:
        """Return the additions of one GPU that reduces its part of the message over all ranks [FLOP].

        It adds bytes / (num_gpus x element size) elements of num_gpus ranks: num_gpus - 1 additions per element.
        """
        return self.share() * self.bytes / dtype_bytes(self.dtype)

    def buffer(self, parts: Number = 1.0) -> tuple[Number]:
        """Return the shape of a buffer for one of ``parts`` equal parts of the message."""
        return (self.bytes / (dtype_bytes(self.dtype) * parts),)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the send and the receive buffer, both of the whole message; subclasses may shorten one."""
        return (Tensor.input("send", self.buffer(), self.dtype), Tensor.output("receive", self.buffer(), self.dtype))
