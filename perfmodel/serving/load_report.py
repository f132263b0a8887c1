"""Reports of simulated loads and of points of a serving study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import first_rows, with_columns, with_tables
from perfmodel.core.units import format_count, format_si
from perfmodel.serving.meanings import MEANINGS
from perfmodel.serving.points import CONCURRENCY, QPS, Point
from perfmodel.serving.replay import ITL, QUANTITIES, Replay

#: facts of a deployment that tables for people name where they differ between rows
_NAMED = ("hardware", "engine", "tp", "pp", "ep", "dp", "weights", "kv", "max_batched_tokens", "replicas",
          "prefill_replicas")  # fmt: skip
_SHORT = {"hardware": "", "engine": "", "weights": "", "kv": "kv ", "max_batched_tokens": "budget ",
          "replicas": "x", "prefill_replicas": "prefill x"}  # fmt: skip


def deployment_name(facts: Mapping[str, Any], among: Sequence[Mapping[str, Any]]) -> str:
    """Return the facts in which a deployment differs from others, as "h100-sxm5-80gb tp2"; all alike: its machine."""
    differing = [key for key in _NAMED if len({str(other.get(key)) for other in among}) > 1] or ["hardware"]
    return " ".join(f"{_SHORT.get(key, key)}{facts[key]}" for key in differing if facts.get(key) not in ("", 0, None))


def whole_name(facts: Mapping[str, Any]) -> str:
    """Return all that sets a deployment up, as "h200-sxm-141gb tp8 fp8_block kv fp8"."""
    plan = [f"{key}{facts[key]}" for key in ("tp", "pp", "ep", "dp") if key == "tp" or facts[key] > 1]
    return " ".join((facts["hardware"], *plan, facts["weights"], f"kv {facts['kv']}"))


#: titles of further tables
_TERMS, LARGEST = "Terms of the mean step", "Largest load that meets the objectives"
#: preemptions of a request that are worth a note on a steady state
_SELDOM = 0.005
#: what the formula of the steady state does not know, and is null in its rows
OF_SIMULATIONS = ("itl_s", "queued_s", "preemptions", "busy_share", "sustained_requests_per_s")


def row_of(point: Point, name: str = "") -> dict[str, Any]:
    """Return the row of a point in JSON and CSV."""
    row: dict[str, Any] = {
        "deployment": name or deployment_name(point.facts, [point.facts]),
        **point.facts,
        "isl": point.isl,
        "osl": point.osl,
        "load": point.load,
        "concurrency": point.value if point.load == CONCURRENCY else _in_system(point),
        "qps": point.value if point.load == QPS else point.rates["requests_per_s"],
        "num_requests": point.replay.count if point.replay else None,
        **point.state,
        **{name: dict(values) for name, values in point.figures.items()},
        **point.rates,
        "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        "tokens_per_s_per_user": point.tokens_per_s_per_user if point.figures["tpot_s"]["mean"] > 0 else None,
        "limiter": str(point.limiter),
        "terms_s": dict(point.terms_s),
        "growth_per_s": point.growth_per_s,
        "capacity_per_s": point.capacity_per_s,
    }
    row |= {key: None for key in OF_SIMULATIONS if key not in row}
    if not math.isnan(point.price_per_gpu_hour):
        row["cost_per_million_tokens"] = point.cost_per_million_tokens
        row["requests_per_money"] = point.requests_per_money
    if point.attainment is not None:
        row |= {"slo_met": point.met, "missed": list(point.missed), "attainment": point.attainment,
                "goodput_per_s": point.goodput_per_s}  # fmt: skip
    return row


def _in_system(point: Point) -> float:
    """Return the mean number of requests in the engines and queues."""
    return point.state["batch"] + point.state["mean_queued"]


def _mean(key: str) -> Any:
    return lambda row: format_si(float(row[key].get("mean", math.nan)), "s", 3) if row.get(key) else "-"


def _interval(key: str) -> Any:
    """Return how to print the 80 % interval of the mean of a time, with its unit once."""

    def show(row: Mapping[str, Any]) -> str:
        values = row.get(key) or {}
        if not math.isfinite(values.get("mean_low") or math.nan):
            return "-"
        low, high = (format_si(values[f"mean_{end}"], "s", 3) for end in ("low", "high"))
        same = low.split()[-1] == high.split()[-1]
        return f"{low.split()[0]}..{high}" if same else f"{low}..{high}"

    return show


def _percentile(key: str, name: str) -> Any:
    return lambda row: format_si(row[key][name], "s", 3) if name in (row.get(key) or {}) else "-"


def point_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns of the rows of points."""
    first = rows[0]
    several = len({row["deployment"] for row in rows}) > 1
    loads = {row["load"] for row in rows}
    percentiles = [name for name in first["ttft_s"] if name[0] == "p" and "_" not in name]
    last = percentiles[-1] if percentiles else ""
    priced = "cost_per_million_tokens" in first
    judged = "attainment" in first
    return (
        Column("deployment", "", shown=several, merge=True),
        Column("concurrency", "users", digits=3, shown=loads == {CONCURRENCY}),
        Column("qps", "req/s", digits=3, shown=loads != {CONCURRENCY}),
        Column("batch", digits=3, drop=4),
        Column("kv_share", "KV used", "fraction", drop=6),
        Column("ttft_s", "TTFT", "s", show_row=_mean("ttft_s")),
        Column("ttft_s", "80 %", "s", show_row=_interval("ttft_s"), drop=2),
        Column("ttft_s", f"{last} TTFT", "s", shown=bool(last), show_row=_percentile("ttft_s", last), drop=5),
        Column("tpot_s", "TPOT", "s", show_row=_mean("tpot_s")),
        Column("tpot_s", "80 %", "s", show_row=_interval("tpot_s"), drop=2),
        Column("tpot_s", f"{last} TPOT", "s", shown=bool(last), show_row=_percentile("tpot_s", last), drop=5),
        Column("output_tokens_per_s", "tok/s", digits=4),
        Column("tokens_per_s_per_gpu", "tok/s/GPU", digits=4, drop=3, shown=first["gpus"] > 1 or several),
        Column("tokens_per_s_per_user", "tok/s/user", digits=3, drop=7),
        Column("cost_per_million_tokens", "cost/Mtok", digits=3, shown=priced, drop=1),
        Column("requests_per_money", "req/money", digits=3, shown=priced, drop=8),
        Column("attainment", "good", "fraction", shown=judged, drop=1),
        Column("slo_met", "met", shown=judged),
        Column("limiter", drop=4),
    )


