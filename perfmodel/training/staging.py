"""What the exchanges of a training step stage in the memory of a GPU: buffers that are there throughout [B]."""

from __future__ import annotations

from perfmodel.training.activations import Slice
from perfmodel.training.plan import ContextAlgorithm
from perfmodel.training.setup import Setup
from perfmodel.training.shard import key_value_width

#: NCCL registers and stages at most so much for the collectives of one group (assumed: 8 MiB for 32 channels)
_CHANNEL_BYTES = 32 * 8.0 * 2**20


def staged_bytes(setup: Setup, part: Slice) -> float:
    """Return what exchanges stage: channels of each group, and received micro batches of a pipeline [B].

    Parameters
    ----------
    setup : the model, the cluster and the plan.
    part : what one GPU has of a micro batch.
    """
    plan, model = setup.plan, setup.padded
    groups = sum(size > 1 for size in (plan.tp, plan.cp, plan.ep, setup.dp, plan.pp))
    cross = part.cross_tokens / (plan.tp if part.sp else 1)
    passed = model.hidden * model.residual_streams
    sent = 2.0 * part.element_bytes * (part.outer + cross) * passed * (plan.pp > 1)
    keys = max(key_value_width(config, plan.tp) for config in (model, model.windowed))
    ring = 2.0 * part.element_bytes * part.tokens * keys if plan.cp > 1 else 0.0
    if plan.cp_algorithm == ContextAlgorithm.ULYSSES:
        ring *= 2.0
    return _CHANNEL_BYTES * groups + sent + ring + _overlap_buffers(setup, part)


def _overlap_buffers(setup: Setup, part: Slice) -> float:
    """Return the buffers of tensor parallel exchanges that run beside products: whole hidden states [B]."""
    if not (part.sp and setup.overlaps_tensor):
        return 0.0
    gathers, scatters = setup.framework.memory.overlap_buffers
    each = gathers * part.input_bytes + scatters * part.element_bytes
    return each * part.tokens * setup.padded.hidden
