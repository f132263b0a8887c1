"""What `serve` and `search serve` add to a table of points: the largest load, cost, memory, and the decision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.cli._output import context
from perfmodel.core.report import Report, report
from perfmodel.core.units import format_count, format_si, network_text
from perfmodel.prediction.topology import nic_rate
from perfmodel.serving.laboratories import because
from perfmodel.serving.load_report import LARGEST, deployment_name, load_name, terms_report
from perfmodel.serving.points import CONCURRENCY, QPS, Point
from perfmodel.serving.stability import LONG
from perfmodel.serving.support import objections, remarks

if TYPE_CHECKING:
    from perfmodel.serving.study import Outcome, Study

#: from so many users on, their start together is worth a sentence
_FEW_USERS = 4


def largest_report(outcomes: Sequence[Outcome]) -> Report:
    """Return the largest load of each deployment that meets the objectives."""
    kept = [outcome for outcome in outcomes if outcome.largest]
    table = report([outcome.largest for outcome in kept], title=LARGEST)
    rows = [{**row, "missed_beyond": list(outcome.beyond)} for row, outcome in zip(table.rows, kept, strict=True)]
    return replace(table, rows=rows, notes=())


def memory_reports(outcomes: Sequence[Outcome]) -> dict[str, Report]:
    """Return the memory of each deployment that is possible, by a key of its own."""
    possible = [outcome for outcome in outcomes if not outcome.fault]
    tables = {}
    for number, outcome in enumerate(possible, start=1):
        key = "memory" if len(possible) == 1 else f"memory_{number}"
        table = report(outcome.spec.deployment().memory())
        tables[key] = table if len(possible) == 1 else replace(table, title=f"{table.title}: {outcome.spec.name}")
    return tables


def elsewhere_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Say by how much the intervals are wider than those of the laboratories whose runs set the constants."""
    points = (point for outcome in outcomes for point in (*outcome.points, outcome.largest) if point)
    arriving = any(point.replay is not None and point.load != CONCURRENCY for point in points)
    known = (outcome.spec.deployment().elsewhere for outcome in outcomes if not outcome.fault)
    return tuple(dict.fromkeys(filter(None, (because(one, arriving=arriving) for one in known))))


def unequal_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Say that machines are ranked whose runs differed from their predictions by unlike factors."""
    machines: dict[float, dict[str, None]] = {}
    for outcome in outcomes:
        if not outcome.fault:
            deployment = outcome.spec.deployment()
            machines.setdefault(deployment.elsewhere.middle, {})[deployment.hardware.name] = None
    if len(machines) < 2:
        return ()
    surer, other = min(machines), max(machines)
    return (
        f"Machines whose runs differ by unlike factors are ranked together: those on {', '.join(machines[surer])} took "
        f"{surer:.2f} times as long as predicted in the middle of their interval, those on "
        f"{', '.join(machines[other])} {other:.2f}. A lead of the latter below {other / surer:.2f} times is none.",
    )


def eager_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Say how long the host launches the kernels of a step where there is no CUDA graph, which is a floor of steps."""
    notes = []
    for outcome in outcomes:
        deployment = None if outcome.fault else outcome.spec.deployment()
        if deployment is not None and (launches_s := float(deployment.host.launches_s(1.0))):
            launches = format_si(launches_s, "s", 3)
            notes.append(
                f"{outcome.spec.name}: without CUDA graphs the host launches the kernels of a step in {launches}: no "
                "step is shorter."
            )
    return tuple(notes)


def hosts_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Say which machines' GPUs exchange in each layer over several hosts, and how fast their network is."""
    hosts: dict[tuple[str, str], set[int]] = {}
    for outcome in outcomes:
        deployment = None if outcome.fault else outcome.spec.deployment()
        if deployment is not None and deployment.hosts > 1:
            key = deployment.hardware.name, network_text(nic_rate(deployment.machine) or math.nan)
            hosts.setdefault(key, set()).add(deployment.hosts)
    return tuple(
        f"Layers over {' and '.join(map(str, sorted(counts)))} hosts of {machine} exchange at {rate} a GPU (--nic). "
        "No run that set the constants of an engine crossed a network."
        for (machine, rate), counts in hosts.items()
    )


