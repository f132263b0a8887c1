"""The ranking that `search serve` makes of deployments, and its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.cli._output import context
from perfmodel.cli._serving_input import Spec
from perfmodel.cli._serving_report import absent_notes, elsewhere_notes, hosts_notes, support_notes, unequal_notes
from perfmodel.core.report import Report
from perfmodel.core.saved import SEEN
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError, unknown_name
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.load_report import deployment_name, ranking_columns, row_of, whole_name
from perfmodel.serving.points import Point, cost_per_million, facts_of
from perfmodel.serving.reasons import reasons_of
from perfmodel.serving.steady import steady
from perfmodel.serving.study import Outcome, Study

#: what deployments can be ranked by: tokens a second and GPU, cost of a million tokens, GPUs for a given load
THROUGHPUT, COST, GPUS = "throughput", "cost", "gpus"
_RANKINGS = (THROUGHPUT, COST, GPUS)
#: mean of the answers that are drawn over that which is asked for, at least
_SHORTEST = 0.9
#: users who wait for a place raise the throughput by less than this share, and the time to the first token by seconds
_NO_MORE = 0.01
#: reasons of impossible deployments that are listed
_REASONS = 3


def ranking_of(rank: str | None, prices: Mapping[str, float], for_qps: float | None) -> str:
    """Return what deployments are ranked by: cost where prices are known, GPUs for a given load, else throughput.

    Raises
    ------
    UsageError
        When there is no such ranking, or it needs a price or a load.
    """
    if rank is None:
        return COST if prices else GPUS if for_qps else THROUGHPUT
    if rank not in _RANKINGS:
        raise unknown_name("ranking", rank, _RANKINGS, place="--rank")
    missing = {COST: not prices, GPUS: not for_qps}.get(rank, False)
    if missing:
        needed = "--price-per-gpu-hour" if rank == COST else "--for-qps"
        raise UsageError(f"ranking by {rank} needs {needed}.", place="--rank", remedy=f"Add {needed}.")
    return rank


def ranked(
    outcomes: Sequence[Outcome], study: Study, prices: Mapping[str, float], by: str, for_qps: float | None
) -> list[dict[str, Any]]:
    """Return the best point of each deployment with its row, the best deployment first."""
    chosen = []
    for outcome in outcomes:
        best = outcome.largest
        if study.slo is None and outcome.points:
            most = max(point.tokens_per_s_per_gpu for point in outcome.points)
            enough = (point for point in outcome.points if point.tokens_per_s_per_gpu >= (1.0 - _NO_MORE) * most)
            best = min(enough, key=lambda point: point.value)
        if best is not None:
            price = _price(prices, str(best.facts["hardware"]))
            chosen.append((replace(best, price_per_gpu_hour=price), outcome))
    facts = [point.facts for point, _ in chosen]  # a name says what differs, also from deployments that are not known
    facts += [facts_of(outcome.spec.deployment(), study.fleet) for outcome in outcomes if outcome.aside]
    rows = []
    for point, outcome in chosen:
        row = row_of(point, deployment_name(point.facts, facts))
        row["plan"] = {key: point.facts[key] for key in ("hardware", "tp", "pp", "ep", "dp", "weights", "kv",
                                                         "max_batched_tokens")}  # fmt: skip
        row["stops_at"] = _stop(point, outcome, study)
        row["gpus_for_load"] = point.gpus_for(for_qps) if for_qps else None
        row["point"] = point
        rows.append(row)
    rows.sort(key=lambda row: _key(row["point"], by, for_qps))
    return [{"rank": number, **row} for number, row in enumerate(rows, start=1)]


def _price(prices: Mapping[str, float], machine: str) -> float:
    return prices.get(machine, prices.get("", math.nan))


def _key(point: Point, by: str, for_qps: float | None) -> tuple[float, float]:
    gpus = float(point.gpus_for(for_qps)) if for_qps else math.nan
    return _rank(by, point.tokens_per_s_per_gpu, point.cost_per_million_tokens, gpus)


def _rank(by: str, tokens_per_s_per_gpu: float, cost: float, gpus: float) -> tuple[float, float]:
    """Return what deployments are sorted by; the best one has the smallest."""
    throughput = -tokens_per_s_per_gpu
    if by == COST:
        return (math.inf if math.isnan(cost) else cost, throughput)
    return (gpus, throughput) if by == GPUS else (throughput, 0.0)


@dataclass(frozen=True)
class First:
    """The first deployments of a ranking: a `perfmodel.serving.foremost.Goal`.

    Attributes
    ----------
    count : how many.
    by, for_qps : what they are ranked by.
    gpus, prices : of each deployment by its place: its GPUs, and the price of one of them.
    osl : tokens of an answer.
    """

    count: int
    by: str
    for_qps: float | None
    gpus: Sequence[int]
    prices: Sequence[float]
    osl: float

    @classmethod
    def of(
        cls,
        count: int,
        specs: Sequence[Spec],
        study: Study,
        prices: Mapping[str, float],
        by: str,
        for_qps: float | None,
    ) -> First:
        """Return the first deployments of the ranking that `ranked` makes."""
        costs = [_price(prices, hardware(spec.machine).name) for spec in specs]
        gpus = [spec.parallel.gpus * study.fleet.replicas for spec in specs]
        return cls(count, by, for_qps, gpus, costs, study.workload.osl)

    def rank(self, place: int, point: Point) -> tuple[float, float]:
        """Return the rank of a deployment's largest load, by its place among the deployments."""
        return _key(replace(point, price_per_gpu_hour=self.prices[place]), self.by, self.for_qps)

    def best_rank(self, place: int, output_tokens_per_s: float) -> tuple[float, float]:
        """Return a rank that a load of a deployment with so many tokens of answers a second is not before."""
        gpus = self.gpus[place]
        needed = math.nan
        if self.for_qps:
            requests_per_s = output_tokens_per_s / (_SHORTEST * self.osl)
            needed = gpus * math.ceil(self.for_qps / requests_per_s - 1e-9)
        cost = cost_per_million(self.prices[place], gpus, output_tokens_per_s)
        return _rank(self.by, output_tokens_per_s / gpus, cost, needed)


