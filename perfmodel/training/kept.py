"""What the layers of one GPU keep of a micro batch for its backward pass, under a plan."""

from __future__ import annotations

from perfmodel.training.activations import LayerActivations, Slice, layer_activations
from perfmodel.training.setup import Setup
from perfmodel.workloads.layer_kinds import DENSE, Kind


def slice_of(setup: Setup) -> Slice:
    """Return the share of a layer that one GPU has."""
    shard, facts = setup.shard, setup.framework.memory
    return Slice(
        tokens=shard.tokens,
        keys=float(shard.seq),
        tp=shard.tp,
        etp=shard.etp,
        sp=shard.sp,
        element_bytes=shard.element_bytes,
        kernel=shard.kernel,
        dropout=shard.dropout,
        norm_copies=facts.norm_copies,
        gate_copies=facts.gate_copies,
        expert_outputs=facts.expert_outputs,
        gathered_inputs=facts.gathered_inputs and shard.sp,
        narrow_inputs=facts.narrow_inputs and shard.narrow,
        last_output=facts.last_output,
        cross_tokens=shard.cross_tokens,
        cross_keys=float(shard.cross_seq),
        imbalance=shard.imbalance,
    )


def activations_of(setup: Setup, kind: Kind, part: Slice | None = None) -> LayerActivations:
    """Return what a layer of some kind keeps on one GPU, and what its backward needs beside that.

    ``part`` is what `slice_of` gives.
    """
    part, config, recompute = part or slice_of(setup), setup.padded, setup.plan.recompute
    if kind.encoder and config.encoder:
        tokens, keys = setup.encoder_shard.tokens, float(setup.encoder_seq)
        part = part._replace(tokens=tokens, keys=keys, cross_tokens=0.0, cross_keys=0.0)
        return layer_activations(config.encoder, part, DENSE, recompute)
    keys = min(part.keys, float(config.window)) if kind.windowed else part.keys
    return layer_activations(config.windowed if kind.windowed else config, part._replace(keys=keys), kind, recompute)
