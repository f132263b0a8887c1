"""Exchanges of experts that run beside the passes of another micro batch.

Megatron-Core's combined 1F1B (``--overlap-moe-expert-parallel-comm``) and DeepSeek's DualPipe run the forward pass of
one micro batch together with the backward pass of another, layer by layer, on two streams. While one of the two
exchanges tokens, the other computes:

    compute    rest, forward      experts, backward   experts, forward     rest, backward
    exchange   combine, backward  dispatch, forward   dispatch, backward   combine, forward

The rest is all of a layer but its routed experts. Each exchange waits for the compute before it and the next compute
for the exchange, so that a pair of layers takes the sum of the four longer ones (NVIDIA/Megatron-LM @ fc81b209041f,
docs/user-guide/features/moe_a2a_overlap.md; deepseek-ai/profile-data @ ae7fc0780d06).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from perfmodel.cluster.dispatch import exposed
from perfmodel.prediction.stretch import Stretch
from perfmodel.training.plan import Schedule, TrainingPlan

#: share of the hidden exchange that a step may take longer at the end of its 80 % interval. Megatron-Core's authors saw
#: 93 % of the exchanges of DeepSeek-V3 hidden on H100, and products 20 % slower beside the 20 of 132 SMs that exchange,
#: where `Constants.sm_share` has 15 % (same page, "Performance results"); no run that was fitted is known to have it
UNSURE = 0.25


#: share of the step that exchanges of experts take from which on a note says what hides them
_NOTED = 0.1


class Window(NamedTuple):
    """One pass of a layer with experts: what of it can hide an exchange, and its own two exchanges together [s].

    ``there`` is the share of these that goes to the experts, the first of the two.
    """

    rest_s: float
    experts_s: float
    exchange_s: float
    there: float = 0.5

    @property
    def ways_s(self) -> tuple[float, float]:
        """To the experts, and back [s]."""
        return self.there * self.exchange_s, (1.0 - self.there) * self.exchange_s


def hidden_s(forward: Window, backward: Window, contention: float) -> float:
    """Return how much shorter two passes of a layer are as a pair than one after the other [s].

    sum over the four exchanges e, two of each pass, of e - `exposed` (e, c): c is the compute beside it.

    Parameters
    ----------
    forward, backward : of one micro batch, and of another.
    contention : share of a hidden exchange that the compute beside it loses.
    """
    beside = (
        (backward.ways_s[0], forward.rest_s),
        (forward.ways_s[0], backward.experts_s),
        (backward.ways_s[1], forward.experts_s),
        (forward.ways_s[1], backward.rest_s),
    )
    return sum(exchange_s - exposed(exchange_s, compute_s, contention) for exchange_s, compute_s in beside)


def beside_shared_s(there_s: float, back_s: float, first_s: float, second_s: float, contention: float) -> float:
    """Return how much of the exchanges of a pass the shared experts of its own layer hide [s].

    Their first product runs beside the way to the routed experts, their second beside the way back; backward the
    gradients of the second run beside the first exchange (NVIDIA/Megatron-LM, --moe-shared-expert-overlap:
    megatron/core/transformer/moe/shared_experts.py, linear_fc1_forward_and_act and linear_fc2_forward).

    Parameters
    ----------
    there_s, back_s : the exchanges [s].
    first_s, second_s : of the pass, what the shared experts compute first, and then [s].
    contention : share of a hidden exchange that the compute beside it loses.
    """
    ways = ((there_s, first_s), (back_s, second_s))
    return sum(exchange_s - exposed(exchange_s, compute_s, contention) for exchange_s, compute_s in ways)


def overlaps(plan: TrainingPlan) -> bool:
    """Return whether exchanges of experts run beside the passes of another micro batch."""
    return plan.ep > 1 and (plan.expert_overlap or plan.schedule == Schedule.DUALPIPE)


def pairs(plan: TrainingPlan, micro_batches: float) -> float:
    """Return how many micro batches of a step have their passes in pairs; the others fill and drain the pipeline.

    Without a pipeline the first forward and the last backward pass stand alone: m - 1. The interleaved schedule runs
    (v - 1) p + 1 of the v m forward passes of the last GPU before its first pair, one more than without pairs, which
    makes the passes of each pair independent (same page, "Pipeline-parallel size greater than 1"). A GPU in the middle
    of DualPipe runs p + 1 of its forward passes alone (`perfmodel.training.orders`).
    """
    if not overlaps(plan):
        return 0.0
    if plan.schedule == Schedule.DUALPIPE:
        alone = plan.pp + 1.0
    else:
        alone = ((plan.vp - 1.0) * plan.pp + 1.0) / plan.vp if plan.pp > 1 else 1.0
    return max(0.0, micro_batches - alone)


def overlap_stretch(hidden: float, step_s: float) -> Stretch:
    """Return how far less overlap than predicted puts the upper end of an 80 % interval.

    Parameters
    ----------
    hidden : what overlap hides in a step [s].
    step_s : the step [s].
    """
    return Stretch(0.0, math.log1p(UNSURE * hidden / step_s))


def overlap_note(plan: TrainingPlan, exposed_s: float, hidden: float, step_s: float) -> str:
    """Return what a user should know about the exchanges of experts of a step; "" where they matter little.

    Parameters
    ----------
    plan : how the model is trained.
    exposed_s : what the exchanges add to the step [s].
    hidden : what overlap hides [s].
    step_s : the step [s].
    """
    if hidden:
        share = hidden / (hidden + exposed_s)
        return (
            f"Passes of other micro batches hide {share:.0%} of the exchanges of experts. No run that was fitted is "
            f"known to do so: the interval counts that {UNSURE:.0%} of it may show."
        )
    if plan.ep == 1 or exposed_s < _NOTED * step_s or overlaps(plan):
        return ""
    how = "--schedule dualpipe (DeepSeek)" if plan.pp > 1 and plan.vp == 1 else "--expert-overlap (Megatron-Core)"
    return (
        f"Exchanges of experts take {exposed_s / step_s:.0%} of the step: {how} runs them beside the passes of another "
        "micro batch."
    )
