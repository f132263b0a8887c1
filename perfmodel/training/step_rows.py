"""Training steps as rows of a table, their plan in a few words, and the columns of such a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_binary, format_si
from perfmodel.training.meanings import MEANINGS
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.study import Study

_PLAN_KEYS = (
    "tp", "pp", "vp", "cp", "ep", "etp", "zero", "micro_batch", "batch", "seq", "encoder_seq", "dtype", "recompute",
    "schedule", "expert_overlap", "shared_expert_overlap", "dispatch_dtype", "offload", "offload_fraction",
    "cpu_optimizer", "cpu_threads", "cpu_overlap", "documents", "length_spread",
)  # fmt: skip


def plan_text(plan: TrainingPlan, dp: int) -> str:
    """Return a plan in a few words: "tp4 pp4 vp5 dp4 zero1 mbs1"."""
    sizes = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "vp": plan.vp, "ep": plan.ep, "dp": dp}
    words = [f"{name}{size}" for name, size in sizes.items() if size > 1 or name == "dp"]
    words += ["stages" + "-".join(map(str, plan.stages))] if plan.stages else []
    words += [f"etp{plan.etp}"] if plan.etp and plan.tp > 1 else []
    words += [f"zero{plan.zero}"] if plan.zero else []
    words += ["hsdp"] if plan.hsdp else []
    words += ["expert-overlap"] if plan.expert_overlap else []
    words += ["shared-overlap"] if plan.shared_expert_overlap else []
    words += [f"dispatch-{plan.dispatch_dtype}"] if plan.dispatch_dtype else []
    words += [plan.schedule] if plan.schedule in ("gpipe", "zero_bubble", "dualpipe") else []
    words += [f"mbs{plan.micro_batch}"]
    words += [f"enc{plan.encoder_seq}"] if plan.encoder_seq else []
    words += [plan.recompute] if plan.recompute != "none" else []
    words += _host_words(plan)
    spread = f"+-{plan.length_spread:.0%}" if plan.length_spread else ""
    words += [f"docs{'/'.join(map(str, plan.documents))}{spread}"] if plan.documents else []
    return " ".join(words)


def _host_words(plan: TrainingPlan) -> list[str]:
    """Return what lives on the host: "host:optimizer50%,activations"."""
    if plan.offload == "none":
        return []
    share = f"optimizer{plan.offload_fraction:.0%}" if plan.offload_fraction < 1 else "optimizer"
    threads = f"{plan.cpu_threads}threads" if plan.cpu_threads else ""
    beside = f"beside-{plan.cpu_overlap}" if plan.cpu_overlap not in ("", "none") else plan.cpu_overlap and "in-turn"
    return ["host:" + plan.offload.replace("optimizer", share), *filter(None, (plan.cpu_optimizer, threads, beside))]


def row_of(step: TrainingStep, study: Study | None = None) -> dict[str, Any]:
    """Return the row of a step in JSON and CSV."""
    plan, memory = step.plan, step.memory
    row: dict[str, Any] = {
        "model": step.model,
        "hardware": step.cluster.hardware.name,
        "gpus": step.cluster.gpus,
        "framework": step.framework,
        "plan": plan_text(plan, step.dp),
        **{key: getattr(plan, key) for key in _PLAN_KEYS},
        "documents": list(plan.documents),
        "dp": step.dp,
        "micro_batches": step.micro_batches,
        "time_s": step.time_s,
        "time_low_s": step.low_s,
        "time_high_s": step.high_s,
        "tokens_per_s": step.tokens_per_s,
        "tokens_per_s_per_gpu": step.tokens_per_s_per_gpu,
        "mfu": step.mfu,
        "mfu_full_attention": step.mfu_full_attention,
        "hfu": step.hfu,
        "flop": step.flop,
        "hardware_flop": step.hardware_flop,
        "parameters": step.parameters,
        "terms_s": dict(step.terms_s),
    }
    if memory:
        row |= {
            "memory_bytes": dict(memory.peak.parts),
            "memory_total_bytes": memory.total_bytes,
            "memory_low_bytes": memory.low_bytes,
            "memory_high_bytes": memory.high_bytes,
            "memory_capacity_bytes": memory.capacity_bytes,
            "memory_peak": {"stage": memory.peak.stage, "moment": memory.peak.moment},
            "host_memory_bytes": memory.host_bytes,
            "fits": memory.fits,
        }
    return row | (_money(step, study) if study else {})


def _money(step: TrainingStep, study: Study) -> dict[str, Any]:
    """Return time and cost of the run of a step."""
    money: dict[str, Any] = {}
    if study.run_tokens(step) is not None:
        money = {"run_tokens": study.run_tokens(step), "run_time_s": study.run_s(step)}
    if study.priced:
        money |= {
            "cost_per_step": study.cost(step, step.time_s),
            "run_cost": study.cost(step, study.run_s(step)),
            "price_per_gpu_hour": study.price_per_gpu_hour,
        }
    return money


def _range(row: Mapping[str, Any]) -> str:
    low, high = format_si(row["time_low_s"], "s", 3), format_si(row["time_high_s"], "s", 3)
    same = low.split()[-1] == high.split()[-1]
    return f"{low.split()[0] if same else low}..{high}"


def _memory_text(row: Mapping[str, Any]) -> str:
    if "memory_total_bytes" not in row:
        return "-"
    return format_binary(row["memory_total_bytes"]) + ("" if row["fits"] else " (!)")


#: keys that tables for people leave out -> unit
_HIDDEN = {
    **dict.fromkeys(("model", "gpus", "framework", "plan", *_PLAN_KEYS, "dp", "micro_batches"), ""),
    "tokens_per_s": "",
    "parameters": "",
    "memory_high_bytes": "iB",
    "host_memory_bytes": "iB",
    "run_tokens": "",
    "run_time_s": "s",
    "cost_per_step": "",
    "run_cost": "",
    "price_per_gpu_hour": "",
}
#: what MFU counts elsewhere
_MFU_FULL = "MFU, full counts the whole square of attention (NeMo until 24, llm-foundry)."


#: how the note on what MFU counts begins
MFU_NOTE = "MFU counts "


def mfu_note(steps: Sequence[TrainingStep]) -> str:
    """Return what MFU counts: frozen weights have no gradients."""
    flop = " or ".join(sorted({"4 FLOP (frozen weights)" if step.plan.lora else "6 FLOP" for step in steps}))
    return f"{MFU_NOTE}{flop} a parameter and token without the embedding, and attention under its causal mask."


def columns_of(rows: Sequence[Mapping[str, Any]], mfu: str, *, plans: bool, clusters: bool) -> tuple[Column, ...]:
    """Return the columns of the rows of steps.

    Parameters
    ----------
    rows : of `row_of`, with a rank where they are ranked.
    mfu : what MFU counts in them: `mfu_note`.
    plans, clusters : whether people see how each is trained, and on which GPUs.
    """
    sizes = [key for key in ("batch", "seq") if len({row[key] for row in rows}) > 1]
    ranked = any("rank" in row for row in rows)
    return (
        *((Column("rank", "#"),) if ranked else ()),
        Column("hardware", "cluster", shown=clusters, show_row=lambda row: f"{row['gpus']} x {row['hardware']}"),
        *((Column("plan"),) if plans else ()),
        *(Column(key) for key in sizes),
        Column("time_s", "step", "s"),
        Column("time_low_s", "80 % interval", show_row=_range),
        Column("tokens_per_s_per_gpu", "tokens/s/GPU", digits=4, drop=3),
        Column("mfu", "MFU", "fraction", drop=1, note=mfu),
        Column("mfu_full_attention", "MFU, full", "fraction", drop=5, note=_MFU_FULL),
        Column("hfu", "HFU", "fraction", drop=4, note="HFU counts what is run, recomputation included."),
        Column("memory_total_bytes", "memory", show_row=_memory_text),
        *(
            Column(key, unit=unit, shown=False)
            for key, unit in _HIDDEN.items()
            if not (plans and key == "plan") and key not in sizes
        ),
    )


def terms_report(steps: Sequence[TrainingStep], clusters: bool) -> Report:
    """Return the terms of each step, the largest first."""
    several = len(steps) > 1
    rows = [
        {
            "cluster": step.cluster.name,
            "plan": plan_text(step.plan, step.dp),
            "term": name,
            "time_s": time,
            "share": time / step.time_s,
            "meaning": MEANINGS[name],
        }
        for step in steps
        for name, time in sorted(step.terms_s.items(), key=lambda item: -item[1])
    ]
    title = "Terms of each step" if several else "Terms of the step"
    columns = term_columns(plans=several, clusters=clusters)
    return Report("train", columns, rows, title=f"{title}, on the GPU that sets the pace")


def term_columns(*, plans: bool, clusters: bool) -> tuple[Column, ...]:
    """Return the columns of the terms of steps, of several plans or clusters or of one."""
    return (
        Column("cluster", shown=clusters),
        Column("plan", shown=plans),
        Column("term"),
        Column("time_s", "time", "s"),
        Column("share", unit="fraction"),
        Column("meaning", "is", drop=1, shown=not plans),
    )
