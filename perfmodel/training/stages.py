"""Which layers lie on which GPU of a pipeline."""

from __future__ import annotations

import functools
import itertools

from perfmodel.training.kind import Kind
from perfmodel.training.plan import TrainingPlan
from perfmodel.workloads.model_config import ModelConfig


@functools.lru_cache(maxsize=1024)
def layer_kinds(config: ModelConfig) -> tuple[Kind, ...]:
    """Return the kind of each layer.

    Dense layers of a mixture of experts come first. Layers that attend to keys alternate evenly with those that keep
    a state: the last of four in Qwen3-Next. Of the former, those with a window alternate evenly with the others, and so
    do those that keep a state, too. Layers without an MLP alternate evenly with those that have one, or experts.
    """
    attending = _evenly(config.layers, config.attending_layers)
    among, windows = (iter(_evenly(config.attending_layers, n)) for n in (config.joint_layers, config.window_layers))
    joint = [attends and next(among) for attends in attending]
    windowed = [attends and next(windows) for attends in attending]
    first = config.dense_layers if config.experts else 0
    bare = [False] * first + _evenly(config.layers - first, config.bare_layers)
    return tuple(
        Kind(
            bool(config.experts) and index >= first and not bare[index], windowed[index],
            linear=joint[index] or not attending[index], bare=bare[index], joint=joint[index],
        )
        for index in range(config.layers)
    )  # fmt: skip


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


def encoder_stages(config: ModelConfig, plan: TrainingPlan) -> int:
    """Return how many stages of a pipeline, the first ones, hold the encoder; 0 for one stack or one stage.

    They are those of the plan's ``stages`` whose layers sum to the encoder's. Without them they are its share of the
    layers, rounded down since a decoder's layers have more work, and at least one for each stack (Megatron-LM's
    ``pipeline_model_parallel_split_rank``).
    """
    if not config.encoder_layers or plan.pp == 1:
        return 0
    sums = list(itertools.accumulate(plan.stages))
    if config.encoder_layers in sums:
        return sums.index(config.encoder_layers) + 1
    share = config.encoder_layers / (config.encoder_layers + config.layers)
    return min(plan.pp - 1, max(1, int(plan.pp * share)))


def gpu_layers(config: ModelConfig, plan: TrainingPlan) -> list[dict[Kind, int]]:
    """Return how many layers of each kind each GPU of the pipeline has, over all its virtual stages.

    An encoder's layers are those of the first GPUs, see `encoder_stages`.
    """
    first = encoder_stages(config, plan)
    given = plan.stages if plan.pp > 1 or not config.encoder_layers else ()
    chunks = given[first:] or chunk_sizes(config.layers, (plan.pp - first) * plan.vp)
    encoder = given[:first] or (chunk_sizes(config.encoder_layers, max(1, first)) if config.encoder_layers else ())
    return _gpu_layers(config, plan.pp, tuple(encoder), tuple(chunks))


@functools.lru_cache(maxsize=4096)
def _gpu_layers(
    config: ModelConfig, pp: int, encoder: tuple[int, ...], chunks: tuple[int, ...]
) -> list[dict[Kind, int]]:
    kinds, start = layer_kinds(config), 0
    first = len(encoder) if pp > 1 else 0
    found: list[dict[Kind, int]] = [{} for _ in range(pp)]
    for index, size in enumerate(chunks):
        gpu = found[first + index % (pp - first)]
        for kind in kinds[start : start + size]:
            gpu[kind] = gpu.get(kind, 0) + 1
        start += size
    for gpu, size in zip(found, encoder, strict=False):
        gpu[Kind(encoder=True)] = size
    return found
