"""The time of one training step: micro batches through the pipeline, its bubble and sends, and what ends the step."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import send_time
from perfmodel.core.machine_parts import BRIDGE_NAMES, accessories
from perfmodel.operators.routing import Dispatcher
from perfmodel.prediction.latency.gemm import GEMM_BF16, GEMM_FP8
from perfmodel.prediction.stretch import Stretch
from perfmodel.training.bubble import bubble_s
from perfmodel.training.choices import offloaded
from perfmodel.training.constants import Constants
from perfmodel.training.documents import imbalance
from perfmodel.training.expert_overlap import overlap_note, overlap_stretch, pairs
from perfmodel.training.flops import step_flop
from perfmodel.training.framework import RANKS, frameworks, nearest_framework, says_nothing
from perfmodel.training.host_offload import offload_notes, offload_stretch
from perfmodel.training.host_update import StepEnd, step_end
from perfmodel.training.kernels import arithmetic, unmeasured
from perfmodel.training.micro_batch import INDEX, embedding_passes, head_passes, layer_passes, looked_up, stem_passes
from perfmodel.training.nearest import check_plan
from perfmodel.training.plan import ContextAlgorithm, Recompute, Schedule, TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import Setup, idle_attention, idle_selective, setup_of, wanted_attention
from perfmodel.training.stages import gpu_layers
from perfmodel.training.unmeasured import ELSEWHERE, EXCHANGES, UNDESCRIBED, stretches, wide_because
from perfmodel.training.update import (
    StageGpu,
    both_ways,
    exchanged_time,
    gradients_time,
    stage_gpu,
    update_time,
    updated_parameters,
)
from perfmodel.workloads.model_config import ModelConfig


def train(
    config: ModelConfig,
    cluster: Cluster,
    plan: TrainingPlan,
    fitted: Constants | None = None,
    *,
    checked: bool = True,
    laboratory: str = "",
) -> TrainingStep:
    """Return the time of one training step, its parts, and the model's FLOP.

    Parameters
    ----------
    config : the shapes of the model.
    cluster : the GPUs and their network.
    plan : how the model is trained.
    fitted : constants in place of the shipped ones.
    checked : whether to check that the plan can run; a search checks many plans by itself.
    laboratory : who runs it, as the sources of published runs name them ("pytorch/torchtitan"): runs of those that
        constants were fitted on are surer than those of others.

    step = micro batches x one GPU of the pipeline + bubble + sends + its exposed exchange of gradients and weights +
    its update of the weights, of the GPU for which these take longest

    Raises
    ------
    UsageError
        When the plan cannot run (`check_plan`), the file of a framework does not exist, or the machine lacks the dtype.
    """
    if checked:
        check_plan(config, cluster, plan)
    found = compared_step(setup_of(config, cluster, plan, fitted), laboratory)
    if not says_nothing(plan.framework):
        return found
    plans = (dataclasses.replace(plan, framework=name) for name in frameworks())
    steps = (compared_step(setup_of(config, cluster, one, fitted), laboratory) for one in plans)
    return _of_any_framework(found, [step.time_s for step in steps])


def compared_step(setup: Setup, laboratory: str = "") -> TrainingStep:
    """Return the step of a set-up that is only compared with others of its framework, unchecked.

    Its interval leaves out what frameworks differ by, which takes a step of each of them where the plan's is unknown.
    """
    plan = setup.plan
    _, known = nearest_framework(plan.framework)
    elsewhere = "" if setup.constants.ran(laboratory) else ELSEWHERE if known else UNDESCRIBED
    return _assemble(setup, pipeline_gpus(setup), known, elsewhere)


#: share of the described frameworks that lie below the lower end of what frameworks differ by, and above the upper end
_TAIL = 0.1


def _of_any_framework(step: TrainingStep, times: list[float]) -> TrainingStep:
    """Return a step with what frameworks differ by in its interval: its own may be any of them.

    ln of the ``times`` of the described frameworks for the same plan [s] over that of the one that stands for the
    unknown, its quantiles at 10 % and 90 %, is an error independent of the others. All steps of the framework share it:
    it is in neither interval for comparisons.
    """
    low, high = np.quantile(np.divide(times, step.time_s), (_TAIL, 1.0 - _TAIL))
    differ = Stretch(max(0.0, -math.log(low)), max(0.0, math.log(high)))
    low_s, high_s = differ.widened(step.time_s, step.low_s, step.high_s)
    note = (
        f"Nothing is known of {step.plan.framework!r}, eager or compiled: described frameworks take {low:.2f} to "
        f"{high:.2f} times as long for this plan, which the interval counts."
    )
    return dataclasses.replace(step, low_s=low_s, high_s=high_s, notes=(*step.notes, note))


def pipeline_gpus(setup: Setup) -> list[StageGpu]:
    """Return each GPU of the pipeline; most between the first and the last have the same layers, and are one object."""
    placed = gpu_layers(setup.config, setup.plan)
    layers = {kind: layer_passes(setup, kind) for kind in {kind for gpu in placed for kind in gpu}}
    head = head_passes(setup)
    alike: dict[tuple[object, ...], StageGpu] = {}
    gpus = []
    for index, counts in enumerate(placed):
        tokens, last = looked_up(setup, index), index == setup.plan.pp - 1
        key = (*counts.items(), tokens, last)
        if key not in alike:
            outer = [embedding_passes(setup, tokens)] * (tokens > 0) + [head] * last
            if index == 0 and setup.config.audio_bands:
                outer.append(stem_passes(setup))
            alike[key] = stage_gpu(setup, counts, layers, outer)
        gpus.append(alike[key])
    if setup.plan.schedule == Schedule.DUALPIPE:
        return [both_ways(one, other) for one, other in zip(gpus, reversed(gpus), strict=True)]
    return gpus


def _assemble(setup: Setup, gpus: list[StageGpu], known: bool, elsewhere: str) -> TrainingStep:
    """Return the step from the GPUs of its pipeline."""
    plan, config = setup.plan, setup.config
    count = setup.micro_batches
    slowest, exchange_s, update_s, end = slowest_gpu(setup, {id(gpu): gpu for gpu in gpus}.values())
    terms = {name: count * float(slowest.forward[i] + slowest.backward[i]) for name, i in INDEX.items()}
    together = pairs(plan, count)
    hidden = together * slowest.hidden_s
    terms["expert"] -= hidden
    terms["bubble"] = bubble_s(setup, gpus, slowest)
    terms["sends"] = _sends(setup)
    terms["data"] = count * slowest.sharding_s + exchange_s
    terms["optimizer"] = update_s
    copies_s, terms["cpu_optimizer"] = end.exposed_s()
    terms["offload"] = count * slowest.offload_s + copies_s
    terms["imbalance"] = _imbalance(setup, slowest)
    total = sum(terms.values())
    waits = slowest.waits.stretch(setup.dispatch_deviation, total, count)
    hosts = offload_stretch(setup, slowest.copies, end, total, count)
    known_runs = Stretch.of(setup.constants.intervals[_knowledge(setup, known)]).beside(waits)
    known_runs = known_runs.beside(overlap_stretch(hidden, total)).beside(hosts)
    apart = stretches(setup, terms, functools.partial(exchanged_time, setup, slowest))
    inside, alone = (known_runs.beside(unmeasured) for unmeasured in apart)
    everything = inside.beside(Stretch.of(setup.constants.intervals[elsewhere])) if elsewhere else inside
    (low, high), laboratory, own = (stretch.around(total) for stretch in (everything, inside, alone))
    flop, full, executed = step_flop(config, plan, setup.kernel, setup.framework.recomputes_logits)
    return TrainingStep(
        cluster=setup.cluster,
        plan=plan,
        framework=setup.framework.name,
        model=config.name or config.model_type,
        dp=setup.dp,
        micro_batches=plan.micro_batches(setup.cluster.gpus),
        time_s=total,
        low_s=low,
        high_s=high,
        own_interval_s=own,
        laboratory_interval_s=laboratory,
        terms_s={name: time for name, time in terms.items() if time},
        stage_forward_s=tuple(gpu.passes_s(together / count)[0] for gpu in gpus),
        stage_backward_s=tuple(gpu.passes_s(together / count)[1] for gpu in gpus),
        stage_weights_s=tuple(gpu.weights_s for gpu in gpus),
        flop=flop,
        flop_full_attention=full,
        hardware_flop=executed,
        peak_flop_per_s=setup.hardware.best_peak(arithmetic(plan.dtype)).flop_per_s,
        parameters=config.parameters,
        notes=(
            *_notes(setup, known),
            *filter(None, [slowest.waits.note(setup.constants, setup.dispatch_deviation, total, count)]),
            *filter(None, [overlap_note(plan, terms["expert"], hidden, total)]),
            *wide_because(setup, terms, elsewhere),
            *(offload_notes(setup, updated_parameters(setup, slowest), terms) if plan.offload != "none" else ()),
        ),
        encoder_seq=setup.encoder_seq,
    )


def slowest_gpu(setup: Setup, gpus: Iterable[StageGpu]) -> tuple[StageGpu, float, float, StepEnd]:
    """Return the GPU of the pipeline that takes longest for a step, and of it the exchange, and the updates [s].

    max over the GPUs of m t - n h + e + u: m micro batches of t, n of them in pairs that are shorter by h, what
    exchanging gradients and weights adds once a step, and the update, on the GPU and on the host. Embedding and head
    may take as long as a layer and have many more parameters to exchange.
    """
    count = setup.micro_batches
    together = pairs(setup.plan, count)
    host = setup.plan.on_host("optimizer")

    def passes_s(gpu: StageGpu) -> float:
        return count * gpu.time_s - together * gpu.hidden_s

    ends = [
        (
            gpu,
            gradients_time(setup, gpu),
            update_time(setup, gpu),
            step_end(setup, updated_parameters(setup, gpu), passes_s(gpu)) if host else StepEnd(),
        )
        for gpu in gpus
    ]
    return max(ends, key=lambda end: passes_s(end[0]) + end[1] + end[2] + end[3].time_s)


def _imbalance(setup: Setup, gpu: StageGpu) -> float:
    """Return what waiting for the rank with the longest documents adds to a step [s]; 0 where all have as much work.

    Ranks that share out weights wait in every micro batch, others once a step, for the sum of theirs. Consecutive parts
    of a sequence (ring) have documents of their own. Layers with a state take as long with any documents. Under
    DualPipe half of the micro batches pass each stage of a GPU.
    """
    plan, lengths = setup.plan, setup.shard.documents
    if not lengths:
        return 0.0
    together = 1.0 if setup.sharded else setup.micro_batches
    parts = plan.cp if plan.cp_algorithm == ContextAlgorithm.RING else 1
    tokens = together * plan.micro_batch * plan.seq / parts
    attention = sum(count * passes.attending_s for passes, count in gpu.layered) / setup.copies
    return setup.micro_batches * attention * (imbalance(lengths, plan.seq, tokens, setup.dp * parts) - 1.0)


def _knowledge(setup: Setup, known: bool) -> str:
    """Return how well a set-up is known: the key of its interval."""
    if setup.config.experts:
        return "experts"
    seen = setup.framework.name in setup.constants.seen and setup.hardware.name in setup.constants.seen_machines
    return "seen" if known and seen else "unseen"


def _notes(setup: Setup, known: bool) -> tuple[str, ...]:
    """Return what was assumed of unknown frameworks and libraries, and which ranks exchange over the network."""
    notes = _without_effect(setup)
    plan = setup.plan
    several = [name for name in RANKS if getattr(plan, name) > 1]
    if known and (
        lacking := setup.framework.lacking_parts(several, [plan.recompute], plan.cp_algorithm, offloaded(plan.offload))
    ):
        notes.insert(0, lacking)
    if setup.micro_batches < plan.pp:
        full = plan.pp * plan.micro_batch * setup.dp
        notes.append(
            f"{setup.micro_batches:g} micro batches do not fill a pipeline of {plan.pp} stages. Nearest: batch={full}."
        )
    named = nearest_framework(plan.framework, shards=plan.zero == 3)[0]
    if not known:
        notes.append(f"Framework {setup.plan.framework!r} is not described; {setup.framework.title} stands for it.")
    elif named is not setup.framework:
        notes.append(
            f"{named.title} is not built for compute capability {setup.hardware.compute_capability}, of "
            f"{setup.hardware.name}; {setup.framework.title} stands for it."
        )
    for family, width in ((GEMM_BF16, "bf16"), (GEMM_FP8, "fp8")):
        notes += unmeasured(setup.hardware, family.name, setup.framework.libraries.get(width, ()))
    within = any(getattr(setup.groups, name).inside > 1 for name in (*EXCHANGES, "pipeline"))
    if within and (optional := accessories(setup.hardware.links)):
        bridge = BRIDGE_NAMES[optional[0].name]
        notes.append(
            f"The {bridge} bridge of {setup.hardware.name} is an accessory: --no-bridge (Cluster(..., bridge=False)) "
            "predicts without it."
        )
    if crossing := setup.groups.crossing:
        listed = ", ".join(f"{name} ({inside} a node)" for name, inside in crossing.items())
        notes.append(f"Ranks that exchange over the network: {listed}.")
        if "expert" in crossing:
            notes += _copies_note(setup)
    if known and plan.dispatch_dtype == "fp8":
        notes.append(
            "No described framework sends tokens to experts in 8 bits, as DeepSeek's own code does (NVIDIA/Megatron-LM "
            "issue 3578): this is predicted as if it did."
        )
    return tuple(notes)


def _copies_note(setup: Setup) -> list[str]:
    """Return how tokens are taken to reach experts of other nodes, where another dispatcher sends more or less."""
    router, domains = setup.config.router, setup.groups.expert.domains
    more = router.top_k / router.visits(domains)
    if more < _MORE_COPIES or setup.dispatcher == Dispatcher.ALLGATHER:
        return []
    if setup.dispatcher == Dispatcher.DEEPEP:
        return [
            "Tokens cross the network once for each node of their experts (deepep: DeepEP, Megatron-Core's flex "
            f"dispatcher); an all-to-all of every copy (alltoall) takes {more:.1f} times as many bytes."
        ]
    return [
        f"Each of a token's {router.top_k} copies crosses the network by itself (alltoall); one for each node of its "
        f"experts (deepep: DeepEP, Megatron-Core's flex dispatcher) takes {1.0 / more:.2f} times as many bytes."
    ]


#: copies of a token in one from which on the dispatcher matters
_MORE_COPIES = 1.1


def _without_effect(setup: Setup) -> list[str]:
    """Return which options change nothing on these GPUs or with these kernels."""
    plan = setup.plan
    lacking = setup.framework.lacking([plan.zero], plan.dtype)
    notes = [lacking] if lacking else []
    if plan.hsdp and not setup.sharded:
        notes.append(f"hsdp changes nothing: zero = {plan.zero} of {setup.framework.name} keeps weights whole.")
    elif plan.hsdp and setup.groups.data.domains == 1:
        notes.append("hsdp changes nothing: all data parallel ranks share one domain of NVLink.")
    if plan.recompute == Recompute.SELECTIVE and (idle := idle_selective(setup.config, setup.kernel)):
        notes.append(idle)
    wanted = wanted_attention(setup.config, plan, setup.framework)
    if wanted != setup.kernel and setup.config.attending_layers:
        notes.append(f"Attention runs {setup.kernel}: {wanted} has no kernel for {plan.dtype}.")
    if idle := idle_attention(setup.config, plan):
        notes.append(idle)
    if plan.documents and not setup.config.attending_layers:
        notes.append("documents change nothing: layers with a state take as long with any of them.")
    elif plan.documents and not setup.shard.documents:
        notes.append(f"documents change nothing but FLOP: attention {setup.kernel} computes all scores of a sequence.")
    if plan.grad_dtype and setup.groups.data.ranks == 1:
        notes.append("grad_dtype changes nothing: one data parallel rank exchanges no gradients.")
    return notes


def _sends(setup: Setup) -> float:
    """Return what sending hidden states between stages adds, of all residual streams [s].

    Each micro batch of each stage is sent once forward and once backward, in a decoder with what its encoder gave;
    beside the next micro batches where the framework does so, but for the p - 1 that fill the pipeline.
    """
    plan, shard = setup.plan, setup.shard
    if plan.pp == 1:
        return 0.0
    split = plan.tp if shard.sp or setup.framework.scatter_gather else 1
    tokens = shard.tokens + shard.cross_tokens
    passed = setup.config.hidden * setup.config.residual_streams
    time = send_time(setup.groups.pipeline, tokens * passed * shard.element_bytes / split)
    waits = plan.pp - 1.0
    if not setup.framework.overlaps_pipeline:
        waits += setup.micro_batches * plan.vp
    return 2.0 * waits * time
