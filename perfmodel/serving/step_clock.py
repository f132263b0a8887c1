"""Quick look-ups of the time of a single step, for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perfmodel.serving.clock import Clock, busiest
from perfmodel.serving.engine import Engine
from perfmodel.serving.host import Host
from perfmodel.serving.speculation import Speculation


class Timed(Protocol):
    """What a deployment has to tell of its steps."""

    @property
    def dp(self) -> int:
        """Copies of the attention."""

    @property
    def pp(self) -> int:
        """Stages of layers."""

    @property
    def slots(self) -> int:
        """Copies times micro-batches in flight."""

    @property
    def speculation(self) -> Speculation | None:
        """Speculative decoding."""

    @property
    def table(self) -> Clock:
        """Times of one GPU and one stage."""

    @property
    def profile(self) -> Engine:
        """The engine."""

    @property
    def host(self) -> Host:
        """What the host adds."""

    @property
    def verified(self) -> float:
        """Tokens of a decoding sequence that a step computes."""

    @property
    def gained(self) -> float:
        """Tokens that a sequence gains by a step."""


class StepClock:
    """Quick look-ups of the time of single steps of a deployment, host included: 2 to 20 us a call."""

    def __init__(self, deployment: Timed) -> None:
        self._table, self._engine = deployment.table, deployment.profile
        self._share, self._stages, self._waiting = deployment.slots, float(deployment.pp), deployment.host.waiting
        self._host_s, self._host_sequence_s = self._engine.host_s, self._engine.host_sequence_s / deployment.dp
        few, many = (float(deployment.host.launches_s(each * deployment.slots)) for each in (1.0, 2.0))
        self._least_s = few, many  # of steps with one sequence of a copy, and with more
        self._each, self._gained = deployment.verified, deployment.gained
        draft = deployment.speculation.draft if deployment.speculation else None
        self._draft = draft.table if draft else None

    def decode_s(self, sequences: float, context: float) -> float:
        """Return the time in which each sequence gains one token, with so many keys in the mean [s]."""
        return self._decode_s(sequences, context) / self._gained

    def _decode_s(self, sequences: float, context: float) -> float:
        """Return the time of a step without prompts [s]."""
        slot, mean = busiest(sequences, self._share), sequences / self._share
        device = self._waiting * self._table.decode_s(slot, context, mean, self._each, self._stages)
        if self._draft is not None:
            device += self._drafted_s(self._draft, sequences, context)
        return max(device, self._launches_s(sequences)) + self._host_s + self._host_sequence_s * sequences

    def _launches_s(self, sequences: float) -> float:
        """Return the time of the host to launch the kernels of a step with so many sequences and prompts [s]."""
        few, many = self._least_s
        return many if sequences >= 2.0 * self._share else few

    def _drafted_s(
        self,
        draft: Clock,
        sequences: float,
        context: float,
        prompts: Sequence[tuple[float, float]] = (),
        ended: int | None = None,
    ) -> float:
        """Return the time of a draft model: a pass for each token that it proposes, the first with the prompts [s]."""
        slot, mean = busiest(sequences, self._share), sequences / self._share
        each_s = draft.decode_s(slot, context, mean, 1.0, self._stages) if sequences else 0.0
        time = (self._each - 1.0) * each_s
        if prompts:
            mixed_s = draft.mixed_s(slot, context, mean, prompts, self._share, ended, 1.0, self._stages)
            time += mixed_s - each_s
        return self._waiting * time

    def mixed_s(
        self, sequences: float, context: float, prompts: Sequence[tuple[float, float]], ended: int | None = None
    ) -> float:
        """Return the time of a step with prompts [s].

        Parameters
        ----------
        sequences, context : decoding sequences and their mean number of keys.
        prompts : (new tokens, keys with the cached ones) of each prompt.
        ended : prompts that end in this step, and so get a first token; None: all.
        """
        share = self._share
        slot = sequences if share == 1 else busiest(sequences, share)
        device = self._waiting * self._table.mixed_s(
            slot, context, sequences / share, prompts, share, ended, self._each, self._stages
        )
        if self._draft is not None:
            device += self._drafted_s(self._draft, sequences, context, prompts, ended)
        several = sequences + len(prompts)
        launches_s = self._launches_s(several)
        time = (device if device > launches_s else launches_s) + self._host_s + self._host_sequence_s * several
        if self._gained == 1.0 or not sequences:
            return time
        # a step counts as one token of each sequence: the others that it gains are taken off the decoding part
        return time - self._decode_s(sequences, context) * (1.0 - 1.0 / self._gained)
