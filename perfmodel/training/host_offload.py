"""What living on the host costs a step: copies that no compute hides, and the optimizer's step on the CPU.

Weights that live on the host come layer by layer before they are gathered, forward and backward (FSDP2's
CPUOffloadPolicy, DeepSpeed's offload_param). Gradients go to the host in every micro batch where they are shared out
(zero 2 and 3), else before the update (Megatron-LM's HybridDeviceOptimizer). What forward keeps leaves beside the
layers that follow, and comes back before the layer's backward pass (Transformer Engine, torchtune, TRL). The update is
that of `perfmodel.training.host_update`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfmodel.core.units import format_si
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.training.expert_overlap import pairs
from perfmodel.training.host_rates import host_rates
from perfmodel.training.host_update import StepEnd, cpu_overlap, loop_factor, threads, update_rate
from perfmodel.training.micro_batch import Passes
from perfmodel.training.setup import Setup
from perfmodel.training.state_bytes import host_pass_bytes, host_update_bytes

#: layers whose activations are on the GPU: the one that is computed, and the one that comes or goes
RESIDENT_LAYERS = 2.0


class Copied(NamedTuple):
    """Copies of a micro batch on one GPU, each beside compute that hides it.

    Attributes
    ----------
    time_s, beside_s : of one, and of what hides it [s].
    number : of a micro batch.
    other_s, other_beside_s : of one in the other direction, which runs at the same time beside the same pass [s].
    forward : whether a forward pass waits for it; a backward pass, or both of a pair, otherwise.
    """

    time_s: float
    beside_s: float
    number: float
    other_s: float = 0.0
    other_beside_s: float = 0.0
    forward: bool = False

    @property
    def occupied_s(self) -> float:
        """How long the longer direction occupies the link [s]."""
        return self.number * max(self.time_s, self.other_s)

    def exposed_s(self, slower: float = 1.0) -> float:
        """Return what no compute hides, of copies that take ``slower`` times as long: of the longer direction [s]."""
        one, other = slower * self.time_s - self.beside_s, slower * self.other_s - self.other_beside_s
        return self.number * max(0.0, one, other)


class LayerCopies(NamedTuple):
    """What a layer moves between GPU and host in a micro batch [B], and exchanges that its copies wait for [s].

    Attributes
    ----------
    weights : that come before each pass.
    gradients : that leave after the backward pass.
    activations : that leave in forward and come back in backward.
    forward_s, backward_s : exchanges in each pass that precede or follow the copies of weights and gradients.
    """

    weights: float
    gradients: float
    activations: float
    forward_s: float
    backward_s: float


def layer_copies(
    setup: Setup, passes: Passes, moved: LayerCopies, count: float, paired: float | None = None
) -> list[Copied]:
    """Return the copies of some equal layers in a micro batch, a share of whose passes are in pairs.

    Exchange and copy of the same weights follow one another: the compute hides both, first the exchange. Copies in one
    direction share the link, and those in both directions run at once. Those of two passes in a pair run beside the
    pair, which is shorter than both by the exchanges that it hides.
    """
    rates, beside = host_rates(setup.cluster), setup.framework.overlaps_activation_copies
    forward, backward = float(passes.forward.sum()), float(passes.backward.sum())
    before, after = max(0.0, forward - moved.forward_s), max(0.0, backward - moved.backward_s)
    leaves, returns = moved.activations / rates.to_host, moved.activations / rates.from_host
    weights_s, gradients_s = moved.weights / rates.from_host, moved.gradients / rates.to_host
    share = pairs(setup.plan, setup.micro_batches) / setup.micro_batches if paired is None else paired
    together = count * share if passes.hidden_s else 0.0
    pair = max(0.0, forward + backward - passes.hidden_s)
    exchanged = max(0.0, before + after - passes.hidden_s)
    copies = [
        Copied(weights_s, before, count - together, leaves * beside, forward, forward=True),
        Copied(weights_s + returns * beside, after, count - together, gradients_s, after),
        Copied(2.0 * weights_s + returns * beside, exchanged, together, gradients_s + leaves * beside, pair),
    ]
    if not beside:
        copies += [Copied(leaves, 0.0, count, forward=True), Copied(returns, 0.0, count)]
    return [copy for copy in copies if copy.number > 0 and (copy.time_s > 0 or copy.other_s > 0)]


def returning_s(setup: Setup, passes: Passes, activations: float) -> float:
    """Return how much longer the backward pass of a layer takes until its activations are back [s]."""
    time = activations / host_rates(setup.cluster).from_host
    beside = setup.framework.overlaps_activation_copies
    return max(0.0, time - float(passes.backward.sum())) if beside else time


def outer_copies(setup: Setup, weights: float, gradients: float) -> list[Copied]:
    """Return the copies of embedding, head or a first layer, which nothing hides [B]."""
    rates = host_rates(setup.cluster)
    copies = (
        Copied(weights / rates.from_host, 0.0, 1.0, forward=True),
        Copied(gradients / rates.to_host, 0.0, 1.0),
    )
    return [copy for copy in copies if copy.time_s > 0]


def whole_gradients(setup: Setup, gradients: float, backward_s: float, layers: int) -> list[Copied]:
    """Return the copies of a micro batch's gradients, reduced beside the backward pass: the last layer's wait."""
    time, last = gradients / host_rates(setup.cluster).to_host, 1.0 / max(layers, 1)
    return [Copied(last * time, 0.0, 1.0), Copied((1.0 - last) * time, backward_s, 1.0)]


def offload_stretch(setup: Setup, copies: Iterable[Copied], end: StepEnd, step_s: float, count: float) -> Stretch:
    """Return how far slower and faster hosts put the ends of an 80 % interval: copies and CPUs err independently.

    Parameters
    ----------
    copies, end : of the GPU that sets the pace, in a micro batch and after the last one.
    step_s : the step with the expected host [s].
    count : micro batches of the step.
    """
    if setup.plan.offload == "none":
        return Stretch()
    rates, listed = host_rates(setup.cluster), list(copies)

    def longer(sign: float) -> tuple[float, float]:
        slower = math.exp(sign * Z80 * rates.copy_deviation)
        copied = count * sum(copy.exposed_s(slower) - copy.exposed_s() for copy in listed)
        copied += sum(end.exposed_s(copying=slower)) - end.time_s
        updating = math.exp(sign * Z80 * update_rate(setup)[1])
        return copied, sum(end.exposed_s(updating=updating)) - end.time_s

    down, up = (
        math.hypot(*(math.log1p(max(added, -0.99 * step_s) / step_s) for added in longer(sign))) for sign in (-1.0, 1.0)
    )
    return Stretch(down, up)


def offload_notes(setup: Setup, updated: float, terms_s: Mapping[str, float]) -> list[str]:
    """Return at which rates a host is taken to work, and how unsure that is."""
    rates, plan = host_rates(setup.cluster), setup.plan
    ways = f"{format_si(rates.to_host, 'B/s', 3)} to its host and {format_si(rates.from_host, 'B/s', 3)} from it"
    notes = [f"A {setup.hardware.name} copies {ways}, with pinned memory."]
    if not plan.on_host("optimizer"):
        return notes
    if (overlap := cpu_overlap(setup)) not in setup.framework.host.overlaps:
        notes.append(f"{setup.framework.name} has no cpu_overlap = {overlap}: this is predicted as if it had.")
    if overlap == "passes":
        notes.append("Weights are a step old where the update runs beside the passes of the next step.")
    return [*notes, _update_note(setup, updated)] if terms_s.get("cpu_optimizer") else notes


def _update_note(setup: Setup, updated: float) -> str:
    """Return how the CPU updates parameters, how fast, and how unsure that is."""
    sharing, number = setup.cluster.sharing_host, threads(setup)
    rate, deviation = update_rate(setup)
    stated = not math.isnan(setup.cluster.host_bytes_per_s)
    whose = f"{sharing} GPUs share the host" if sharing > 1 else "alone on its host"
    whose += f", {number} thread{'s' * (number > 1)} each" if number else ""
    unsure = "" if stated else (
        f" Hosts differ: the interval counts {math.exp(-Z80 * deviation):.2f} to {math.exp(Z80 * deviation):.1f} times "
        "the time. --host-bandwidth states yours."
    )  # fmt: skip
    share, loop = setup.plan.offload_fraction * updated, loop_factor(setup)
    bytes_ = host_update_bytes(setup) + host_pass_bytes(setup)
    slow = f", {loop:g} times as long as fused (torch.optim's loop)" if loop > 1 else ""
    return (
        f"The CPU updates {format_si(share, '')} parameters a GPU, {bytes_:g} B each, at "
        f"{format_si(rate, 'B/s', 3)} ({'as stated' if stated else 'assumed'}; {whose}){slow}.{unsure}"
    )