def _stop(point: Point, outcome: Outcome, study: Study) -> str:
    """Return what keeps a deployment from serving more users: an objective, the cache, or the end of the range."""
    if outcome.beyond:
        return " and ".join(text.partition(" <=")[0] for text in outcome.beyond)
    if point.state["mean_queued"] > 0.5 or point.state["kv_share"] > 0.9:
        return "KV cache"
    if point.value >= max(study.values):
        return "--batch"
    return f"{point.limiter}"


def priceless_notes(machines: Iterable[str], prices: Mapping[str, float], by: str) -> tuple[str, ...]:
    """Return a note that names the machines without a price, where others have one."""
    without = [name for name in machines if prices and "" not in prices and name not in prices]
    if not without:
        return ()
    rank = " and rank last" if by == COST else ""
    added = ",".join(f"{name}=PRICE" for name in without)
    return (
        f"No price of {', '.join(without)}: deployments there have no cost{rank}. Add {added} to --price-per-gpu-hour.",
    )


def ranking_report(
    rows: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Outcome],
    study: Study,
    by: str,
    for_qps: float | None,
    top: int | None,
    remarks: tuple[str, ...],
) -> Report:
    """Return the report of ranked deployments; of a list without ``top`` people see the first `SEEN`."""
    shown = [{key: value for key, value in row.items() if key != "point"} for row in rows[:top]]
    seen = shown[: top or SEEN]
    rest = f"{len(rows) - len(seen)} more deployments: --top {len(rows)} lists them." if len(rows) > len(seen) else ""
    if any(outcome.aside for outcome in outcomes):  # of which some may be behind the rows that are not shown
        rest = ""
    lengths = f"{study.workload.isl:.12g} + {study.workload.osl:.12g}"
    title = f"Deployments of {outcomes[0].spec.model}, ranked by {by}: {lengths}"
    decision = _decision(rows, outcomes, study)
    return Report(
        "search serve", ranking_columns(shown, for_qps), shown,
        context(
            hardware=list(dict.fromkeys(str(row["hardware"]) for row in shown)),
            model=outcomes[0].spec.model,
            slo=None if study.slo is None else str(study.slo),
            ranked_by=by,
            decision=decision,
        ),
        (*remarks, *_notes(rows, outcomes, study)), f"{title} tokens", people_rows=seen, unlisted=rest,
        decision=decision,
    )  # fmt: skip


