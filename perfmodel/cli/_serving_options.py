"""Options that `serve` and `search serve` share."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli._options import fraction_option, option

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A model: a config.json or its folder, a name (llama-3.1-8b), or a shape (layers=32 hidden=4096 ...).",
    ),
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Engine: vllm, sglang, trtllm, ... or the file of a profile."),
]
EngineVersionOption = Annotated[
    str,
    option(
        "--engine-version",
        "Release of the engine (0.6.3), or a date (2025-06, June 2025), which chooses among its profiles.",
        "VERSION",
    ),
]
KvTokensOption = Annotated[
    int | None,
    option(
        "--kv-tokens", "Tokens that the KV cache holds, as the engine prints them (vLLM: num_gpu_blocks x 16).", min=1
    ),
]
UtilizationOption = Annotated[
    float | None,
    fraction_option("--memory-utilization", "Share of the memory that the engine takes. Default: the engine's (90%)."),
]
MaxNumSeqsOption = Annotated[
    int | None, option("--max-num-seqs", "Most sequences that run at once. Default: the engine's.", min=1)
]
StatesOption = Annotated[
    str,
    option(
        "--states",
        "Dtype of the states of linear attention and Mamba: fp32, bf16. Default: as the model's config or the engine "
        "has it.",
        "DTYPE",
    ),
]
IslOption = Annotated[float, typer.Option("--isl", metavar="TOKENS", help="Mean tokens of a prompt.", min=1)]
OslOption = Annotated[float, typer.Option("--osl", metavar="TOKENS", help="Mean tokens of an answer.", min=1)]
PrefixOption = Annotated[
    int, typer.Option("--prefix", metavar="TOKENS", help="Leading tokens of every prompt in the prefix cache.", min=0)
]
NumRequestsOption = Annotated[
    int | None,
    option(
        "--num-requests",
        "Requests of each load. Default: 10 for each user (64 to 20000), or 1000, near the capacity 10000.",
        min=1,
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of arrivals and lengths.", min=0)]
SloOption = Annotated[
    str | None,
    option(
        "--slo",
        "Objectives: ttft=500ms,tpot=30ms,p99 (also itl, latency; mean or a percentile, p95 if none is named; "
        "ttft:p99=1s for one). Adds goodput and the largest load that meets them; exit code 1 when none does.",
        "OBJECTIVES",
    ),
]
PolicyOption = Annotated[
    str,
    option(
        "--policy",
        "Scheduler: chunked-prefill (vLLM v1), chunked-recompute and prefill-first (vLLM v0), no-evict (TensorRT-LLM), "
        "new-token-ratio (SGLang), static, dynamic. Default: the engine's.",
        "NAME",
    ),
]
DispatcherOption = Annotated[
    str,
    option(
        "--dispatcher",
        "How copies of the attention exchange tokens with experts that they share: allgather, alltoall (each copy), "
        "deepep (one copy to each rank). Default: the engine's.",
        "NAME",
    ),
]
BatchOverlapOption = Annotated[
    bool,
    typer.Option(
        "--batch-overlap",
        help="A step runs as two halves, whose exchanges with experts hide behind each other's compute (SGLang's "
        "two-batch overlap, vLLM's dual batch overlap).",
    ),
]
EagerOption = Annotated[
    bool, typer.Option("--eager", help="Launch every kernel from the host: no CUDA graphs. Longer steps hide it.")
]
SamplingOption = Annotated[
    str,
    typer.Option(
        "--sampling", metavar="NAME", help="How a token is drawn: greedy, multinomial, gumbel_fused, top_k, top_p, ..."
    ),
]
SpeculateOption = Annotated[
    str | None,
    option(
        "--speculate",
        "Speculative decoding: tokens of a draft, and the probability that one is kept (4:0.7).",
        "TOKENS:SHARE",
    ),
]
DraftOption = Annotated[
    str, option("--draft", "Model that drafts, as CONFIG. Default: a draft without a model (n-grams).", "CONFIG")
]
RequestsOption = Annotated[
    str | None,
    option(
        "--requests",
        "Requests of a CSV or JSON lines file: arrival_s, prompt, output. With --qps or --concurrency only their "
        "lengths are used.",
        "FILE",
    ),
]
