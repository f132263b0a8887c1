"""What the host takes to dispatch a micro batch: a GPU whose kernels are short waits for it.

The host launches kernels ahead of the GPU, so that a micro batch takes as long as the slower of the two. Steps of small
models, or of few tokens at a time, are the host's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.core.units import format_si
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.training.constants import Constants
from perfmodel.training.exchange import context_calls, tensor_calls
from perfmodel.training.layer import LayerWork
from perfmodel.training.plan import Recompute
from perfmodel.training.setup import Setup

#: what the host launches for a layer and micro batch beside the kernels that are counted: casts of weights and inputs
#: under autocast, copies of views, sums of gradients (estimated from the code of transformers and nanoGPT)
BESIDE = 12.0
#: the layer's share of an optimizer's kernels, once a step (estimated: some for each of its tensors)
UPDATED = 8.0
#: what it launches besides where each layer's weights are gathered and its gradients reduced: copies into and out of
#: flat parameters, events, streams, and three collectives, each of which takes as long as several launches. Assumed:
#: two laboratories' steps of few tokens under FSDP1 took two to three times as long as with it
SHARDED = 120.0
#: what an adapter of a matrix adds forward: two products, the scale, the sum with the matrix's output; and backward:
#: the scale, both gradients of both products, the sum of the input's gradient, and two to gradients of earlier micro
#: batches, less the product of the frozen matrix's gradient (PEFT, peft/tuners/lora/layer.py, Linear.forward). Fused
#: functions of Unsloth (unsloth/kernels/fast_lora.py) launch as many: they cast adapters and scale and sum in products
ADAPTED = (4.0, 7.0)
#: kernels of torch.nn in whose time the host launches an exchange through torch.distributed, compiled code or not:
#: events, streams and the bookkeeping of a process group. PyTorch 2.4 takes 89 us for an all-reduce, 122 for a
#: reduce-scatter and 131 for an all-gather (pytorch/pytorch issue 138773), and 38 a kernel (``dispatch_s`` of the
#: constants); 64 all-reduces took 45 us each in 2023 (pull request 98793). Others are assumed to take
#: as long as a gather
CALLS: Mapping[str, float] = {"all_reduce": 2.3, "reduce_scatter": 3.2, "all_gather": 3.4, "alltoall": 3.4, "send": 3.4}
#: how much longer a step may become by a slow host before a note says so
NOTED = 0.02
#: share of the forward pass that the backward pass launches again
_AGAIN: Mapping[str, float] = {Recompute.FULL: 1.0, Recompute.SELECTIVE_LAYER: 0.5, Recompute.SELECTIVE_OP: 0.5}


def layer_launches(setup: Setup, work: LayerWork, adapters: int) -> tuple[float, float]:
    """Return how many kernels of torch.nn take the host as long as a layer and micro batch, forward and backward.

    kernels x (of the framework's modules over one of torch.nn) + what is beside them + exchanges x `CALLS`. Waits of a
    layer with experts for its host have a constant of their own, which counts the calls of its dispatcher.

    Parameters
    ----------
    adapters : of the layer.
    """
    modules = setup.framework.module_dispatch
    beside = 0.5 * (BESIDE + SHARDED * setup.sharded)
    forward, backward = (passed * adapters for passed in ADAPTED)
    called, called_backward = _calls(setup, work)
    forward += modules * work.kernels + called
    again = _AGAIN.get(setup.plan.recompute, 0.0) * forward
    updated = UPDATED / setup.micro_batches
    return forward + beside, modules * work.kernels_backward + backward + called_backward + beside + again + updated


def _calls(setup: Setup, work: LayerWork) -> tuple[float, float]:
    """Return the calls of tensor and context parallel exchanges in each pass, in kernels of the framework.

    A framework that launches kernels in no time calls in none either.
    """
    if not setup.framework.dispatch:
        return 0.0, 0.0
    tensor = tensor_calls(setup.shard, work, setup.overlaps_tensor)
    context = context_calls(setup.shard)
    maxima = {"all_reduce": setup.maxima}
    forward, backward = (
        sum(number * CALLS[kind] for calls in (tensor[place], context[place], maxima) for kind, number in calls.items())
        / setup.framework.dispatch
        for place in (0, 1)
    )
    return forward, backward


@dataclass(frozen=True)
class Waits:
    """How long a GPU waits for its host in a micro batch.

    Attributes
    ----------
    busy_s : what the GPU has to do [s].
    launch_s : what the host takes to launch a kernel [s].
    forward, backward : kernels that it launches in each pass.
    """

    busy_s: float
    launch_s: float
    forward: float
    backward: float

    @property
    def dispatch_s(self) -> float:
        """What the host takes to launch all kernels [s]."""
        return self.launch_s * (self.forward + self.backward)

    def at(self, factor: float) -> float:
        """Return the wait with a host that takes some factor as long [s]: max(0, host - GPU)."""
        return max(0.0, factor * self.dispatch_s - self.busy_s)

    @property
    def forward_s(self) -> float:
        """Wait in the forward pass [s]."""
        return self.at(1.0) - self.backward_s

    @property
    def backward_s(self) -> float:
        """Wait in the backward pass [s]."""
        return self.at(1.0) * self.backward / max(self.forward + self.backward, 1.0)

    def stretch(self, deviation: float, step_s: float, micro_batches: float) -> Stretch:
        """Return how far slower and faster hosts put the ends of an 80 % interval.

        Parameters
        ----------
        deviation : standard deviation of ln of the time of a launch, between hosts and codes.
        step_s : the step with the expected host [s].
        micro_batches : of the step.
        """
        down, up = (
            math.log1p(micro_batches * (self.at(math.exp(sign * Z80 * deviation)) - self.at(1.0)) / step_s)
            for sign in (-1.0, 1.0)
        )
        return Stretch(-down, up)

    def note(self, fixed: Constants, deviation: float, step_s: float, micro_batches: float) -> str:
        """Return what a user should know about the waits of a step, "" where no usual host sets its pace."""
        stretch = self.stretch(deviation, step_s, micro_batches)
        slower = math.exp(Z80 * deviation)
        expected = format_si(self.launch_s, "s")
        differ = f"hosts and codes take {1.0 / slower:.1f} to {slower:.1f} times the expected {expected} a kernel"
        if share := micro_batches * self.at(1.0) / step_s:
            compiling = "torch.compile" if self.launch_s >= fixed.dispatch_s else ""
            shorter = ", ".join(filter(None, ("Larger micro batches", compiling))) + " and CUDA graphs shorten it."
            return f"The GPU waits for its host for {share:.0%} of the step; {differ}. {shorter}"
        return f"A slow host would set the pace of the step: {differ}." if math.expm1(stretch.up) > NOTED else ""
