"""Options that `train` and `search train` share."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import fraction_option, option

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A model: a config.json or its folder, a name (llama-3.1-70b, gpt3-175b), or a shape in quotes "
        "('layers=32 hidden=4096 heads=32 vocab=32000').",
    ),
]
GpusOption = Annotated[str, typer.Option("--gpus", metavar="N", help="GPUs of the cluster; a range or list for rows.")]
TpOption = Annotated[str | None, option("--tp", "Tensor parallel ranks.")]
CpOption = Annotated[str | None, option("--cp", "Context parallel ranks.")]
PpOption = Annotated[str | None, option("--pp", "Stages of the pipeline.")]
VpOption = Annotated[str | None, option("--vp", "Virtual stages a GPU (interleaved pipeline).")]
StagesOption = Annotated[
    str | None,
    option("--stages", "Layers of each stage where they are unequal; an encoder's come first.", "N,N,..."),
]
EpOption = Annotated[str | None, option("--ep", "Expert parallel ranks.")]
EtpOption = Annotated[
    int | None,
    option("--etp", "Tensor parallel ranks of the experts. Default: as many as --tp; 1 for megatron-bridge.", min=1),
]
ImbalanceOption = Annotated[
    float,
    typer.Option("--expert-imbalance", metavar="X", help="Tokens of the busiest expert parallel rank over the mean."),
]
DispatcherOption = Annotated[
    str,
    option(
        "--dispatcher",
        "How tokens reach experts of other ranks: alltoall (each copy), deepep (one copy to each rank and node), "
        "allgather. Default: the framework's.",
        "NAME",
    ),
]
ExpertOverlapOption = Annotated[
    bool,
    typer.Option(
        "--expert-overlap",
        help="Exchanges of experts run beside the passes of another micro batch (Megatron-Core's combined 1F1B).",
    ),
]
SharedOverlapOption = Annotated[
    bool,
    typer.Option(
        "--shared-expert-overlap",
        help="Shared experts run beside their layer's exchanges of routed ones (Megatron-LM's option of that name).",
    ),
]
DispatchDtypeOption = Annotated[
    str,
    option(
        "--dispatch-dtype",
        "Of tokens on their way to experts: bf16, or fp8 with a scale for 128 numbers (DeepSeek-V3). Default: bf16.",
        "DTYPE",
    ),
]
MicroBatchOption = Annotated[str | None, option("--micro-batch", "Sequences of a GPU that run together.")]
BatchOption = Annotated[
    str | None,
    option("--batch", "Sequences of a step over all GPUs. Default: one micro batch a rank, 8 a stage of a pipeline."),
]
SeqOption = Annotated[
    str | None, option("--seq", "Tokens of a sequence. Default: the model's positions, at most 8192.", "N")
]
EncoderSeqOption = Annotated[
    int | None,
    option("--encoder-seq", "Tokens of the encoder's sequence (T5, BART). Default: as many as --seq.", min=1),
]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="DTYPE", help="Of the products: bf16, fp16, tf32, fp32, fp8, mxfp8, nvfp4.")
]
ZeroOption = Annotated[
    str | None,
    option(
        "--zero",
        "What data parallel ranks share out: 0 nothing, 1 optimizer, 2 and gradients, 3 and weights (FSDP). Default: 3 "
        "for FSDP and DeepSpeed, 0 for DDP, else 1.",
        "0..3",
    ),
]
HsdpOption = Annotated[
    bool, typer.Option("--hsdp", help="Share out within a domain of NVLink only, and reduce between domains.")
]
RecomputeOption = Annotated[
    str | None,
    option(
        "--recompute",
        "What backward computes anew: none, selective (core of attention), selective-op, selective-layer, full.",
        "HOW",
    ),
]
SpOption = Annotated[
    bool | None,
    typer.Option(
        "--sequence-parallel/--no-sequence-parallel",
        help="Tensor parallel ranks share out norms too. Default: as the framework does.",
        show_default=False,
    ),
]
OverlapOption = Annotated[
    bool | None,
    typer.Option(
        "--tp-overlap/--no-tp-overlap",
        help="Tensor parallel exchanges run beside products. Default: as the framework does.",
        show_default=False,
    ),
]
AttentionOption = Annotated[
    str,
    option(
        "--attention", "Kernel: fa1, fa2, fa3, cudnn, efficient, unfused, eager-unfused. Default: framework's.", "NAME"
    ),
]
CpAlgorithmOption = Annotated[
    str,
    option("--cp-algorithm", "How attention is split: zigzag, ring, ulysses. Default: the framework's.", "NAME"),
]
ScheduleOption = Annotated[
    str,
    option(
        "--schedule",
        "Pipeline: 1f1b, interleaved, zero-bubble, dualpipe, gpipe. Default: 1f1b, interleaved with --vp.",
        "NAME",
    ),
]
FrameworkOption = Annotated[
    str,
    typer.Option(
        "--framework",
        metavar="NAME",
        help="megatron, nemo, megatron-bridge, fsdp2-compile, fsdp2-eager, fsdp1-eager, ddp-compile, deepspeed, "
        "picotron, picotron-sdpa, prime-rl, prime-rl-sft, huggingface, huggingface-liger, unsloth, llmq, or a file.",
    ),
]
OptimizerOption = Annotated[
    str, typer.Option("--optimizer", metavar="NAME", help="adam, adam-8bit, adam-bf16, sgd, muon, none.")
]
LoraOption = Annotated[
    int, typer.Option("--lora", metavar="RANK", help="Train adapters of this rank beside frozen weights only.", min=0)
]
LoraTargetsOption = Annotated[
    str,
    typer.Option(
        "--lora-targets",
        metavar="MATRICES",
        help="Matrices of a layer that have adapters: all, attention, qkv or qv.",
    ),
]
FrozenDtypeOption = Annotated[
    str,
    typer.Option(
        "--frozen-dtype",
        metavar="DTYPE",
        help="Store the weights beside adapters in it: nf4 (QLoRA). Default: as they compute.",
    ),
]
GradDtypeOption = Annotated[
    str,
    option(
        "--grad-dtype",
        "Of gradients in their exchange, not of kept ones: fp32, bf16. Default: the framework's.",
        "DTYPE",
    ),
]
OffloadOption = Annotated[
    str | None,
    option(
        "--offload",
        "What lives on the host: optimizer (updated by the CPU), parameters (zero 3), activations; several with "
        "commas. Default: none.",
        "PARTS",
    ),
]
OffloadFractionOption = Annotated[
    float,
    fraction_option("--offload-fraction", "Share of the parameters whose optimizer is on the host. Default: 100%."),
]
CpuOptimizerOption = Annotated[
    str,
    option(
        "--cpu-optimizer", "How the CPU updates them: fused, or for-loop (torch.optim's default). Default: framework's."
    ),
]
CpuThreadsOption = Annotated[
    int, option("--cpu-threads", "Threads of a rank that update them. Default: as its launcher has it.", "N", min=0)
]
CpuOverlapOption = Annotated[
    str,
    option(
        "--cpu-overlap",
        "What runs beside that update: none, its copies, or all of it beside the passes of the next step. Default: the "
        "framework's.",
        "WHAT",
    ),
]
DocumentsOption = Annotated[
    str | None,
    option(
        "--documents",
        "Tokens of the documents of a sequence, which attend to themselves alone: a mean, or lengths that are equally "
        "frequent. Default: one document a sequence.",
        "N,N,...",
    ),
]
TokensOption = Annotated[
    str | None, option("--tokens", "Tokens of a run: 15T. Default with a price: 20 a parameter.", "T")
]
