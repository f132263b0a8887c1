"""The first lines of a page: what limits, what to do first, and the figures that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfmodel.core.report import Report, number
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension

Rows = Sequence[Mapping[str, Any]]
#: a sentence, and figures: label, value, unit, perhaps low and high, a text in the place of the value, and the cell
#: ("table", "row", "key") whose origin explains it
Answer = tuple[str, list[dict[str, Any]]]


def answer(report: Report) -> Answer:
    """Return the sentence that a report leads to, and its key figures."""
    makers: dict[str, Callable[[Report], Answer]] = {
        "diagnose": _diagnosis,
        "analyze": _operators,
        "bench": _operators,
        "train": _training,
        "search train": _training,
        "search serve": _served,
        "serve": _served,
        "roi": _ranked,
        "whatif": _path,
        "compare": _compared,
        "project": _projected,
        "capture": _captured,
        "monitor": _watched,
    }
    maker = makers.get(report.command)
    sentence, figures = maker(report) if maker is not None and report.rows else ("", [])
    own = report.decision or str(report.context.get("decision") or "")
    return own or sentence, [one for one in figures if one.get("value") is not None or one.get("text")]


def _figure(label: str, value: Any = None, unit: str = "", **more: Any) -> dict[str, Any]:
    return {"label": label, "value": value, "unit": unit, **more}


def _diagnosis(report: Report) -> Answer:
    timed = [row for row in report.rows if number(row.get("time_s"))]
    if not timed or "dimension" not in timed[0]:
        return "", []
    if "rank" in timed[0]:
        return _job(report, timed)
    total = sum(row["time_s"] for row in timed)
    largest = max(timed, key=lambda row: row["time_s"])
    at = list(report.rows).index(largest)
    verb = "take" if largest["dimension"] == Dimension.OTHER else "takes"
    sentence = f"{str(largest['dimension']).capitalize()} {verb} {100 * largest['time_s'] / total:.0f} % of "
    sentence += f"{format_si(total, 's')}."
    figures = [
        _figure("time", total, "s"),
        _figure(f"{largest['dimension']} time", largest["time_s"], "s", origin=["diagnose", at, "time_s"]),
    ]
    candidates = report.more.get("candidates")
    if candidates is not None and candidates.rows:
        best = candidates.rows[0]
        sentence += f" Do first: {best['name']}, which saves {format_si(best['time_saved_s'], 's', 3)}"
        sentence += f" in about {best['dev_days']:g} days." if best.get("dev_days") else "."
        figures += [
            _figure("first change saves", best["time_saved_s"], "s", low=best.get("time_saved_low_s"),
                    high=best.get("time_saved_high_s"), origin=["candidates", 0, "time_saved_s"]),
            _figure("faster by it", best.get("overall_speedup"), "x", origin=["candidates", 0, "overall_speedup"]),
        ]  # fmt: skip
    return sentence, figures


def _job(report: Report, timed: Rows) -> Answer:
    """Return a step of a job's ranks, and what shares of the time of all of them go to each dimension."""
    times: dict[str, float] = {}
    for row in timed:
        name = str(row["dimension"])
        times[name] = times.get(name, 0.0) + row["time_s"]
    total = sum(times.values())
    largest = max(times, key=lambda name: times[name])
    sentence = f"{100 * times[largest] / total:.0f} % of the time of all ranks: {largest}."
    return sentence, [
        _figure("a step", number(report.context.get("step_s")), "s"),
        *(_figure(f"{name}, all ranks", time / total, "fraction") for name, time in times.items()),
        _figure("imbalance of the computation", number(report.context.get("imbalance")), "fraction"),
    ]


