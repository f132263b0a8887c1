"""The blocks of a KV cache: how many are free, and how long decoding sequences can grow before none is left."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import overload

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import Number, maximum
from perfmodel.serving.cost import Array

#: tokens of which some layers keep the last ones of a sequence, and the share of a token's bytes in these layers
Windows = tuple[tuple[int, float], ...]
#: parts of a block in which shares are counted, a power of two, so that sums of them are exact
_PARTS = 1024
#: blocks of a cache without a limit: more than any load takes, and so few that parts of one are exact beside them
_NO_LIMIT = 1 << 40


def kept(tokens: Number, windows: Windows) -> Number:
    """Return how many tokens, in all layers, take the bytes that a sequence of so many tokens keeps.

    kept = n - sum of share max(0, n - window) over the layers with a window: all n until the first window is full.

    >>> kept(100, ((64, 0.5),))
    82.0
    """
    left = tokens
    for window, share in windows:
        left = left - share * maximum(0.0, tokens - window)
    return left


class Blocks:
    """Free blocks, and the growth of decoding sequences, which take a block whenever their length is a multiple of it.

    All decoding sequences grow by one token a step. A sequence of length n at decode step s needs a block at the steps
    s' >= s with (n + s' - s) mod b = 0, so its ``phase`` (n - s) mod b never changes, and the blocks that k steps take
    follow from the sequences of each phase, without a look at any of them. A sequence that has filled a window takes
    the part of a block in which the other layers keep its tokens: `narrow` has to be called after each run of steps.

    Parameters
    ----------
    tokens : tokens that the cache holds; infinite for no limit.
    block_tokens : tokens of a block.
    sequence_tokens : tokens whose room a sequence takes besides its own, however long it is: for its layers' states.
    windows : of the layers that keep the last tokens alone.
    """

    __slots__ = (
        "_filled",
        "_narrower",
        "_of_phase",
        "_steps",
        "block_tokens",
        "free",
        "of_states",
        "released",
        "total",
        "windows",
    )

    def __init__(
        self, tokens: float, block_tokens: int, sequence_tokens: float = 0.0, windows: Windows = ()
    ) -> None:  # fmt: skip
        self.block_tokens = block_tokens
        self.windows = windows
        #: the same in blocks, shortest first
        self._filled = tuple(
            (math.ceil(window / block_tokens), math.floor(share * _PARTS + 1e-6) / _PARTS)
            for window, share in sorted(windows)
        )
        #: blocks of the states of a sequence
        self.of_states = math.ceil(sequence_tokens / block_tokens)
        #: blocks of the cache; a number that no load reaches where there is no limit
        self.total = int(tokens // block_tokens) if math.isfinite(tokens) else _NO_LIMIT
        self.free: float = self.total
        #: blocks that were ever given back
        self.released: float = 0
        #: blocks that the sequences of each phase take, twice in a row, so that a range that wraps round is one slice
        self._of_phase: list[float] = [0] * (2 * block_tokens)
        #: decode step -> part of a block by which the sequences that fill a window then take less, and these steps
        self._narrower: defaultdict[int, float] = defaultdict(float)
        self._steps: list[int] = []

    @property
    def taken(self) -> float:
        """Blocks that were ever taken."""
        return self.released + self.total - self.free

    def release(self, count: float) -> None:
        """Give blocks back; they are taken again after all that are free now."""
        self.free += count
        self.released += count

    @overload
    def of(self, tokens: int) -> float: ...
    @overload
    def of(self, tokens: NDArray[np.int64]) -> Array: ...
    def of(self, tokens: Number) -> Number:
        """Return the blocks of a sequence of some tokens."""
        count = -(-tokens // self.block_tokens)
        return self.of_states + (kept(count, self._filled) if self._filled else count)

    def tokens_in(self, blocks: float) -> int:
        """Return the most tokens of a sequence that so many blocks hold, beside its states."""
        count, each = 0, 1.0
        for most, share in self._filled:
            if blocks < (most - count) * each:
                break
            blocks -= (most - count) * each
            count, each = most, each - share
        more = blocks // each if each > 0 else _NO_LIMIT
        return (count + max(0, int(more))) * self.block_tokens

    def join(self, tokens: int, step: int) -> None:
        """Count a sequence of a length that begins to grow at a decode step."""
        self._count(tokens, step, 1)

    def leave(self, tokens: int, step: int) -> None:
        """Forget a sequence of a length that stops growing at a decode step."""
        self._count(tokens, step, -1)

    def end(self, tokens: int, step: int) -> None:
        """Give back the blocks of a sequence of a length that stops growing at a decode step."""
        self._count(tokens, step, -1)
        self.release(self.of(tokens))

    def _count(self, tokens: int, step: int, sign: int) -> None:
        if not self._filled:
            self._add((tokens - step) % self.block_tokens, sign)
            return
        each: float = sign
        for most, share in self._filled:
            ahead = most * self.block_tokens - tokens
            if ahead <= 0:
                each -= sign * share
                continue
            if step + ahead not in self._narrower:
                heapq.heappush(self._steps, step + ahead)
            self._narrower[step + ahead] += sign * share
        self._add((tokens - step) % self.block_tokens, each)

    def _add(self, phase: int, blocks: float) -> None:
        self._of_phase[phase] += blocks
        self._of_phase[phase + self.block_tokens] += blocks

    def narrow(self, step: int) -> None:
        """Count sequences that have filled a window until a decode step as such."""
        while self._steps and self._steps[0] <= step:
            at = heapq.heappop(self._steps)
            self._add(-at % self.block_tokens, -self._narrower.pop(at))

    def even_steps(self, step: int, steps: int) -> int:
        """Return the next decode steps, no more than some, until a sequence fills a window."""
        return min(steps, self._steps[0] - step) if self._steps else steps

    def free_steps(self, step: int, steps: int, growing: int) -> int:
        """Return the next decode steps, no more than some, until a sequence fills a window, or no block is left."""
        if self._steps:
            steps = self.even_steps(step, steps)
        if self.free < growing * (steps // self.block_tokens + 1):
            steps = min(steps, self.steps_left(step, growing))
        return steps

    def grow(self, step: int, steps: int, growing: int) -> float:
        """Take the blocks of ``growing`` sequences for the next decode steps; return how many."""
        taken = self.needed(step) if steps == 1 else self.needed_in(step, steps, growing)
        self.free -= taken
        if self._steps:
            self.narrow(step + steps)
        return taken

    def needed(self, step: int) -> float:
        """Return the blocks that the growing sequences take in one decode step."""
        return self._of_phase[-step % self.block_tokens]

    def needed_in(self, step: int, steps: int, growing: int) -> float:
        """Return the blocks that ``growing`` sequences take in the next decode steps."""
        taken, rest = 0.0, steps
        if steps >= self.block_tokens:
            whole, rest = divmod(steps, self.block_tokens)
            taken = whole * self.in_a_round(growing)
        first = (1 - step - rest) % self.block_tokens
        return taken + sum(self._of_phase[first : first + rest])

    def in_a_round(self, growing: int) -> float:
        """Return the blocks that ``growing`` sequences take in as many steps as a block has tokens."""
        return sum(self._of_phase[: self.block_tokens]) if self._filled else growing

    def steps_left(self, step: int, growing: int) -> int:
        """Return the decode steps for which the free blocks suffice."""
        each = self.in_a_round(growing)
        if not each:
            return _NO_LIMIT
        whole = int(self.free // each)
        left, steps = self.free - whole * each, whole * self.block_tokens
        for ahead in range(self.block_tokens):
            left -= self._of_phase[(-step - ahead) % self.block_tokens]
            if left < 0:
                return steps + ahead
        return steps + self.block_tokens
