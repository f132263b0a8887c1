"""The command `search train`: the best ways to train a model on a cluster, ranked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.cli._options import (
    SEEN,
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
    SpOption,
    TokensOption,
    TpOption,
    VpOption,
    ZeroOption,
)
from perfmodel.errors import UsageError


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
        ranges_of,
        recomputes_of,
        schedule_of,
        tokens_of,
        virtual_stages,
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
    ranges: dict[str, tuple[Any, ...]] = dict(ranges_of(texts))
    if stages := virtual_stages(model, max(cluster.gpus for cluster in clusters), schedule, ranges):
        ranges["vp"] = stages
    if recompute is not None:
        ranges["recompute"] = recomputes_of(recompute)
    if wanted:
        ranges["offload"] = wanted
    if len({cluster.gpus for cluster in clusters}) > 1 and batch is None:
        raise UsageError("clusters of several sizes need a batch.", place="--batch", remedy="Write --batch 256.")
    fixed = {
        "dtype": dtype,
        "etp": etp or 0,
        "dispatcher": dispatcher,
        "expert_overlap": expert_overlap,
        "hsdp": hsdp,
        "sp": sequence_parallel,
        "tp_overlap": tp_overlap,
        "attention": attention,
        "cp_algorithm": cp_algorithm,
        "schedule": schedule_of(schedule),
        "framework": framework,
        "optimizer": optimizer,
        "lora": lora,
        "lora_targets": lora_targets,
        "frozen_dtype": frozen_dtype,
        "grad_dtype": grad_dtype,
        # the plan that the space changes; parameters need zero 3, which it may lack
        "offload": "optimizer" if any("optimizer" in parts for parts in wanted) else "none",
        "offload_fraction": offload_fraction,
        "documents": documents_of(documents),
        "length_spread": length_spread,
        "encoder_seq": encoder_seq or 0,
    }
    lengths = ranges_of({"seq": seq}).get("seq", ())
    if len(lengths) > 1:
        raise UsageError("a search has one length of sequences.", place="--seq", remedy=f"Write --seq {lengths[0]}.")
    sequences = {"seq": lengths[0]} if lengths else {}
    base = plan_of(default_sizes(model, clusters[0], sequences), fixed)
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
