"""The command `serve`: latency, throughput, memory and cost of a language model behind an engine, under load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli._options import (
    FormatOption,
    MachinesOption,
    NicOption,
    NodeOption,
    OutputOption,
    PlotOption,
    PriceOption,
    SchedulerOption,
    WideOption,
    WorkersOption,
    fraction_option,
    option,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, status
from perfmodel.cli._serving_options import (
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
    SpreadOption,
    StatesOption,
    UtilizationOption,
)
from perfmodel.cli._sharing import end_code
from perfmodel.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.serving.study import Outcome, Study

#: what `--plot` can draw
_PLOTS = ("pareto", "load", "steps")


def command(
    ctx: typer.Context,
    config: ModelArgument,
    on: MachinesOption = None,
    tp: Annotated[str, typer.Option("--tp", metavar="LIST", help="Tensor parallel GPUs: 2, 1/2/4 or 1..8.")] = "1",
    pp: Annotated[str, typer.Option("--pp", metavar="LIST", help="Pipeline stages.")] = "1",
    ep: Annotated[str, typer.Option("--ep", metavar="LIST", help="GPUs that share the experts of a layer.")] = "1",
    dp: Annotated[
        str,
        typer.Option(
            "--dp", metavar="LIST", help="Copies of the attention with sequences of their own; without --ep replicas."
        ),
    ] = "1",
    dispatcher: DispatcherOption = "",
    nic: NicOption = None,
    gpus_per_node: NodeOption = None,
    engine: EngineOption = "vllm",
    engine_version: EngineVersionOption = "",
    weights: Annotated[
        str | None,
        option(
            "--weights",
            "Formats of the weights: bf16, fp8, int4, nvfp4/fp8, ... "
            "Default: that of the checkpoint, as its config says, else bf16.",
            "LIST",
        ),
    ] = None,
    kv: Annotated[
        str, typer.Option("--kv", metavar="LIST", help="Formats of keys and values: bf16, fp8, bf16/fp8.")
    ] = "bf16",
    states: StatesOption = "",
    isl: IslOption = 1024,
    osl: OslOption = 256,
    spread: SpreadOption = 0.0,
    prefix: PrefixOption = 0,
    concurrency: Annotated[
        str | None,
        option(
            "--concurrency",
            "Users who each wait for their answer: 64, 1..512 (doubling), 16/32. Default: 1, 2, 4, ... that fit.",
            "LIST",
        ),
    ] = None,
    qps: Annotated[
        str | None,
        option("--qps", "Requests a second: 4, 1..32, 0.5/1; inf: all at once.", "LIST"),
    ] = None,
    requests: RequestsOption = None,
    num_requests: NumRequestsOption = None,
    spacing: Annotated[
        str, typer.Option("--spacing", metavar="NAME", help="Arrivals of --qps: poisson, gamma or uniform.")
    ] = "poisson",
    burstiness: Annotated[
        float,
        typer.Option("--burstiness", metavar="X", help="Squared coefficient of variation of gamma gaps; 1: Poisson."),
    ] = 1.0,
    seed: SeedOption = 0,
    spread_start: Annotated[
        bool, typer.Option("--spread-start", help="Users start over the time of a request, not all at once.")
    ] = False,
    steady: Annotated[
        bool, typer.Option("--steady", help="Use the formula of the steady state: means only, no queue, no percentile.")
    ] = False,
    percentiles: Annotated[
        str, typer.Option("--percentiles", metavar="LIST", help="Percentiles of the latencies.")
    ] = "50,95,99",
    slo: SloOption = None,
    price_per_gpu_hour: PriceOption = None,
    for_qps: Annotated[
        float | None,
        option("--for-qps", "Add the GPUs that serve so many requests a second.", "RATE", min=0),
    ] = None,
    policy: PolicyOption = "",
    max_num_seqs: MaxNumSeqsOption = None,
    max_batched_tokens: Annotated[
        str | None,
        option("--max-batched-tokens", "Most tokens of a step: the chunk of prompts. Default: the engine's.", "LIST"),
    ] = None,
    batch_size: Annotated[
        int | None,
        option("--batch-size", "Requests of a static or dynamic batch. Default: 32.", min=1),
    ] = None,
    max_wait: Annotated[
        str | None,
        option("--max-wait", "Longest wait for a dynamic batch to fill (100ms).", "TIME"),
    ] = None,
    preemption: Annotated[
        str | None,
        option("--preemption", "What a full cache costs: recompute (default) or swap.", "HOW"),
    ] = None,
    watermark: Annotated[
        float | None,
        fraction_option("--watermark", "Share of the cache that stays free when a request enters."),
    ] = None,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", help="Deployments that serve together.", min=1)
    ] = 1,
    routing: Annotated[
        str, typer.Option("--routing", metavar="HOW", help="How requests are spread: round-robin or least-loaded.")
    ] = "round-robin",
    prefill_replicas: Annotated[
        int,
        typer.Option(
            "--prefill-replicas",
            metavar="N",
            help="Deployments that compute prompts only; --replicas then "
            "decode, and keys and values move between them.",
            min=0,
        ),
    ] = 0,
    kv_link: Annotated[
        str | None,
        typer.Option(
            "--kv-link",
            metavar="BANDWIDTH",
            help="Bandwidth of one replica between prefill and decode. Default: that of its GPUs' networks.",
        ),
    ] = None,
    sampling: SamplingOption = "greedy",
    speculate: SpeculateOption = None,
    draft: DraftOption = "",
    eager: EagerOption = False,
    kv_tokens: KvTokensOption = None,
    utilization: UtilizationOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the terms of the mean step, and the memory of one GPU.")
    ] = False,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
    plot: PlotOption = None,
    plot_kind: Annotated[
        str | None,
        option(
            "--plot-kind",
            "pareto: tokens/s a GPU against a user; load: latencies "
            "against load; steps: terms of a step against batch. Default: by the load.",
            "KIND",
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        option("--timeline", "Draw KV use, running and queued over time of the last load.", "FILE"),
    ] = None,
) -> int:
    """Predict time to first token, time per token, throughput, KV memory and cost of a served language model.

    Each load is simulated step by step with the engine's scheduler; --steady uses a formula. Several machines, numbers
    of GPUs and formats are compared. Exit code 1 when no deployment meets --slo.

    Example: perfmodel serve llama-3.1-8b --on h100 --weights fp8 --kv fp8 --isl 1024 --osl 256 --concurrency 1..64
    """
    from perfmodel.cli._progress import counted
    from perfmodel.cli._serving_checks import check_dispatcher, check_routing, check_serve
    from perfmodel.cli._serving_drawn import draw, draw_timeline
    from perfmodel.cli._serving_input import (
        check_rate,
        load_of,
        model_remarks,
        percentiles_of,
        specs_of,
        speculation_of,
        stored_weights,
        workload_of,
    )
    from perfmodel.cli._serving_report import points_report
    from perfmodel.core.units import parse_duration, parse_quantity
    from perfmodel.serving.load import Fleet
    from perfmodel.serving.points import Workload
    from perfmodel.serving.slo import parse_slo
    from perfmodel.serving.study import Study, evaluate_all

    destination = Destination.of("serve", format_, output, wide=wide)
    check_plot(plot)
    check_plot(timeline)
    if plot_kind is not None and plot_kind not in _PLOTS:
        raise unknown_name("plot", plot_kind, _PLOTS, place="--plot-kind")
    if plot_kind is not None and plot is None:
        raise UsageError("there is no plot.", place="--plot-kind", remedy="Add --plot FILE.png.")
    check_rate(for_qps)
    load, values = load_of(concurrency, qps, requests)
    if steady and (load != "concurrency" or requests or timeline):
        raise UsageError("the steady state has users, but neither arrivals nor a time line.", place="--steady",
                         remedy="Use --concurrency, without --requests and --timeline.")  # fmt: skip
    check_serve(ctx, load, of_file=requests is not None, steady=steady, prefill_replicas=prefill_replicas)
    workload = Workload(isl, osl, spread, prefix, num_requests or 0, spacing, burstiness, seed)
    workload, notes = workload_of(workload, requests, load)
    specs = specs_of(
        config, on or [], engine,
        {"tp": tp, "pp": pp, "ep": ep, "dp": dp, "max_batched_tokens": max_batched_tokens},
        {"weights": weights, "kv": kv},
        engine_version=engine_version, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens, utilization=utilization,
        graph=False if eager else None, sampling=sampling, speculate=speculation_of(speculate, draft), draft=draft,
        dispatcher=dispatcher, nic=nic, gpus_per_node=gpus_per_node, states=states,
    )  # fmt: skip
    check_routing(ctx, load, specs, replicas, prefill_replicas)
    check_dispatcher(dispatcher, specs)
    notes += model_remarks(config)
    if weights is None:
        notes += stored_weights(config)[1]
    rules = (
        ("batch", batch_size),
        ("max_wait_s", None if max_wait is None else parse_duration(max_wait, place="--max-wait")),
        ("preemption", preemption),
        ("watermark", watermark),
    )
    link = None if kv_link is None else parse_quantity(kv_link, "B/s", place="--kv-link")
    fleet = Fleet(policy, rules, replicas, prefill_replicas, routing, link)
    study = Study(
        workload, fleet, load, values, None if slo is None else parse_slo(slo), percentiles_of(percentiles),
        math.nan if price_per_gpu_hour is None else price_per_gpu_hour, steady=steady, spread_start=spread_start,
    )  # fmt: skip
    outcomes = evaluate_all(specs, study, workers, scheduler, counted)
    points = [point for outcome in outcomes for point in outcome.points]
    if plot and points:  # there is none where work ended before any load was known
        draw(points, outcomes, study, plot, plot_kind)
    if timeline and points:
        draw_timeline(points[-1], timeline)
    destination.write(points_report(points, outcomes, study, notes, explain=explain, for_qps=for_qps))
    return _finish(outcomes, study)


def _finish(outcomes: Sequence[Outcome], study: Study) -> int:
    """Report impossible deployments on stderr; return the code of an interruption, or of objectives nobody meets.

    Raises
    ------
    WorkersLostError
        When the workers were lost before all was known.
    """
    from perfmodel.serving.study import end_of

    for outcome in outcomes:
        if outcome.fault:
            status(f"left out: {outcome.spec.name}: {outcome.fault}")
    met = any(outcome.largest or any(point.met for point in outcome.points) for outcome in outcomes)
    missed = BAD_FINDING if study.slo is not None and not met else 0
    return end_code(end_of(outcomes)) or missed
