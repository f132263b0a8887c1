"""Low-rank adapters beside frozen matrices, which alone are trained (LoRA: Hu et al. 2021, arXiv 2106.09685)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from perfmodel.training.choices import AdapterTargets
from perfmodel.workloads.layer_kinds import Kind, layer_kinds
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_config import ModelConfig

#: how the names of matrices begin that compute queries, keys or values, or several of these at once
_QUERIES_KEYS_VALUES = ("query", "key", "value")
#: matrices that are one where a framework joins those of the same input, with one adapter for them
_JOINED = (frozenset({"query", "key", "value"}), frozenset({"gate", "up"}))


def adapted(config: ModelConfig, kind: Kind, targets: str = AdapterTargets.ALL) -> tuple[Linear, ...]:
    """Return the matrices of a layer that have adapters: those of its mixers and, of a dense layer, of its MLP."""
    mixers = _chosen(config.mixer_matrices(kind.linear, kind.attends), targets)
    whole = targets == AdapterTargets.ALL and not (kind.moe or kind.bare)
    return (*mixers, *config.mlp_linears()) if whole else mixers


def adapters_of(matrices: Sequence[Linear], joined: bool) -> int:
    """Return how many adapters some matrices of a layer have: one each, or one for those that are joined."""
    names = {linear.name for linear in matrices}
    together = sum(max(0, len(names & group) - 1) for group in _JOINED) if joined else 0
    return len(matrices) - together


def _chosen(mixers: tuple[Linear, ...], targets: str) -> tuple[Linear, ...]:
    """Return which of the matrices that mix tokens have adapters; a fused one has one for all of its parts."""
    if targets not in (AdapterTargets.QKV, AdapterTargets.QV):
        return mixers
    computing = tuple(linear for linear in mixers if linear.name.startswith(_QUERIES_KEYS_VALUES))
    if targets == AdapterTargets.QKV:
        return computing
    return tuple(linear for linear in computing if linear.name.startswith("query") or "value" in linear.name)


#: matrices of attention that multiply the tokens that are attended to
_KEYS = ("key", "value")


def adapted_across(
    config: ModelConfig, targets: str = AdapterTargets.ALL
) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
    """Return the matrices of a decoder's attention to an encoder: on its own tokens, and on those of the encoder."""
    if not config.encoder_layers:
        return (), ()
    linears = _chosen(config.attention_matrices(), targets)
    keys = tuple(linear for linear in linears if linear.name in _KEYS)
    return tuple(linear for linear in linears if linear.name not in _KEYS), keys


@functools.lru_cache(maxsize=1024)
def layer_adapters(config: ModelConfig, kind: Kind, rank: int, targets: str = AdapterTargets.ALL) -> float:
    """Return the parameters of the adapters of one layer: r (n + k) beside each of its matrices [n, k]."""
    if kind.encoder and config.encoder:
        matrices = adapted(config.encoder, kind, targets)
    else:
        own, keys = adapted_across(config, targets)
        matrices = (*adapted(config.windowed if kind.windowed else config, kind, targets), *own, *keys)
    return float(sum(rank * (linear.n + linear.k) for linear in matrices))


@functools.lru_cache(maxsize=256)
def adapter_parameters(config: ModelConfig, rank: int, targets: str = AdapterTargets.ALL) -> float:
    """Return the parameters of the adapters of all layers."""
    stack = layer_adapters(config, Kind(encoder=True), rank, targets) if config.encoder else 0.0
    decoder = sum(layer_adapters(config, kind, rank, targets) for kind in layer_kinds(config))
    return config.encoder_layers * stack + decoder


def adapter_bytes(
    config: ModelConfig,
    kind: Kind,
    tokens: float,
    tp: int,
    element_bytes: float,
    cross_tokens: float = 0.0,
    targets: str = AdapterTargets.ALL,
) -> tuple[float, float]:
    """Return what the adapters of a layer move beside its products, forward and backward [B].

    Their products are bound by memory: the rank is small. They and what joins them to the matrix beside are kernels of
    their own in NVIDIA NeMo (``ParallelLinearAdapter``, ``LoRALinear.forward``) and PEFT (``lora.Linear.forward``).
    Elements of the output are written by the second product, scaled (read and written), and added to those of the
    matrix (two read, one written): 6 times. Backward scales their gradient, which both products of the second matrix
    read: 4. Elements of the input are read forward; backward reads them for the gradient of the first matrix, writes
    their gradient, and adds it to that of the matrix beside: 1 and 5. Dropout of the input is left out.

    Parameters
    ----------
    kind : the layer's kind.
    tokens : of a micro batch on the GPU.
    tp : tensor parallel ranks that share out one side of each matrix.
    element_bytes : of an activation.
    cross_tokens : of an encoder that the layer attends to.
    targets : which matrices have adapters, see `AdapterTargets`.
    """
    own, keys = adapted_across(config, targets) if cross_tokens else ((), ())
    rows = [(one, tokens) for one in (*adapted(config, kind, targets), *own)] + [(one, cross_tokens) for one in keys]
    inputs = element_bytes / tp * sum(one.k * count for one, count in rows)
    outputs = element_bytes / tp * sum(one.n * count for one, count in rows)
    return inputs + 6.0 * outputs, 4.0 * outputs + 5.0 * inputs
