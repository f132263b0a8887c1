"""The command `serve`: latency, throughput, memory and cost of a language model behind an engine, under load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from perfmodel.cli._fleet_options import (
    BatchSizeOption,
    ConservativenessOption,
    DpOption,
    EpOption,
    KvLinkOption,
    KvOption,
    MaxBatchedTokensOption,
    MaxWaitOption,
    PpOption,
    PreemptionOption,
    PrefillReplicasOption,
    ReplicasOption,
    RoutingOption,
    TpOption,
    WatermarkOption,
    WeightsOption,
)
from perfmodel.cli._load_options import (
    BurstinessOption,
    ConcurrencyOption,
    ExplainOption,
    ForQpsOption,
    PercentilesOption,
    PlotKindOption,
    QpsOption,
    SpacingOption,
    SpreadStartOption,
    SteadyOption,
    TimelineOption,
)
from perfmodel.cli._options import (
    FormatOption,
    MachinesOption,
    NicOption,
    NodeOption,
    OutputOption,
    PlotOption,
    PriceOption,
    SchedulerOption,
    SpreadOption,
    WideOption,
    WorkersOption,
)
from perfmodel.cli._output import BAD_FINDING, Destination, status
from perfmodel.cli._serving_options import (
    BatchOverlapOption,
    DispatcherOption,
    DraftOption,
    EagerOption,
    EngineOption,
    EngineVersionOption,
    IslOption,
    KvTokensOption,
    MaxNumSeqsOption,
    ModelArgument,
    NumRequestsOption,
    OslOption,
    PolicyOption,
    PrefixOption,
    RequestsOption,
    SamplingOption,
    SeedOption,
    SloOption,
    SpeculateOption,
    StatesOption,
    UtilizationOption,
)
from perfmodel.cli._sharing import end_code

if TYPE_CHECKING:
    from perfmodel.serving.study import Outcome, Study


def command(
    ctx: typer.Context,
    config: ModelArgument,
    on: MachinesOption = None,
    tp: TpOption = "1",
    pp: PpOption = "1",
    ep: EpOption = "1",
    dp: DpOption = "1",
    dispatcher: DispatcherOption = "",
    batch_overlap: BatchOverlapOption = False,
    nic: NicOption = None,
    gpus_per_node: NodeOption = None,
    engine: EngineOption = "vllm",
    engine_version: EngineVersionOption = "",
    weights: WeightsOption = None,
    kv: KvOption = "bf16",
    states: StatesOption = "",
    isl: IslOption = 1024,
    osl: OslOption = 256,
    spread: SpreadOption = 0.0,
    prefix: PrefixOption = 0,
    concurrency: ConcurrencyOption = None,
    qps: QpsOption = None,
    requests: RequestsOption = None,
    num_requests: NumRequestsOption = None,
    spacing: SpacingOption = "poisson",
    burstiness: BurstinessOption = 1.0,
    seed: SeedOption = 0,
    spread_start: SpreadStartOption = False,
    steady: SteadyOption = False,
    percentiles: PercentilesOption = "50,95,99",
    slo: SloOption = None,
    price_per_gpu_hour: PriceOption = None,
    for_qps: ForQpsOption = None,
    policy: PolicyOption = "",
    max_num_seqs: MaxNumSeqsOption = None,
    max_batched_tokens: MaxBatchedTokensOption = None,
    batch_size: BatchSizeOption = None,
    max_wait: MaxWaitOption = None,
    preemption: PreemptionOption = None,
    watermark: WatermarkOption = None,
    conservativeness: ConservativenessOption = None,
    replicas: ReplicasOption = 1,
    routing: RoutingOption = "round-robin",
    prefill_replicas: PrefillReplicasOption = 0,
    kv_link: KvLinkOption = None,
    sampling: SamplingOption = "greedy",
    speculate: SpeculateOption = None,
    draft: DraftOption = "",
    eager: EagerOption = False,
    kv_tokens: KvTokensOption = None,
    utilization: UtilizationOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    explain: ExplainOption = False,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
    plot: PlotOption = None,
    plot_kind: PlotKindOption = None,
    timeline: TimelineOption = None,
) -> int:
    """Predict time to first token, time per token, throughput, KV memory and cost of a served language model.

    Each load is simulated step by step with the engine's scheduler; --steady uses a formula. Several machines, numbers
    of GPUs and formats are compared. Exit code 1 when no deployment meets --slo.

    Example: perfmodel serve llama-3.1-8b --on h100 --weights fp8 --kv fp8 --isl 1024 --osl 256 --concurrency 1..64
    """
    from perfmodel.cli._progress import counted
    from perfmodel.cli._serving_checks import check_dispatcher, check_routing, check_serve, check_steady, with_overlap
    from perfmodel.cli._serving_drawn import check_drawn, draw
    from perfmodel.cli._serving_input import (
        check_rate,
        fleet_of,
        load_of,
        model_remarks,
        percentiles_of,
        specs_of,
        speculation_of,
        stored_weights,
        told_release,
        workload_of,
    )
    from perfmodel.cli._serving_report import points_report
    from perfmodel.serving.evaluations import evaluate_all
    from perfmodel.serving.points import Workload
    from perfmodel.serving.slo import parse_slo
    from perfmodel.serving.study import Study

    destination = Destination.of("serve", format_, output, wide=wide)
    check_drawn(plot, plot_kind, timeline)
    check_rate(for_qps)
    load, values = load_of(concurrency, qps, requests)
    if steady:
        check_steady(load, requests, timeline)
    check_serve(ctx, load, of_file=requests is not None, steady=steady, prefill_replicas=prefill_replicas)
    workload = Workload(isl, osl, spread, prefix, num_requests or 0, spacing, burstiness, seed)
    workload, notes = workload_of(workload, requests, load)
    release, told = told_release(engine, engine_version)
    specs = specs_of(
        config, on or [], engine,
        {"tp": tp, "pp": pp, "ep": ep, "dp": dp, "max_batched_tokens": max_batched_tokens},
        {"weights": weights, "kv": kv},
        engine_version=release, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens, utilization=utilization,
        graph=False if eager else None, sampling=sampling, speculate=speculation_of(speculate, draft), draft=draft,
        dispatcher=dispatcher, nic=nic, gpus_per_node=gpus_per_node, states=states,
    )  # fmt: skip
    check_routing(ctx, load, specs, replicas, prefill_replicas)
    check_dispatcher(dispatcher, specs)
    specs = with_overlap(batch_overlap, specs)
    notes += told + model_remarks(config)
    if weights is None:
        notes += stored_weights(config)[1]
    rules = {
        "batch": batch_size, "preemption": preemption, "watermark": watermark, "conservativeness": conservativeness,
    }  # fmt: skip
    fleet = fleet_of(policy, rules, max_wait, replicas, prefill_replicas, routing, kv_link)
    study = Study(
        workload, fleet, load, values, None if slo is None else parse_slo(slo), percentiles_of(percentiles),
        math.nan if price_per_gpu_hour is None else price_per_gpu_hour, steady=steady, spread_start=spread_start,
    )  # fmt: skip
    outcomes = evaluate_all(specs, study, workers, scheduler, counted)
    points = [point for outcome in outcomes for point in outcome.points]
    if points:  # there is none where work ended before any load was known
        draw(points, outcomes, study, plot, plot_kind, timeline)
    destination.write(points_report(points, outcomes, study, notes, explain=explain, for_qps=for_qps))
    return _finish(outcomes, study)


def _finish(outcomes: Sequence[Outcome], study: Study) -> int:
    """Report impossible deployments on stderr; return the code of an interruption, or of objectives nobody meets.

    Raises
    ------
    WorkersLostError
        When the workers were lost before all was known.
    """
    from perfmodel.serving.evaluations import end_of

    for outcome in outcomes:
        if outcome.fault:
            status(f"left out: {outcome.spec.name}: {outcome.fault}")
    met = any(outcome.largest or any(point.met for point in outcome.points) for outcome in outcomes)
    missed = BAD_FINDING if study.slo is not None and not met else 0
    return end_code(end_of(outcomes)) or missed
