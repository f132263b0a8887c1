"""The command `search serve`: which deployment of a model serves most for its GPUs or money, and what limits each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import typer

from perfmodel.cli._options import (
    FormatOption,
    MachinesOption,
    NicOption,
    NodeOption,
    OutputOption,
    PlotOption,
    SchedulerOption,
    SpreadOption,
    TopOption,
    WideOption,
    WorkersOption,
    option,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, save_plot
from perfmodel.cli._serving_options import (
    BatchOverlapOption,
    DispatcherOption,
    EngineOption,
    EngineVersionOption,
    IslOption,
    MaxNumSeqsOption,
    ModelArgument,
    NumRequestsOption,
    OslOption,
    PolicyOption,
    PrefixOption,
    SeedOption,
    SloOption,
    StatesOption,
    UtilizationOption,
)
from perfmodel.cli._sharing import end_code
from perfmodel.core.lists import list_items
from perfmodel.core.saved import SEEN
from perfmodel.errors import UsageError


def command(
    ctx: typer.Context,
    config: ModelArgument,
    on: MachinesOption = None,
    tp: Annotated[str, typer.Option("--tp", metavar="LIST", help="Tensor parallel GPUs to try.")] = "1..8",
    pp: Annotated[
        str | None,
        option(
            "--pp",
            "Pipeline stages to try. Default: 1; also 2 to 16 where --gpus exceeds a node, or one stage does not hold "
            "the weights.",
            "LIST",
        ),
    ] = None,
    ep: Annotated[
        str | None,
        option(
            "--ep",
            "GPUs that share the experts, to try. Default: 1; of a model with experts also all of a stage, tp x dp.",
            "LIST",
        ),
    ] = None,
    dp: Annotated[
        str | None,
        option(
            "--dp",
            "Copies of the attention to try. Default: 1; of a model with "
            "experts also those that share them on up to 8 GPUs, or --gpus.",
            "LIST",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        option("--gpus", "Most GPUs of a deployment.", min=1),
    ] = None,
    weights: Annotated[
        str | None,
        option(
            "--weights",
            "Formats of the weights to try: bf16/fp8/int4. Default: that of "
            "a quantised checkpoint, as its config says, else bf16/fp8.",
            "LIST",
        ),
    ] = None,
    kv: Annotated[
        str | None,
        option("--kv", "Formats of keys and values to try. Default: bf16/fp8, of a model that keeps any.", "LIST"),
    ] = None,
    max_batched_tokens: Annotated[
        str | None,
        option("--max-batched-tokens", "Budgets of tokens of a step (chunks) to try. Default: the engine's.", "LIST"),
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", metavar="LIST", help="Users to try; with --slo only the largest counts.")
    ] = "1..512",
    dispatcher: DispatcherOption = "",
    batch_overlap: BatchOverlapOption = False,
    nic: NicOption = None,
    gpus_per_node: NodeOption = None,
    engine: EngineOption = "vllm",
    engine_version: EngineVersionOption = "",
    isl: IslOption = 1024,
    osl: OslOption = 256,
    spread: SpreadOption = 0.2,
    prefix: PrefixOption = 0,
    num_requests: NumRequestsOption = None,
    seed: SeedOption = 0,
    slo: SloOption = None,
    prices: Annotated[
        str | None,
        option(
            "--price-per-gpu-hour",
            "Price of one GPU for an hour: 2.5, or for each machine: h100=2.5,h200=3.5.",
            "PRICES",
        ),
    ] = None,
    for_qps: Annotated[
        float | None,
        option("--for-qps", "Requests a second to be served: adds the GPUs for them.", "RATE", min=0),
    ] = None,
    rank: Annotated[
        str | None,
        option(
            "--rank",
            "throughput (tokens/s a GPU), cost (of a million tokens) or gpus "
            "(for --for-qps). Default: cost with prices, gpus with --for-qps, else throughput.",
            "BY",
        ),
    ] = None,
    policy: PolicyOption = "",
    max_num_seqs: MaxNumSeqsOption = None,
    utilization: UtilizationOption = None,
    states: StatesOption = "",
    top: TopOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
    plot: PlotOption = None,
) -> int:
    """Search machines, parallel plans, chunks and formats for the deployment that serves most, and say what limits it.

    With --slo each deployment is simulated with the most users for whom it meets the objectives; they start one after
    the other (exit code 1 if no deployment does). Without, the formula of the steady state gives the number of users
    with the most tokens a second.

    Example: perfmodel search serve llama-3.1-8b --on h100,h200 --isl 1024 --osl 256 --slo ttft=500ms,tpot=20ms
    """
    from perfmodel.cli._progress import counted
    from perfmodel.cli._search_plans import formats_of_keys, with_shared_experts, with_stages
    from perfmodel.cli._serving_checks import check_dispatcher, check_search, with_overlap
    from perfmodel.cli._serving_input import (
        check_rate,
        model_remarks,
        specs_of,
        stored_weights,
        told_release,
        whole_numbers,
    )
    from perfmodel.cli._serving_ranking import First, priceless_notes, ranked, ranking_of, ranking_report
    from perfmodel.serving.evaluations import end_of, evaluate_all
    from perfmodel.serving.foremost import evaluate_foremost
    from perfmodel.serving.load import Fleet
    from perfmodel.serving.points import CONCURRENCY, Workload
    from perfmodel.serving.slo import parse_slo
    from perfmodel.serving.study import Study

    destination = Destination.of("search serve", format_, output, wide=wide)
    check_plot(plot)
    check_rate(for_qps)
    costs = _prices(prices)
    by = ranking_of(rank, costs, for_qps)
    found, remarks = (weights, ()) if weights is not None else stored_weights(config, "bf16/fp8")
    release, told = told_release(engine, engine_version)
    plans = {name: "1" if sizes is None else sizes for name, sizes in {"pp": pp, "ep": ep, "dp": dp}.items()}
    specs = specs_of(
        config, on or [], engine,
        {"tp": tp, **plans, "max_batched_tokens": max_batched_tokens},
        {"weights": found, "kv": formats_of_keys(config) if kv is None else kv},
        engine_version=release, max_num_seqs=max_num_seqs, dispatcher=dispatcher, nic=nic,
        gpus_per_node=gpus_per_node, utilization=utilization, states=states,
    )  # fmt: skip
    if ep is None and dp is None:
        specs, sharing = with_shared_experts(config, specs, gpus)
        remarks = (*remarks, *sharing)
    if pp is None:
        specs, stages = with_stages(config, specs, gpus)
        remarks = (*remarks, *stages)
    check_dispatcher(dispatcher, specs)
    specs = with_overlap(batch_overlap, specs)
    specs = [spec for spec in specs if gpus is None or spec.tp * spec.pp * spec.dp <= gpus]
    if not specs:
        raise UsageError(f"every deployment needs more than {gpus} GPUs.", place="--gpus", remedy="Lower --tp or --pp.")
    names = dict.fromkeys(_machine_name(spec.machine) for spec in specs)
    check_search(ctx, simulated=slo is not None, machines=tuple(names), priced=costs)
    users = tuple(map(float, whole_numbers(batch, "--batch")))
    workload = Workload(isl, osl, spread, prefix, num_requests or 0, seed=seed)
    objectives = None if slo is None else parse_slo(slo)
    study = Study(
        workload, Fleet(policy), CONCURRENCY, users, objectives, steady=objectives is None, only_largest=True,
        spread_start=True, runnable=True,
    )  # fmt: skip
    listed = top or (None if destination.holds_every_row else SEEN)
    if objectives is None or listed is None or listed >= len(specs) or plot:
        outcomes = evaluate_all(specs, study, workers, scheduler, counted)
    else:
        first = First.of(listed, specs, study, costs, by, for_qps)
        outcomes = evaluate_foremost(specs, study, first, workers, scheduler, counted)
    rows = ranked(outcomes, study, costs, by, for_qps)
    if plot and rows:
        from perfmodel.render.plots import plot as drawn

        every = [point for outcome in outcomes for point in outcome.points]
        points = [row["point"] for row in rows]
        save_plot(drawn(every or points, chosen=tuple(points[:1])), plot)
    remarks = (*told, *model_remarks(config), *remarks, *priceless_notes(names, costs, by))
    destination.write(ranking_report(rows, outcomes, study, by, for_qps, top, remarks))
    missed = BAD_FINDING if not rows and study.slo is not None else 0
    return end_code(end_of(outcomes)) or missed


def _prices(text: str | None) -> Mapping[str, float]:
    """Return machine -> price of a GPU-hour; the price under "" is that of all others."""
    prices: dict[str, float] = {}
    for part in list_items(text, ",", place="--price-per-gpu-hour") if text else ():
        name, equals, number = part.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not 0 < price < math.inf:
            raise UsageError(
                f"{part!r} is no price.", place="--price-per-gpu-hour", remedy="Write 2.5, or h100=2.5,h200=3."
            )
        prices[_machine_name(name.strip()) if equals else ""] = price
    return prices


def _machine_name(name: str) -> str:
    from perfmodel.hardware_catalog import hardware

    return hardware(name).name
