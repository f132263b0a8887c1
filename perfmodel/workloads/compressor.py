"""What makes one entry of several neighbouring tokens: a mean of their keys, weighted by gates (DeepSeek-V4).

Two matrices compute a key and a gate of each token; a bias for each place in a group is added to the gates, whose
softmax over the group weighs the keys; a norm follows (``DeepseekV4HCACompressor``, ``DeepseekV4CSACompressor`` of
transformers 5.x, after the report of DeepSeek-V4, section 2.3). Groups that overlap are made of twice as many tokens:
each token has one key and gate for its own group, and others for the next one.
"""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.workloads.matrices import Linear, count_parameters

#: bytes of a key, or a gate, of a token whose group is not full yet: engines keep them in fp32
_UNFINISHED_BYTES = 4.0


class Compressor(NamedTuple):
    """The compression of ``ratio`` tokens of width ``hidden`` to one entry of width ``dim``."""

    hidden: int
    dim: int
    ratio: int
    overlaps: bool = False
    prefix: str = "pool"

    @property
    def width(self) -> int:
        """Width of the keys of a token, and of its gates."""
        return self.dim * (1 + self.overlaps)

    @property
    def matrices(self) -> tuple[Linear, ...]:
        """The matrices of keys and gates."""
        return tuple(Linear(f"{self.prefix}_{name}", self.width, self.hidden) for name in ("key", "gate"))

    @property
    def parameters(self) -> int:
        """Parameters: both matrices, a bias for each place of a group, and the scale of the norm."""
        return count_parameters(self.matrices) + self.ratio * self.width + self.dim

    @property
    def token_bytes(self) -> float:
        """What is kept of a token until it is compressed: its keys and gates in fp32 [B]."""
        return 2.0 * _UNFINISHED_BYTES * self.width

    @property
    def unfinished_bytes(self) -> float:
        """What is kept of the tokens of a sequence whose groups are not full yet: keys and gates in fp32 [B].

        ``kv_state`` and ``score_state`` of DeepSeek's ``Compressor``: 8 rows of 1,024 numbers for groups of 4 that
        overlap, 128 rows of 512 for groups of 128. vLLM keeps as many (``CompressorStateCache``).
        """
        return self.ratio * (1 + self.overlaps) * self.token_bytes
