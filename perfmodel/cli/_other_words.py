"""Options as other tools name them: which of ours a user means who writes one of Megatron's, vLLM's or torchrun's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

#: our options -> what other tools call them, without dashes before; the first is meant whose options a command has
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "--on HW": ("hardware", "hw", "gpu", "machine", "device", "gpu-type"),
        "--format json": ("json",),
        "--format csv": ("csv",),
        "--format html": ("html",),
        "--format markdown": ("markdown", "md"),
        "--micro-batch N": (
            "mbs", "micro-batch-size", "microbatch", "train-micro-batch-size-per-gpu", "per-device-train-batch-size",
        ),
        "--batch N": ("gbs", "global-batch-size", "global-batch", "train-batch-size", "batch-size"),
        "--seq N": ("seq-len", "seq-length", "seqlen", "sequence-length", "max-seq-len", "context-length"),
        "--gpus N": ("num-gpus", "n-gpus", "ngpus", "world-size", "nproc-per-node"),
        "--gpus N, of all nodes": ("nodes", "nnodes", "num-nodes"),
        "--tp N, of all nodes, with --gpus-per-node N": ("nodes", "nnodes", "num-nodes"),
        "--gpus-per-node N": ("gpus-per-host", "nproc-per-node"),
        "--nic RATE": ("network", "network-bandwidth", "nic-bandwidth", "internode-bandwidth", "ib-bandwidth"),
        "--tp N": (
            "tensor-parallel-size", "tensor-model-parallel-size", "tensor-parallel", "tp-size",
            "num-gpus", "n-gpus", "gpus",
        ),
        "--pp N": ("pipeline-parallel-size", "pipeline-model-parallel-size", "pipeline-parallel", "pp-size"),
        "--cp N": ("context-parallel-size", "context-parallel"),
        "--ep N": ("expert-parallel-size", "expert-model-parallel-size", "enable-expert-parallel", "ep-size"),
        "--dp N": ("data-parallel-size", "dp-size"),
        "--vp N": ("num-layers-per-virtual-pipeline-stage", "virtual-pipeline"),
        "--zero 3": ("fsdp", "zero-stage", "fully-sharded"),
        "--recompute full": (
            "activation-checkpointing", "gradient-checkpointing", "recompute-activations", "checkpoint-activations",
        ),
        "--lora RANK": ("lora-rank", "lora-r"),
        "--dtype DTYPE": ("precision", "bf16", "fp16", "fp8"),
        "--weights DTYPE": ("quantization", "quant", "dtype", "precision", "weight-dtype"),
        "--kv DTYPE": ("kv-cache-dtype", "kv-dtype", "cache-dtype"),
        "--states DTYPE": ("mamba-ssm-cache-dtype", "mamba-ssm-dtype", "state-dtype", "ssm-dtype"),
        "--batch LIST, of users, beside --isl N": ("concurrency", "users", "max-concurrency", "num-users"),
        "--concurrency N": ("users", "num-users", "max-concurrency", "concurrent-requests", "clients", "batch"),
        "--qps X": ("request-rate", "rate", "rps", "arrival-rate"),
        "--num-requests N": ("num-prompts", "num-prompt"),
        "--isl N": ("input-len", "random-input-len", "input-length", "prompt-len", "prompt-tokens", "input-tokens"),
        "--osl N": ("output-len", "random-output-len", "output-length", "max-tokens", "max-new-tokens"),
        "--memory-utilization X": ("gpu-memory-utilization", "mem-fraction-static"),
        "--max-batched-tokens N": ("max-num-batched-tokens", "chunked-prefill-size", "max-prefill-tokens"),
        "--max-num-seqs N": ("max-batch-size", "max-running-requests"),
        "--slo LIMITS": ("ttft", "tpot", "goodput"),
    }
)  # fmt: skip
_OPTION = re.compile(r"--[a-z-]+")
#: what no option sets, since it is an argument
_ARGUMENTS = MappingProxyType(
    {
        "model": "The model is the first argument, without an option. ",
        "dtype": "The dtype is a dimension of an operator, as dtype=bf16. ",
        "precision": "The dtype is a dimension of an operator, as dtype=bf16. ",
    }
)


def meant(option: str, offered: Collection[str]) -> str:
    """Return what to say of an option that a command does not have, or "" where no other tool is known to have it.

    Parameters
    ----------
    option : as it was written, with its dashes.
    offered : the options of the command, with theirs.

    >>> meant("--tensor_parallel_size", ["--on", "--tp"])
    'Here it is --tp N. '
    >>> meant("--mbs", ["--on"]), meant("--concurrency", ["--batch", "--seq"])
    ('', '')
    """
    name = option.lstrip("-").replace("_", "-").lower()
    for ours, theirs in NAMES.items():
        if name in theirs and all(option in offered for option in _OPTION.findall(ours)):
            return f"Here it is {ours}. "
    return _ARGUMENTS.get(name, "")
