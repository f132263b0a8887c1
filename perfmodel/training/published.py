"""Published training runs: reading their tables, and predicting each run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.published import PublishedRow, PublishedRuns
from perfmodel.accuracy.run_table import Run, RunTable
from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware
from perfmodel.errors import PerfModelError
from perfmodel.training.framework import Constants, nearest_framework
from perfmodel.training.kernels import arithmetic
from perfmodel.training.plan import ATTENTION, TrainingPlan
from perfmodel.training.published_memory import GIB, memory_row
from perfmodel.training.result import TrainingStep
from perfmodel.training.step import train
from perfmodel.workloads.architectures import Architecture
from perfmodel.workloads.model_config import ModelConfig

#: the columns that a table of training runs has
REQUIRED = ("hardware", "num_gpus", "gbs", "seq", "step_time_s")
#: the rule of thumb beside the predictions
BASELINE = "6 N D FLOP at 45 % of the dense peak"
BASELINE_SHARE = 0.45


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one of training runs."""
    return set(REQUIRED) <= set(columns)


class UnusableRunError(Exception):
    """A run that cannot be predicted, with the reason by which it is counted."""


@dataclass(frozen=True)
class PublishedRun:
    """A run as the model takes it."""

    run: Run
    config: ModelConfig
    cluster: Cluster
    plan: TrainingPlan

    def step(self, fitted: Constants | None = None) -> TrainingStep:
        """Return the prediction."""
        return train(self.config, self.cluster, self.plan, fitted)