def _operators(report: Report) -> Answer:
    machines = dict.fromkeys(str(row.get("hardware")) for row in report.rows if row.get("predicted_time_s"))
    machine = next(iter(machines), "")
    rows = [row for row in report.rows if str(row.get("hardware")) == machine and number(row.get("predicted_time_s"))]
    if not rows:
        return "", []
    expected, bound = _sum(rows, "predicted_time_s"), _sum(rows, "bound_time_s")
    measured = _sum(rows, "measured_time_s")
    by_limit: dict[str, float] = {}
    for row in rows:
        name = str(row.get("limiter"))
        by_limit[name] = by_limit.get(name, 0.0) + _calls(row) * float(row["predicted_time_s"])
    limit = max(by_limit, key=lambda name: by_limit[name])
    basis = "measured_time_s" if measured else "predicted_time_s"
    gap, farthest = max(((_gap(row, basis), row) for row in rows), key=lambda item: item[0])
    others = len(machines) - 1
    more = f" (and {others} more machine{'s' * (others > 1)} below)" if others else ""
    sentence = (
        f"{machine}{more}: {by_limit[limit] / sum(by_limit.values()) * 100:.0f} % of the time is limited by {limit}."
    )
    if gap > 0 and len(rows) > 1:
        largest = farthest.get("name") or farthest.get("op")
        sentence += f" Most is to be gained in {largest}: {format_si(gap, 's', 3)} above its bound."
    at = [report.command, list(report.rows).index(farthest)]
    return sentence, [
        _figure("measured", measured, "s"),
        _figure("expected", expected, "s", low=_sum(rows, "predicted_time_low_s") if len(rows) == 1 else None,
                high=_sum(rows, "predicted_time_high_s") if len(rows) == 1 else None,
                origin=[*at, "predicted_time_s"] if len(rows) == 1 else None),
        _figure("bound", bound, "s", origin=[*at, "bound_time_s"] if len(rows) == 1 else None),
        _figure("bound / expected", bound / expected if expected and bound else None, "fraction"),
        _figure("largest gap", gap if gap > 0 and len(rows) > 1 else None, "s", text=None,
                note=str(farthest.get("name") or farthest.get("op")), origin=[*at, basis]),
    ]  # fmt: skip


def _gap(row: Mapping[str, Any], key: str) -> float:
    """Return how far all calls of an operator are above their bound [s]."""
    return _calls(row) * ((number(row.get(key)) or 0.0) - (number(row.get("bound_time_s")) or 0.0))


def _calls(row: Mapping[str, Any]) -> float:
    return number(row.get("count")) or 1.0


def _sum(rows: Rows, key: str) -> float | None:
    values = [_calls(row) * value for row in rows if (value := number(row.get(key))) is not None]
    return sum(values) if values else None


def _training(report: Report) -> Answer:
    rows = report.rows
    at = min(range(len(rows)), key=lambda index: rows[index]["time_s"] / max(1, rows[index].get("batch") or 1))
    best = rows[at]
    terms = {str(name): float(time) for name, time in (best.get("terms_s") or {}).items()}
    sentence = f"The best of {len(rows)} is {best.get('plan')} on {best.get('hardware')}. " if len(rows) > 1 else ""
    if terms:
        name = max(terms, key=lambda term: terms[term])
        lost = {
            term: terms[term] for term in ("bubble", "tensor", "data", "gaps", "recompute", "host") if term in terms
        }
        verb = "take" if name.endswith("s") else "takes"
        sentence += f"{_words(name)} {verb} {100 * terms[name] / best['time_s']:.0f} % of the step."
        if lost:
            worst = max(lost, key=lambda term: lost[term])
            sentence += f" The largest loss: {worst.replace('_', ' ')}, {100 * lost[worst] / best['time_s']:.0f} %."
    if best.get("fits") is False:
        sentence += " It does not fit in the memory of a GPU."
    cell = [report.command, at]
    fails = best.get("fits") is False
    return sentence, [
        _figure("step", best["time_s"], "s", low=best.get("time_low_s"), high=best.get("time_high_s"),
                origin=[*cell, "time_s"]),
        _figure("MFU", best.get("mfu"), "fraction", origin=[*cell, "mfu"]),
        _figure("tokens/s a GPU", best.get("tokens_per_s_per_gpu"), "", origin=[*cell, "tokens_per_s_per_gpu"]),
        _figure("memory of a GPU", best.get("memory_total_bytes"), "iB", tone="bad" if fails else "",
                note="does not fit" if fails else "", origin=[*cell, "memory_total_bytes"]),
    ]  # fmt: skip


def _words(term: str) -> str:
    return term.replace("_", " ").capitalize()


def _served(report: Report) -> Answer:
    rows = [row for row in report.rows if number(row.get("tokens_per_s_per_gpu"))]
    if not rows:
        return "", []
    met = [row for row in rows if row.get("slo_met")] or rows
    best = met[0] if "rank" in met[0] else max(met, key=lambda row: row["tokens_per_s_per_gpu"])
    cell = [report.command, list(report.rows).index(best)]
    ttft, tpot = best.get("ttft_s") or {}, best.get("tpot_s") or {}
    users = best.get("concurrency")
    where = (
        f"{best.get('deployment')}, {users:.4g} users" if isinstance(users, (int, float)) else best.get("deployment")
    )
    sentence = f"Most tokens a GPU: {where}; the mean step waits for {best.get('limiter')}."
    return sentence, [
        _figure("tokens/s a GPU", best["tokens_per_s_per_gpu"], "", origin=[*cell, "tokens_per_s_per_gpu"]),
        _figure("time to first token", ttft.get("mean"), "s", low=ttft.get("mean_low"), high=ttft.get("mean_high"),
                origin=[*cell, "ttft_s"]),
        _figure("time per token", tpot.get("mean"), "s", low=tpot.get("mean_low"), high=tpot.get("mean_high"),
                origin=[*cell, "tpot_s"]),
        _figure("KV cache in use", best.get("kv_share"), "fraction", origin=[*cell, "kv_share"]),
        _figure("cost of a million tokens", best.get("cost_per_million_tokens"), ""),
    ]  # fmt: skip


