"""One simulated engine with continuous batching: a step with prefill is one event, a run of decode steps is one event.

A decode run ends with the next completion, the next arrival that could enter, or the last free block, and before
contexts have grown by much (`perfmodel.serving.journal.straight`). Its time is the number of steps times the mean of
the step times at its two ends, which is exact as long as a step's time is linear in the mean context. What a step
computes is decided in `perfmodel.serving.scheduler`.
"""

from __future__ import annotations

import heapq
import math

from perfmodel.serving.journal import Chunk, straight
from perfmodel.serving.scheduler import Scheduler


class Replica(Scheduler):
    """An engine with continuous batching: it computes what its scheduler gives it, and lets time go by.

    Its parameters are those of `perfmodel.serving.scheduler.Scheduler`.
    """

    __slots__ = ()

    def advance(self, until_s: float) -> None:
        """Compute one event; a decode run ends with the first step that reaches a time, if a request could enter."""
        chunks = self._schedule()
        if chunks:
            self._prefill_step(chunks)
        elif self._decoding:
            self._decode_run(until_s)
        tally = self.tally
        tally.skipped += 1
        if tally.skipped >= tally.skip:
            tally.sample(self.time_s, self.running, self.queued, self.blocks.total - self.blocks.free)

    def _prefill_step(self, chunks: list[Chunk]) -> None:
        """Compute one step with prompts, and decode beside them if the policy mixes."""
        decoding = self._decoding if self.policy.mixed else 0
        context = self._context / decoding + 1.0 if decoding else 0.0
        step_s, start_s = self.clock.mixed_s(decoding, context, chunks), self._start()
        self._began_s = start_s
        tokens = decoding
        for chunk in chunks:
            tokens += chunk[0]
        self._pass(step_s, 1, tokens)
        self.tally.prompt_steps += 1
        if decoding:
            self._grow(start_s, step_s, 1)
            if self._ends[0][0] <= self._step:
                self._end_answers()
        self._end_prompts()

    def _decode_run(self, until_s: float) -> None:
        """Compute decode steps until something changes."""
        decoding = self._decoding
        steps = self._steps_to_next_end()
        blocks = self.blocks
        steps = blocks.even_steps(self._step, steps)
        if self._on_demand and blocks.free < decoding * (steps // blocks.block_tokens + 1):
            steps = min(steps, blocks.steps_left(self._step, decoding))
        context = self._context / decoding + 1.0
        steps = straight(context, steps)
        first_s = self.clock.decode_s(decoding, context)
        last_s = self.clock.decode_s(decoding, context + steps - 1) if steps > 1 else first_s
        may_enter = not self.waiting and decoding < self.policy.max_num_seqs
        if may_enter and self._came:  # the step after this one may hold them
            steps, last_s = 1, first_s
        elif may_enter and self.time_s + self._extra_s + 0.5 * (first_s + last_s) * steps > until_s and steps > 1:
            slope = (last_s - first_s) / (steps - 1)
            steps = min(steps, steps_within(until_s - self.time_s - self._extra_s, first_s, slope))
            last_s = first_s + slope * (steps - 1)
        step_s, start_s = 0.5 * (first_s + last_s), self._start()
        self._began_s = start_s + step_s * steps - last_s
        self._pass(step_s * steps, steps, steps * decoding)
        self._grow(start_s, step_s, steps)
        self._end_answers()

    def _steps_to_next_end(self) -> int:
        ends, growing = self._ends, self._growing
        while growing.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        return ends[0][0] - self._step

    def _start(self) -> float:
        """Let the swaps go by that the next step waits for, and return the time at which it starts [s]."""
        if self._extra_s:
            self._pass(self._extra_s, 0, 0)
            self._extra_s = 0.0
        return self.time_s

    def _pass(self, time_s: float, steps: int, tokens: int) -> None:
        """Let time go by in which the engine computes or moves blocks."""
        tally = self.tally
        tally.busy_s += time_s
        tally.running_s += time_s * (self._decoding + len(self._partial))
        tally.queued_s += time_s * (len(self.waiting) + len(self._came))
        tally.blocks_s += time_s * (self.blocks.total - self.blocks.free)
        tally.steps += steps
        tally.tokens += tokens
        self.time_s += time_s

    def _grow(self, start_s: float, step_s: float, steps: int) -> None:
        """Give each decoding sequence a token in each of some steps, of which the first started at a time."""
        tally, decoding = self.tally, self._decoding
        count = decoding * steps
        if self._on_demand:
            blocks = self.blocks
            taken = blocks.needed_in(self._step, steps, decoding)
            blocks.free -= taken
            tally.blocks_s += 0.5 * step_s * steps * taken  # one after the other in the run
        tally.decode_steps += steps
        tally.decoded += count
        tally.decode_contexts += steps * (self._context + 0.5 * decoding * (steps - 1))
        self._step += steps
        self.blocks.narrow(self._step)
        self._context += count
        tally.generated += count
        self._note_gaps(start_s, step_s, count)

    def _note_gaps(self, start_s: float, step_s: float, count: int) -> None:
        """Count the gaps before some tokens: of each sequence the first one begins with its last token before."""
        gaps, token_s, growing = self.tally.gaps, self._token_s, self._growing
        lasts = [(token_s.pop(request), 1) for request in list(token_s) if request in growing]
        lasts.append((self._decoded_s, self._decoding - len(lasts)))
        for last_s, sequences in lasts:
            if sequences and last_s < start_s:
                gaps.add(start_s - last_s + step_s, sequences)
                count -= sequences
        if count:
            gaps.add(step_s, count)
        self._decoded_s = self.time_s

    def _end_answers(self) -> None:
        """Let the requests leave whose last token was given out."""
        ends, step = self._ends, self._step
        while ends and ends[0][0] <= step:
            end, request = heapq.heappop(ends)
            if self._growing.get(request) != end:
                continue
            del self._growing[request]
            journal = self.journal
            tokens = journal.prompt[request] + journal.output[request] - 1
            if self._on_demand:
                self.blocks.leave(tokens, step)
                self.blocks.release(self.blocks.of(tokens))
            else:
                self.blocks.release(self._held.pop(request))
            self._decoding -= 1
            self._context -= tokens + journal.cached
            self._leave(request)

    def _end_prompts(self) -> None:
        """Give the next token of each request whose prompt is computed, and let it decode."""
        journal, time_s = self.journal, self.time_s
        rest = []
        for entry in self._partial:
            request, done, target = entry
            if done < target:
                rest.append(entry)
                continue
            if not journal.given[request]:
                journal.first_s[request] = time_s
            else:  # its keys and values were computed anew
                self.tally.gaps.add(time_s - self._token_s.pop(request), 1)
            journal.given[request] += 1
            self.tally.generated += 1
            self._join(request, target)
        self._partial = rest


def steps_within(gap_s: float, first_s: float, slope_s: float) -> int:
    """Return the steps after which a time has gone by, at least 1, for step times that grow linearly.

    k steps take k first + slope k (k - 1) / 2; the smallest whole k for which that reaches the gap.

    >>> steps_within(1.0, 0.3, 0.0), steps_within(-1.0, 0.3, 0.0), steps_within(6.0, 1.0, 1.0)
    (4, 1, 3)
    """
    if gap_s <= first_s:
        return 1
    linear = first_s - 0.5 * slope_s
    root = linear * linear + 2.0 * slope_s * gap_s
    if root <= 0:  # the steps become shorter so fast that their sum never reaches the gap
        return 1 << 30
    return max(1, math.ceil(2.0 * gap_s / (linear + math.sqrt(root)) - 1e-9))
