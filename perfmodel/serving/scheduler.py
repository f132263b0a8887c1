"""What a simulated engine computes next: its queue, the sequences in it, who enters, and who is preempted.

Nothing is done for single sequences while they decode: their lengths follow from a count of steps, their completions
stand in a heap, and their blocks in `perfmodel.serving.blocks`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from perfmodel.serving.blocks import Blocks, Windows, kept
from perfmodel.serving.journal import Chunk, Clock, Journal
from perfmodel.serving.policies import SWAP, Policy
from perfmodel.serving.tally import Tally


class Scheduler:
    """The queue and the cache of an engine, and the rules by which requests enter and leave it.

    Parameters
    ----------
    clock : times of the steps.
    policy : the rules of the scheduler.
    kv_tokens : tokens that the cache holds.
    journal : requests by number, and where their times are written.
    swap_s_per_token : time to move the keys and values of a token to the host or back, for preemption by swap [s].
    swap_s_per_sequence : the same for a sequence's states [s].
    sequence_tokens : tokens whose room the states of a sequence take of the cache.
    windows : of the layers that keep the last tokens of a sequence alone, see `perfmodel.serving.blocks.Windows`.
    """

    __slots__ = (
        "_began_s",
        "_came",
        "_context",
        "_decoded_s",
        "_decoding",
        "_ends",
        "_entered",
        "_extra_s",
        "_growing",
        "_held",
        "_kept",
        "_on_demand",
        "_partial",
        "_step",
        "_swap_s_per_sequence",
        "_swap_s_per_token",
        "_tally",
        "_token_s",
        "_watermark",
        "blocks",
        "clock",
        "journal",
        "outstanding",
        "policy",
        "time_s",
        "waiting",
    )

    def __init__(
        self, clock: Clock, policy: Policy, kv_tokens: float, journal: Journal, *, swap_s_per_token: float = 0.0,
        swap_s_per_sequence: float = 0.0, sequence_tokens: float = 0.0, windows: Windows = (),
    ) -> None:  # fmt: skip
        self.clock, self.policy, self.journal = clock, policy, journal
        self.blocks = Blocks(kv_tokens, policy.block_tokens, sequence_tokens, windows)
        self._tally = Tally()
        self.time_s = 0.0
        self.waiting: deque[int] = deque()
        #: (time, request) of those that the next step cannot hold, since it was scheduled before they came
        self._came: deque[tuple[float, int]] = deque()
        #: time at which the last step started [s]
        self._began_s = -math.inf
        #: requests in the engine and in its queue
        self.outstanding = 0
        self._swap_s_per_token, self._swap_s_per_sequence = swap_s_per_token, swap_s_per_sequence
        self._watermark = int(policy.watermark * self.blocks.total) if math.isfinite(kv_tokens) else 0
        self._on_demand = not policy.reserve
        #: decode steps so far, sequences that decode, and the sum of their tokens in the cache
        self._step, self._decoding, self._context = 0, 0, 0
        #: (decode step, request) of the ends of answers; entries of preempted requests are stale
        self._ends: list[tuple[int, int]] = []
        #: decoding request -> decode step at which it ends
        self._growing: dict[int, int] = {}
        #: request -> blocks that it holds, for prompts in progress and reserved requests
        self._held: dict[int, float] = {}
        #: preempted request -> blocks that have to be taken before its own are, its blocks, and tokens of full ones
        self._kept: dict[int, tuple[float, float, int]] = {}
        #: prompts in progress, oldest first: [request, tokens computed, tokens to compute]
        self._partial: list[list[int]] = []
        #: requests in the order in which they entered; those that have ended are skipped
        self._entered: list[int] = []
        #: time of swaps that the next step waits for, and time of the last token of the sequences that decode [s]
        self._extra_s = self._decoded_s = 0.0
        #: request -> time of its last token [s], where that is another one
        self._token_s: dict[int, float] = {}

    @property
    def tally(self) -> Tally:
        """Sums over the time of the simulation."""
        self._tally.settle()
        return self._tally

    @property
    def running(self) -> int:
        """Sequences in the engine."""
        return self._decoding + len(self._partial)

    def outstanding_at(self, time_s: float) -> int:
        """Return the requests in the engine and in its queue at about a time: an event ends with its first request."""
        del time_s
        return self.outstanding

    def submit(self, request: int, time_s: float) -> None:
        """Add a request to the queue; an engine that has nothing to do starts at once."""
        if not self.outstanding and self.time_s < time_s:
            self.time_s = time_s
        self._tally.queued_s += self.time_s - time_s
        if self.policy.ahead:
            self._came.append((time_s, request))
        else:
            self.waiting.append(request)
        self.outstanding += 1

    @property
    def queued(self) -> int:
        """Requests in the queue."""
        return len(self.waiting) + len(self._came)

    # -- what a step computes ------------------------------------------------------------------------------------

    def _schedule(self) -> list[Chunk]:
        """Make room for the decoding sequences, continue prompts, let requests enter; return the parts of prompts."""
        came, waiting = self._came, self.waiting
        while came and (came[0][0] <= self._began_s or not self.running):
            waiting.append(came.popleft()[1])
        # each decoding sequence takes one block at most
        preempted = self._on_demand and self.blocks.free < self._decoding and self._make_room()
        policy = self.policy
        budget = policy.max_batched_tokens - (self._decoding if policy.mixed else 0)
        chunks: list[Chunk] = []
        for entry in self._partial:
            tokens = self._continue(entry, budget, chunks) if budget > 0 else 0
            if entry[1] < entry[2]:  # no other prompt enters before this one is computed
                return chunks
            budget -= tokens
        if preempted or not waiting:
            return chunks
        most = policy.encoded or math.inf
        while waiting and budget > 0 and self.running < policy.max_num_seqs and len(chunks) < most:
            tokens = self._enter(waiting[0], budget, chunks)
            if tokens < 0:
                break
            waiting.popleft()
            budget -= tokens
        return chunks

    def _make_room(self) -> bool:
        """Preempt sequences until the others can each take the block of their next token."""
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
            room = blocks.free - blocks.needed(self._step) + held - blocks.of_states
            tokens = min(tokens, blocks.tokens_in(room) - done)
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
        found = self._found(request, target) if self._kept else 0
        tokens = min(target - found, budget)
        if found + tokens < target and not self.policy.chunked:
            if chunks:
                return -1
            tokens = target - found
        if self._on_demand:
            needed, free = blocks.of(found + tokens), blocks.free - blocks.needed(self._step)
        else:
            needed, free = blocks.of(journal.prompt[request] + journal.output[request] - 1), blocks.free
        if not self._fits(request, needed, free):
            return -1
        blocks.free -= needed
        self._held[request] = needed
        self._partial.append([request, found + tokens, target])
        chunks.append((tokens, found + tokens + journal.cached))
        self._note_entry(request)
        return tokens

    def _fits(self, request: int, needed: float, free: float) -> bool:
        """Return whether a request may enter that needs some blocks now."""
        del request
        return needed <= free - (self._watermark if self.running else 0)

    def _found(self, request: int, target: int) -> int:
        """Return the tokens of a preempted sequence whose blocks nobody has taken since: its first ones are last."""
        if request not in self._kept:
            return 0
        before, count, full = self._kept[request]
        left = self.blocks.tokens_in(count - max(0, self.blocks.taken - before))
        return min(full, left, target - 1)

    def _return(self, request: int, tokens: int) -> int:
        """Let a request enter whose keys and values exist: they come from the host or from another engine."""
        blocks = self.blocks
        needed = blocks.of(tokens)
        if self._on_demand:
            least = blocks.of(tokens + 1) + blocks.needed(self._step)
        else:
            least = needed = blocks.of(self.journal.prompt[request] + self.journal.output[request] - 1)
        if not self._fits(request, least, blocks.free):
            return -1
        blocks.free -= needed
        self._held[request] = needed
        if request in self.journal.preempted:
            self._extra_s += self._swap_s(tokens)
        self._note_entry(request)
        self._join(request, tokens)
        return 0

    def _note_entry(self, request: int) -> None:
        self._entered.append(request)
        started_s = self.journal.started_s
        if started_s[request] != started_s[request]:  # NaN: the request never ran before
            started_s[request] = self.time_s

    def _victim(self) -> int:
        """Return the sequence that is preempted next: the youngest."""
        request = self._entered.pop()
        while request not in self._growing and request not in self._held:
            request = self._entered.pop()
        return request

    def _put_back(self, request: int) -> None:
        """Put a preempted sequence into the queue: at its head."""
        self.waiting.appendleft(request)

    def _preempt(self) -> None:
        """Take a sequence out of the engine and put it back into the queue."""
        request, journal = self._victim(), self.journal
        if request in self._growing:
            self._token_s.setdefault(request, self._decoded_s)
            left = self._growing.pop(request) - self._step
            journal.given[request] = journal.output[request] - left
            tokens = journal.prompt[request] + journal.given[request] - 1
            self.blocks.leave(tokens, self._step)
            self._keep(request, tokens)
            self.blocks.release(self.blocks.of(tokens))
            self._decoding -= 1
            self._context -= tokens + journal.cached
            if self.policy.preemption == SWAP:
                self._extra_s += self._swap_s(tokens)
        else:
            self._keep(request, next(done for one, done, _ in self._partial if one == request))
            self.blocks.release(self._held.pop(request))
            self._partial = [entry for entry in self._partial if entry[0] != request]
        journal.preempted[request] = journal.preempted.get(request, 0) + 1
        self._tally.preemptions += 1
        self._put_back(request)

    def _swap_s(self, tokens: int) -> float:
        """Return the time to move a sequence of some tokens to the host or back [s]."""
        moved = float(kept(tokens, self.blocks.windows))
        return moved * self._swap_s_per_token + self._swap_s_per_sequence

    def _keep(self, request: int, tokens: int) -> None:
        """Remember the blocks of a sequence that is preempted: they are taken after those that are free now.

        Those of a sequence with states help nobody: a state is that of the last token, and cannot be taken up before.
        """
        if self.policy.keeps_blocks and not self.blocks.of_states:
            blocks = self.blocks
            full = tokens - tokens % blocks.block_tokens
            self._kept[request] = blocks.taken + blocks.free, blocks.of(tokens), full

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
        # the first token of a prompt that another engine computed came before its keys and values
        last_s = journal.first_s[request] if journal.given[request] == 1 else self.time_s
        if not self._decoding:
            self._decoded_s = last_s
        elif last_s != self._decoded_s:
            self._token_s.setdefault(request, last_s)
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
