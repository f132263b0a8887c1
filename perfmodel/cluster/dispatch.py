"""Tokens on their way to experts of other GPUs, and compute beside an exchange."""

from __future__ import annotations

from typing import NamedTuple, overload

from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.core.work import Number, maximum, minimum
from perfmodel.operators.routing import Dispatcher, Router


class Sent(NamedTuple):
    """How long sending some tokens takes, and the least that it may: the bytes over the network's own rate [s]."""

    time_s: float
    least_s: float


def sent(group: Group, router: Router, dispatcher: Dispatcher, token_bytes: float, parts: int = 1) -> Sent:
    """Return the time of sending each token of a GPU to its experts, or what these give back, one way [s].

    A GPU's T tokens go to `Router.copies` c of R ranks: k copies one by one (alltoall, which Megatron-Core and PyTorch
    run over NCCL, and DeepEP's low-latency kernels), or one for each rank with any of a token's experts (DeepEP's other
    kernels, which Megatron-Core's flex dispatcher runs). Inside a domain it is an all-to-all of T c h, of which 1 / R
    stays on the GPU. Over the network T c(N) h (N - 1) / N of N domains leave it: with alltoall each copy, with deepep
    one for each domain of a token's experts, which is passed on inside. Where P neighbouring ranks cut each expert, all
    of them need its tokens: c (R / P) P copies, of which deepep passes those in one domain on inside it.

    Parameters
    ----------
    group : the ranks that share the experts.
    router, dispatcher : which experts a token takes, and how its copies reach them; not allgather.
    token_bytes : one copy of each token of the GPU [B].
    parts : ranks that cut each expert.
    """
    holders, cluster = max(1, group.ranks // parts), group.cluster
    copies = router.copies(dispatcher, holders) * parts
    inside = Group(cluster, group.inside, group.stride)
    passed_on = exchange_time(inside, "alltoall", copies * token_bytes) if inside.ranks > 1 else 0.0
    if not group.crosses:
        return Sent(passed_on, 0.0)
    domains = group.domains
    apart = parts if dispatcher == Dispatcher.ALLTOALL else max(1.0, domains / holders)
    crossing = router.copies(dispatcher, min(domains, holders)) * apart * token_bytes * (domains - 1) / domains
    network = crossing / cluster.network_bytes_per_s + cluster.alpha_s
    return Sent(max(network, passed_on), crossing * cluster.nic_efficiency / cluster.network_bytes_per_s)


@overload
def exposed(exchange_s: float, compute_s: float, contention: float) -> float: ...
@overload
def exposed(exchange_s: Number, compute_s: Number, contention: float) -> Number: ...
def exposed(exchange_s: Number, compute_s: Number, contention: float) -> Number:
    """Return what an exchange adds to the compute beside it [s]; scalar or array.

    max(0, e - c) + contention min(e, c): the rest that no compute hides, and what the hidden part takes from it.

    >>> exposed(3.0, 2.0, 0.25), exposed(2.0, 3.0, 0.25)
    (1.5, 0.5)
    """
    return maximum(exchange_s - compute_s, 0.0) + contention * minimum(exchange_s, compute_s)
