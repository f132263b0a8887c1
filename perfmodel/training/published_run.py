"""A published training run as model, cluster and plan."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfmodel.accuracy.run_table import Run
from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware
from perfmodel.training.constants import Constants
from perfmodel.training.framework import nearest_framework
from perfmodel.training.plan import ATTENTION, TrainingPlan
from perfmodel.training.published_adapters import adapter_rank, adapter_targets, quantised_base
from perfmodel.training.result import TrainingStep
from perfmodel.training.step import train
from perfmodel.workloads.architectures import Architecture
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.model_config import ModelConfig


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
        return train(self.config, self.cluster, self.plan, fitted, checked=False, laboratory=self.run.text("source"))


def measured_time(run: Run) -> float:
    """Return the measured time of a step [s], from the tokens a second where it is blank; NaN where both are.

    Raises
    ------
    UnusableRunError
        When one is not above zero.
    """
    time, rate = _measured(run, "step_time_s"), _measured(run, "tokens_per_s_per_gpu")
    if math.isnan(rate) or not math.isnan(time):
        return time
    return run.whole("gbs") * run.whole("seq") / rate / _measured(run, "num_gpus")


def reserved_gib(run: Run) -> float:
    """Return the measured memory [GiB]; NaN where it is blank.

    Raises
    ------
    UnusableRunError
        When it is not above zero.
    """
    return _measured(run, "memory_gib")


def _measured(run: Run, column: str) -> float:
    value = run.number(column)
    if value <= 0:
        raise UnusableRunError(f"{column} = {value:g} is not above zero")
    return value


def read_run(run: Run, find: Callable[[str], Hardware]) -> PublishedRun:
    """Return a run of a table as model, cluster and plan.

    Raises
    ------
    UnusableRunError
        When a column that the model needs is blank, or a cell says something that is not modelled.
    UsageError
        When the machine is unknown.
    """
    if all(map(math.isnan, (measured_time(run), reserved_gib(run)))):
        raise UnusableRunError("no step time, no tokens per second and no memory")
    config = run_config(run)
    hardware = find(run.text("hardware"))
    return PublishedRun(run, config, run_cluster(run, hardware), run_plan(run))


#: network of one GPU in one direction where neither table nor specification says: 100 Gb/s, assumed [B/s]
ASSUMED_NIC_BYTES_PER_S = 12.5e9


def run_cluster(run: Run, hardware: Hardware) -> Cluster:
    """Return the cluster of a run, without bridges where its notes say "without NVLink".

    A domain of NVLink beyond a node is the machine's, whatever the table says.
    """
    gigabit = run.number("nic_gbps_per_gpu", 0.0)
    node = run.whole("gpus_per_node") or None
    nic = gigabit * 1e9 / 8.0 if gigabit > 0 else None
    if nic is None and not (hardware.fabric and hardware.fabric.nic_bytes_per_s):
        nic = ASSUMED_NIC_BYTES_PER_S
    bridge = not re.search(r"\b(no|without( an?)?) (nvlink|bridge)", run.text("notes").lower())
    return Cluster.of(hardware, _needed(run, "num_gpus"), gpus_per_node=node, nic=nic, bridge=bridge)


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
#: models with a squared ReLU and no biases (NVIDIA/NeMo-Framework-Launcher, conf/training/nemotron)
_SQUARED = ("nemotron",)
#: ranks and heads of the latent attention of DeepSeek-V2 and -V3 (deepseek-ai/DeepSeek-V3 config.json)
_LATENT: dict[str, Any] = {
    "q_lora": 1536,
    "kv_lora": 512,
    "rope_head_dim": 64,
    "nope_head_dim": 128,
    "value_head_dim": 128,
}
#: groups of experts, and from how many a token's come, by model (config.json of each)
_GROUPS = {"deepseek-v3": (8, 4), "deepseek-r1": (8, 4), "deepseek-v2": (8, 3)}
#: width of the dense layers of a mixture of experts, by model (config.json of each); a table gives the experts' width
_DENSE_FFN = {"deepseek-v3": 18432, "deepseek-v2": 12288, "deepseek-r1": 18432, "kimi-k2": 18432}


#: columns with the sizes of a model
SIZES = ("hidden", "layers", "heads", "ffn", "vocab")


def run_config(run: Run) -> ModelConfig:
    """Return the model of a run from its columns, or from the catalog where its sizes are blank.

    Raises
    ------
    UnusableRunError
        When a column is blank that has no usual value.
    UsageError
        When the catalog has no model of that name.
    """
    if not any(run.text(size) for size in SIZES):
        return named_model(run.text("model"))
    moe = read_experts(run.text("moe"))
    hidden, heads, ffn = _needed(run, "hidden"), _needed(run, "heads"), _needed(run, "ffn")
    framework, _ = nearest_framework(run.text("framework"), shards=_zero(run) == 3)
    facts, name, layers = _facts(run), run.text("model"), _needed(run, "layers")
    squared = name.startswith(_SQUARED)
    groups, chosen = _GROUPS.get(name, (0, 0)) if moe.experts else (0, 0)
    bias = not facts.rms_norm and framework.bias and not squared
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
        activation="silu" if facts.gated else "relu2" if squared else _gelu(run),
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
        expert_groups=groups,
        token_groups=chosen,
        facts=facts,
    )
    return dataclasses.replace(config, **_LATENT) if moe.latent else config


def _gelu(run: Run) -> str:
    """Return which GELU a model has: GPT-2's own in transformers, unless notes say "activation=gelu_pytorch_tanh"."""
    own = run.text("model").startswith("gpt2") and "huggingface" in run.text("framework")
    return _stated(run, "activation") or ("gelu_new" if own else "gelu")


