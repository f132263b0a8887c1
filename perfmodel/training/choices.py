"""What a training plan chooses from: dtypes, kernels, optimizers, recomputation, schedules."""

from __future__ import annotations

from perfmodel.core.vocabulary import Vocabulary

#: what the arithmetic of the layers may be in; "mxfp8" is fp8 with a scale for 32 elements, "nvfp4" fp4 for 16
DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8", "mxfp8", "nvfp4")
#: PyTorch's memory-efficient attention, which has fp32, too
EFFICIENT = "efficient"
ATTENTION = ("", "fa1", "fa2", "fa3", "cudnn", EFFICIENT, "unfused", "eager-unfused")
OPTIMIZERS = ("adam", "adam-bf16", "adam-8bit", "sgd", "muon", "none")


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


class ContextAlgorithm(Vocabulary):
    """How attention is split over the sequence."""

    RING = "ring"  # consecutive parts: the last rank has most of a causal mask
    ZIGZAG = "zigzag"  # each rank has a part from the front and one from the back
    ULYSSES = "ulysses"  # heads and sequence change places by all-to-all