def saved(table: Report) -> Report:
    """Return points or ranked deployments that were read from JSON as `serve` or `search serve` shows them."""
    if not any("deployment" in row and "ttft_s" in row for row in table.rows):
        return table
    if table.command == "search serve":
        return first_rows(with_columns(table, ranking_columns(table.rows)), "deployments")
    shown = with_columns(table, point_columns(table.rows))
    if "largest_load" in table.more:
        shown = with_tables(shown, largest_load=(LARGEST, point_columns(table.more["largest_load"].rows)))
    return with_tables(shown, terms=(_TERMS, _term_columns(len({row["deployment"] for row in table.rows}) > 1)))


def ranking_columns(rows: Sequence[Mapping[str, Any]], for_qps: float | None = None) -> tuple[Column, ...]:
    """Return the columns of ranked deployments, some of which may be wanted for a load [requests/s]."""
    priced = any("cost_per_million_tokens" in row for row in rows)
    wanted = any(row.get("gpus_for_load") is not None for row in rows)
    return (
        Column("rank", "#"),
        Column("deployment", ""),
        Column("gpus", "GPUs", drop=5),
        Column("concurrency", "users", digits=3),
        Column("ttft_s", "TTFT", "s", show_row=_mean("ttft_s")),
        Column("tpot_s", "TPOT", "s", show_row=_mean("tpot_s")),
        Column("output_tokens_per_s", "tok/s", digits=4, drop=4),
        Column("tokens_per_s_per_gpu", "tok/s/GPU", digits=4),
        Column("cost_per_million_tokens", "cost/Mtok", digits=3, shown=priced),
        Column("requests_per_money", "req/money", digits=3, shown=priced, drop=6),
        Column("gpus_for_load", f"for {for_qps:g}/s" if for_qps else "for the load", shown=wanted),
        Column("limiter", drop=1),
        Column("stops_at", "stops at", drop=2),
    )


@report.register
def _(
    point: Point,
    *,
    title: str = "",
    context: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
    more: Mapping[str, Report] | None = None,
    decision: str = "",
) -> Report:
    """Return a point, or a list of points, as a report."""
    points = list(point) if isinstance(point, (list, tuple)) else [point]
    facts = [item.facts for item in points]
    rows = [row_of(item, deployment_name(item.facts, facts)) for item in points]
    return Report(
        "serve", point_columns(rows), rows, context or {}, (*_load_notes(points, facts), *notes),
        title or _title(points), more or {}, decision=decision,
    )  # fmt: skip


def _title(points: Sequence[Point]) -> str:
    first = points[0].facts
    machines = ", ".join(dict.fromkeys(str(point.facts["hardware"]) for point in points))
    return f"{first['engine']} on {machines}: {points[0].isl:.0f} + {points[0].osl:.0f} tokens"


