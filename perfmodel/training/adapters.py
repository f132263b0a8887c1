"""Low-rank adapters beside frozen matrices, which alone are trained (LoRA: Hu et al. 2021, arXiv 2106.09685)."""

from __future__ import annotations

import functools

from perfmodel.workloads.model_config import Linear, ModelConfig


def adapted(config: ModelConfig, moe: bool) -> tuple[Linear, ...]:
    """Return the matrices of a layer that have adapters: all of a dense layer, those of attention beside experts."""
    attention = (*config.attention_linears(), config.output_linear())
    return attention if moe else (*attention, *config.mlp_linears())


@functools.lru_cache(maxsize=256)
def adapter_parameters(config: ModelConfig, rank: int) -> float:
    """Return the parameters of all adapters: r (n + k) beside each matrix [n, k] of the layers."""
    dense, sparse = (sum(rank * (linear.n + linear.k) for linear in adapted(config, moe)) for moe in (False, True))
    return float((config.layers - config.moe_layers) * dense + config.moe_layers * sparse)


def adapter_bytes(config: ModelConfig, moe: bool, tokens: float, tp: int, element_bytes: float) -> tuple[float, float]:
    """Return what the adapters of a layer move beside its products, forward and backward [B].

    Their products are bound by memory: the rank is small. Forward reads the input, and adds to the output (read and
    written); backward reads the output's gradient and the input twice, and adds to the input's gradient.

    Parameters
    ----------
    moe : whether the layer has experts.
    tokens : of a micro batch on the GPU.
    tp : tensor parallel ranks that share out one side of each matrix.
    element_bytes : of an activation.
    """
    matrices = adapted(config, moe)
    inputs, outputs = sum(linear.k for linear in matrices), sum(linear.n for linear in matrices)
    each = element_bytes * tokens / tp
    return each * (inputs + 2.0 * outputs), each * (2.0 * outputs + 4.0 * inputs)
