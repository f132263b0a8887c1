"""Which layers lie on which GPU of a pipeline."""

from __future__ import annotations

import functools
import itertools

from perfmodel.training.plan import TrainingPlan
from perfmodel.workloads.layer_kinds import Kind, chunk_sizes, layer_kinds
from perfmodel.workloads.model_config import ModelConfig


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