def _decision(rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], study: Study) -> str:
    if not rows:
        return f"No deployment meets {study.slo}{_nearest(outcomes, study)}." if study.slo else ""
    best = rows[0]
    goal = f" within {study.slo}" if study.slo else ""
    return (
        f"{whole_name(best['plan'])} serves {best['concurrency']:.0f} users at once{goal}: "
        f"{format_si(best['tokens_per_s_per_gpu'], '')} tokens/s a GPU."
    )


def _nearest(outcomes: Sequence[Outcome], study: Study) -> str:
    """Return the lowest means that deployments have with a single user, for objectives that none meets."""
    load = study.workload
    lowest: dict[str, tuple[float, str]] = {}
    for outcome in outcomes:
        if outcome.fault or outcome.ended:
            continue
        alone = steady(
            outcome.spec.deployment(),
            load.isl,
            load.osl,
            concurrency=1.0,
            prefix=float(load.cached),
            spread=load.spread,
        )
        for name, mean in (("TTFT", alone.ttft_s), ("TPOT", alone.tpot_s)):
            lowest[name] = min(lowest.get(name, (math.inf, "")), (float(mean), outcome.spec.name))
    told = [f"{name} {format_si(time, 's', 3)} ({spec})" for name, (time, spec) in lowest.items() if time < math.inf]
    return f"; the lowest means of one user are {' and '.join(told)}" if told else ""


def _impossible_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Count the deployments that are impossible by their reasons; of several alike the one with most GPUs is shown."""
    reasons = reasons_of(outcomes)
    notes = []
    for reason in reasons[:_REASONS]:
        of_one = f"; {reason.of_one}" if reason.of_one else ""
        notes.append(f"Impossible ({reason.count}{of_one}): {reason.text}")
    if len(reasons) > len(notes):
        notes.append(f"{sum(reason.count for reason in reasons)} of {len(outcomes)} deployments are impossible.")
    return tuple(notes)


def _notes(rows: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome], study: Study) -> tuple[str, ...]:
    impossible = sum(bool(outcome.fault) for outcome in outcomes)
    notes = [*_impossible_notes(outcomes)]
    ended = sum(outcome.ended is not None and outcome.largest is None for outcome in outcomes)
    if ended:
        notes.append(f"Interrupted: {ended} of {len(outcomes)} deployments are not known, and may be better.")
    aside = sum(outcome.aside for outcome in outcomes)
    if aside:
        notes.append(
            f"{aside} of {len(outcomes)} deployments cannot be among these, and their largest loads are not known: "
            "--format json and csv have all, and so has a larger --top."
        )
    missing = len(outcomes) - impossible - len(rows) - ended - aside
    if study.slo is not None and missing:
        notes.append(f"{missing} of {len(outcomes)} deployments miss the objectives even with one user.")
    if not study.steady:
        spread = study.workload.spread
        behind = " behind the prefix" if study.workload.cached else ""
        notes.append(
            f"The load is that of `serve --spread-start --length-spread {spread:g}`: users start one after the other, "
            f"and lengths{behind} are within {100 * spread:.4g} % of their means."
        )
    largest = [outcome.largest for outcome in outcomes if outcome.largest]
    notes += (*absent_notes(largest, study), *support_notes(outcomes), *hosts_notes(outcomes))
    notes += (*elsewhere_notes(outcomes), *unequal_notes(outcomes))
    notes.append("limiter: what the mean step waits for; stops at: what keeps the deployment from more users.")
    return tuple(notes)
