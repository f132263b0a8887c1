"""What a training plan chooses from: dtypes, kernels, optimizers, recomputation, schedules."""

from __future__ import annotations

import functools
import re
from typing import Literal

from perfmodel.core.vocabulary import Vocabulary
from perfmodel.errors import UsageError, unknown_name

#: what the arithmetic of the layers may be in; "mxfp8" is fp8 with a scale for 32 elements, "nvfp4" fp4 for 16
DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8", "mxfp8", "nvfp4")
#: PyTorch's memory-efficient attention, which has fp32, too
EFFICIENT = "efficient"
ATTENTION = ("", "fa1", "fa2", "fa3", "cudnn", EFFICIENT, "unfused", "eager-unfused")
OPTIMIZERS = ("adam", "adam-bf16", "adam-8bit", "sgd", "muon", "none")
#: in which tokens go to experts of other ranks
DISPATCH_DTYPES = ("", "bf16", "fp8")
#: how a CPU updates parameters, and what runs beside it, see `perfmodel.training.host_update`
CPU_OPTIMIZERS = ("", "fused", "for-loop")
CPU_OVERLAPS = ("", "none", "copies", "passes")


class Recompute(Vocabulary):
    """Which activations the backward pass computes anew instead of keeping them."""

    NONE = "none"
    SELECTIVE = "selective"  # the core of attention (Korthikanti et al. 2022); nothing with a flash kernel
    SELECTIVE_OP = "selective_op"  # every second matrix product and all that is bound by memory (torchtitan)
    SELECTIVE_LAYER = "selective_layer"  # every second layer
    FULL = "full"  # each layer from its input


class AdapterTargets(Vocabulary):
    """Which matrices of a layer have adapters (LoRA); those of experts have none."""

    ALL = "all"  # of attention and of the MLP
    ATTENTION = "attention"  # queries, keys, values and output
    QKV = "qkv"  # queries, keys and values
    QV = "qv"  # queries and values (Hu et al. 2021)


class Schedule(Vocabulary):
    """The order in which a pipeline runs its micro batches."""

    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"  # several stages a GPU (Narayanan et al. 2021)
    ZERO_BUBBLE = "zero_bubble"  # weight gradients fill the bubble (Qi et al. 2023)
    DUALPIPE = "dualpipe"  # micro batches enter at both ends, passes run in pairs (DeepSeek-AI 2024)
    GPIPE = "gpipe"  # all forward passes first


Part = Literal["optimizer", "parameters", "activations"]
#: what may live on the host: states and step of the optimizer, sharded weights, and what forward keeps for backward
OFFLOADS: tuple[Part, ...] = ("optimizer", "parameters", "activations")
#: options of a plan about an optimizer on the host -> what stands for leaving them out
UPDATED_THERE = {"offload_fraction": 1.0, "cpu_optimizer": "", "cpu_threads": 0, "cpu_overlap": ""}


@functools.lru_cache(maxsize=256)
def parse_offload(text: str, place: str) -> str:
    """Return what lives on the host in the order of `OFFLOADS`, joined by commas; "none" for nothing.

    >>> parse_offload("activations, optimizer", ""), parse_offload("", "")
    ('optimizer,activations', 'none')

    Raises
    ------
    UsageError
        For a part that is none of them, and for parts beside "none".
    """
    words = [word for word in re.split(r"[\s,+]+", text.strip().lower()) if word]
    parts = [word for word in words if word != "none"]
    for part in parts:
        if part not in OFFLOADS:
            raise unknown_name("offload", part, ("none", *OFFLOADS), place=place)
    if parts and len(parts) < len(words):
        joined = ",".join(parts)
        problem = f"offload = {text.strip()} has none beside {joined}."
        raise UsageError(problem, place=place, remedy=f"Write none or {joined}.")
    return ",".join(part for part in OFFLOADS if part in parts) or "none"


@functools.lru_cache(maxsize=256)
def offloaded(text: str) -> tuple[str, ...]:
    """Return the parts of `OFFLOADS` in what `parse_offload` gave.

    >>> offloaded("optimizer,activations"), offloaded("none")
    (('optimizer', 'activations'), ())
    """
    return tuple(part for part in text.split(",") if part in OFFLOADS)


class ContextAlgorithm(Vocabulary):
    """How attention is split over the sequence."""

    RING = "ring"  # consecutive parts: the last rank has most of a causal mask
    ZIGZAG = "zigzag"  # each rank has a part from the front and one from the back
    ULYSSES = "ulysses"  # heads and sequence change places by all-to-all
