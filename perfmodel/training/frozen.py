"""Frozen weights in 4 bits beside adapters (QLoRA: Dettmers et al. 2023, arXiv 2305.14314).

The matrices of the layers are stored in NormalFloat4, a number of 4 bits with a scale of 8 bits for every 64 and one of
32 bits for every 256 of these scales. Each product first writes its matrix out in 16 bits. Embedding, head and norms
stay in 16 bits.
"""

from __future__ import annotations

from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig

#: dtype of the frozen weights -> bytes of a weight with its scales; 0.127 bits are for these (section 3 of the paper)
FROZEN_BYTES = {"nf4": 0.5 + 1.0 / 64 + 4.0 / (64 * 256)}
FROZEN = ("", *FROZEN_BYTES)

#: kernels that write a matrix out: its scales, their offset, its numbers (``dequantize_4bit`` of bitsandbytes)
_KERNELS = 3


def frozen_kernels(config: ModelConfig, kind: Kind, ep: int) -> int:
    """Return the kernels with which a pass of a layer writes its matrices out, those of the experts one by one."""
    mlp = len(config.mlp_linears())
    experts = mlp * (config.experts // ep + (config.shared_ffn > 0)) if kind.moe else mlp
    mixers = config.mixer_matrices(kind.linear, kind.attends)
    return _KERNELS * (len(mixers) + (0 if kind.bare else experts))


def largest_matrix(config: ModelConfig) -> float:
    """Return the parameters of the largest matrix of the layers, which is written out while a product reads it."""
    attentions = (matrix for matrices, _ in config.attentions() for matrix in matrices)
    return float(max(linear.n * linear.k for linear in (*attentions, *config.mlp_linears())))
