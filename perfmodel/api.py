"""Public functions that take a machine by name as well: what a notebook calls.

The rooms below take a `Hardware`; they know no catalog. Here a name, an alias or a spec file stands for one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from perfmodel.core.hardware import Hardware

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.cluster.cluster import Cluster as _Cluster
    from perfmodel.core.roofline import Bound
    from perfmodel.diagnosis.fusion import Fusion
    from perfmodel.diagnosis.limits import Limit
    from perfmodel.diagnosis.projection.project import Projection
    from perfmodel.diagnosis.result import Diagnosis
    from perfmodel.investment.economics import Economics
    from perfmodel.investment.plan import Plan
    from perfmodel.investment.ranking import Ranking
    from perfmodel.investment.scenario import Scenario
    from perfmodel.investment.what_if import WhatIf
    from perfmodel.operators import Operator
    from perfmodel.prediction.algorithms.choice import Choice
    from perfmodel.prediction.result import Prediction
    from perfmodel.prediction.whole_model import WholeModel
    from perfmodel.profile.candidate import Candidate
    from perfmodel.profile.effort import Effort
    from perfmodel.profile.profile import Profile
    from perfmodel.render.plots.roofline.points import Point
    from perfmodel.serving.deployment import Deployment as ServedModel
    from perfmodel.training.plan import TrainingPlan
    from perfmodel.training.result import TrainingStep
    from perfmodel.training.search import Search
    from perfmodel.workloads.config import ModelConfig

#: a machine, or how the catalog finds it: name, alias, path of a spec file
Machine = Hardware | str | os.PathLike[str]
#: a model, or how `perfmodel.find_model` finds it: path of a config.json, shape, name
Model = Union["ModelConfig", str, "os.PathLike[str]"]


def find_machine(machine: Machine) -> Hardware:
    """Return the machine that a name, an alias or a spec file stands for.

    Raises
    ------
    UsageError, InputFileError
        When the catalog has no such name, or the file is wrong.
    """
    if isinstance(machine, Hardware):
        return machine
    from perfmodel.hardware_catalog import hardware

    return hardware(os.fspath(machine))


def known_machines(names: Iterable[str]) -> list[Hardware]:
    """Return the machines with some names, without those that neither the catalog nor a file has."""
    from perfmodel.errors import PerfModelError

    found = []
    for name in names:
        with contextlib.suppress(PerfModelError):
            found.append(find_machine(name))
    return found


def html_report(*results: Any, title: str = "") -> str:
    """Return one self-contained HTML page of one result, or of two side by side: before and after.

    Parameters
    ----------
    results : what perfmodel's functions return (a diagnosis, predictions, a ranking, a training step, ...), or reports.
    title : of the page.
    """
    from perfmodel.render.html.inputs import html_report as page_of

    return page_of(*results, title=title, find=known_machines)


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
    timing, cache, library, load : the view of time, the state of the caches, whose kernels run, and for how long the
        device has been at work.

    Raises
    ------
    UsageError
        When a name is unknown, or the machine has no peak for the operator's dtype.
    """
    from perfmodel.prediction.predict import predict as predict_on

    return predict_on(op, find_machine(hardware), timing=timing, cache=cache, library=library, load=load)


def bound_time(op: Operator, hardware: Machine) -> Bound:
    """Return the bound of one cold call of an operator; see `perfmodel.prediction.predict.bound_time`."""
    from perfmodel.prediction.predict import bound_time as bound_on

    return bound_on(op, find_machine(hardware))


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
    """Yield the predictions of an operator whose dimensions are arrays, in chunks; see `perfmodel.prediction.sweep`."""
    from perfmodel.prediction.predict import CHUNK
    from perfmodel.prediction.sweep import sweep as sweep_on

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
) -> _Cluster:
    """Return GPUs of one kind and the network between them; see `perfmodel.cluster.cluster.Cluster.of`.

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
    )


def choose(problem: Operator | str, hardware: Machine, **dimensions: Any) -> Choice:
    """Return what each algorithm of a problem takes on a machine; see `perfmodel.prediction.algorithms.choice.choose`.

    Parameters
    ----------
    problem : the operator that states the problem (`Conv2d`, `Gemm`, `Sort`, ...), or a problem's name ("sort",
        "gradient_compression") with the operator's ``dimensions``.
    hardware : the machine, or its name in the catalog.

    Raises
    ------
    UsageError
        When there is no such problem, or a dimension is wrong or an array.
    """
    from perfmodel.prediction.algorithms.choice import choose as choose_on

    return choose_on(problem, find_machine(hardware), **dimensions)


def train(config: Model, cluster: _Cluster, plan: TrainingPlan) -> TrainingStep:
    """Return the time of one step of training a model, its parts, memory and MFU; see `perfmodel.training.step.train`.

    Parameters
    ----------
    config : a `ModelConfig`, or what `perfmodel.find_model` takes: a config.json, a shape, a name ("llama-3.1-70b").
    cluster : the GPUs and their network.
    plan : how the model is trained.

    Raises
    ------
    UsageError
        When a name is unknown, or the plan cannot run; the message has the nearest plan that can.
    """
    from perfmodel.training.search import full_step
    from perfmodel.workloads.catalog import find_model

    return full_step(find_model(config), cluster, plan)


def search(
    config: Model,
    cluster: _Cluster | Sequence[_Cluster],
    plan: TrainingPlan,
    *,
    top: int = 10,
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
    top : set-ups to return.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler.
    ranges : values of batch, micro_batch, tp, cp, pp, vp, ep, zero and recompute; the rest is what may be useful.

    Raises
    ------
    UsageError
        When no combination can run and fits.
    """
    from perfmodel.cluster.cluster import Cluster as _Cluster
    from perfmodel.training.search import search as search_plans
    from perfmodel.training.space import default_space
    from perfmodel.workloads.catalog import find_model

    model = find_model(config)
    clusters = [cluster] if isinstance(cluster, _Cluster) else list(cluster)
    space = default_space(model, clusters[0], plan, **ranges)
    return search_plans(model, clusters, plan, space, top=top, workers=workers, scheduler=scheduler)


