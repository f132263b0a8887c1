"""What the layers of a model are, one by one, and how many of them each stage of a pipeline has."""

from __future__ import annotations

import functools
from typing import NamedTuple

from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.reach import Reach, reaches_of


class Kind(NamedTuple):
    """Kind of a layer.

    Attributes
    ----------
    moe : it has experts, else a dense MLP.
    windowed : its attention has the model's window.
    encoder : it is one of an encoder.
    linear : it keeps a state, in place of keys unless it is ``joint``.
    bare : it has no MLP.
    joint : it attends to keys beside its state; both read one normed input, and what they give is summed.
    indexed : an indexer of its own chooses the keys that it attends to.
    pooled : it attends to a window and to all compressed keys.
    """

    moe: bool = False
    windowed: bool = False
    encoder: bool = False
    linear: bool = False
    bare: bool = False
    joint: bool = False
    indexed: bool = False
    pooled: bool = False

    @property
    def attends(self) -> bool:
        """Whether its queries attend to keys."""
        return self.joint or not self.linear

    @property
    def blocks(self) -> int:
        """Parts with a norm and a residual each: attention, a state or both, and an MLP."""
        return 1 if self.bare else 2


#: attention to all keys, and a dense MLP
DENSE = Kind()


def reach_of(config: ModelConfig, kind: Kind) -> Reach:
    """Return what a query of a layer that attends to keys attends to."""
    found = reaches_of(config)
    if kind.windowed:
        return found.windowed
    if kind.pooled:
        return found.pooled
    apart = found.indexed.compresses or config.block_indexer
    return found.indexed if kind.indexed and apart else found.full


@functools.lru_cache(maxsize=1024)
def layer_kinds(config: ModelConfig) -> tuple[Kind, ...]:
    """Return the kind of each layer.

    Dense layers of a mixture of experts stand where the model has them, or come first. Layers that attend to keys
    alternate evenly with those that keep a state: the last of four in Qwen3-Next. Of the former, those with a window
    alternate evenly with the others, and so do those that keep a state, too. Layers without an MLP alternate evenly
    with those that have one, or experts. Of layers with compressed keys those with an indexer alternate evenly with the
    others, behind those with a window alone, as in DeepSeek-V4-Flash.
    """
    attending = _evenly(config.layers, config.attending_layers)
    among = iter(_evenly(config.attending_layers, config.joint_layers))
    spans = iter(_spans(config))
    joint = [attends and next(among) for attends in attending]
    own = [next(spans) if attends else (False, False, False) for attends in attending]
    dense = frozenset(config.dense_at or range(config.dense_layers)) if config.experts else frozenset[int]()
    without = iter(_evenly(config.layers - len(dense), config.bare_layers))
    bare = [index not in dense and next(without) for index in range(config.layers)]
    if config.shared_blocks:  # a block has attention and an MLP
        bare = [not found for found in joint]
    return tuple(
        Kind(
            bool(config.experts) and index not in dense and not bare[index], own[index][0],
            linear=joint[index] or not attending[index], bare=bare[index], joint=joint[index],
            indexed=own[index][1], pooled=own[index][2],
        )
        for index in range(config.layers)
    )  # fmt: skip


def _spans(config: ModelConfig) -> list[tuple[bool, bool, bool]]:
    """Return which layers that attend to keys have a window alone, an indexer, or all compressed keys."""
    count = config.attending_layers
    if not config.compressed_layers:
        windows, indexers = _evenly(count, config.window_layers), _evenly(count, min(count, config.index_layers))
        return [(windowed, indexed, False) for windowed, indexed in zip(windows, indexers, strict=True)]
    others = count - config.window_layers
    indexers = _evenly(others, others - config.pool_layers)
    return [(True, False, False)] * config.window_layers + [(False, indexed, not indexed) for indexed in indexers]


def _evenly(layers: int, chosen: int) -> list[bool]:
    """Return which layers are chosen when some of them are, as evenly as can be, and the last one is."""
    return [(index + 1) * chosen // layers > index * chosen // layers for index in range(layers)]


def chunk_sizes(layers: int, chunks: int) -> list[int]:
    """Return the layers of each stage of a pipeline.

    Where they do not divide, the last and then the first stage get fewer, as embedding and head count as layers there
    (Megatron's ``account_for_embedding_in_pipeline_split``): 126 layers on 64 stages are 1, 2, ..., 2, 1.

    >>> chunk_sizes(8, 4), chunk_sizes(6, 4), chunk_sizes(7, 4)
    ([2, 2, 2, 2], [1, 2, 2, 1], [2, 2, 2, 1])
    """
    most = -(-layers // chunks)
    sizes, missing = [most] * chunks, most * chunks - layers
    for index in [chunks - 1, 0, *range(chunks - 2, 0, -1)][:missing]:
        sizes[index] -= 1
    return sizes