def support_notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Say what the engine or the machine of a deployment does not have."""
    possible = (outcome.spec.deployment() for outcome in outcomes if not outcome.fault)
    return tuple(dict.fromkeys(text for each in possible for text in (*objections(each), *remarks(each))))


def load_notes(points: Sequence[Point], for_qps: float | None) -> tuple[str, ...]:
    """Return in sentences how many GPUs serve a rate of requests."""
    if not for_qps or not points:
        return ()
    facts = [point.facts for point in points]
    fewest = min(points, key=lambda point: (point.gpus_for(for_qps), -point.tokens_per_s_per_gpu))
    return (
        f"{for_qps:g} requests/s need {format_count(fewest.gpus_for(for_qps), 'GPU')}: "
        f"{fewest.gpus_for(for_qps) // fewest.gpus} x {deployment_name(fewest.facts, facts)} at {load_name(fewest)} "
        "each.",
    )


def _count_notes(points: Sequence[Point], study: Study) -> tuple[str, ...]:
    """Say that loads near the capacity have more requests than others."""
    counts = {len(point.replay.requests) for point in points if point.replay is not None}
    if study.load != QPS or study.workload.count or LONG not in counts:
        return ()
    return (
        f"Loads near the capacity have {LONG:,} requests, since it takes long until they pile up: --num-requests says "
        "how many all have.",
    )


def _few_notes(points: Sequence[Point], study: Study) -> tuple[str, ...]:
    """Say of the load with most users that it has fewer requests than users, where one has."""
    few = [
        point
        for point in points
        if study.load == CONCURRENCY and point.replay is not None and len(point.replay.requests) < point.value
    ]
    if not few:
        return ()
    most = max(few, key=lambda point: point.value)
    requests = format_count(len(most.replay.requests) if most.replay else 0, "request")
    return (f"{most.value:.0f} users send {requests} in all, as --num-requests says: some of them none.",)


def absent_notes(points: Sequence[Point], study: Study) -> tuple[str, ...]:
    """Say that objectives of further tokens are met where no answer has any."""
    names = [item.name for item in study.slo.objectives if item.name in ("tpot", "itl")] if study.slo else []
    if not (names and points) or any(point.osl > 1 for point in points):
        return ()
    return (f"No answer has a second token, so that there is no {' and no '.join(names)}: such an objective is met.",)


def _start_notes(points: Sequence[Point], study: Study) -> tuple[str, ...]:
    """Say that the first prompts of a closed loop wait for each other, which its means and percentiles contain."""
    together = study.load == CONCURRENCY and not study.spread_start and not study.steady
    if not together or all(point.value < _FEW_USERS for point in points):
        return ()
    return (
        "All users start at once, as in a benchmark, so that their first prompts queue: --spread-start leaves this out "
        "of TTFT and of the largest load, as `search serve` does.",
    )


def decision(outcomes: Sequence[Outcome], study: Study) -> str:
    """Return which deployment meets the objectives with the most tokens a second and GPU; empty without objectives."""
    from perfmodel.serving.study import CAPACITY

    if study.slo is None:
        return ""
    good = [outcome.largest for outcome in outcomes if outcome.largest]
    good = good or [point for outcome in outcomes for point in outcome.points if point.met]
    if not good:
        return f"No deployment meets {study.slo}{_nearest(outcomes)}."
    facts = [outcome.points[0].facts if outcome.points else outcome.largest.facts  # type: ignore[union-attr]
             for outcome in outcomes if outcome.points or outcome.largest]  # fmt: skip
    best = max(good, key=lambda point: point.tokens_per_s_per_gpu)
    beyond = next((outcome.beyond for outcome in outcomes if outcome.largest is best), None)
    why = "" if beyond is None else "; no larger load was tried"
    if beyond:
        why = "; beyond, requests pile up" if beyond == (CAPACITY,) else f"; beyond, {' and '.join(beyond)} is missed"
    return (
        f"{deployment_name(best.facts, facts)} meets {study.slo} up to {load_name(best)}: "
        f"{format_si(best.tokens_per_s_per_gpu, '')} tokens/s a GPU, goodput {format_si(best.goodput_per_s, '', 3)} "
        f"requests/s{why}."
    )


def _nearest(outcomes: Sequence[Outcome]) -> str:
    """Return the lowest latencies of all points, for objectives that no deployment meets."""
    points = [point for outcome in outcomes for point in outcome.points]
    if not points:
        return ", not even with one user"
    ttft, tpot = (min(point.figures[name]["mean"] for point in points) for name in ("ttft_s", "tpot_s"))
    return f"; the lowest means are TTFT {format_si(ttft, 's', 3)} and TPOT {format_si(tpot, 's', 3)}"


def points_report(
    points: Sequence[Point],
    outcomes: Sequence[Outcome],
    study: Study,
    notes: tuple[str, ...],
    *,
    explain: bool,
    for_qps: float | None,
) -> Report:
    """Return the table of all points, with the largest loads, terms and memory where asked for, and the decision."""
    more = {}
    if study.slo is not None and any(outcome.largest for outcome in outcomes):
        more["largest_load"] = largest_report(outcomes)
    if explain:
        more["terms"] = terms_report(points)
        more |= memory_reports(outcomes)
    best = [outcome.largest for outcome in outcomes if outcome.largest] or points
    told = decision(outcomes, study)
    return report(
        points,
        context=context(
            hardware=list(dict.fromkeys(str(point.facts["hardware"]) for point in points)),
            model=outcomes[0].spec.model,
            seed=study.workload.seed,
            slo=None if study.slo is None else str(study.slo),
            decision=told,
        ),
        notes=(
            *notes,
            *_count_notes(points, study),
            *_few_notes(points, study),
            *absent_notes(points, study),
            *_start_notes(points, study),
            *support_notes(outcomes),
            *eager_notes(outcomes),
            *hosts_notes(outcomes),
            *elsewhere_notes(outcomes),
            *load_notes(best, for_qps),
        ),
        more=more,
        decision=told,
    )