def predict_model(
    operators: Iterable[Operator],
    hardware: Machine,
    *,
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
    gap_s: float | None = None,
) -> WholeModel:
    """Return the time of a counted list of operators; see `perfmodel.prediction.whole_model.predict_model`."""
    from perfmodel.prediction.whole_model import predict_model as predict_on

    return predict_on(operators, find_machine(hardware), cache=cache, library=library, load=load, **_given(gap_s=gap_s))


def Deployment(config: ModelConfig | str | os.PathLike[str], hardware: Machine, **options: Any) -> ServedModel:  # noqa: N802 -- makes one
    """Return a model served by an engine on some GPUs; see `perfmodel.serving.deployment.Deployment`.

    Parameters
    ----------
    config : the model's shapes, its name ("llama-3.1-8b"), or the path of its ``config.json``.
    hardware : one of the GPUs, or its name in the catalog ("h100").
    options : tp, pp, ep, dp, engine, weights, kv, max_num_seqs, max_batched_tokens, kv_tokens and others.
    """
    from perfmodel.serving.deployment import Deployment as ServedModel
    from perfmodel.workloads.catalog import find_model

    return ServedModel(find_model(config), find_machine(hardware), **options)


def diagnose(
    profile: Profile, hardware: Machine | None = None, *, effort: Mapping[str, Effort] | None = None
) -> Diagnosis:
    """Return where the time of a run goes and what would save it; see `perfmodel.diagnosis.diagnose.diagnose`."""
    from perfmodel.diagnosis.diagnose import diagnose as diagnose_on

    return diagnose_on(profile, _machine_or_none(hardware), **_given(effort=effort))


def project(profile: Profile, source: Machine, target: Machine, *, host: float | None = None) -> Projection:
    """Return what a profile would take on another machine; see `perfmodel.diagnosis.projection.project.project`."""
    from perfmodel.diagnosis.projection.project import project as project_on

    return project_on(profile, find_machine(source), find_machine(target), host=host)


def profile_limits(profile: Profile, hardware: Machine | None = None) -> tuple[Limit, ...]:
    """Return what limits each entry of a profile; see `perfmodel.diagnosis.limits.profile_limits`."""
    from perfmodel.diagnosis.limits import profile_limits as limits_on

    return limits_on(profile, _machine_or_none(hardware))


def fuse_operators(
    operators: Sequence[Operator],
    hardware: Machine,
    *,
    times_s: Sequence[float] = (),
    uses: int = 1,
    registers_per_thread: Sequence[float] = (),
) -> Fusion:
    """Return the saving of fusing consecutive operators; see `perfmodel.diagnosis.fusion.fuse_operators`."""
    from perfmodel.diagnosis.fusion import fuse_operators as fuse_on

    machine = find_machine(hardware)
    return fuse_on(operators, machine, times_s=times_s, uses=uses, registers_per_thread=registers_per_thread)


def headroom(
    profile: Profile,
    *,
    local_speedup: float = 2.0,
    economics: Economics | None = None,
    hardware: Machine | None = None,
) -> Ranking:
    """Rank the entries of a profile by what they could be worth; see `perfmodel.investment.headroom.headroom`."""
    from perfmodel.investment.headroom import headroom as headroom_on

    machine = _machine_or_none(hardware)
    return headroom_on(profile, local_speedup=local_speedup, economics=economics, hardware=machine)


def rank_candidates(
    profile: Profile,
    candidates: Plan | Sequence[Candidate],
    economics: Economics | None = None,
    *,
    hardware: Machine | None = None,
    cap: bool = True,
    by: str = "roi",
    days: float | None = None,
) -> Ranking:
    """Rank candidates by return on investment; see `perfmodel.investment.ranking.rank_candidates`."""
    from perfmodel.investment.ranking import rank_candidates as rank_on

    machine = _machine_or_none(hardware)
    return rank_on(profile, candidates, economics, hardware=machine, cap=cap, by=by, days=days)


def what_if(profile: Profile, scenario: Scenario, hardware: Machine | None = None) -> WhatIf:
    """Return a run after each step of a scenario; see `perfmodel.investment.what_if.what_if`."""
    from perfmodel.investment.what_if import what_if as what_if_on

    return what_if_on(profile, scenario, _machine_or_none(hardware), find=find_machine)


def roofline_plot(
    hardware: Machine, points: Iterable[Point], *, dtype: str | None = None, title: str | None = None
) -> Figure:
    """Return a matplotlib figure of the roofline of a machine; see `perfmodel.render.plots.roofline.roofline_plot`."""
    from perfmodel.render.plots.roofline import roofline_plot as plot_on

    return plot_on(find_machine(hardware), points, dtype=dtype, title=title)


def _machine_or_none(machine: Machine | None) -> Hardware | None:
    return None if machine is None else find_machine(machine)


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None: the room's function has the default of the others."""
    return {name: value for name, value in options.items() if value is not None}