def _load_notes(points: Sequence[Point], facts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    notes = []
    for point in points:
        name = deployment_name(point.facts, facts)
        if not math.isnan(point.growth_per_s):
            notes.append(f"{name}: {growth_text(point.growth_per_s, point.capacity_per_s)}")
        if point.state.get("preemptions"):
            notes.append(
                f"{name}: {point.state['preemptions']:.0f} preemptions at {load_name(point)}: the KV cache was full."
            )
        elif point.replay is None and point.state.get("preemptions_per_request", 0.0) >= _SELDOM:
            often = f"{point.state['preemptions_per_request']:.2g}"
            notes.append(
                f"{name}: a request is preempted {often} times in the mean at {load_name(point)}: the KV cache is full."
            )
        if point.replay is not None and point.replay.interrupted:
            ended, requests = point.replay.count, len(point.replay.requests)
            known = f"all {requests} requests ended" if ended == requests else f"{ended} of {requests} requests ended"
            left = "; its interval is not known" if ended == requests else ""
            notes.append(f"{name}: interrupted at {load_name(point)}: {known}{left}.")
    links = {(fact["kv_link_bytes_per_s"], fact["kv_link_basis"]) for fact in facts if fact.get("kv_link_basis")}
    notes += [f"keys and values leave a replica at {format_si(rate, 'B/s')}: {basis}." for rate, basis in sorted(links)]
    notes.append("TTFT and TPOT are means with 80 % intervals; JSON has them, and every percentile.")
    return tuple(notes)


def growth_text(per_s: float, capacity_per_s: float) -> str:
    """Return in a sentence that a queue grows."""
    return (
        f"the load of {capacity_per_s + per_s:.4g} requests/s is above the capacity of about {capacity_per_s:.4g}: the "
        f"queue grows by {per_s:.3g} requests/s, and waiting times with it, as long as the load lasts."
    )


def load_name(point: Point) -> str:
    """Return a load in words."""
    if point.load == CONCURRENCY:
        return format_count(int(point.value), "user")
    return f"{point.value:.4g} req/s" if point.load == QPS else "the file's load"


def terms_report(points: Sequence[Point]) -> Report:
    """Return the parts of the mean step of each point, the largest first."""
    facts = [point.facts for point in points]
    rows = [
        {
            "deployment": deployment_name(point.facts, facts),
            "load": load_name(point),
            "term": term,
            "time_s": time_s,
            "share": time_s / point.step_s[0],
            "meaning": MEANINGS.get(term, ""),
        }
        for point in points
        for term, time_s in sorted(point.terms_s.items(), key=lambda item: -item[1])
        if time_s > 0
    ]
    return Report("serve", _term_columns(len(set(map(str, facts))) > 1), rows, title=_TERMS)


def _term_columns(several: bool) -> tuple[Column, ...]:
    """Return the columns of the terms of steps, those of several deployments or of one."""
    return (
        Column("deployment", "", merge=True, shown=several),
        Column("load", merge=True),
        Column("term"),
        Column("time_s", "time", "s"),
        Column("share", unit="fraction"),
        Column("meaning", drop=1),
    )


@report.register
def _(replay: Replay, *, title: str = "", context: Mapping[str, Any] | None = None) -> Report:
    """Return the latencies of a simulated load, one row a quantity."""
    names = {"ttft_s": "time to first token", "tpot_s": "time per output token", "latency_s": "latency",
             "queued_s": "in the queue", ITL: "between two tokens"}  # fmt: skip
    rows = [{"quantity": quantity, "name": names[quantity], **replay.statistics(quantity)}
            for quantity in (*QUANTITIES, ITL)]  # fmt: skip
    keys = [key for key in rows[0] if key not in ("quantity", "name")]
    columns = (Column("quantity", shown=False), Column("name", ""), *(Column(key, unit="s", shown="_" not in key)
               for key in keys))  # fmt: skip
    growth = replay.growth
    notes = [
        f"{replay.count} requests in {format_si(replay.duration_s, 's')}: {replay.output_tokens_per_s:.4g} tokens/s, "
        f"{replay.mean_running:.3g} run and {replay.mean_queued:.3g} wait in the mean.",
    ]
    if growth is not None:
        notes.append(growth_text(growth.per_s, growth.capacity_per_s))
    facts = {
        "output_tokens_per_s": replay.output_tokens_per_s,
        "requests_per_s": replay.requests_per_s,
        "kv_share": replay.kv_share,
        "preemptions": replay.preemptions,
    }
    return Report("simulate", columns, rows, {**facts, **(context or {})}, tuple(notes), title or "Simulated load")
