"""The order in which each GPU of a pipeline runs its passes, by schedule."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.training.plan import Schedule, TrainingPlan

#: what a pass does: forward, backward (of activations alone where the gradients of weights stand apart), weights
FORWARD, BACKWARD, WEIGHTS = range(3)
#: part of the model on the GPU, micro batch, and what is done
Key = tuple[int, int, int]
#: passes that a GPU runs together, and whose results are there when all of them end
Item = tuple[Key, ...]
#: schedules that put the gradients of weights off
SPLIT = (Schedule.ZERO_BUBBLE, Schedule.DUALPIPE)


def order_of(plan: TrainingPlan, micro_batches: int, gpu: int) -> list[Item]:
    """Return the passes of one GPU in the order in which it runs them.

    The parts of an interleaved pipeline are its virtual stages on the GPU, those of DualPipe the stages of both
    directions: the first is stage ``gpu``, the second stage p - 1 - ``gpu``.
    """
    if plan.schedule == Schedule.DUALPIPE:
        return _dualpipe(plan.pp, micro_batches, gpu)
    forward = [(*place, FORWARD) for place in _parts(plan, micro_batches, reverse=False)]
    backward = [(*place, BACKWARD) for place in _parts(plan, micro_batches, reverse=True)]
    if plan.schedule == Schedule.GPIPE:
        return _alone([*forward, *backward])
    ahead = min(len(forward), _ahead(plan, gpu))
    order: list[Key] = list(forward[:ahead])
    for one, other in zip(forward[ahead:], backward, strict=False):
        order += [one, other]
    order += backward[len(forward) - ahead :]
    return _alone(_with_weights(order, gpu) if plan.schedule == Schedule.ZERO_BUBBLE else order)


def input_of(plan: TrainingPlan, gpu: int, key: Key) -> tuple[int, Key] | None:
    """Return the GPU and the pass that make the input of a pass; None for the first pass of a micro batch."""
    part, micro_batch, kind = key
    if kind == WEIGHTS:
        return gpu, (part, micro_batch, BACKWARD)
    step = 1 if kind == FORWARD else -1
    if plan.schedule == Schedule.DUALPIPE:
        along = step if part == 0 else -step
        source, other = gpu - along, part
        outside = not 0 <= source < plan.pp
    else:
        source, other = (gpu - step) % plan.pp, part - step * (gpu == (0 if kind == FORWARD else plan.pp - 1))
        outside = not 0 <= other < plan.vp
    if outside:
        return None if kind == FORWARD else (gpu, (part, micro_batch, FORWARD))
    return source, (other, micro_batch, kind)


def _alone(keys: Sequence[Key]) -> list[Item]:
    return [(key,) for key in keys]


def _with_weights(order: Sequence[Key], late: int) -> list[Key]:
    """Return an order with the gradients of weights of each micro batch after the backward pass of a later one."""
    found: list[Key] = []
    waiting: list[Key] = []
    for part, micro_batch, kind in order:
        found.append((part, micro_batch, kind))
        if kind == BACKWARD:
            waiting.append((part, micro_batch, WEIGHTS))
        if kind == BACKWARD and len(waiting) > late:
            found.append(waiting.pop(0))
    return found + waiting


def _ahead(plan: TrainingPlan, gpu: int) -> int:
    """Return the forward passes before the first backward one: p - 1 - i, or with parts 2 (p - 1 - i) + (v - 1) p."""
    if plan.vp > 1:
        return 2 * (plan.pp - 1 - gpu) + (plan.vp - 1) * plan.pp
    return plan.pp - 1 - gpu


def _parts(plan: TrainingPlan, m: int, *, reverse: bool) -> list[tuple[int, int]]:
    """Return (part, micro batch) in the order of the interleaved schedule: p micro batches, then the next part."""
    places: list[tuple[int, int]] = []
    for first in range(0, m, plan.pp):
        group = range(first, min(first + plan.pp, m))
        parts = range(plan.vp - 1, -1, -1) if reverse else range(plan.vp)
        places.extend((part, micro_batch) for part in parts for micro_batch in group)
    return places


class _Order:
    """The order of DualPipe on one GPU as it grows, by phases: 0 is the direction whose micro batches come first."""

    def __init__(self, micro_batches: int, second_half: bool) -> None:
        self.items: list[Item] = []
        self._second, self._half = second_half, micro_batches // 2
        self._done = {FORWARD: [0, 0], BACKWARD: [0, 0]}
        self._late: list[Key] = []

    def forward(self, phase: int) -> None:
        """Add a forward pass."""
        self.items.append((self._next(FORWARD, phase),))

    def backward(self, phase: int, late: bool = False) -> None:
        """Add a backward pass, whose gradients of weights come later on demand."""
        key = self._next(BACKWARD, phase)
        weights = (*key[:2], WEIGHTS)
        if late:
            self._late.append(weights)
        self.items.append((key,) if late else (key, weights))

    def weights(self) -> None:
        """Add the gradients of weights that have been put off longest."""
        self.items.append((self._late.pop(0),))

    def pair(self, phase: int) -> None:
        """Add the forward pass of one phase beside the backward pass of the other."""
        key = self._next(BACKWARD, 1 - phase)
        self.items.append((self._next(FORWARD, phase), key, (*key[:2], WEIGHTS)))

    def _next(self, kind: int, phase: int) -> Key:
        part = phase ^ self._second
        done = self._done[kind]
        done[part] += 1
        return part, part * self._half + done[part] - 1, kind


def _dualpipe(stages: int, micro_batches: int, gpu: int) -> list[Item]:
    """Return the passes of one GPU under DualPipe (deepseek-ai/DualPipe @ bb214e82, dualpipe/dualpipe.py, eight steps).

    Half of the micro batches enter at each end of the pipeline.
    """
    half = stages // 2
    inner = min(gpu, stages - 1 - gpu)  # 0 on the outer GPUs, p / 2 - 1 on the two in the middle
    outer = half - inner - 1
    order = _Order(micro_batches, gpu >= half)
    for _ in range(2 * outer):
        order.forward(0)
    for _ in range(inner + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(outer):
        order.backward(1, late=True)
        order.weights()
        order.forward(1)
    for index in range(micro_batches // 2 - stages + inner + 1):
        if index == 0 and outer == 0:  # not together, so that the neighbour has its input earlier
            order.forward(0)
            order.backward(1)
        else:
            order.pair(0)
        order.pair(1)
    for _ in range(outer):
        order.backward(1)
        order.pair(1)
    late = False
    for index in range(inner + 1):
        middle = index == (inner + 1) // 2
        late |= middle and inner % 2 == 1
        order.backward(1, late)
        late |= middle
        order.backward(0, late)
    for _ in range(outer):
        order.weights()
        order.backward(0, late=True)
    for _ in range(inner + 1):
        order.weights()
    return order.items