def _facts(run: Run) -> Architecture:
    """Return the kind of layers that the columns name; rotary positions, RMSNorm and gates where they are blank."""
    rotary = bool(run.whole("rotary", 1))
    return Architecture(
        sinks=run.text("model").startswith("gpt-oss"),
        causal="bert" not in run.text("model"),
        learned_positions=not rotary,
        rms_norm=run.text("norm", "rms").startswith("rms"),
        gated=bool(run.whole("gated", 1)),
        rotary=rotary,
    )


def run_plan(run: Run) -> TrainingPlan:
    """Return the plan of a run; what its columns leave open is as the framework does it.

    Raises
    ------
    UnusableRunError
        When the recomputation is unknown: it is up to a third of the step.
    UsageError
        When a cell names what no plan has.
    """
    recompute = run.text("recompute", "none")
    if recompute == "unknown":
        raise UnusableRunError("recompute is not published")
    pp, batch = run.whole("pp", 1) or 1, _needed(run, "gbs")
    ranks = max(1, _needed(run, "num_gpus") // ((run.whole("tp", 1) or 1) * (run.whole("cp", 1) or 1) * pp))
    return TrainingPlan(
        batch=batch,
        seq=_needed(run, "seq"),
        micro_batch=min(run.whole("mbs", 1) or 1, max(1, batch // ranks)),
        tp=run.whole("tp", 1) or 1,
        cp=run.whole("cp", 1) or 1,
        pp=pp,
        ep=run.whole("ep", 1) or 1,
        etp=_expert_tensor(run),
        sp=bool(run.whole("sp")) if run.text("sp") else None,
        vp=(run.whole("vp", 1) or 1) if pp > 1 else 1,
        zero=_zero(run),
        hsdp=_hybrid(run),
        dtype=_dtype(run.text("dtype", "bf16")),
        recompute=recompute,
        attention=_attention(run),
        tp_overlap=bool(run.whole("tp_overlap")) if run.text("tp_overlap") else None,
        cp_algorithm="ring" if run.text("cp_balanced") == "0" else "",
        framework=run.text("framework", "megatron-te"),
        grad_dtype={2: "bf16", 4: "fp32"}.get(run.whole("grad_bytes"), ""),
        optimizer=_stated(run, "optimizer") or ("none" if "no optimizer" in run.text("notes") else "adam"),
        lora=adapter_rank(run),
        lora_targets=adapter_targets(run),
        frozen_dtype="nf4" if quantised_base(run) else "",
        dispatcher=_dispatcher(run),
        offload=_stated(run, "offload"),
        offload_fraction=_stated_number(run, "offload_fraction", 1.0),
        cpu_optimizer=_stated(run, "cpu_optimizer"),
        cpu_threads=int(_stated_number(run, "cpu_threads", 0)),
        cpu_overlap=_stated(run, "cpu_overlap"),
        encoder_seq=int(_stated_number(run, "encoder_seq", 0)),
        documents=tuple(int(length) for length in re.findall(r"\d+", _stated(run, "documents"))),
        length_spread=_stated_number(run, "length_spread", 0.0),
        expert_overlap=_stated(run, "expert_overlap") == "1",
        shared_expert_overlap=_stated(run, "shared_expert_overlap") == "1",
        dispatch_dtype=_stated(run, "dispatch_dtype"),
        schedule=_stated(run, "schedule"),
    ).changed()


def _stated(run: Run, key: str) -> str:
    """Return what a column of its own says, or the notes as in "offload=optimizer,parameters"; "" for neither."""
    found = re.search(rf"\b{key}=([\w.,-]*\w)", run.text("notes"))
    return run.text(key) or (found[1] if found else "")


def _stated_number(run: Run, key: str, default: float) -> float:
    """Return the same as a number.

    Raises
    ------
    UnusableRunError
        When it is none.
    """
    try:
        return float(_stated(run, key) or default)
    except ValueError:
        raise UnusableRunError(f"{key} = {_stated(run, key)} is no number") from None


def _hybrid(run: Run) -> bool:
    """Return whether weights are shared out within a node only: the column ``zero`` or one of its own says so."""
    return run.text("zero").lower() == "hsdp" or run.text("hsdp").lower() in ("1", "true", "yes")


def _zero(run: Run) -> int:
    """Return what ranks share out: 0 to 3, and 3 for HSDP."""
    return 3 if run.text("zero").lower() == "hsdp" else run.whole("zero")


def _expert_tensor(run: Run) -> int:
    """Return over how many tensor parallel ranks each expert is shared out; 0 as the framework does.

    It has a column of its own, or notes say "experts without tensor parallelism", which is one rank.
    """
    whole = re.search(r"\bexperts\b[^;,.]*\bwithout tensor parallelism\b", run.text("notes").lower())
    return int(_stated_number(run, "etp", 1 if whole else 0))


def _dispatcher(run: Run) -> str:
    """Return how tokens reach the experts of other ranks; "" as the framework does.

    It has a column of its own; the name of a framework, or notes, say it where it is DeepEP.
    """
    named = "deepep" in f"{run.text('framework')} {run.text('notes')}".lower()
    return run.text("dispatcher") or ("deepep" if named else "")


def _dtype(text: str) -> str:
    """Return the dtype that a name of a precision means: "FP8-CS" is fp8, "bf16-mixed" bf16."""
    key = text.lower().replace("_", "-").removeprefix("amp-")
    for words, dtype in (("mx", "mxfp8"), ("fp4", "nvfp4"), ("fp8", "fp8"), ("bf16", "bf16"), ("fp16", "fp16")):
        if words in key:
            return dtype
    return key


def _attention(run: Run) -> str:
    """Return the kernel of attention that a run names; "" for the framework's where it names none that it can have.

    Tables write "cudnn" for Transformer Engine, which runs another kernel where a framework switches cuDNN's off, and
    "sdpa" for PyTorch's function, whose kernel depends on the machine where a framework orders its choices.
    """
    kernel = _attention_kernel(run.text("attention"))
    framework, known = nearest_framework(run.text("framework"), shards=_zero(run) == 3)
    ordered = bool(framework.attention_on) and run.text("attention") == "sdpa"
    return "" if known and (ordered or kernel in framework.switched_off) else kernel


def _attention_kernel(text: str) -> str:
    """Return the kernel of attention that a cell names; "" for none that is known."""
    if text in ATTENTION:
        return text
    known = (("unfused", "unfused"), ("math", "unfused"), ("cudnn", "cudnn"), ("3", "fa3"), ("triton", "fa1"))
    found = next((kernel for words, kernel in known if words in text.lower()), "")
    return found or ("fa2" if re.search(r"2|sdpa|flash", text.lower()) else "")


def _needed(run: Run, column: str) -> int:
    value = run.whole(column)
    if value < 1:
        found = run.text(column)
        raise UnusableRunError(f"{column} = {found} is below 1" if found else f"{column} is blank")
    return value
