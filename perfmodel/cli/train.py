"""The command `train`: time of a training step, where it goes, memory of each stage, and what a run costs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli._options import (
    FormatOption,
    HostBandwidthOption,
    HostMemoryOption,
    MachinesOption,
    NicOption,
    NoBridgeOption,
    NodeOption,
    OutputOption,
    PlotOption,
    PriceOption,
    SpreadOption,
    WideOption,
    fraction_option,
    option,
)
from perfmodel.cli._output import Destination, check_plot, context, save_plot
from perfmodel.cli._training_options import (
    AttentionOption,
    BatchOption,
    CpAlgorithmOption,
    CpOption,
    CpuOptimizerOption,
    CpuOverlapOption,
    CpuThreadsOption,
    DispatchDtypeOption,
    DispatcherOption,
    DocumentsOption,
    DtypeOption,
    EncoderSeqOption,
    EpOption,
    EtpOption,
    ExpertOverlapOption,
    FrameworkOption,
    FrozenDtypeOption,
    GpusOption,
    GradDtypeOption,
    HsdpOption,
    ImbalanceOption,
    LoraOption,
    LoraTargetsOption,
    MicroBatchOption,
    ModelArgument,
    OffloadFractionOption,
    OffloadOption,
    OptimizerOption,
    OverlapOption,
    PpOption,
    RecomputeOption,
    ScheduleOption,
    SeqOption,
    SharedOverlapOption,
    SpOption,
    StagesOption,
    TokensOption,
    TpOption,
    VpOption,
    ZeroOption,
)
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster
    from perfmodel.training.goodput import Goodput
    from perfmodel.training.mixed import MixedStep
    from perfmodel.training.result import TrainingStep
    from perfmodel.workloads.model_config import ModelConfig

#: most rows of one command
_MOST = 1000


def command(
    config: ModelArgument,
    on: MachinesOption = None,
    gpus: GpusOption = "8",
    tp: TpOption = None,
    cp: CpOption = None,
    pp: PpOption = None,
    vp: VpOption = None,
    stages: StagesOption = None,
    ep: EpOption = None,
    etp: EtpOption = None,
    dispatcher: DispatcherOption = "",
    expert_overlap: ExpertOverlapOption = False,
    shared_expert_overlap: SharedOverlapOption = False,
    dispatch_dtype: DispatchDtypeOption = "",
    expert_imbalance: ImbalanceOption = 1.0,
    micro_batch: MicroBatchOption = None,
    batch: BatchOption = None,
    seq: SeqOption = None,
    encoder_seq: EncoderSeqOption = None,
    dtype: DtypeOption = "bf16",
    zero: ZeroOption = None,
    hsdp: HsdpOption = False,
    recompute: RecomputeOption = None,
    sequence_parallel: SpOption = None,
    tp_overlap: OverlapOption = None,
    attention: AttentionOption = "",
    cp_algorithm: CpAlgorithmOption = "",
    schedule: ScheduleOption = "",
    framework: FrameworkOption = "megatron",
    optimizer: OptimizerOption = "adam",
    lora: LoraOption = 0,
    lora_targets: LoraTargetsOption = "all",
    frozen_dtype: FrozenDtypeOption = "",
    grad_dtype: GradDtypeOption = "",
    offload: OffloadOption = None,
    offload_fraction: OffloadFractionOption = 1.0,
    cpu_optimizer: CpuOptimizerOption = "",
    cpu_threads: CpuThreadsOption = 0,
    cpu_overlap: CpuOverlapOption = "",
    documents: DocumentsOption = None,
    length_spread: SpreadOption = 0.0,
    host_memory: HostMemoryOption = None,
    host_bandwidth: HostBandwidthOption = None,
    nic: NicOption = None,
    gpus_per_node: NodeOption = None,
    no_bridge: NoBridgeOption = False,
    jitter: Annotated[
        float | None,
        fraction_option("--jitter", "Standard deviation of a GPU's step time; all wait for the slowest."),
    ] = None,
    loaders: Annotated[int | None, option("--loaders", "Processes that load samples, over all hosts.", min=1)] = None,
    load_rate: Annotated[
        float | None, option("--load-rate", "Samples (sequences) that one of them loads in a second.", "X")
    ] = None,
    compress: Annotated[
        str | None,
        option("--compress", "Gradients are exchanged as: topk:0.01, powersgd:4, 1bit, fp8.", "HOW"),
    ] = None,
    mixed: Annotated[
        bool,
        typer.Option("--mixed", help="The machines of --on train together, the batch in proportion to their rates."),
    ] = False,
    checkpoint_rate: Annotated[
        str | None,
        option("--checkpoint-rate", "Bandwidth of the store for all GPUs: adds what failures and saving cost.", "RATE"),
    ] = None,
    checkpoint_async: Annotated[
        bool, typer.Option("--checkpoint-async", help="Training waits for the copy to the host only.")
    ] = False,
    restart: Annotated[str | None, option("--restart", "From a failure to training. Default: 10min.", "TIME")] = None,
    gpu_mtbf_hours: Annotated[
        float | None,
        option("--gpu-mtbf-hours", "Mean time between failures of one GPU. Default: 50,700 (Llama 3).", "H"),
    ] = None,
    price_per_gpu_hour: PriceOption = None,
    tokens: TokensOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="List the terms that add up to each predicted time; --plot draws them.")
    ] = False,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Predict a training step: time with an 80 % interval, MFU, terms, and the memory of each stage.

    Sizes take ranges (1..8, 64..512+64) or lists (1/2/4): one row for each combination.

    Example: perfmodel train llama-3.1-70b --on h100 --gpus 64 --tp 4 --pp 4 --vp 5 --batch 128 --dtype fp8 --explain
    """
    from perfmodel.cli._training import (
        check_host,
        clusters_of,
        documents_of,
        offloads_of,
        ranges_of,
        recomputes_of,
        schedule_of,
        stages_of,
        tokens_of,
    )
    from perfmodel.core.report import report
    from perfmodel.training.fitting import changes_that_fit
    from perfmodel.training.framework import find_framework
    from perfmodel.training.study import Study
    from perfmodel.workloads.catalog import find_model

    destination = Destination.of("train", format_, output, wide=wide)
    check_plot(plot)
    model = find_model(config)
    offloads, host = offloads_of(offload) or ("none",), (host_memory, host_bandwidth)
    check_host(offloads, host)
    clusters = clusters_of(on, gpus, nic, gpus_per_node, not no_bridge, host)
    texts = {"tp": tp, "cp": cp, "pp": pp, "vp": vp, "ep": ep, "micro_batch": micro_batch, "batch": batch, "seq": seq,
             "zero": zero}  # fmt: skip
    fixed = {
        "dtype": dtype, "etp": etp or 0, "dispatcher": dispatcher, "expert_overlap": expert_overlap,
        "shared_expert_overlap": shared_expert_overlap, "dispatch_dtype": dispatch_dtype,
        "stages": stages_of(stages), "expert_imbalance": expert_imbalance, "hsdp": hsdp, "sp": sequence_parallel,
        "tp_overlap": tp_overlap, "attention": attention, "cp_algorithm": cp_algorithm,
        "schedule": schedule_of(schedule), "framework": framework, "optimizer": optimizer, "lora": lora,
        "lora_targets": lora_targets, "frozen_dtype": frozen_dtype, "grad_dtype": grad_dtype,
        "offload_fraction": offload_fraction, "cpu_optimizer": cpu_optimizer, "cpu_threads": cpu_threads,
        "cpu_overlap": cpu_overlap, "documents": documents_of(documents), "length_spread": length_spread,
        "encoder_seq": encoder_seq or 0,
    }  # fmt: skip
    find_framework(framework)
    words = {"recompute": recomputes_of(recompute) or ("none",), "offload": offloads}
    steps, refused = _steps(model, clusters, ranges_of(texts), words, fixed)
    if mixed and any(given is not None for given in (jitter, compress, loaders, checkpoint_rate)):
        remedy = "Leave --jitter, --compress, --loaders and --checkpoint-rate out."
        raise UsageError("--mixed compares rates of machines alone.", place="train", remedy=remedy)
    changed = tuple(_with_whatifs(model, step, jitter, loaders, load_rate, compress) for step in steps)
    single = changed[0] if len(changed) == 1 else None
    run = _run(model, single, checkpoint_rate, checkpoint_async, restart, gpu_mtbf_hours)
    study = Study(
        changed,
        tokens=tokens_of(tokens),
        price_per_gpu_hour=price_per_gpu_hour,
        changes=changes_that_fit(model, single.cluster, single.plan) if single and not single.fits else (),
        goodput=run,
        explain=explain,
        mixed=_mixed(model, clusters, changed, refused) if mixed else None,
        refused=tuple(map(str, refused)),
    )
    machines = list(dict.fromkeys(cluster.hardware.name for cluster in clusters))
    made = report(study, context=context(hardware=machines, model=config, parameters=model.parameters))
    destination.write(dataclasses.replace(made, notes=(*made.notes, *model.remarks)))
    if plot:
        from perfmodel.render.plots.training import training_plot

        save_plot(training_plot(study), plot)


