"""Low-rank adapters beside frozen matrices, which alone are trained (LoRA: Hu et al. 2021, arXiv 2106.09685)."""

from __future__ import annotations

import functools

from perfmodel.workloads.layer_kinds import Kind, layer_kinds
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_config import ModelConfig


def adapted(config: ModelConfig, kind: Kind) -> tuple[Linear, ...]:
    """Return the matrices of a layer that have adapters: all of a dense layer, those of its mixers beside experts."""
    mixers = config.mixer_matrices(kind.linear, kind.attends)
    return mixers if kind.moe or kind.bare else (*mixers, *config.mlp_linears())


#: matrices of attention that multiply the tokens that are attended to
_KEYS = ("key", "value")


def adapted_across(config: ModelConfig) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
    """Return the matrices of a decoder's attention to an encoder: on its own tokens, and on those of the encoder."""
    if not config.encoder_layers:
        return (), ()
    linears = config.attention_matrices()
    keys = tuple(linear for linear in linears if linear.name in _KEYS)
    return tuple(linear for linear in linears if linear.name not in _KEYS), keys


@functools.lru_cache(maxsize=1024)
def layer_adapters(config: ModelConfig, kind: Kind, rank: int) -> float:
    """Return the parameters of the adapters of one layer: r (n + k) beside each of its matrices [n, k]."""
    if kind.encoder and config.encoder:
        matrices = adapted(config.encoder, kind)
    else:
        own, keys = adapted_across(config)
        matrices = (*adapted(config.windowed if kind.windowed else config, kind), *own, *keys)
    return float(sum(rank * (linear.n + linear.k) for linear in matrices))


@functools.lru_cache(maxsize=256)
def adapter_parameters(config: ModelConfig, rank: int) -> float:
    """Return the parameters of the adapters of all layers."""
    encoder = config.encoder_layers * layer_adapters(config, Kind(encoder=True), rank) if config.encoder else 0.0
    return encoder + sum(layer_adapters(config, kind, rank) for kind in layer_kinds(config))


def adapter_bytes(
    config: ModelConfig,
    kind: Kind,
    tokens: float,
    tp: int,
    element_bytes: float,
    cross_tokens: float = 0.0,
) -> tuple[float, float]:
    """Return what the adapters of a layer move beside its products, forward and backward [B].

    Their products are bound by memory: the rank is small. Forward reads the input, and adds to the output (read and
    written); backward reads the output's gradient and the input twice, and adds to the input's gradient.

    Parameters
    ----------
    kind : the layer's kind.
    tokens : of a micro batch on the GPU.
    tp : tensor parallel ranks that share out one side of each matrix.
    element_bytes : of an activation.
    cross_tokens : of an encoder that the layer attends to.
    """
    own, keys = adapted_across(config) if cross_tokens else ((), ())
    rows = [(one, tokens) for one in (*adapted(config, kind), *own)] + [(one, cross_tokens) for one in keys]
    inputs = element_bytes / tp * sum(one.k * count for one, count in rows)
    outputs = element_bytes / tp * sum(one.n * count for one, count in rows)
    return inputs + 2.0 * outputs, 2.0 * outputs + 4.0 * inputs