def judge(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return the runs of a table beside their predictions."""
    rows: list[PublishedRow] = []
    reasons: Counter[str] = Counter()
    places: dict[str, str] = {}
    for run in table.runs:
        try:
            rows.extend(judged_rows(read_run(run, find)))
        except (UnusableRunError, PerfModelError) as error:
            reason = error.message if isinstance(error, PerfModelError) else str(error)
            reasons[reason] += 1
            places.setdefault(reason, run.place)
    skipped = tuple(Skipped(reason, count, places[reason]) for reason, count in reasons.items())
    return PublishedRuns(tuple(rows), skipped, BASELINE)


def judged_rows(published: PublishedRun, fitted: Constants | None = None) -> list[PublishedRow]:
    """Return the measured quantities of a run beside their predictions."""
    run, step = published.run, published.step(fitted)
    labels = run_labels(published)
    name, place = run.text("id") or run.place, run.place
    rows = [
        PublishedRow(
            quantity="step_time_s",
            measured=measured_time(run),
            predicted=step.time_s,
            low=step.low_s,
            high=step.high_s,
            baseline=rule_of_thumb(published),
            terms=step.terms_s,
            labels=labels,
            name=name,
            place=place,
        )
    ]
    reserved = run.number("memory_gib") * GIB
    if reserved > 0:
        set_up = (published.config, published.cluster, published.plan)
        rows.append(memory_row(*set_up, reserved, labels=labels, name=name, place=place))
    return rows


def run_labels(published: PublishedRun) -> dict[str, str]:
    """Return the grouping keys of a run."""
    run, plan = published.run, published.plan
    return {
        "table": run.text("table") or run.table,
        "hardware": published.cluster.hardware.name,
        "model": run.text("model"),
        "framework": run.text("framework"),
        "dtype": plan.dtype,
        "kind": "moe" if published.config.experts else "dense",
        "gpus": str(published.cluster.gpus),
        "seq": str(plan.seq),
    }


def rule_of_thumb(published: PublishedRun) -> float:
    """Return 6 N D over 45 % of the dense peak, N the parameters that multiply a token [s]."""
    plan, cluster = published.plan, published.cluster
    flop = 6.0 * published.config.multiplied_parameters * plan.batch * plan.seq
    peak = cluster.hardware.native_peak(arithmetic(plan.dtype)).flop_per_s
    return flop / (BASELINE_SHARE * peak * cluster.gpus)


def measured_time(run: Run) -> float:
    """Return the measured time of a step [s], from the tokens a second where it is blank."""
    time = run.number("step_time_s")
    if time > 0:
        return time
    rate = run.number("tokens_per_s_per_gpu")
    if rate > 0:
        return run.whole("gbs") * run.whole("seq") / rate / run.whole("num_gpus")
    raise UnusableRunError("no step time and no tokens per second")


def read_run(run: Run, find: Callable[[str], Hardware]) -> PublishedRun:
    """Return a run of a table as model, cluster and plan.

    Raises
    ------
    UnusableRunError
        When a column that the model needs is blank, or a cell says something that is not modelled.
    UsageError
        When the machine is unknown.
    """
    measured_time(run)
    config = run_config(run)
    hardware = find(run.text("hardware"))
    return PublishedRun(run, config, run_cluster(run, hardware), run_plan(run))


def run_cluster(run: Run, hardware: Hardware) -> Cluster:
    """Return the cluster of a run; a domain of NVLink beyond a node is the machine's, whatever the table says."""
    gigabit = run.number("nic_gbps_per_gpu", 0.0)
    node = run.whole("gpus_per_node") or None
    nic = gigabit * 1e9 / 8.0 if gigabit > 0 else None
    return Cluster.of(hardware, _needed(run, "num_gpus"), gpus_per_node=node, nic=nic)


class Experts(NamedTuple):
    """What the column ``moe`` says: "experts=128;topk=8;shared=1;dense_layers=3;mla;window=128 every 2nd layer"."""

    experts: int = 0
    top_k: int = 0
    shared: int = 0
    dense_layers: int = 0
    latent: bool = False
    window: int = 0
    every: int = 1


def read_experts(text: str) -> Experts:
    """Return what the column ``moe`` says; zeros for a blank one.

    Raises
    ------
    UnusableRunError
        When a part of it is unknown.
    """
    found = Experts()
    for part in (part.strip() for part in text.split(";") if part.strip()):
        key, _, value = part.partition("=")
        window = re.fullmatch(r"(\d+)(?: every (\d+)\w* layer)?", value)
        if key == "mla":
            found = found._replace(latent=True)
        elif key == "window" and window:
            found = found._replace(window=int(window[1]), every=int(window[2] or 1))
        elif key in _EXPERT_KEYS and value.isdigit():
            found = Experts(**{**found._asdict(), _EXPERT_KEYS[key]: int(value)})
        else:
            raise UnusableRunError(f"moe says {part!r}, which is not modelled")
    return found


_EXPERT_KEYS = {
    "experts": "experts", "topk": "top_k", "top_k": "top_k", "shared": "shared", "dense_layers": "dense_layers",
}  # fmt: skip
#: ranks and heads of the latent attention of DeepSeek-V2 and -V3 (deepseek-ai/DeepSeek-V3 config.json)
_LATENT: dict[str, Any] = {
    "q_lora": 1536,
    "kv_lora": 512,
    "rope_head_dim": 64,
    "nope_head_dim": 128,
    "value_head_dim": 128,
}
#: width of the dense layers of a mixture of experts, by model (config.json of each); a table gives the experts' width
_DENSE_FFN = {"deepseek-v3": 18432, "deepseek-v2": 12288, "deepseek-r1": 18432, "kimi-k2": 18432}


def run_config(run: Run) -> ModelConfig:
    """Return the model of a run from its columns.

    Raises
    ------
    UnusableRunError
        When a column is blank that has no usual value.
    """
    moe = read_experts(run.text("moe"))
    hidden, heads, ffn = _needed(run, "hidden"), _needed(run, "heads"), _needed(run, "ffn")
    rms, gated = run.text("norm", "rms") == "rms", bool(run.whole("gated", 1))
    rotary = bool(run.whole("rotary", 1))
    name = run.text("model")
    causal = not re.search(r"bert", name)
    framework, _ = nearest_framework(run.text("framework"), shards=run.whole("zero") == 3)
    bias = not rms and framework.bias
    layers = _needed(run, "layers")
    config = ModelConfig(
        model_type="llama",
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=run.whole("kv_heads", heads),
        head_dim=run.whole("head_dim", hidden // heads),
        ffn=_DENSE_FFN.get(name, 4 * hidden) if moe.experts else ffn,
        vocab=_needed(run, "vocab"),
        positions=_needed(run, "seq"),
        activation="silu" if gated else "gelu",
        tied=bool(run.whole("tied", 0)),
        embedding_dim=hidden,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        window=moe.window,
        window_layers=-(-layers // moe.every) if moe.window else 0,
        experts=moe.experts,
        top_k=moe.top_k,
        expert_ffn=ffn if moe.experts else 0,
        shared_ffn=moe.shared * ffn,
        dense_layers=moe.dense_layers,
        facts=Architecture(
            sinks=name.startswith("gpt-oss"),
            causal=causal,
            learned_positions=not rotary,
            rms_norm=rms,
            gated=gated,
            rotary=rotary,
        ),
    )
    return dataclasses.replace(config, **_LATENT) if moe.latent else config


def run_plan(run: Run) -> TrainingPlan:
    """Return the plan of a run; what its columns leave open is as the framework does it."""
    recompute = run.text("recompute", "none")
    if recompute == "unknown":
        raise UnusableRunError("recompute is not published")
    attention = run.text("attention")
    tp = run.whole("tp", 1) or 1
    gradient = run.whole("grad_bytes")
    return TrainingPlan(
        batch=_needed(run, "gbs"),
        seq=_needed(run, "seq"),
        micro_batch=run.whole("mbs", 1) or 1,
        tp=tp,
        cp=run.whole("cp", 1) or 1,
        pp=run.whole("pp", 1) or 1,
        ep=run.whole("ep", 1) or 1,
        sp=bool(run.whole("sp")) if run.text("sp") else None,
        vp=(run.whole("vp", 1) or 1) if run.whole("pp", 1) > 1 else 1,
        zero=run.whole("zero"),
        hsdp=bool(run.whole("hsdp")) or run.text("hsdp") == "true",
        dtype=run.text("dtype", "bf16"),
        recompute=recompute,
        attention=attention if attention in ATTENTION else "",
        tp_overlap=bool(run.whole("tp_overlap")) if run.text("tp_overlap") else None,
        cp_algorithm="ring" if run.text("cp_balanced") == "0" else "zigzag",
        framework=run.text("framework", "megatron-te"),
        grad_dtype={2: "bf16", 4: "fp32"}.get(gradient, ""),
        optimizer="none" if "no optimizer" in run.text("notes") else "adam",
    )


def _needed(run: Run, column: str) -> int:
    value = run.whole(column)
    if value < 1:
        raise UnusableRunError(f"{column} is blank")
    return value