def _ranked(report: Report) -> Answer:
    rows = report.rows
    total = number(report.context.get("total_time_s"))
    best = rows[0]
    figures = [
        _figure("time", total, "s"),
        _figure("first change saves", best.get("time_saved_s"), "s", origin=["roi", 0, "time_saved_s"]),
        _figure("faster by it", best.get("overall_speedup"), "x", origin=["roi", 0, "overall_speedup"]),
        _figure("all together", rows[-1].get("cumulative_speedup"), "x"),
        _figure("payback", best.get("payback_days"), "d", origin=["roi", 0, "payback_days"]),
    ]
    return f"Do {best.get('name')} first.", figures


def _path(report: Report) -> Answer:
    rows = report.rows
    last, begin = rows[-1], rows[0]["total_time_s"] + rows[0]["time_saved_s"]
    best = max(rows, key=lambda row: row.get("step_speedup") or 0.0)
    doubtful = sum(bool(row.get("flags")) for row in rows)
    sentence = f"Step {best['step']}, {best['name']}, gains most ({best['step_speedup']:.3g} x). "
    sentence += (
        f"The bottleneck that is left: {last['bottleneck']}, {100 * last['bottleneck_fraction']:.0f} % of the time"
    )
    sentence += f"; without it {last['max_further_speedup']:.3g} x more." if last.get("max_further_speedup") else "."
    cell = ["whatif", len(rows) - 1]
    return sentence, [
        _figure("before", begin, "s"),
        _figure("after", last["total_time_s"], "s", low=last.get("total_low_s"), high=last.get("total_high_s"),
                origin=[*cell, "total_time_s"]),
        _figure("faster", last.get("speedup"), "x", origin=[*cell, "speedup"]),
        _figure("doubtful claims", doubtful or None, "", tone="bad"),
    ]  # fmt: skip


def _compared(report: Report) -> Answer:
    """Return what to do about two records, and the change of all rows together with its 95 % interval."""
    summary = report.more.get("summary")
    whole = summary.rows[0] if summary is not None and summary.rows else {}
    slower, faster = (sum(row.get("verdict") == verdict for row in report.rows) for verdict in ("slower", "faster"))
    return str(report.context.get("what_to_do") or ""), [
        _figure("after / before, all rows", number(whole.get("ratio")), "x", note=str(whole.get("verdict") or "")),
        _figure("rows slower", slower, "", tone="bad" if slower else ""),
        _figure("rows faster", faster, ""),
    ]


def _projected(report: Report) -> Answer:
    whole = report.more.get("whole")
    if whole is None or not whole.rows:
        return "", []
    row, cell = whole.rows[0], ["whole", 0]
    return "", [
        _figure("here", row.get("time_s"), "s"),
        _figure("there", row.get("projected_time_s"), "s", low=row.get("low"), high=row.get("high"),
                origin=[*cell, "projected_time_s"]),
        _figure("as fast", row.get("speedup"), "x", origin=[*cell, "speedup"]),
    ]  # fmt: skip


def _captured(report: Report) -> Answer:
    facts = report.context
    sentence = f"Limited by the {facts['limiter']}." if facts.get("limiter") else ""
    return sentence, [
        _figure("expected", facts.get("predicted_time_s"), "s", low=facts.get("predicted_time_low_s"),
                high=facts.get("predicted_time_high_s")),
        _figure("work", facts.get("flop"), "FLOP"),
        _figure("parameters", facts.get("parameters"), ""),
        _figure("activations", facts.get("activation_bytes"), "iB"),
        _figure("traffic not modelled", facts.get("not_modelled_share_of_bytes"), "fraction"),
    ]  # fmt: skip


def _watched(report: Report) -> Answer:
    findings = [item for item in report.context.get("findings") or [] if isinstance(item, Mapping)]
    sentence = "Nothing stands out."
    if findings:
        first = findings[0]
        sentence = (
            f"{str(first.get('of')).capitalize()}: {first.get('kind')}: {first.get('evidence')} {first.get('advice')}"
        )
    return sentence, [_figure("findings", len(findings), "", tone="bad" if findings else "")]