def _steps(
    model: ModelConfig,
    clusters: Sequence[Cluster],
    ranges: Mapping[str, tuple[int, ...]],
    words: Mapping[str, tuple[str, ...]],
    fixed: Mapping[str, Any],
) -> tuple[list[TrainingStep], list[UsageError]]:
    """Return the step of every combination that can run, and why the others cannot."""
    from perfmodel.cli._training import default_sizes, plan_of
    from perfmodel.training.search import full_step

    combinations = [
        (cluster, dict(zip(words, how, strict=True)), dict(zip(ranges, sizes, strict=True)))
        for cluster in clusters
        for how in itertools.product(*words.values())
        for sizes in itertools.product(*ranges.values())
    ]
    if len(combinations) > _MOST:
        raise UsageError(
            f"the ranges give {len(combinations)} rows; at most {_MOST} are shown.",
            place="train",
            remedy="Use perfmodel search train.",
        )
    steps: list[TrainingStep] = []
    refused: list[UsageError] = []
    for cluster, how, given in combinations:
        try:
            filled = default_sizes(model, cluster, given)
            steps.append(full_step(model, cluster, plan_of(filled, {**fixed, **how, **_of_optimizers(how, words)})))
        except UsageError as error:
            refused.append(error)
    if not steps:
        raise refused[0]
    return steps, refused


