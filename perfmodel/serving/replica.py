"""One simulated engine with continuous batching: a step with prefill is one event, a run of decode steps is one event.

A decode run ends with the next completion, the next arrival that could enter, or the last free block. Its time is the
number of steps times the mean of the step times at its two ends, which is exact as long as a step's time is linear in
the mean context. Nothing is done for single sequences while they decode: their lengths follow from a count of steps,
their completions stand in a heap, and their blocks in `perfmodel.serving.blocks`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.journal import Chunk, Clock, Journal
from perfmodel.serving.policies import SWAP, Policy
from perfmodel.serving.tally import Tally


class Replica:
    """An engine with continuous batching, its queue and its cache.

    Parameters
    ----------
    clock : times of the steps.
    policy : the rules of the scheduler.
    kv_tokens : tokens that the cache holds.
    journal : requests by number, and where their times are written.
    swap_s_per_token : time to move the keys and values of a token to the host or back, for preemption by swap [s].
    """

    __slots__ = (
        "_context",
        "_decoding",
        "_ends",
        "_entered",
        "_extra_s",
        "_growing",
        "_held",
        "_kept",
        "_on_demand",
        "_partial",
        "_stall_s",
        "_step",
        "_swap_s_per_token",
        "_watermark",
        "blocks",
        "clock",
        "journal",
        "outstanding",
        "policy",
        "tally",
        "time_s",
        "waiting",
    )

    def __init__(
        self, clock: Clock, policy: Policy, kv_tokens: float, journal: Journal, *, swap_s_per_token: float = 0.0
    ) -> None:
        self.clock, self.policy, self.journal = clock, policy, journal
        self.blocks = Blocks(kv_tokens, policy.block_tokens)
        self.tally = Tally()
        self.time_s = 0.0
        self.waiting: deque[int] = deque()
        #: requests in the engine and in its queue
        self.outstanding = 0
        self._swap_s_per_token = swap_s_per_token
        self._watermark = int(policy.watermark * self.blocks.total) if math.isfinite(kv_tokens) else 0
        self._on_demand = not policy.reserve
        #: decode steps so far, sequences that decode, and the sum of their tokens in the cache
        self._step, self._decoding, self._context = 0, 0, 0
        #: (decode step, request) of the ends of answers; entries of preempted requests are stale
        self._ends: list[tuple[int, int]] = []
        #: decoding request -> decode step at which it ends
        self._growing: dict[int, int] = {}
        #: request -> blocks that it holds, for prompts in progress and reserved requests
        self._held: dict[int, int] = {}
        #: preempted request -> blocks that have to be taken before its own are, and its blocks, the last one not full
        self._kept: dict[int, tuple[int, int, int]] = {}
        #: prompts in progress, oldest first: [request, tokens computed, tokens to compute]
        self._partial: list[list[int]] = []
        #: requests in the order in which they entered; those that have ended are skipped
        self._entered: list[int] = []
        #: time of swaps that the next step waits for, and of steps without decoding since the last decode step [s]
        self._extra_s = self._stall_s = 0.0

    @property
    def running(self) -> int:
        """Sequences in the engine."""
        return self._decoding + len(self._partial)

    def submit(self, request: int, time_s: float) -> None:
        """Add a request to the queue; an engine that has nothing to do starts at once."""
        if not self.outstanding and self.time_s < time_s:
            self.time_s = time_s
        self.tally.queued_s += self.time_s - time_s
        self.waiting.append(request)
        self.outstanding += 1

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
            tally.sample(self.time_s, self.running, len(self.waiting), self.blocks.total - self.blocks.free)

    # -- what a step computes ------------------------------------------------------------------------------------

    def _schedule(self) -> list[Chunk]:
        """Make room for the decoding sequences, continue prompts, let requests enter; return the parts of prompts."""
        # each decoding sequence takes one block at most
        preempted = self._on_demand and self.blocks.free < self._decoding and self._make_room()
        policy = self.policy
        budget = policy.max_tokens - (self._decoding if policy.mixed else 0)
        chunks: list[Chunk] = []
        for entry in self._partial:
            tokens = self._continue(entry, budget, chunks) if budget > 0 else 0
            if entry[1] < entry[2]:  # no other prompt enters before this one is computed
                return chunks
            budget -= tokens
        waiting = self.waiting
        while waiting and budget > 0 and not preempted and self.running < policy.max_num_seqs:
            tokens = self._enter(waiting[0], budget, chunks)
            if tokens < 0:
                break
            waiting.popleft()
            budget -= tokens
        return chunks

    def _make_room(self) -> bool:
        """Preempt the youngest sequences until the others can each take the block of their next token."""
        preempted = False
        while self.blocks.free < self.blocks.needed(self._step):
            self._preempt()
            preempted = True
        return preempted

    def _continue(self, entry: list[int], budget: int, chunks: list[Chunk]) -> int:
        """Compute the next part of a prompt in progress; return its tokens, 0 where no block is left for it."""
        request, done, target = entry
        tokens = min(budget, target - done)
        if self._on_demand:
            blocks, held = self.blocks, self._held[request]
            room = blocks.free - blocks.needed(self._step) + held
            tokens = min(tokens, room * blocks.block_tokens - done)
            if tokens <= 0:
                return 0
            more = max(0, blocks.of(done + tokens) - held)
            self._held[request] = held + more
            blocks.free -= more
        entry[1] = done + tokens
        chunks.append((tokens, done + tokens + self.journal.cached))
        return tokens

    def _enter(self, request: int, budget: int, chunks: list[Chunk]) -> int:
        """Let a request enter; return the tokens that it computes in this step, or -1 where it has to wait."""
        journal, blocks = self.journal, self.blocks
        given = journal.given[request]
        target = journal.prompt[request] + given
        if given and (self.policy.preemption == SWAP or request not in journal.preempted):
            return self._return(request, target - 1)
        found = self._found(request, target) if given else 0
        tokens = min(target - found, budget)
        if found + tokens < target and not self.policy.chunked:
            if chunks:
                return -1
            tokens = target - found
        if self._on_demand:
            needed, free = blocks.of(found + tokens), blocks.free - blocks.needed(self._step)
        else:
            needed, free = blocks.of(journal.prompt[request] + journal.output[request] - 1), blocks.free
        if needed > free - (self._watermark if self.running else 0):
            return -1
        blocks.free -= needed
        self._held[request] = needed
        self._partial.append([request, found + tokens, target])
        chunks.append((tokens, found + tokens + journal.cached))
        self._note_entry(request)
        return tokens

    def _found(self, request: int, target: int) -> int:
        """Return the tokens of a preempted sequence whose blocks nobody has taken since: its first ones are last."""
        if request not in self._kept:
            return 0
        before, count, full = self._kept[request]
        left = min(full, count - max(0, self.blocks.taken - before))
        return min(max(0, left) * self.blocks.block_tokens, target - 1)

    def _return(self, request: int, tokens: int) -> int:
        """Let a request enter whose keys and values exist: they come from the host or from another engine."""
        blocks = self.blocks
        needed = blocks.of(tokens)
        if self._on_demand:
            least = blocks.of(tokens + 1) + blocks.needed(self._step)
        else:
            least = needed = blocks.of(self.journal.prompt[request] + self.journal.output[request] - 1)
        if least > blocks.free - (self._watermark if self.running else 0):
            return -1
        blocks.free -= needed
        self._held[request] = needed
        if request in self.journal.preempted:
            self._extra_s += tokens * self._swap_s_per_token
        self._note_entry(request)
        self._join(request, tokens)
        return 0

    def _note_entry(self, request: int) -> None:
        self._entered.append(request)
        started_s = self.journal.started_s
        if started_s[request] != started_s[request]:  # NaN: the request never ran before
            started_s[request] = self.time_s

    def _preempt(self) -> None:
        """Take the youngest sequence out of the engine and put it at the head of the queue."""
        request = self._entered.pop()
        while request not in self._growing and request not in self._held:
            request = self._entered.pop()
        journal = self.journal
        if request in self._growing:
            left = self._growing.pop(request) - self._step
            journal.given[request] = journal.output[request] - left
            tokens = journal.prompt[request] + journal.given[request] - 1
            self.blocks.leave(tokens, self._step)
            self._keep(request, tokens)
            self.blocks.release(self.blocks.of(tokens))
            self._decoding -= 1
            self._context -= tokens + journal.cached
            if self.policy.preemption == SWAP:
                self._extra_s += tokens * self._swap_s_per_token
        else:
            self.blocks.release(self._held.pop(request))
            self._partial = [entry for entry in self._partial if entry[0] != request]
        journal.preempted[request] = journal.preempted.get(request, 0) + 1
        self.tally.preemptions += 1
        self.waiting.appendleft(request)

    def _keep(self, request: int, tokens: int) -> None:
        """Remember the blocks of a sequence that is preempted: they are taken after those that are free now."""
        if self.policy.keeps_blocks:
            blocks = self.blocks
            self._kept[request] = blocks.taken + blocks.free, blocks.of(tokens), tokens // blocks.block_tokens

    # -- events --------------------------------------------------------------------------------------------------

    def _prefill_step(self, chunks: list[Chunk]) -> None:
        """Compute one step with prompts, and decode beside them if the policy mixes."""
        decoding = self._decoding if self.policy.mixed else 0
        context = self._context / decoding + 1.0 if decoding else 0.0
        step_s = self.clock.mixed_s(decoding, context, chunks) + self._extra_s
        self._extra_s = 0.0
        tokens = decoding
        for chunk in chunks:
            tokens += chunk[0]
        self._pass(step_s, 1, tokens)
        if decoding:
            self._grow(step_s, 1)
            if self._ends[0][0] <= self._step:
                self._end_answers()
        elif self._decoding:
            self._stall_s += step_s
        self._end_prompts()

    def _decode_run(self, until_s: float) -> None:
        """Compute decode steps until something changes."""
        decoding = self._decoding
        steps = self._steps_to_next_end()
        blocks = self.blocks
        if self._on_demand and blocks.free < decoding * (steps // blocks.block_tokens + 1):
            steps = min(steps, blocks.steps_left(self._step, decoding))
        context = self._context / decoding + 1.0
        first_s = self.clock.decode_s(decoding, context)
        last_s = self.clock.decode_s(decoding, context + steps - 1) if steps > 1 else first_s
        may_enter = not self.waiting and decoding < self.policy.max_num_seqs
        if may_enter and self.time_s + self._extra_s + 0.5 * (first_s + last_s) * steps > until_s and steps > 1:
            slope = (last_s - first_s) / (steps - 1)
            steps = min(steps, steps_within(until_s - self.time_s - self._extra_s, first_s, slope))
            last_s = first_s + slope * (steps - 1)
        run_s = 0.5 * (first_s + last_s) * steps + self._extra_s
        self._extra_s = 0.0
        self._pass(run_s, steps, steps * decoding)
        self._grow(run_s, steps)
        self._end_answers()

    def _steps_to_next_end(self) -> int:
        ends, growing = self._ends, self._growing
        while growing.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        return ends[0][0] - self._step

    def _pass(self, time_s: float, steps: int, tokens: int) -> None:
        """Let time go by in which the engine computes."""
        tally = self.tally
        tally.busy_s += time_s
        tally.running_s += time_s * (self._decoding + len(self._partial))
        tally.queued_s += time_s * len(self.waiting)
        tally.blocks_s += time_s * (self.blocks.total - self.blocks.free)
        tally.steps += steps
        tally.tokens += tokens
        self.time_s += time_s

    def _grow(self, time_s: float, steps: int) -> None:
        """Give each decoding sequence a token in each of some steps."""
        tally, decoding = self.tally, self._decoding
        count = decoding * steps
        if self._on_demand:
            blocks = self.blocks
            blocks.free -= blocks.needed_in(self._step, steps, decoding)
        tally.decode_steps += steps
        tally.decoded += count
        tally.decode_contexts += steps * (self._context + 0.5 * decoding * (steps - 1))
        self._step += steps
        self._context += count
        tally.generated += count
        if self._stall_s:
            tally.gaps.add(self._stall_s + time_s / steps, decoding)
            self._stall_s = 0.0
            count -= decoding
        if count:
            tally.gaps.add(time_s / steps, count)

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
            journal.given[request] += 1
            self.tally.generated += 1
            self._join(request, target)
        self._partial = rest

    def _join(self, request: int, tokens: int) -> None:
        """Let a request decode that has some tokens in the cache."""
        journal = self.journal
        left = journal.output[request] - journal.given[request]
        if not left:
            self.blocks.release(self._held.pop(request))
            self._leave(request)
            return
        if self._on_demand:
            del self._held[request]
            self.blocks.join(tokens, self._step)
        end = self._step + left
        self._growing[request] = end
        heapq.heappush(self._ends, (end, request))
        self._decoding += 1
        self._context += tokens + journal.cached

    def _leave(self, request: int) -> None:
        self.outstanding -= 1
        journal = self.journal
        journal.given[request] = journal.output[request]
        journal.last_s[request] = self.time_s
        journal.done.append(request)


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
