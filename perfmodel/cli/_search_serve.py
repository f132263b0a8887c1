"""The command `search serve`: which deployment of a model serves most for its GPUs or money, and what limits each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._options import (
    SEEN,
    FormatOption,
    MachinesOption,
    OutputOption,
    PlotOption,
    SchedulerOption,
    TopOption,
    WideOption,
    WorkersOption,
    option,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot
from perfmodel.cli._serving_options import (
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
    SpreadOption,
)
from perfmodel.cli._sharing import end_code
from perfmodel.core.lists import list_items
from perfmodel.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from perfmodel.cli._serving_input import Spec
    from perfmodel.core.report import Report
    from perfmodel.serving.points import Point
    from perfmodel.serving.study import Outcome, Study

THROUGHPUT, COST, GPUS = "throughput", "cost", "gpus"
#: users who wait for a place raise the throughput by less than this share, and the time to the first token by seconds
_NO_MORE = 0.01
#: most GPUs that share experts where nobody says how many: those of most nodes
_MOST_SHARING = 8
#: what deployments can be ranked by: tokens a second and GPU, cost of a million tokens, GPUs for a given load
_RANKINGS = (THROUGHPUT, COST, GPUS)


def command(
    ctx: typer.Context,
    config: ModelArgument,
    on: MachinesOption = None,
    tp: Annotated[str, typer.Option("--tp", metavar="LIST", help="Tensor parallel GPUs to try.")] = "1..8",
    pp: Annotated[str, typer.Option("--pp", metavar="LIST", help="Pipeline stages to try.")] = "1",
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
            "experts also those that share them on up to 8 GPUs.",
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
    kv: Annotated[str, typer.Option("--kv", metavar="LIST", help="Formats of keys and values to try.")] = "bf16/fp8",
    max_batched_tokens: Annotated[
        str | None,
        option("--max-batched-tokens", "Budgets of tokens of a step (chunks) to try. Default: the engine's.", "LIST"),
    ] = None,
    batch: Annotated[
        str, typer.Option("--batch", metavar="LIST", help="Users to try; with --slo only the largest counts.")
    ] = "1..512",
    dispatcher: DispatcherOption = "",
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
    from perfmodel.cli._serving_checks import check_dispatcher, check_search
    from perfmodel.cli._serving_input import check_rate, specs_of, stored_weights, whole_numbers
    from perfmodel.serving.load import Fleet
    from perfmodel.serving.points import CONCURRENCY, Workload
    from perfmodel.serving.slo import parse_slo
    from perfmodel.serving.study import Study, end_of, evaluate_all

    destination = Destination.of("search serve", format_, output, wide=wide)
    check_plot(plot)
    check_rate(for_qps)
    costs = _prices(prices)
    by = _ranking(rank, costs, for_qps)
    found, remarks = (weights, ()) if weights is not None else stored_weights(config, "bf16/fp8")
    specs = specs_of(
        config, on or [], engine,
        {"tp": tp, "pp": pp, "ep": ep or "1", "dp": dp or "1", "max_batched_tokens": max_batched_tokens},
        {"weights": found, "kv": kv}, engine_version=engine_version, max_num_seqs=max_num_seqs,
        dispatcher=dispatcher,
    )  # fmt: skip
    if ep is None and dp is None:
        specs, sharing = _with_shared_experts(config, specs)
        remarks = (*remarks, *sharing)
    check_dispatcher(dispatcher, specs)
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
    outcomes = evaluate_all(specs, study, workers, scheduler, counted)
    rows = _ranked(outcomes, study, costs, by, for_qps)
    if plot and rows:
        from perfmodel.render.plots import plot as drawn

        every = [point for outcome in outcomes for point in outcome.points]
        points = [row["point"] for row in rows]
        save_plot(drawn(every or points, chosen=tuple(points[:1])), plot)
    destination.write(_report(rows, outcomes, study, by, for_qps, top, (*remarks, *_priceless(names, costs, by))))
    missed = BAD_FINDING if not rows and study.slo is not None else 0
    return end_code(end_of(outcomes)) or missed


def _with_shared_experts(model: str, specs: Sequence[Spec]) -> tuple[list[Spec], tuple[str, ...]]:
    """Return deployments and, of a model with experts, those whose GPUs share them, with a note.

    Engines share experts among all GPUs of a stage (vLLM's ``--enable-expert-parallel``): ep = tp x dp. Copies of the
    attention without shared experts are replicas, and are left to ``--dp``.
    """
    from perfmodel.workloads.catalog import find_model

    experts = find_model(model).experts
    if not experts:
        return list(specs), ()
    shared = [
        replace(spec, ep=spec.tp * dp, dp=dp)
        for spec in specs
        for dp in (1, 2, 4, 8)
        if 1 < spec.tp * dp <= _MOST_SHARING and experts % (spec.tp * dp) == 0
    ]
    note = (
        "Experts were also tried on all GPUs of a stage (ep = tp x dp), with dp up to 8 GPUs: --ep and --dp try others."
    )
    return [*specs, *shared], (note,) if shared else ()


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


def _priceless(machines: Iterable[str], prices: Mapping[str, float], by: str) -> tuple[str, ...]:
    """Return a note that names the machines without a price, where others have one."""
    without = [name for name in machines if prices and "" not in prices and name not in prices]
    if not without:
        return ()
    rank = " and rank last" if by == COST else ""
    added = ",".join(f"{name}=PRICE" for name in without)
    return (
        f"No price of {', '.join(without)}: deployments there have no cost{rank}. Add {added} to --price-per-gpu-hour.",
    )


def _machine_name(name: str) -> str:
    from perfmodel.hardware_catalog import hardware

    return hardware(name).name


def _ranking(rank: str | None, prices: Mapping[str, float], for_qps: float | None) -> str:
    if rank is None:
        return COST if prices else GPUS if for_qps else THROUGHPUT
    if rank not in _RANKINGS:
        raise unknown_name("ranking", rank, _RANKINGS, place="--rank")
    missing = {COST: not prices, GPUS: not for_qps}.get(rank, False)
    if missing:
        needed = "--price-per-gpu-hour" if rank == COST else "--for-qps"
        raise UsageError(f"ranking by {rank} needs {needed}.", place="--rank", remedy=f"Add {needed}.")
    return rank


def _ranked(
    outcomes: Sequence[Outcome], study: Study, prices: Mapping[str, float], by: str, for_qps: float | None
) -> list[dict[str, Any]]:
    """Return the best point of each deployment with its row, the best deployment first."""
    from perfmodel.serving.load_report import deployment_name, row_of

    chosen = []
    for outcome in outcomes:
        best = outcome.largest
        if study.slo is None and outcome.points:
            most = max(point.tokens_per_s_per_gpu for point in outcome.points)
            enough = (point for point in outcome.points if point.tokens_per_s_per_gpu >= (1.0 - _NO_MORE) * most)
            best = min(enough, key=lambda point: point.value)
        if best is not None:
            price = prices.get(str(best.facts["hardware"]), prices.get("", math.nan))
            chosen.append((replace(best, price_per_gpu_hour=price), outcome))
    facts = [point.facts for point, _ in chosen]
    rows = []
    for point, outcome in chosen:
        row = row_of(point, deployment_name(point.facts, facts))
        row["plan"] = {key: point.facts[key] for key in ("hardware", "tp", "pp", "ep", "dp", "weights", "kv",
                                                         "max_batched_tokens")}  # fmt: skip
        row["stops_at"] = _stop(point, outcome, study)
        row["gpus_for_load"] = point.gpus_for(for_qps) if for_qps else None
        row["point"] = point
        rows.append(row)
    rows.sort(key=lambda row: _key(row, by))
    return [{"rank": number, **row} for number, row in enumerate(rows, start=1)]


def _key(row: Mapping[str, Any], by: str) -> tuple[float, float]:
    throughput = -float(row["tokens_per_s_per_gpu"])
    if by == COST:
        cost = row.get("cost_per_million_tokens")
        return (math.inf if cost is None or math.isnan(cost) else cost, throughput)
    return (float(row["gpus_for_load"]), throughput) if by == GPUS else (throughput, 0.0)


def _stop(point: Point, outcome: Outcome, study: Study) -> str:
    """Return what keeps a deployment from serving more users: an objective, the cache, or the end of the range."""
    if outcome.beyond:
        return " and ".join(text.partition(" <=")[0] for text in outcome.beyond)
    if point.state["mean_queued"] > 0.5 or point.state["kv_share"] > 0.9:
        return "KV cache"
    if point.value >= max(study.values):
        return "--batch"
    return f"{point.limiter}"


def _report(
    rows: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Outcome],
    study: Study,
    by: str,
    for_qps: float | None,
    top: int | None,
    remarks: tuple[str, ...],
) -> Report:
    from perfmodel.core.report import Column, Report

    shown = [{key: value for key, value in row.items() if key != "point"} for row in rows[:top]]
    seen = shown[: top or SEEN]
    rest = f"{len(rows) - len(seen)} more deployments: --top {len(rows)} lists them." if len(rows) > len(seen) else ""
    priced = any("cost_per_million_tokens" in row for row in shown)
    columns = (
        Column("rank", "#"),
        Column("deployment", ""),
        Column("gpus", "GPUs", drop=5),
        Column("concurrency", "users", digits=3),
        Column("ttft_s", "TTFT", "s", show=lambda value: _mean(value)),
        Column("tpot_s", "TPOT", "s", show=lambda value: _mean(value)),
        Column("output_tokens_per_s", "tok/s", digits=4, drop=4),
        Column("tokens_per_s_per_gpu", "tok/s/GPU", digits=4),
        Column("cost_per_million_tokens", "cost/Mtok", digits=3, shown=priced),
        Column("requests_per_money", "req/money", digits=3, shown=priced, drop=6),
        Column("gpus_for_load", f"for {for_qps:g}/s" if for_qps else "", shown=for_qps is not None),
        Column("limiter", drop=1),
        Column("stops_at", "stops at", drop=2),
    )
    title = f"Deployments of {outcomes[0].spec.model}, ranked by {by}: {study.workload.isl:g} + {study.workload.osl:g}"
    return Report(
        "search serve", columns, shown,
        context(
            hardware=list(dict.fromkeys(str(row["hardware"]) for row in shown)),
            model=outcomes[0].spec.model,
            slo=None if study.slo is None else str(study.slo),
            ranked_by=by,
        ),
        (*remarks, *_notes(rows, outcomes, study)), f"{title} tokens", people_rows=seen, unlisted=rest,
        decision=_decision(rows, study),
    )  # fmt: skip


def _mean(value: Mapping[str, float]) -> str:
    from perfmodel.core.units import format_si

    return format_si(value["mean"], "s", 3)


def _decision(rows: Sequence[Mapping[str, Any]], study: Study) -> str:
    if not rows:
        return f"No deployment meets {study.slo}." if study.slo else ""
    from perfmodel.core.units import format_si
    from perfmodel.serving.load_report import whole_name

    best = rows[0]
    goal = f" within {study.slo}" if study.slo else ""
    return (
        f"{whole_name(best['plan'])} serves {best['concurrency']:.0f} users at once{goal}: "
        f"{format_si(best['tokens_per_s_per_gpu'], '')} tokens/s a GPU."
    )


def _notes(rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], study: Study) -> tuple[str, ...]:
    from perfmodel.cli._serving_report import elsewhere_notes, support_notes, unequal_notes

    faults = Counter(outcome.fault for outcome in outcomes if outcome.fault)
    notes = [f"Impossible ({count}): {fault}" for fault, count in faults.most_common(3)]
    if len(faults) > len(notes):
        notes.append(f"{sum(faults.values())} of {len(outcomes)} deployments are impossible.")
    ended = sum(outcome.ended is not None for outcome in outcomes)
    if ended:
        notes.append(f"Interrupted: {ended} of {len(outcomes)} deployments are not known, and may be better.")
    missing = len(outcomes) - sum(faults.values()) - len(rows) - ended
    if study.slo is not None and missing:
        notes.append(f"{missing} of {len(outcomes)} deployments miss the objectives even with one user.")
    if not study.steady:
        spread = study.workload.spread
        behind = " behind the prefix" if study.workload.cached else ""
        notes.append(
            f"The load is that of `serve --spread-start --length-spread {spread:g}`: users start one after the other, "
            f"and lengths{behind} are within {spread:.0%} of their means."
        )
    notes += support_notes(outcomes)
    notes += (*elsewhere_notes(outcomes), *unequal_notes(outcomes))
    notes.append("limiter: what the mean step waits for; stops at: what keeps the deployment from more users.")
    return tuple(notes)