def _of_optimizers(how: Mapping[str, str], words: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    """Return what a row without an optimizer on the host, beside one that has it, has in place of its options."""
    from perfmodel.training.choices import UPDATED_THERE

    others = any("optimizer" in offload for offload in words["offload"])
    return dict(UPDATED_THERE) if others and "optimizer" not in how["offload"] else {}


def _with_whatifs(
    model: ModelConfig,
    step: TrainingStep,
    jitter: float | None,
    loaders: int | None,
    load_rate: float | None,
    compress: str | None,
) -> TrainingStep:
    """Return a step with compressed gradients, stragglers and waiting for data."""
    from perfmodel.training.options import with_compression, with_loading, with_stragglers

    if (loaders is None) != (load_rate is None):
        raise UsageError("--loaders and --load-rate belong together.", place="train", remedy="Give both.")
    if compress is not None:
        step = with_compression(model, step, compress)
    if jitter is not None:
        step = with_stragglers(step, jitter)
    if loaders is not None and load_rate is not None:
        step = with_loading(step, loaders, load_rate)
    return step


def _mixed(
    model: ModelConfig, clusters: Sequence[Cluster], steps: Sequence[TrainingStep], refused: Sequence[UsageError]
) -> MixedStep:
    """Return the step of all clusters together."""
    from perfmodel.training.mixed import mixed_training

    if refused:
        raise refused[0]
    if len(steps) != len(clusters):
        raise UsageError("--mixed is for one plan on several machines.", place="train", remedy="Give no ranges.")
    return mixed_training(model, clusters, steps[0].plan)


def _run(
    model: ModelConfig,
    step: TrainingStep | None,
    rate: str | None,
    beside: bool,
    restart: str | None,
    hours: float | None,
) -> Goodput | None:
    """Return what failures and checkpoints leave of a long run, if it was asked for."""
    from perfmodel.core.units import HOUR_S, parse_quantity
    from perfmodel.training.goodput import GPU_MTBF_S, goodput
    from perfmodel.training.memory import checkpoint_bytes

    if rate is None:
        if beside or restart is not None or hours is not None:
            raise UsageError("--checkpoint-rate is missing.", place="train", remedy="Write --checkpoint-rate 40GB/s.")
        return None
    if step is None:
        raise UsageError("--checkpoint-rate is for a single step.", place="train", remedy="Give no ranges.")
    store = parse_quantity(rate, "B/s", place="--checkpoint-rate")
    pause = parse_quantity(restart or "600s", "s", place="--restart")
    if store <= 0:
        raise UsageError(f"a rate of {rate} is not above 0.", place="--checkpoint-rate", remedy="Write 40GB/s.")
    if pause < 0:
        raise UsageError(f"{restart} is below 0.", place="--restart", remedy="Write 600s.")
    if hours is not None and not 0 < hours < math.inf:
        raise UsageError(f"{hours:g} hours are not above 0.", place="--gpu-mtbf-hours", remedy="Write 50700.")
    links = {link.name: link.bandwidth_bytes_per_s for link in step.cluster.hardware.links}
    return goodput(
        checkpoint_bytes(model, step.cluster, step.plan),
        step.cluster.gpus,
        store_bytes_per_s=store,
        copy_bytes_per_s=links.get("pcie", float("inf")),
        synchronous=not beside,
        restart_s=pause,
        gpu_mtbf_s=GPU_MTBF_S if hours is None else hours * HOUR_S,
    )
