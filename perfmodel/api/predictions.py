"""What operators and models are to take on a machine: one call, a sweep, a step of training, a served model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from perfmodel.api.arguments import check_number, check_operator, check_plan, cluster_list, operator_list, range_values
from perfmodel.api.machines import Machine, Model, find_machine
from perfmodel.errors import UsageError, expect, expect_numbers, suggesting

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster as _Cluster
    from perfmodel.core.roofline import Bound
    from perfmodel.operators import Operator
    from perfmodel.prediction.algorithms.choice import Choice
    from perfmodel.prediction.result import Prediction
    from perfmodel.prediction.whole_model import WholeModel
    from perfmodel.serving.deployment import Deployment as ServedModel
    from perfmodel.serving.engine import Engine
    from perfmodel.serving.speculation import Speculation
    from perfmodel.training.plan import TrainingPlan
    from perfmodel.training.result import TrainingStep
    from perfmodel.training.search import Search


@suggesting
def predict(
    op: Operator,
    hardware: Machine,
    *,
    timing: str = "kernel",
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine; see `perfmodel.prediction.predict`.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, or its name in the catalog ("h100").
    timing : the interval that is meant: "kernel", "graph", "do_bench" or "event" (docs/concepts.md, Timing views).
    cache : what the caches hold before the call: "cold", "warm" or "rotating".
    library : whose kernels run ("torch-2.1", "vllm", "nccl"); "" for any. One without rows has a wider interval.
    load : for how long the device has been at work: "burst", or minutes, "sustained".

    Raises
    ------
    UsageError
        When a name is unknown, an argument is of a wrong type, or the machine has no peak for the operator's dtype.
    """
    machine = find_machine(hardware)
    try:
        return _predict_on()(op, machine, timing=timing, cache=cache, library=library, load=load)
    except (AttributeError, TypeError):  # looked at only now: a call takes 50 us, and nearly all have an operator
        check_operator(op)
        raise


@functools.cache
def _predict_on() -> Callable[..., Prediction]:
    """Return the function, which is imported at the first call: Python looks for 1 us whether a module is there."""
    from perfmodel.prediction.predict import predict as predict_on

    return predict_on


@suggesting
def bound_time(op: Operator, hardware: Machine) -> Bound:
    """Return the bound of one cold call of an operator; see `perfmodel.prediction.predict.bound_time`.

    Parameters
    ----------
    op : the operator; with arrays as dimensions, ``time_s`` and ``limiter`` of the bound are arrays.
    hardware : the machine, or its name in the catalog.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses.

    >>> from perfmodel import Memcpy
    >>> bound = bound_time(Memcpy(bytes=2**30, direction="d2d"), "a100-sxm4-40gb")
    >>> bound.limiter, round(bound.time_s * 1e3, 3)
    ('hbm', 1.381)
    """
    from perfmodel.prediction.predict import bound_time as bound_on

    check_operator(op)
    return bound_on(op, find_machine(hardware))


@suggesting
def sweep(
    op: Operator,
    hardware: Machine,
    *,
    chunk: int | None = None,
    timing: str = "kernel",
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
    workers: int = 1,
    scheduler: str = "",
) -> Iterator[Prediction]:
    """Yield the predictions of an operator whose dimensions are arrays, in chunks; see `perfmodel.prediction.sweep`.

    Arrays that broadcast, as ``m`` of shape [M, 1] and ``n`` of shape [N], never take the memory of all points.

    Parameters
    ----------
    op, hardware, timing, cache, library, load : as in `predict`.
    chunk : points of one prediction; None for as many as are fast.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler. A script that asks for
        processes needs ``if __name__ == "__main__":``.

    Raises
    ------
    UsageError
        As `predict`, and when ``chunk`` or ``workers`` is impossible.
    UnavailableError
        When a worker dies, or no scheduler answers.
    """
    from perfmodel.prediction.predict import CHUNK
    from perfmodel.prediction.sweep import sweep as sweep_on

    check_operator(op)
    size = CHUNK if chunk is None else chunk
    return sweep_on(
        op,
        find_machine(hardware),
        chunk=size,
        timing=timing,
        cache=cache,
        library=library,
        load=load,
        workers=workers,
        scheduler=scheduler,
    )


@suggesting
def choose(problem: Operator | str, hardware: Machine, **dimensions: Any) -> Choice:
    """Return what each algorithm of a problem takes on a machine; see `perfmodel.prediction.algorithms.choice.choose`.

    Parameters
    ----------
    problem : the operator that states the problem (`Conv2d`, `Gemm`, `Sort`, ...), or a problem's name ("sort",
        "gradient_compression") with the operator's ``dimensions``.
    hardware : the machine, or its name in the catalog.
    dimensions : of the problem's operator; those that are left out are the problem's usual ones.

    Raises
    ------
    UsageError
        When there is no such problem, or a dimension is wrong or an array.
    """
    from perfmodel.prediction.algorithms.choice import choose as choose_on

    if not isinstance(problem, str):
        check_operator(problem, "problem")
    return choose_on(problem, find_machine(hardware), **dimensions)


@suggesting
def predict_model(
    operators: Iterable[Operator],
    hardware: Machine,
    *,
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
    gap_s: float | None = None,
) -> WholeModel:
    """Return the time of a counted list of operators; see `perfmodel.prediction.whole_model.predict_model`.

    Parameters
    ----------
    operators : operators with their ``count``, as `forward_pass` lists them, which run one after the other.
    hardware : the machine, or its name in the catalog.
    cache, library, load : as in `predict`.
    gap_s : idle time of the device between two kernels [s]; None for the usual one of the machine.

    Raises
    ------
    UsageError
        For an empty list, an operator whose dimensions are arrays, and as `predict`.
    """
    from perfmodel.prediction.whole_model import predict_model as predict_on

    listed = operator_list(operators)
    check_number(gap_s, "gap_s", "Give seconds, as 1e-6.")
    return predict_on(listed, find_machine(hardware), cache=cache, library=library, load=load, gap_s=gap_s)


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
    engine_version : of the engine, which chooses among its profiles.
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
