"""One simulated engine with static or dynamic batches, whose requests start together; the last answer ends a batch."""

from __future__ import annotations

import itertools
import math
from collections import deque

from perfmodel.serving.blocks import Blocks, Windows
from perfmodel.serving.journal import Clock, Journal, straight
from perfmodel.serving.policies import Policy
from perfmodel.serving.tally import Tally


class BatchReplica:
    """An engine that computes one batch after the other.

    A batch starts when it is full, when its oldest request has waited for the policy's longest time, or when no other
    request will come. Its prompts are computed in one step. Each step computes all its sequences, also those whose
    answer has ended, as engines without continuous batching do (Yu et al. 2022, "Orca", section 2).

    Parameters
    ----------
    clock, policy, kv_tokens, journal, sequence_tokens, windows : as for `perfmodel.serving.replica.Replica`.
    """

    def __init__(
        self, clock: Clock, policy: Policy, kv_tokens: float, journal: Journal, *, sequence_tokens: float = 0.0,
        windows: Windows = (),
    ) -> None:  # fmt: skip
        self.clock, self.policy, self.journal = clock, policy, journal
        self.blocks = Blocks(kv_tokens, policy.block_tokens, sequence_tokens, windows)
        self.tally = Tally()
        self.time_s = 0.0
        self.waiting: deque[int] = deque()
        self.running = 0
        #: requests of the last batch
        self._last: list[int] = []

    @property
    def outstanding(self) -> int:
        """Requests in the queue; a batch is computed within one event."""
        return len(self.waiting)

    def outstanding_at(self, time_s: float) -> int:
        """Return the requests in the queue, and those of the last batch that have no last token at a time."""
        return len(self.waiting) + sum(self.journal.last_s[request] > time_s for request in self._last)

    def submit(self, request: int, time_s: float) -> None:
        """Add a request to the queue."""
        if not self.waiting and self.time_s < time_s:
            self.time_s = time_s
        self.tally.queued_s += self.time_s - time_s
        self.waiting.append(request)

    def advance(self, until_s: float) -> None:
        """Compute a batch; or wait for a time, where a request may come and the oldest may still wait."""
        oldest_s = self.journal.arrival_s[self.waiting[0]]
        start_s = max(self.time_s, oldest_s + self.policy.max_wait_s)
        if not self._is_full() and until_s < math.inf and self.time_s < start_s:
            wait_s = max(0.0, min(start_s, until_s) - self.time_s)
            self.tally.queued_s += wait_s * len(self.waiting)
            self.time_s += wait_s
            return
        batch = self._last = self._batch()
        used = self.blocks.free
        self.running = len(batch)
        self.blocks.free -= sum(self.blocks.of(self._tokens(request)) for request in batch)
        self._sample()
        self._compute(batch)
        self._sample()
        self.blocks.free, self.running = used, 0

    def _sample(self) -> None:
        self.tally.sample(self.time_s, self.running, len(self.waiting), self.blocks.total - self.blocks.free)

    def _tokens(self, request: int) -> int:
        return self.journal.prompt[request] + self.journal.output[request] - 1

    def _is_full(self) -> bool:
        """Return whether no further request would come into the next batch."""
        count, most = self._fitting()
        return count == most or count < len(self.waiting)

    def _fitting(self) -> tuple[int, int]:
        """Return how many waiting requests the policy and the cache allow in a batch, and the most of the policy."""
        most, free, count = min(self.policy.batch, self.policy.max_num_seqs), self.blocks.free, 0
        for request in itertools.islice(self.waiting, most):
            free -= self.blocks.of(self._tokens(request))
            if free < 0:
                break
            count += 1
        return count, most

    def _batch(self) -> list[int]:
        """Take the next batch out of the queue: as many as the policy, and the cache, allow."""
        return [self.waiting.popleft() for _ in range(self._fitting()[0])]

    def _compute(self, batch: list[int]) -> None:
        """Compute the prompts of a batch in one step, then its answers."""
        journal, tally, size = self.journal, self.tally, len(batch)
        prompts = [(journal.prompt[request], journal.prompt[request] + journal.cached) for request in batch]
        for request in batch:
            journal.started_s[request] = self.time_s
        self._pass(self.clock.mixed_s(0, 0.0, prompts), size)
        context = sum(keys for _, keys in prompts) / size + 1.0
        tally.read += sum(tokens for tokens, _ in prompts)
        tally.firsts += size
        tally.prompt_steps += 1
        for request in batch:
            journal.first_s[request] = self.time_s
        given = 1
        going = size
        for request in sorted(batch, key=journal.output.__getitem__):
            while given < journal.output[request]:
                steps = straight(context, journal.output[request] - given)
                step_s = 0.5 * (self.clock.decode_s(size, context) + self.clock.decode_s(size, context + steps - 1))
                self._pass(steps * step_s, going)
                tally.gaps.add(step_s, steps * going)
                tally.decode_steps += steps
                tally.decoded += steps * size
                tally.decode_contexts += steps * size * (context + 0.5 * (steps - 1))
                context += steps
                given += steps
            journal.given[request] = given
            journal.last_s[request] = self.time_s
            journal.done.append(request)
            going -= 1

    def _pass(self, time_s: float, going: int) -> None:
        """Let time go by in which ``going`` requests of the batch wait for their last token."""
        tally = self.tally
        tally.busy_s += time_s
        tally.running_s += time_s * going
        tally.queued_s += time_s * len(self.waiting)
        tally.blocks_s += time_s * (self.blocks.total - self.blocks.free)
        self.time_s += time_s
