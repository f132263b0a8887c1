"""An engine of which most events are computed in one go: those in which each request enters at once, as a whole.

They are the events of `perfmodel.serving.replica.Replica.advance`, in one method with few calls and attributes, which
take most of the time of an event. All other events, and the counts of blocks and times of runs, are where they are for
every engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

from perfmodel.serving.replica import Replica, run_of
from perfmodel.serving.senders import Senders


class PlainReplica(Replica):
    """An engine with continuous batching whose steps decode and read prompts, and whose sequences grow on demand.

    Its parameters are those of `perfmodel.serving.scheduler.Scheduler`.
    """

    __slots__ = ()

    def plain_events(self, senders: Senders, most: int) -> int:  # noqa: C901
        """Compute events, no more than ``most``, until one is not plain; return how many.

        An event is plain if the cache has a block for each decoding sequence, no prompt is in progress, and the whole
        queue enters. What follows is what `advance` does then, in the same order.
        """
        if self._partial or self._token_s or self._extra_s:
            return 0
        if self.waiting and not self._whole_queue(self._decoding, self._step):
            return 0
        if len(self._ends) > len(self._growing):  # entries of preempted requests
            self._ends = sorted((last, request) for request, last in self._growing.items())
        journal, blocks, tally, clock = self.journal, self.blocks, self._tally, self.clock
        prompt, output, given, cached = journal.prompt, journal.output, journal.given, journal.cached
        started_s, first_s, entered, mixed_s = journal.started_s, journal.first_s, self._entered, clock.mixed_s
        came, waiting, growing, sent, rows = self._came, self.waiting, self._growing, senders.sent, tally.rows
        grow, end, total, most_running = blocks.grow, blocks.end, blocks.total, self.policy.max_num_seqs
        ends, time_s, began_s, decoded_s = self._ends, self.time_s, self._began_s, self._decoded_s
        step, decoding, context, events = self._step, self._decoding, self._context, 0
        try:
            while events < most:
                if (sent and sent[0][0] <= time_s) or not (decoding or waiting or came):
                    self.time_s = time_s
                    senders.deliver(self)
                    time_s = self.time_s
                while came and (came[0][0] <= began_s or not decoding):
                    waiting.append(came.popleft()[1])
                entering = self._whole_queue(decoding, step) if waiting else ()
                if blocks.free < decoding or not (entering or decoding) or (waiting and not entering):
                    break
                keys = context / decoding + 1.0 if decoding else 0.0
                if entering:
                    for request, tokens, own in entering:
                        blocks.free -= own
                        tally.read += tokens
                        entered.append(request)
                        started_s[request] = time_s
                    waiting.clear()
                    step_s = mixed_s(decoding, keys, [(tokens, tokens + cached) for _, tokens, _ in entering])
                    steps, began_s = 1, time_s
                    tally.prompt_steps += 1
                    tally.both_steps += decoding > 0
                else:
                    steps = 1
                    until_s = sent[0][0] if sent and decoding < most_running else math.inf
                    if not came or decoding >= most_running:
                        steps = blocks.free_steps(step, ends[0][0] - step, decoding)
                    steps, step_s, last_s = run_of(clock, decoding, keys, steps, time_s, until_s)
                    began_s = time_s + step_s * steps - last_s
                run_s, running, used = step_s * steps, decoding + len(entering), total - blocks.free
                if came:
                    self._wait(run_s)
                if decoding:
                    used += 0.5 * grow(step, steps, decoding)
                    if decoded_s < time_s:
                        tally.gaps.move(step_s, time_s - decoded_s + step_s, decoding)
                rows += (step_s, steps, running, decoding, used, context)
                time_s += run_s
                if decoding:
                    decoded_s = time_s
                    step += steps
                    context += decoding * steps
                    if ends[0][0] <= step:
                        while ends and ends[0][0] <= step:
                            request = heappop(ends)[1]
                            del growing[request]
                            tokens = prompt[request] + output[request] - 1
                            end(tokens, step)
                            decoding -= 1
                            context -= tokens + cached
                            self.time_s = time_s
                            self._leave(request)
                        senders.answer()
                for request, tokens, _ in entering:
                    first_s[request] = time_s
                    given[request] = 1
                    blocks.join(tokens, step)
                    last = growing[request] = step + output[request] - 1
                    heappush(ends, (last, request))
                    decoded_s = decoded_s if decoding else time_s
                    decoding += 1
                    context += tokens + cached
                tally.firsts += len(entering)
                events += 1
                tally.skipped += 1
                if tally.skipped >= tally.skip:
                    tally.sample(time_s, decoding, len(waiting) + len(came), total - blocks.free)
        finally:
            self.time_s, self._began_s, self._decoded_s = time_s, began_s, decoded_s
            self._step, self._decoding, self._context = step, decoding, context
        return events

    def _whole_queue(self, decoding: int, step: int) -> Sequence[tuple[int, int, float]]:
        """Return the queue if each request of it enters the next step with its whole prompt, else nothing.

        A request is given with the tokens of its prompt, and their blocks. One that was preempted may find a part of it
        in the cache, and one whose answer has one token ends at once: both are left to `advance`.
        """
        journal, blocks, policy = self.journal, self.blocks, self.policy
        budget, room = policy.max_batched_tokens - decoding, blocks.free - blocks.needed(step)
        count = len(self.waiting)
        if count > min(policy.max_num_seqs - decoding, policy.encoded or count):
            return ()
        watermark, entering = self._watermark if decoding else 0, []
        for request in self.waiting:
            tokens = journal.prompt[request]
            own = blocks.of(tokens)
            budget -= tokens
            room -= own
            if budget < 0 or room < watermark or journal.output[request] == 1 or request in journal.preempted:
                return ()
            entering.append((request, tokens, own))
            watermark = self._watermark
        return entering
