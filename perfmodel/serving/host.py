"""What the host of a deployment adds to the device: the server in front, launches, and the work between steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import plain
from perfmodel.prediction.uncertainty import Z80
from perfmodel.serving.cost import TERMS, Array, Cost
from perfmodel.serving.engine import Engine
from perfmodel.serving.laboratories import Elsewhere
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.step import Step


@dataclass(frozen=True)
class Host:
    """The host's part of the steps of an engine, and of the time before them.

    Attributes
    ----------
    engine : its constants.
    parallel : how the GPUs share the model.
    elsewhere : what the laboratory may differ by from those whose runs set the constants.
    kernels, prompt_kernels : of the layers of all stages, in a step without prompts and for a prompt.
    draft : that of a draft model, or None.
    drafted : passes of that model in a step.
    """

    engine: Engine
    parallel: Parallel
    elsewhere: Elsewhere
    kernels: float
    prompt_kernels: float
    draft: Host | None = None
    drafted: int = 0

    @property
    def held_back_steps(self) -> float:
        """Steps for which the engine holds a request back: until each copy has a prompt, and until it looks for one."""
        balanced = self.engine.balance_steps if self.parallel.copies_share else 0.0
        return balanced + max(0.0, self.engine.receive_steps - 1.0) / 2.0

    @property
    def front_end_s(self) -> float:
        """Time to the first token beside the steps [s]: the server's, and launches of a prompt's kernels."""
        return self.engine.front_end_s + (
            self.prompt_launches_s + (self.draft.prompt_launches_s if self.draft else 0.0)
        )

    def away_s(self, decode_s: Array, sequences: Array) -> Array:
        """Return the time from a request until the engine's scheduler can take it, beside the step that runs [s].

        The server in front takes it, and the steps for which the engine holds it back, or which it has scheduled ahead,
        where other sequences decode.
        """
        others = 1.0 - 1.0 / np.maximum(sequences / self.parallel.slots, 1.0)
        return np.asarray(self.front_end_s + (self.held_back_steps + self.engine.ahead) * decode_s * others)

    @property
    def prompt_launches_s(self) -> float:
        """Time of the host to launch the kernels of a prompt, or of both its halves, which no graph holds [s]."""
        return (1.0 + self.parallel.halves) * self.prompt_kernels * self.engine.prompt_launch_s

    def launches_s(self, sequences: float | Array) -> Array:
        """Return the time of the host to launch the kernels of a step [s], those of a draft's passes too.

        It is 0 with a graph. A step that runs as two halves launches those of both; one sequence of a copy is no two.

        Parameters
        ----------
        sequences : of the step, with its prompts, over all copies.
        """
        if self.engine.graph:
            return np.zeros(np.shape(sequences))
        drafted = self.drafted * self.draft.kernels if self.draft else 0.0
        halves = 1.0 + self.parallel.halves * (np.asarray(sequences) >= 2.0 * self.parallel.slots)
        return np.asarray((halves * self.kernels + drafted) * self.engine.eager_launch_s)

    @property
    def waiting(self) -> float:
        """Factor on the device's time of copies that share experts: all wait for the slowest."""
        return self.engine.imbalance if self.parallel.copies_share else 1.0

    def finished(self, cost: Cost, sequences: Array) -> Step:
        """Return the step of all stages with the host's time, and its interval.

        Parameters
        ----------
        cost : of the device, of one stage.
        sequences : of the step, over all copies.
        """
        engine, stages = self.engine, float(self.parallel.pp)
        times = {term: time * stages for term, time in cost.times.items()}
        if self.parallel.pp > 1:
            times["head"] = cost.times["head"]
        times = {term: time * self.waiting for term, time in times.items()}
        device = np.asarray(sum(times.values()))
        host = engine.host_s + engine.host_sequence_s * sequences / self.parallel.dp
        launches_s = self.launches_s(sequences)
        waited = np.maximum(device, launches_s)
        times["host"] = host + (waited - device)
        time = waited + host
        spread = sum((stages * value / time) ** 2 for value in cost.spread.values())
        variance = spread + engine.deviation**2
        # launches that the device hides do not widen the interval until it hides them no more
        factor = np.exp(Z80 * engine.launch_deviation)
        fast, slow = (np.log((np.maximum(device, launches_s * end) + host) / time) for end in (1 / factor, factor))
        low, high = (np.exp(end * np.hypot(Z80 * np.sqrt(variance), wait)) for end, wait in ((-1.0, fast), (1.0, slow)))
        low, high = self.elsewhere.step.widened(time, time * low, time * high)
        terms = {term: plain(times[term] + 0.0 * time) for term in TERMS if term in times}
        return Step(plain(time), low, high, terms)
