"""The blocks of a KV cache: how many are free, and how long decoding sequences can grow before none is left."""

from __future__ import annotations

import math


class Blocks:
    """Free blocks, and the growth of decoding sequences, which take a block whenever their length is a multiple of it.

    All decoding sequences grow by one token a step. A sequence of length n at decode step s needs a block at the steps
    s' >= s with (n + s' - s) mod b = 0, so its ``phase`` (n - s) mod b never changes, and the blocks that k steps take
    follow from the number of sequences of each phase, without a look at any of them.

    Parameters
    ----------
    tokens : tokens that the cache holds; infinite for no limit.
    block_tokens : tokens of a block.
    sequence_tokens : tokens whose room a sequence takes besides its own, however long it is: for its layers' states.
    """

    __slots__ = ("_of_phase", "block_tokens", "free", "of_states", "released", "total")

    def __init__(self, tokens: float, block_tokens: int, sequence_tokens: float = 0.0) -> None:
        self.block_tokens = block_tokens
        #: blocks of the states of a sequence
        self.of_states = math.ceil(sequence_tokens / block_tokens)
        #: blocks of the cache; a number that no load reaches where there is no limit
        self.total = int(tokens // block_tokens) if math.isfinite(tokens) else 1 << 60
        self.free = self.total
        #: blocks that were ever given back
        self.released = 0
        #: sequences of each phase, twice in a row, so that a range of phases that wraps round is one slice
        self._of_phase = [0] * (2 * block_tokens)

    @property
    def taken(self) -> int:
        """Blocks that were ever taken."""
        return self.released + self.total - self.free

    def release(self, count: int) -> None:
        """Give blocks back; they are taken again after all that are free now."""
        self.free += count
        self.released += count

    def of(self, tokens: int) -> int:
        """Return the blocks of a sequence of some tokens."""
        return self.of_states - (-tokens // self.block_tokens)

    def join(self, tokens: int, step: int) -> None:
        """Count a sequence of a length that begins to grow at a decode step."""
        phase = (tokens - step) % self.block_tokens
        self._of_phase[phase] += 1
        self._of_phase[phase + self.block_tokens] += 1

    def leave(self, tokens: int, step: int) -> None:
        """Forget a sequence of a length that stops growing at a decode step."""
        phase = (tokens - step) % self.block_tokens
        self._of_phase[phase] -= 1
        self._of_phase[phase + self.block_tokens] -= 1

    def needed(self, step: int) -> int:
        """Return the blocks that the growing sequences take in one decode step."""
        return self._of_phase[-step % self.block_tokens]

    def needed_in(self, step: int, steps: int, growing: int) -> int:
        """Return the blocks that ``growing`` sequences take in the next decode steps."""
        whole, rest = divmod(steps, self.block_tokens)
        first = (1 - step - rest) % self.block_tokens
        return whole * growing + sum(self._of_phase[first : first + rest])

    def steps_left(self, step: int, growing: int) -> int:
        """Return the decode steps for which the free blocks suffice."""
        whole = self.free // growing
        left, steps = self.free - whole * growing, whole * self.block_tokens
        for ahead in range(self.block_tokens):
            left -= self._of_phase[(-step - ahead) % self.block_tokens]
            if left < 0:
                return steps + ahead
        return steps + self.block_tokens
