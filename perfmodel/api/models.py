"""What models are to take on machines: a cluster, a step of training, a search for the best one, a served model."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING

from perfmodel.api.arguments import check_plan, cluster_list, range_values
from perfmodel.api.machines import Machine, Model, find_machine
from perfmodel.errors import UsageError, expect, expect_numbers, suggesting

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster as _Cluster
    from perfmodel.serving.deployment import Deployment as ServedModel
    from perfmodel.serving.engine import Engine
    from perfmodel.serving.speculation import Speculation
    from perfmodel.training.plan import TrainingPlan
    from perfmodel.training.result import TrainingStep
    from perfmodel.training.search import Search


@suggesting
def Cluster(  # noqa: N802 -- reads as the class that it returns
    hardware: Machine,
    gpus: int,
    *,
    gpus_per_node: int | None = None,
    nic: str | float | None = None,
    nvlink_domain: int | None = None,
    nic_efficiency: float | None = None,
    alpha_s: float | None = None,
    oversubscription: float | None = None,
    bridge: bool = True,
    host_memory: str | float | None = None,
    host_bandwidth: str | float | None = None,
) -> _Cluster:
    """Return GPUs of one kind and the network between them; see `perfmodel.cluster.cluster.Cluster.of`.

    What is not given is as the machine's specification says (``[cluster]``, docs/machines.md).

    Parameters
    ----------
    hardware : one of the GPUs, or its name in the catalog.
    gpus : all GPUs.
    gpus_per_node : GPUs that share a host.
    nic : network of one GPU in one direction: text in bits or bytes ("400 Gb/s", "50 GB/s"), or a number [B/s].
    nvlink_domain : the most GPUs that reach each other without the network: those of a host, or 72 in an NVL72.
    nic_efficiency : share of ``nic`` that large messages reach.
    alpha_s : time of one step of an exchange between nodes [s].
    oversubscription : GPUs that share the bandwidth of one in the switches above; 1 is a full fat tree.
    bridge : whether cards in slots have the bridges of NVLink or xGMI that their specification knows.
    host_memory, host_bandwidth : memory of a host ("1 TiB", or a number [B]), and what its CPUs and the copies of its
        GPUs reach of that memory ("200 GB/s", or a number [B/s]), for training that offloads.

    Raises
    ------
    UsageError
        For a count, rate or share that is impossible, and where a network is needed that nobody gave.

    >>> Cluster("h100-sxm5-80gb", gpus=512, gpus_per_node=8, nic="400Gb/s").nic_bytes_per_s
    50000000000.0
    """
    from perfmodel.cluster.cluster import Cluster as _Cluster

    return _Cluster.of(
        find_machine(hardware),
        gpus,
        gpus_per_node=gpus_per_node,
        nic=nic,
        nvlink_domain=nvlink_domain,
        nic_efficiency=nic_efficiency,
        alpha_s=alpha_s,
        oversubscription=oversubscription,
        bridge=bridge,
        host_memory=host_memory,
        host_bandwidth=host_bandwidth,
    )


@suggesting
def train(config: Model, cluster: _Cluster, plan: TrainingPlan, *, laboratory: str = "") -> TrainingStep:
    """Return the time of one step of training a model, its parts, memory and MFU; see `perfmodel.training.step.train`.

    Parameters
    ----------
    config : a `ModelConfig`, or what `perfmodel.find_model` takes: a config.json, a shape, a name ("llama-3.1-70b").
    cluster : the GPUs and their network.
    plan : how the model is trained.
    laboratory : who runs it, as the sources of published runs name them ("pytorch/torchtitan"): runs of those that
        constants were fitted on are surer than those of others, who "" stands for.

    Raises
    ------
    UsageError
        When a name is unknown, or the plan cannot run; the message has the nearest plan that can.
    """
    from perfmodel.training.search import full_step
    from perfmodel.workloads.catalog import find_model

    check_plan(plan)
    expect(laboratory, str, "name", place="laboratory", remedy='Write laboratory="pytorch/torchtitan".')
    return full_step(find_model(config), cluster_list([cluster])[0], plan, laboratory)


@suggesting
def search(
    config: Model,
    cluster: _Cluster | Sequence[_Cluster],
    plan: TrainingPlan,
    *,
    top: int | None = 10,
    workers: int = 1,
    scheduler: str = "",
    **ranges: Sequence[object],
) -> Search:
    """Return the fastest ways to train a model that fit; see `perfmodel.training.search`.

    Parameters
    ----------
    config : a `ModelConfig`, or what `perfmodel.find_model` takes.
    cluster : the GPUs, or several clusters to choose from.
    plan : what the search does not change: sequence, batch, dtype, framework, ...
    top : set-ups to return; None for all that are ranked.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler.
    ranges : values of batch, micro_batch, tp, cp, pp, vp, ep, zero and recompute; the rest is what may be useful.

    Raises
    ------
    UsageError
        When no combination can run and fits.
    """
    from perfmodel.training.search import search as search_plans
    from perfmodel.training.space import default_space
    from perfmodel.workloads.catalog import find_model

    model = find_model(config)
    check_plan(plan)
    clusters = cluster_list(cluster)
    expect(top, Integral | None, "whole number", place="top", remedy="Give 1 or more, or None for all.")
    expect_numbers(Integral, workers=workers)
    if top is not None and top < 1:
        raise UsageError(f"top is {top}.", place="search", remedy="Give 1 or more, or None for all.")
    space = default_space(model, clusters, plan, **range_values(ranges))
    return search_plans(model, clusters, plan, space, top=top, workers=workers, scheduler=scheduler)


@suggesting
def Deployment(  # noqa: N802 -- makes one
    config: Model,
    hardware: Machine,
    *,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    engine: str | Engine = "vllm",
    engine_version: str = "",
    weights: str = "",
    kv: str = "bf16",
    max_num_seqs: int | None = None,
    max_batched_tokens: int | None = None,
    kv_tokens: int | None = None,
    utilization: float | None = None,
    graph: bool | None = None,
    sampling: str = "greedy",
    speculation: Speculation | None = None,
    laboratory: str = "",
    release_known: bool = True,
    dispatcher: str = "",
    gpus_per_node: int | None = None,
    nic: str | float | None = None,
    states: str = "",
    batch_overlap: bool = False,
) -> ServedModel:
    """Return a model served by an engine on some GPUs; see `perfmodel.serving.deployment.Deployment`.

    Parameters
    ----------
    config : the model's shapes, its name ("llama-3.1-8b"), or the path of its ``config.json``.
    hardware : one of the GPUs, or its name in the catalog ("h100").
    tp, pp, ep, dp : tensor, pipeline, expert and data parallel GPUs.
    engine : name or file of a profile (docs/engines.md), or the profile.
    engine_version : release of the engine, or a date that tells it ("2025-06"), which chooses among its profiles.
    weights, kv : formats of the weights, by default as the checkpoint stores them, and of keys and values.
    max_num_seqs, max_batched_tokens : most sequences and tokens of a step of one copy; None: the engine's default.
    kv_tokens : tokens of keys and values that fit, as the engine prints them; None: computed.
    utilization : share of the memory for the engine; None: its default.
    graph : whether decode replays CUDA graphs; None: as the engine does.
    sampling : "greedy", or an algorithm of `Sampling`: how a token is drawn.
    speculation : speculative decoding, `perfmodel.serving.speculation.Speculation`; None for none.
    laboratory : who runs it, as the sources of published runs name them; "" is anybody.
    release_known : whether an engine without a version is one of today, and not an unknown one.
    dispatcher : how copies of the attention exchange tokens with experts that they share; "" as the engine does.
    gpus_per_node : GPUs that share a host; None: as the machine's specification says.
    nic : network of one GPU in one direction, which exchanges of a layer over several hosts cross: text in bits or
        bytes ("400 Gb/s", "50 GB/s"), or a number [B/s]; None: the machine's.
    states : dtype of the states of linear attention and Mamba between steps: "fp32", "bf16" or "fp16"; "" is that
        which the model asks for, or else the engine's.
    batch_overlap : whether a step runs as two halves, the exchanges of one beside the compute of the other.

    Raises
    ------
    UsageError
        When a name is unknown, the parallelism does not divide the model, the model does not fit, or GPUs exchange in
        each layer over a network that nobody gave.
    """
    from perfmodel.serving.deployment import Deployment as ServedModel
    from perfmodel.workloads.catalog import find_model

    return ServedModel(
        find_model(config),
        find_machine(hardware),
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        engine=engine,
        engine_version=engine_version,
        weights=weights,
        kv=kv,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens,
        kv_tokens=kv_tokens,
        utilization=utilization,
        graph=graph,
        sampling=sampling,
        speculation=speculation,
        laboratory=laboratory,
        release_known=release_known,
        dispatcher=dispatcher,
        gpus_per_node=gpus_per_node,
        nic=nic,
        states=states,
        batch_overlap=batch_overlap,
    )
