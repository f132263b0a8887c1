"""How many activations wait for their backward pass on a GPU of a pipeline, by its schedule [B]."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.training.activations import LayerActivations, Slice
from perfmodel.training.expert_overlap import overlaps
from perfmodel.training.plan import Schedule
from perfmodel.training.setup import Setup
from perfmodel.workloads.layer_kinds import Kind


def waiting_activations(
    setup: Setup, part: Slice, layers: Mapping[Kind, LayerActivations], counts: Mapping[Kind, int], index: int
) -> float:
    """Return the activations of all micro batches that wait for their backward on one GPU [B].

    1F1B: min(m, p - i) micro batches on stage i; interleaved: (v - 1) p + 2 (p - i - 1) + 1 of its v p parts, which
    is L (1 + (p - 1) / (p v)) layers on the first; GPipe: all m (Narayanan et al. 2021, Korthikanti et al. 2022);
    zero bubble: p on every stage, until their weights have gradients (Qi et al. 2023, ZB-H1). Passes in pairs keep
    one part more, and without a pipeline one layer: a forward pass takes what the backward pass beside it frees
    (`perfmodel.training.expert_overlap`). DualPipe: p + 1 micro batches, half of them of each of two stages
    (DeepSeek-AI 2024, table 2).

    Parameters
    ----------
    setup : the model, the cluster and the plan.
    part : what one GPU has of a micro batch.
    layers : what a layer of each kind keeps of it.
    counts : the layers of the GPU, of all its stages.
    index : place of the GPU.
    """
    plan, m, together = setup.plan, setup.plan.micro_batches(setup.cluster.gpus), overlaps(setup.plan)
    one = _micro_batch(setup, part, layers, counts)
    if plan.schedule == Schedule.GPIPE:
        return m * one
    if plan.schedule == Schedule.ZERO_BUBBLE:
        return min(m, plan.pp) * one
    if plan.schedule == Schedule.DUALPIPE:
        return 0.5 * min(m, plan.pp + 1) * one
    if plan.vp > 1:
        parts = (plan.vp - 1) * plan.pp + 2 * (plan.pp - index - 1) + 1 + together
        return min(m, parts / plan.vp) * one
    layer = max((layers[kind].kept for kind in counts), default=0.0) if together and m > 1 else 0.0
    return min(m, plan.pp - index) * one + layer


def _micro_batch(
    setup: Setup, part: Slice, layers: Mapping[Kind, LayerActivations], counts: Mapping[Kind, int]
) -> float:
    """Return what the layers of one GPU keep of one micro batch [B]."""
    config = setup.padded
    one = sum(layers[kind].kept * count for kind, count in counts.items())
    # what the encoder gives stays for all layers of the decoder
    one += any(not kind.encoder for kind in counts) * (
        part.element_bytes * part.cross_tokens * config.hidden / (setup.plan.tp if part.sp else 1)
    )
    one += any(kind.encoder for kind in counts) * _stem(setup, part)
    return one


def _stem(setup: Setup, part: Slice) -> float:
    """Return what the convolutions before an encoder of sound keep: the spectrum, and each before its GELU [B].

    What a GELU gives is what the next one reads; the second's is the input of the layers.
    """
    bands, width = setup.padded.audio_bands, setup.padded.hidden
    return part.element_bytes * part.cross_tokens * (2 * bands + 5 * width) * (bands > 0)
