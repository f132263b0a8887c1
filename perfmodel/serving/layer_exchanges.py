"""What the GPUs of a layer exchange: sums over tensor parallel ranks, and tokens on their way to shared experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group
from perfmodel.cluster.dispatch import sent
from perfmodel.core.hardware import Fabric, Hardware
from perfmodel.errors import UsageError
from perfmodel.operators.all_gather import AllGather
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.reduce_scatter import ReduceScatter
from perfmodel.operators.routing import Dispatcher
from perfmodel.prediction.latency.protocols import HOST_LINKS
from perfmodel.prediction.topology import most_joined, peer_links
from perfmodel.serving.cost import Array, Cost, kernel
from perfmodel.serving.engine import Engine
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.precision import SIXTEEN, Format
from perfmodel.serving.shard import Shard

#: a step of a ring through the host [s], and the share of a PCIe link's bandwidth that it reaches in servers that serve
#: models: assumed from Falcon-180B's first token on 8 L40S (TensorRT-LLM 0.8: 80 layers exchange 61 MB each in less
#: than 0.77 s), where the hosts of benchmarks of collectives with as many cards reach a tenth of it
HOST_STEP_S, HOST_SHARE = 3e-6, 0.5
#: share of the SMs on which DeepEP's kernels for many tokens run: 20 of 132 (DeepSeek-AI 2024, arXiv 2412.19437,
#: section 3.2.2)
EXCHANGE_SMS = 20.0 / 132.0


@dataclass(frozen=True)
class LayerExchanges:
    """The exchanges of the layers of a stage.

    Attributes
    ----------
    shard, parallel : a GPU's part of the model, and how GPUs share it.
    engine : whose kernels run.
    hardware : one of the GPUs, with its links and its network.
    weights : format of the weights, which that of dispatched tokens may follow.
    dtype : of activations.
    """

    shard: Shard
    parallel: Parallel
    engine: Engine
    hardware: Hardware
    weights: Format
    dtype: str

    def add(self, cost: Cost, tokens: Array) -> None:
        """Add the reductions over tp, and for experts apart from the attention the exchange of tokens.

        Attention and a state beside it share one: their outputs are summed before it (SGLang). Channels of a scan that
        GPUs share out have their queries, keys and steps summed first (vLLM's ``MambaMixer``).
        """
        shard, parallel = self.shard, self.parallel
        spread = parallel.copies_share
        if parallel.tp > 1:
            each = shard.layers if shard.parallel_block else 2.0 * shard.layers - shard.bare_layers
            each += shard.layers * (shard.cross_tokens > 0)
            each += shard.joint_layers * (shard.shared_blocks > 0)  # a state behind a block has one of its own
            self._all_reduce(cost, tokens * shard.hidden, each - (shard.moe_layers if spread else 0.0))
            if shard.state and shard.state.summed_width:
                self._all_reduce(cost, tokens * shard.state.summed_width, shard.linear_layers)
        if spread:
            self._dispatch(cost, tokens)

    def _all_reduce(self, cost: Cost, numel: Array, times: float) -> None:
        """Add sums of so many numbers over the ranks of tp."""
        gpus, message = self.parallel.tp, np.maximum(2.0, np.round(numel) * 2.0)
        op = AllReduce(bytes=message, num_gpus=gpus, dtype=self.dtype)
        inside = gpus <= most_joined(self.hardware)  # engines' own kernels read the memory of other GPUs
        time, deviation = kernel(op, self.hardware, self.engine.all_reduce if inside else "nccl")
        time = self.engine.exchange_slower * time
        if inside:
            time = np.minimum(time, self._through_host(message))
        cost.add("exchange", times * time, "collectives", deviation, "all_reduce")

    @property
    def dispatcher(self) -> Dispatcher:
        """How copies of the attention exchange tokens with experts that they share."""
        engine, in_a_host = self.engine, (self.hardware.fabric or Fabric()).gpus_per_node
        wide = self.parallel.ep > self.shard.top_k and most_joined(self.hardware) > in_a_host
        return Dispatcher(engine.wide_dispatcher if wide and engine.wide_dispatcher else engine.dispatcher)

    def check_halves(self) -> None:
        """Raise where a step cannot run as two halves.

        Raises
        ------
        UsageError
            For exchanges that no engine runs beside other kernels.
        """
        if self.dispatcher == Dispatcher.ALLGATHER:
            raise UsageError(
                "exchanges of the dispatchers deepep and alltoall run beside other kernels, those of allgather do not.",
                place="deployment",
                remedy="Give dispatcher=deepep or alltoall (--dispatcher), or leave batch_overlap out.",
            )

    @property
    def contention(self) -> float:
        """Share of a hidden exchange that the compute beside it loses: the SMs that it runs on.

        DeepEP's kernels for many tokens run on some SMs; those for few (`Dispatcher.ALLTOALL`) on none, as the network
        moves their bytes.
        """
        return 0.0 if self.dispatcher == Dispatcher.ALLTOALL else EXCHANGE_SMS

    def _dispatch(self, cost: Cost, tokens: Array) -> None:
        """Add what brings the tokens of copies of the attention to experts that they share, and the results back.

        The tp ranks of a copy share out its T tokens: each has T / tp. They go to all ranks, and a reduce-scatter adds
        up what the experts give (allgather); or to `Router.copies` of the ep groups, and as many come back. Over
        several nodes DeepEP's kernels send them (`perfmodel.cluster.dispatch`), for which alltoall stands, too. In the
        end the ranks of a copy gather the sums of its T tokens.
        """
        shard, parallel, dispatcher = self.shard, self.parallel, self.dispatcher
        ranks = parallel.tp * parallel.dp
        own = tokens * shard.expert_hidden * 2.0 / parallel.tp
        copies = shard.router.copies(dispatcher, parallel.ep) * parallel.expert_parts
        there, back = (AllGather, ReduceScatter) if dispatcher == Dispatcher.ALLGATHER else (Alltoall, Alltoall)
        between = dispatcher != Dispatcher.ALLGATHER and ranks > most_joined(self.hardware)
        for kind, one in ((there, own * self._dispatched_bytes(dispatcher) / 2.0), (back, own)):
            op = kind(bytes=np.maximum(2.0, np.round(one * copies)), num_gpus=ranks, dtype=self.dtype)
            time, deviation = kernel(op, self.hardware, "nccl")
            time = self._between_nodes(one, ranks) if between else time
            cost.add("exchange", shard.moe_layers * time, "collectives", deviation, op.op)
        if parallel.tp > 1:
            op = AllGather(bytes=np.maximum(2.0, np.round(own * parallel.tp)), num_gpus=parallel.tp, dtype=self.dtype)
            time, deviation = kernel(op, self.hardware, "nccl")
            cost.add("exchange", shard.moe_layers * time, "collectives", deviation, op.op)

    def _between_nodes(self, one: Array, ranks: int) -> Array:
        """Return the time of sending tokens to experts on several nodes, where a copy of all has ``one`` bytes [s]."""
        group, parts = Group(Cluster.of(self.hardware, ranks), ranks), self.parallel.expert_parts
        return np.array([sent(group, self.shard.router, self.dispatcher, size, parts).time_s for size in one.tolist()])

    def _dispatched_bytes(self, dispatcher: Dispatcher) -> float:
        """Return the bytes of a number of a token on its way to the experts: of 4 or 8 bits with its scale, or 16 bits.

        fp8 has one scale for all numbers, blocks have one of 4 B for 128 numbers, nvfp4 one of 1 B for 16.
        """
        form = self.weights
        listed = self.engine.narrow_dispatch.split(",")
        narrow = form.name.removesuffix("_experts") in listed or dispatcher == Dispatcher.DEEPEP
        if not narrow or form.weight_only or form.compute in SIXTEEN:
            return 2.0
        if form.compute == "fp4":
            return form.bytes
        return 1.0 + (4.0 / form.group if form.scale.startswith("block") else 0.0)

    def _through_host(self, message: Array) -> Array:
        """Return the time of a ring through the host with the bandwidth of servers [s]; endless on other links."""
        gpus = self.parallel.tp
        link = peer_links(self.hardware.links, gpus)[0][0] if self.hardware.links else None
        if link is None or link.name not in HOST_LINKS or gpus <= 2:
            return np.full(message.shape, np.inf)
        sent = 2.0 * (gpus - 1) / gpus * message
        return 2.0 * (gpus - 1) * HOST_STEP_S + sent / (HOST_SHARE * link.bandwidth_bytes_per_s)
