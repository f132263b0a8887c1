"""The base class of the collectives: a message, the participating GPUs, and the bytes that each GPU sends."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.units import parse_network_rate
from perfmodel.core.work import Number, Tensor, anywhere, maximum, number, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, network_rate, size
from perfmodel.operators.checks import first_point


@dataclass(frozen=True, kw_only=True, eq=False)
class Collective(Operator):
    """An exchange among ``num_gpus`` GPUs, in one node or spread evenly over several. All counts are for one GPU.

    ``bytes`` is the size that nccl-tests prints: the larger of a rank's send and receive buffers. An all-gather sends
    bytes / num_gpus per rank and receives the gathered result; a reduce-scatter sends ``bytes`` and receives
    bytes / num_gpus of the sum. Measurements confirm this reading: an all-gather of 512 MiB between two L40S takes
    13.7 ms; if each rank sent 512 MiB, that would be 39 GB/s over a link of 31.5 GB/s.

    The bytes cross the fastest link between the GPUs. `link_traffic` calls it "nvlink"; a prediction for a machine
    without NVLink uses xGMI or PCIe. What leaves a node crosses the network: each GPU of a node brings one.

    Parameters
    ----------
    bytes : size of a rank's message [B].
    num_gpus : number of participating GPUs. With a single one nothing crosses a link: it copies the message from the
        one buffer to the other, which takes no time where both are one (`torch.distributed.all_reduce`).
    nodes : groups of these GPUs that only the network joins, hosts or racks of an NVL72. The GPUs are divided as evenly
        as they can be: 13 on 2 nodes are 7 and 6. By default as few nodes as the machine needs.
    nic : network of one GPU in one direction ("400Gb/s", "50GB/s", or a number in B/s). By default the machine's.
    """

    bytes: Number = size(doc="whole buffer of a rank in bytes, as nccl-tests counts it")
    num_gpus: Number = size(doc="participating GPUs")
    nodes: Number | None = size(None, doc="nodes that the GPUs are spread over; default: as few as the machine needs")
    nic: str = network_rate(doc="network of one GPU and direction, 400Gb/s or 50GB/s; default: the machine's")

    def check(self) -> None:
        """Check that every node has a GPU."""
        if self.nodes is None or not anywhere(more := self.nodes > self.num_gpus):
            return
        nodes, num_gpus = first_point(more, self.nodes, self.num_gpus)
        raise UsageError(
            f"nodes={nodes} is more than num_gpus={num_gpus}.",
            place=self.op,
            remedy="Each node has at least one of the GPUs; num_gpus counts those of all nodes.",
        )

    @property
    def nic_bytes_per_s(self) -> float | None:
        """The network of one GPU in one direction where it is given [B/s]."""
        return parse_network_rate(self.nic) if self.nic else None

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

    def grouped_bytes(self, group: Number) -> tuple[Number, Number]:
        """Return the least bytes that a GPU sends within its group of k, and out of it, where groups exchange as such.

        What the GPUs of a group need of the others arrives once, over k links; here without what they then send each
        other [B].
        """
        out = self._needed_outside(group)
        return 0.0 * out, out

    def within(self, gpus: Number, *, ring: bool = False) -> Self:
        """Return the exchange that some of the GPUs have among themselves, those of a node.

        Each of them holds what it had of the message: all of it, where the parts do not differ from pair to pair.

        Parameters
        ----------
        gpus : how many of the GPUs.
        ring : whether they are part of a ring over all GPUs, in which each passes on S (n - 1) / n, and not
            S (gpus - 1) / gpus.
        """
        grown = where(gpus > 1, self.share() * gpus / maximum(gpus - 1.0, 1.0), 1.0) if ring else 1.0
        return self._among(gpus, grown)

    def _among(self, gpus: Number, grown: Number) -> Self:
        """Return `within`: the same message, ``grown`` by a factor where it is part of a ring."""
        return self._of(gpus, self.bytes * grown)

    def _of(self, gpus: Number, size: Number) -> Self:
        """Return an exchange among GPUs of one node, whose message may be no whole number of bytes."""
        part: dict[str, Any] = {"num_gpus": gpus, "bytes": size, "nodes": None}
        return self._with(part)

    def leaving_bytes(self, gpus: Number) -> Number:
        """Return the least bytes that each GPU of a node sends over the network, if the node has ``gpus`` of them [B].

        What the node needs of the others arrives once, and what it has for them leaves once, over the networks of all
        of its GPUs. It is 0 where the node has all of the GPUs.
        """
        return self._needed_outside(gpus)

    def _needed_outside(self, group: Number) -> Number:
        """Return what a group of GPUs needs of the others, for each of its GPUs, where each byte arrives once [B]."""
        out = self.peer_bytes() * maximum(self.num_gpus - group, 0.0) / maximum(self.num_gpus - 1.0, 1.0)
        return out / group

    def _outside(self, group: Number) -> Number:
        """Return 1 where GPUs are outside a group, else 0."""
        outside: Number = number(np.greater(self.num_gpus, group))
        return outside

    def steps(self) -> Number:
        """Return how many times a GPU waits for its neighbour one after the other: n - 1 around a ring."""
        return self.num_gpus - 1.0

    def own_bytes(self) -> Number:
        """Return the bytes of the message that a GPU copies to itself: its own part, bytes / num_gpus [B]."""
        return self.bytes / self.num_gpus

    def share(self) -> Number:
        """Return (num_gpus - 1) / num_gpus: the part of a message that goes to the other GPUs."""
        return (self.num_gpus - 1.0) / self.num_gpus

    def flop(self) -> Number:
        """Return 0: data is moved, not computed."""
        return 0.0 * self.bytes * self.num_gpus

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
