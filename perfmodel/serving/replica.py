"""One simulated engine with continuous batching: a step with prefill is one event, a run of decode steps is one event.

A decode run ends with the next completion, the next arrival that could enter, or the last free block, and before
contexts have grown by much (`perfmodel.serving.journal.straight`). Its time is the number of steps times the mean of
the step times at its two ends, which is exact as long as a step's time is linear in the mean context. What a step
computes is decided in `perfmodel.serving.scheduler`.
"""

from __future__ import annotations

import heapq
import math

from perfmodel.serving.journal import LEAST_STEPS, Chunk, Clock, straight
from perfmodel.serving.scheduler import Scheduler


class Replica(Scheduler):
    """An engine with continuous batching: it computes what its scheduler gives it, and lets time go by.

    Its parameters are those of `perfmodel.serving.scheduler.Scheduler`.
    """

    __slots__ = ()

    def advance(self, until_s: float) -> None:
        """Compute one event; a decode run ends with the first step that reaches a time, if a request could enter."""
        decoding = self._decoding
        if self.waiting or self._came or self._partial or (self._on_demand and self.blocks.free < decoding):
            chunks = self._schedule()
            if chunks:
                self._prefill_step(chunks)
            elif self._decoding:
                self._decode_run(until_s)
        elif decoding:
            self._decode_run(until_s)
        tally = self._tally
        tally.skipped += 1
        if tally.skipped >= tally.skip:
            tally.sample(self.time_s, self.running, self.queued, self.blocks.total - self.blocks.free)

    def _prefill_step(self, chunks: list[Chunk]) -> None:
        """Compute one step with prompts, and decode beside them if the policy mixes."""
        decoding, tally = self._decoding if self.policy.mixed else 0, self._tally
        context = self._context / decoding + 1.0 if decoding else 0.0
        step_s, start_s = self.clock.mixed_s(decoding, context, chunks), self._start()
        self._began_s = start_s
        tally.prompt_steps += 1
        for chunk in chunks:
            tally.read += chunk[0]
        if decoding:
            tally.both_steps += 1
            self._grow(start_s, step_s, 1)
            if self._ends[0][0] <= self._step:
                self._end_answers()
        else:
            self._pass(step_s)
        self._end_prompts()

    def _decode_run(self, until_s: float) -> None:
        """Compute decode steps until something changes."""
        decoding = self._decoding
        context = self._context / decoding + 1.0
        steps = self._steps_to_next_end()
        if self._on_demand:
            steps = self.blocks.free_steps(self._step, steps, decoding)
        may_enter = not self.waiting and decoding < self.policy.max_num_seqs
        if may_enter and self._came:  # the step after this one may hold them
            steps = 1
        soon_s = self.time_s + self._extra_s
        steps, step_s, last_s = run_of(self.clock, decoding, context, steps, soon_s, until_s if may_enter else math.inf)
        start_s = self._start()
        self._began_s = start_s + step_s * steps - last_s
        self._grow(start_s, step_s, steps)
        if self._ends[0][0] <= self._step:
            self._end_answers()

    def _steps_to_next_end(self) -> int:
        ends, growing = self._ends, self._growing
        while growing.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        return ends[0][0] - self._step

    def _start(self) -> float:
        """Let the swaps go by that the next step waits for, and return the time at which it starts [s]."""
        if self._extra_s:
            self._pass(self._extra_s)
            self._extra_s = 0.0
        return self.time_s

    def _pass(self, time_s: float) -> None:
        """Let time go by in which the engine reads prompts or moves blocks, and nothing decodes."""
        rows, blocks = self._tally.rows, self.blocks
        rows += (time_s, 1, self._decoding + len(self._partial), 0, blocks.total - blocks.free, 0)
        self._wait(time_s)
        self.time_s += time_s

    def _wait(self, time_s: float) -> None:
        """Count the time for those in the queue."""
        if self.waiting or self._came:
            self._tally.queued_s += time_s * (len(self.waiting) + len(self._came))

    def _grow(self, start_s: float, step_s: float, steps: int) -> None:
        """Give each decoding sequence a token in each of some steps, of which the first starts at a time."""
        decoding, context, blocks, rows = self._decoding, self._context, self.blocks, self._tally.rows
        used = blocks.total - blocks.free
        if self._on_demand:  # blocks are taken one after the other in the run
            used += 0.5 * blocks.grow(self._step, steps, decoding)
        if self._token_s or self._decoded_s < start_s:
            self._note_waits(start_s, step_s)
        time_s = step_s * steps
        rows += (step_s, steps, decoding + len(self._partial), decoding, used, context)
        if self.waiting or self._came:
            self._wait(time_s)
        self._step += steps
        self._context = context + decoding * steps
        self.time_s += time_s
        self._decoded_s = self.time_s

    def _note_waits(self, start_s: float, step_s: float) -> None:
        """Count the gaps before the first tokens of a run, of sequences that waited for it."""
        gaps, token_s, growing = self._tally.gaps, self._token_s, self._growing
        lasts = [(token_s.pop(request), 1) for request in list(token_s) if request in growing]
        lasts.append((self._decoded_s, self._decoding - len(lasts)))
        for last_s, sequences in lasts:
            if sequences and last_s < start_s:
                gaps.move(step_s, start_s - last_s + step_s, sequences)

    def _end_answers(self) -> None:
        """Let the requests leave whose last token was given out."""
        ends, growing, step, journal = self._ends, self._growing, self._step, self.journal
        while ends and ends[0][0] <= step:
            end, request = heapq.heappop(ends)
            if growing.get(request) != end:
                continue
            del growing[request]
            tokens = journal.prompt[request] + journal.output[request] - 1
            if self._on_demand:
                self.blocks.end(tokens, step)
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
                self._tally.firsts += 1
            else:  # its keys and values were computed anew
                self._tally.gaps.add(time_s - self._token_s.pop(request), 1)
            journal.given[request] += 1
            self._join(request, target)
        self._partial = rest


def run_of(
    clock: Clock, decoding: int, context: float, steps: int, start_s: float, until_s: float
) -> tuple[int, float, float]:
    """Return the steps of a run, their mean time, and the time of the last one [s].

    Parameters
    ----------
    clock : times of the steps.
    decoding, context : sequences, and their mean number of keys in the first step.
    steps : after which something changes.
    start_s, until_s : time at which the run starts, and time that it reaches with its last step, if it has as many.
    """
    if steps > LEAST_STEPS:
        steps = straight(context, steps)
    first_s = clock.decode_s(decoding, context)
    if steps == 1:
        return 1, first_s, first_s
    last_s = clock.decode_s(decoding, context + steps - 1)
    if start_s + 0.5 * (first_s + last_s) * steps > until_s:
        slope = (last_s - first_s) / (steps - 1)
        steps = min(steps, steps_within(until_s - start_s, first_s, slope))
        last_s = first_s + slope * (steps - 1)
    return steps, 0.5 * (first_s + last_s), last_s


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
