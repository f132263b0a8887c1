"""What the exchanges of a training step cost beside the compute that hides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, best_exchange_time, exchange_time, send_time
from perfmodel.cluster.dispatch import exposed, sent
from perfmodel.operators.routing import Dispatcher, Router
from perfmodel.training.layer import LayerWork, Passes
from perfmodel.training.layer_matrices import COLUMNS, ROWS
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.shard import Shard, key_value_width
from perfmodel.workloads.model_config import ModelConfig

#: pieces that Transformer Engine cuts a product into beside which it scatters the sum: ``num_splits`` of
#: ``initialize_ub``, NVIDIA/TransformerEngine @ 0004dbd0 transformer_engine/pytorch/module/base.py
SCATTER_PIECES = 4


def beside_ring(gather_s: float, product_s: float, ranks: int, contention: float) -> float:
    """Return what an all-gather adds to the product of what it gathers, which starts with the rank's own piece [s].

    max(0, e - (1 - 1 / t) g) + contention min(e, g): t - 1 pieces of t come in while another is multiplied.
    """
    left = max(0.0, gather_s - (1.0 - 1.0 / ranks) * product_s)
    return left + contention * min(gather_s, product_s)


def beside_pieces(scatter_s: float, product_s: float, contention: float) -> float:
    """Return what a reduce-scatter adds to the product whose pieces it sums: nothing hides that of the last one [s].

    max(e / n, e - (1 - 1 / n) g) + contention min(e, g) with n = `SCATTER_PIECES`.
    """
    share = 1.0 / SCATTER_PIECES
    return max(share * scatter_s, scatter_s - (1.0 - share) * product_s) + contention * min(scatter_s, product_s)


@dataclass(frozen=True)
class Groups:
    """The ranks that exchange, in the order tensor, context, data, pipeline; the first are neighbours.

    Expert parallel ranks are neighbours too, over tensor, context and data parallel ones.
    """

    cluster: Cluster
    plan: TrainingPlan
    dp: int
    etp: int = 1

    @property
    def tensor(self) -> Group:
        """Ranks that share out each product."""
        return Group(self.cluster, self.plan.tp)

    @property
    def context(self) -> Group:
        """Ranks that share out the sequence."""
        return Group(self.cluster, self.plan.cp, self.plan.tp)

    @property
    def data(self) -> Group:
        """Ranks that hold the same weights: data and context parallel ones."""
        return Group(self.cluster, self.dp * self.plan.cp, self.plan.tp)

    @property
    def expert(self) -> Group:
        """Ranks that share out the experts."""
        return Group(self.cluster, self.plan.ep, self.etp)

    @property
    def expert_tensor(self) -> Group:
        """Ranks that share out each expert."""
        return Group(self.cluster, self.etp)

    @property
    def expert_data(self) -> Group:
        """Ranks that hold the same experts."""
        stride = self.plan.ep * self.etp
        return Group(self.cluster, max(1, self.dp * self.plan.cp * self.plan.tp // stride), stride)

    @property
    def pipeline(self) -> Group:
        """Neighbours in the pipeline."""
        return Group(self.cluster, self.plan.pp, self.plan.tp * self.plan.cp * self.dp)

    @property
    def crossing(self) -> dict[str, int]:
        """The groups that leave a domain of NVLink, each with its GPUs inside one: 1 where each brings one network."""
        kinds = ("tensor", "context", "expert", "data", "pipeline")
        groups = {name: getattr(self, name) for name in kinds}
        return {name: group.inside for name, group in groups.items() if group.crosses}


def tensor_exchange(
    groups: Groups,
    shard: Shard,
    work: LayerWork,
    hidden: int,
    overlap: bool,
    beside_weights: bool,
    contention: float,
) -> tuple[float, float]:
    """Return what the tensor parallel exchanges of a layer add to its forward and backward pass [s].

    Without sequence parallelism an all-reduce follows each of the row-parallel products forward (of the mixer, of a
    second one beside it, whose module sums for itself, and of the MLP), and as many come backward. With it an
    all-gather and a reduce-scatter stand in for each, and backward gathers the inputs of the column-parallel products
    again for the weights' gradients, behind the products of the inputs' gradients. Products that read the same input
    share its gather and the sum of its gradient. What 8-bit products read is gathered in 8 bits; sums are in 16.

    With overlap gathers run beside their products in a ring, forward scatters beside the pieces of theirs, and the
    scatter of an input's gradient beside the product of the weight's (``initialize_ub`` of Transformer Engine: methods
    ring_exchange, pipeline and bulk; its buffers of gathers are in 8 bits).

    Parameters
    ----------
    overlap : whether exchanges run beside products, in pieces.
    beside_weights : whether without overlap the sum of an input's gradient runs beside the product of the weight's.
    """
    if shard.tp == 1:
        return 0.0, 0.0
    element = shard.element_bytes * hidden
    columns = _columns(work, shard)
    rows = [name for name in ROWS if name in work.products]
    if not shard.sp:
        sums = [(exchange_time(groups.tensor, "all_reduce", element * tokens), into) for into, tokens in columns]
        forward = len(rows) * exchange_time(groups.tensor, "all_reduce", element * shard.tokens)
        if not beside_weights:
            return forward, sum(time for time, _ in sums)
        return forward, sum(exposed(time, into.weight_s, contention) for time, into in sums)
    narrow = 0.5 if shard.narrow else 1.0
    scatter = exchange_time(groups.tensor, "reduce_scatter", element * shard.tokens)
    back = exchange_time(groups.tensor, "all_gather", element * narrow * shard.tokens)
    forward = backward = 0.0
    for into, tokens in columns:
        gather = exchange_time(groups.tensor, "all_gather", element * narrow * tokens)
        summed = exchange_time(groups.tensor, "reduce_scatter", element * tokens)
        forward += beside_ring(gather, into.forward_s, shard.tp, contention) if overlap else gather
        backward += exposed(summed, into.weight_s, contention) if overlap or beside_weights else summed
        backward += exposed(gather, into.input_s, contention)
    for name in rows:
        out = work.products[name]
        forward += beside_pieces(scatter, out.forward_s, contention) if overlap else scatter
        backward += beside_ring(back, out.input_s, shard.tp, contention) if overlap else back
    return forward, backward


#: kinds of exchanges -> how many of them
Calls = Mapping[str, int]


def tensor_calls(shard: Shard, work: LayerWork, overlap: bool) -> tuple[Calls, Calls]:
    """Return the tensor parallel exchanges of a layer that the host calls for one by one, forward and backward.

    Those of `tensor_exchange`. What runs in pieces beside products is launched by the library of the products.

    Parameters
    ----------
    overlap : whether exchanges of sequence parallel ranks run beside products, in pieces.
    """
    if shard.tp == 1 or (shard.sp and overlap):
        return {}, {}
    columns = len(_columns(work, shard))
    rows = sum(name in work.products for name in ROWS)
    if not shard.sp:
        return {"all_reduce": rows}, {"all_reduce": columns}
    return (
        {"all_gather": columns, "reduce_scatter": rows},
        {"all_gather": columns + rows, "reduce_scatter": columns},
    )


def _columns(work: LayerWork, shard: Shard) -> list[tuple[Passes, float]]:
    """Return the column-parallel products of a layer, those together that read one input, and the tokens of each input.

    Keys and values of a decoder's attention to an encoder read the encoder's tokens.
    """
    found = []
    for names in COLUMNS:
        if products := [work.products[name] for name in names if name in work.products]:
            tokens = shard.cross_tokens if "cross_kv" in names else shard.tokens
            found.append((Passes(*map(sum, zip(*products, strict=True))), tokens))
    return found


#: channels of a send and its receive between nodes, each a block with an SM of its own: "start from 2 channels per NIC"
#: (NVIDIA/nccl, src/graph/paths.cc, ncclTopoGetNchannels)
SEND_CHANNELS = 2.0


def context_exchange(
    groups: Groups, shard: Shard, config: ModelConfig, attention_s: float, backward_s: float, contention: float
) -> tuple[float, float]:
    """Return what the context parallel exchanges of a layer add to its passes [s].

    A ring passes on keys and values of T tokens c - 1 times beside attention, and their gradients backward as well;
    over the network it takes from the compute the SMs of a send's channels, in a domain of NVLink a collective's.
    Ulysses exchanges queries, keys, values and outputs by all-to-all, which nothing hides.
    """
    if shard.cp == 1:
        return 0.0, 0.0
    keys = shard.tokens * key_value_width(config, shard.tp) * 2.0
    if shard.ulysses:
        queries = shard.tokens * config.heads / shard.tp * (config.head_dim + config.value_dim) * 2.0
        time = exchange_time(groups.context, "alltoall", keys + queries)
        return time, time
    if groups.context.crosses and groups.cluster.hardware.sm_count:
        contention = min(contention, SEND_CHANNELS / groups.cluster.hardware.sm_count)
    step = send_time(groups.context, keys)
    ring = (shard.cp - 1) * step
    return exposed(ring, attention_s, contention), exposed(2.0 * ring, backward_s, contention)


def context_calls(shard: Shard) -> tuple[Calls, Calls]:
    """Return the context parallel exchanges of a layer, those of `context_exchange`, forward and backward.

    Ulysses exchanges queries, keys, values and outputs one by one; a ring has a send and its receive in one call.
    """
    if shard.cp == 1:
        return {}, {}
    if shard.ulysses:
        return {"alltoall": 4}, {"alltoall": 4}
    return {"send": shard.cp - 1}, {"send": 2 * (shard.cp - 1)}


class Routed(NamedTuple):
    """How long tokens take to their experts, and what these give takes back, in one pass [s].

    Backward the gradients of what the experts gave go to them, and those of tokens come back.
    """

    there_s: float
    back_s: float

    @property
    def time_s(self) -> float:
        """Both [s]."""
        return self.there_s + self.back_s


#: bytes of a number with its scale, one of 4 B for 128 in fp8 or one of 1 B for 32 in mxfp8, over those in 16 bits
NARROW = (1.0 + 4.0 / 128.0) / 2.0


def expert_exchange(
    groups: Groups, work: LayerWork, router: Router, dispatcher: Dispatcher, routing: float = 1.0, narrow: bool = False
) -> Routed:
    """Return the time of sending tokens to their experts and back, in one pass [s].

    Each way takes what `perfmodel.cluster.dispatch.sent` says; over the network never faster than the bytes that cross
    over the link's own rate. allgather brings all tokens to all ranks and reduce-scatters what the experts give;
    backward does the same in reverse.

    Parameters
    ----------
    routing : time over that of an all-to-all, fitted (`Constants.routing`).
    narrow : whether what goes to experts is in 8 bits: inputs forward, gradients of outputs backward, which products of
        8 bits read. What comes back is in 16 (DeepSeek-V3, arXiv 2412.19437, section 3.3.3).
    """
    group, one = groups.expert, work.token_bytes
    if group.ranks == 1 or not one:
        return Routed(0.0, 0.0)
    there = one * (NARROW if narrow else 1.0)
    if dispatcher == Dispatcher.ALLGATHER:
        copies = router.copies(dispatcher, group.ranks)
        gather = exchange_time(group, "all_gather", copies * there)
        return Routed(gather, exchange_time(group, "reduce_scatter", copies * one))
    ways = (sent(group, router, dispatcher, size) for size in (there, one))
    return Routed(*(max(way.least_s, routing * way.time_s) for way in ways))


def expert_tensor_exchange(
    groups: Groups, shard: Shard, work: LayerWork, router: Router, dispatcher: Dispatcher
) -> float:
    """Return the time in which the ranks of each expert gather its tokens and add up what it gives, in one pass [s].

    With sequence parallelism each rank has tokens of its own: an all-gather before the experts and a reduce-scatter
    after them, of all copies of a token where they have been sent to their experts already, of one where all experts
    are at hand (megatron/core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher and
    MoEAllGatherTokenDispatcher; the flex dispatcher sends each copy to all ranks of the expert, which are as many
    bytes). Without, ranks have the same tokens and all-reduce the sums.
    """
    group, one = groups.expert_tensor, work.token_bytes
    if shard.etp == 1 or not one:
        return 0.0
    if not shard.sp:
        return exchange_time(group, "all_reduce", one)
    whole = shard.etp * one * (router.copies(dispatcher, shard.ep) if shard.ep > 1 else 1.0)
    return exchange_time(group, "all_gather", whole) + exchange_time(group, "reduce_scatter", whole)


def gradient_exchange(
    groups: Groups, group: Group, parameters: float, gradient_bytes: float, *, whole: bool = False
) -> float:
    """Return the time of the exchange of gradients and weights after a step, without what hides it [s].

    ZeRO 0 reduces the gradients; ZeRO 1 and 2 reduce-scatter them, or all-reduce the ``whole``, and gather the new
    weights in 16 bits.
    """
    if group.ranks == 1:
        return 0.0
    if groups.plan.zero == 0:
        return best_exchange_time(group, "all_reduce", parameters * gradient_bytes)
    gather = exchange_time(group, "all_gather", parameters * 2.0)
    return gather + reduction_time(group, parameters * gradient_bytes, whole=whole)


def reduction_time(group: Group, gradients: float, *, whole: bool = False) -> float:
    """Return the time in which ranks that share out some bytes of gradients add them up [s].

    Parameters
    ----------
    whole : whether each rank gets all of the sum, of which it keeps its share.
    """
    return exchange_time(group, "all_reduce" if whole else "reduce_scatter", gradients)
