"""The command `search train`: the best ways to train a model on a cluster, ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
    SchedulerOption,
    SpreadOption,
    TopOption,
    WideOption,
    WorkersOption,
)
from perfmodel.cli._output import Destination, check_plot, context, save_plot
from perfmodel.cli._progress import counted
from perfmodel.cli._sharing import end_code
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
    TokensOption,
    TpOption,
    VpOption,
    ZeroOption,
)
from perfmodel.core.saved import SEEN
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster
    from perfmodel.workloads.model_config import ModelConfig


def command(
    config: ModelArgument,
    on: MachinesOption = None,
    gpus: GpusOption = "8",
    tp: TpOption = None,
    cp: CpOption = None,
    pp: PpOption = None,
    vp: VpOption = None,
    ep: EpOption = None,
    etp: EtpOption = None,
    dispatcher: DispatcherOption = "",
    expert_overlap: ExpertOverlapOption = False,
    shared_expert_overlap: SharedOverlapOption = False,
    dispatch_dtype: DispatchDtypeOption = "",
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
    top: TopOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = "",
    price_per_gpu_hour: PriceOption = None,
    tokens: TokensOption = None,
    plot: PlotOption = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Find the fastest ways to train a model that fit: every combination of the ranges, pruned exactly and ranked.

    A size that is not given ranges over what may be useful; one number holds it fixed. Set-ups of one rank cannot be
    told apart by their intervals.

    Example: perfmodel search train llama-3.1-70b --on h100 --gpus 64 --batch 256 --seq 8192 --dtype fp8 --tp 1..8
    """
    from perfmodel.cli._training import (
        check_host,
        clusters_of,
        default_sizes,
        documents_of,
        offloads_of,
        plan_of,
        schedule_of,
        tokens_of,
    )
    from perfmodel.core.report import report
    from perfmodel.training.framework import find_framework
    from perfmodel.training.search import search
    from perfmodel.training.space import default_space
    from perfmodel.workloads.catalog import find_model

    destination = Destination.of("search train", format_, output, wide=wide)
    check_plot(plot)
    model = find_model(config)
    find_framework(framework)
    wanted, host = offloads_of(offload), (host_memory, host_bandwidth)
    check_host(wanted, host)
    clusters = clusters_of(on, gpus, nic, gpus_per_node, not no_bridge, host)
    run_tokens = tokens_of(tokens)
    texts = {"tp": tp, "cp": cp, "pp": pp, "vp": vp, "ep": ep, "micro_batch": micro_batch, "batch": batch, "zero": zero}
    ranges = _ranges(model, clusters, texts, schedule, recompute, wanted)
    fixed = {
        "dtype": dtype, "etp": etp or 0, "dispatcher": dispatcher, "expert_overlap": expert_overlap,
        "shared_expert_overlap": shared_expert_overlap, "dispatch_dtype": dispatch_dtype, "hsdp": hsdp,
        "sp": sequence_parallel, "tp_overlap": tp_overlap, "attention": attention, "cp_algorithm": cp_algorithm,
        "schedule": schedule_of(schedule), "framework": framework, "optimizer": optimizer, "lora": lora,
        "lora_targets": lora_targets, "frozen_dtype": frozen_dtype, "grad_dtype": grad_dtype,
        "offload_fraction": offload_fraction, "cpu_optimizer": cpu_optimizer, "cpu_threads": cpu_threads,
        "cpu_overlap": cpu_overlap, "documents": documents_of(documents), "length_spread": length_spread,
        "encoder_seq": encoder_seq or 0,
        # the plan that the space changes; parameters need zero 3, which it may lack
        "offload": "optimizer" if any("optimizer" in parts for parts in wanted) else "none",
    }  # fmt: skip
    base = plan_of(default_sizes(model, clusters[0], _length(seq)), fixed)
    space = default_space(model, clusters, base, **ranges)
    listed = top or (None if destination.holds_every_row else SEEN)
    with counted(space.points * len(clusters)) as advance:
        found = search(model, clusters, base, space, top=listed, workers=workers, scheduler=scheduler, progress=advance)
    machines = list(dict.fromkeys(cluster.hardware.name for cluster in clusters))
    facts = context(hardware=machines, model=config, parameters=model.parameters)
    made = report(found, context=facts, tokens=run_tokens, price_per_gpu_hour=price_per_gpu_hour)
    destination.write(replace(made, notes=(*made.notes, *model.remarks)))
    if plot:
        from perfmodel.render.plots import plot as draw

        save_plot(draw(replace(found, best=found.best[: top or SEEN])), plot)
    return end_code(found.ended)


def _ranges(
    model: ModelConfig,
    clusters: Sequence[Cluster],
    texts: Mapping[str, str | None],
    schedule: str,
    recompute: str | None,
    offloads: tuple[str, ...],
) -> dict[str, tuple[Any, ...]]:
    """Return what a search tries of each size and of the rest; what is left out ranges over what may be useful.

    Raises
    ------
    UsageError
        When a text is wrong, no number of virtual stages suits the schedule, or several clusters have no batch.
    """
    from perfmodel.cli._training import ranges_of, recomputes_of, virtual_stages

    ranges: dict[str, tuple[Any, ...]] = dict(ranges_of(texts))
    if stages := virtual_stages(model, max(cluster.gpus for cluster in clusters), schedule, ranges):
        ranges["vp"] = stages
    if recompute is not None:
        ranges["recompute"] = recomputes_of(recompute)
    if offloads:
        ranges["offload"] = offloads
    if len({cluster.gpus for cluster in clusters}) > 1 and texts["batch"] is None:
        raise UsageError("clusters of several sizes need a batch.", place="--batch", remedy="Write --batch 256.")
    return ranges


def _length(seq: str | None) -> dict[str, int]:
    """Return the one length of the sequences of a search, nothing where none was given."""
    from perfmodel.cli._training import ranges_of

    lengths = ranges_of({"seq": seq}).get("seq", ())
    if len(lengths) > 1:
        raise UsageError("a search has one length of sequences.", place="--seq", remedy=f"Write --seq {lengths[0]}.")
    return {"seq": lengths[0]} if lengths else {}
