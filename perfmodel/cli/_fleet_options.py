"""Options of `serve` that say which deployments serve the requests, and by which rules of a scheduler."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import fraction_option, option

TpOption = Annotated[str, typer.Option("--tp", metavar="LIST", help="Tensor parallel GPUs: 2, 1/2/4 or 1..8.")]
PpOption = Annotated[str, typer.Option("--pp", metavar="LIST", help="Pipeline stages.")]
EpOption = Annotated[str, typer.Option("--ep", metavar="LIST", help="GPUs that share the experts of a layer.")]
DpOption = Annotated[
    str,
    typer.Option(
        "--dp", metavar="LIST", help="Copies of the attention with sequences of their own; without --ep replicas."
    ),
]
WeightsOption = Annotated[
    str | None,
    option(
        "--weights",
        "Formats of the weights: bf16, fp8, int4, nvfp4/fp8, ... "
        "Default: that of the checkpoint, as its config says, else bf16.",
        "LIST",
    ),
]
KvOption = Annotated[str, typer.Option("--kv", metavar="LIST", help="Formats of keys and values: bf16, fp8, bf16/fp8.")]
MaxBatchedTokensOption = Annotated[
    str | None,
    option("--max-batched-tokens", "Most tokens of a step: the chunk of prompts. Default: the engine's.", "LIST"),
]
BatchSizeOption = Annotated[
    int | None,
    option("--batch-size", "Requests of a static or dynamic batch. Default: 32.", min=1),
]
MaxWaitOption = Annotated[
    str | None,
    option("--max-wait", "Longest wait for a dynamic batch to fill (100ms).", "TIME"),
]
PreemptionOption = Annotated[
    str | None,
    option("--preemption", "What a full cache costs: recompute (default) or swap.", "HOW"),
]
WatermarkOption = Annotated[
    float | None,
    fraction_option("--watermark", "Share of the cache that stays free when a request enters."),
]
ConservativenessOption = Annotated[
    float | None,
    option(
        "--conservativeness",
        "Factor on SGLang's estimate of what sequences still generate (--schedule-conservativeness). Default: 1.",
        "FACTOR",
    ),
]
ReplicasOption = Annotated[int, typer.Option("--replicas", metavar="N", help="Deployments that serve together.", min=1)]
RoutingOption = Annotated[
    str, typer.Option("--routing", metavar="HOW", help="How requests are spread: round-robin or least-loaded.")
]
PrefillReplicasOption = Annotated[
    int,
    typer.Option(
        "--prefill-replicas",
        metavar="N",
        help="Deployments that compute prompts only; --replicas then decode, and keys and values move between them.",
        min=0,
    ),
]
KvLinkOption = Annotated[
    str | None,
    typer.Option(
        "--kv-link",
        metavar="BANDWIDTH",
        help="Bandwidth of one replica between prefill and decode. Default: that of its GPUs' networks.",
    ),
]
