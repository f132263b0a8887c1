"""Which keys a query of a layer attends to: all, those of a window, chosen ones, entries that stand for several tokens.

One form holds them all. A query at the n-th token of its sequence attends to the last tokens themselves, and beyond
them to entries that stand for a few tokens each, to all of these or to as many as an indexer chooses:

    keys(n) = min(n, window) + min(floor(n / ratio), chosen)

Attention to all keys is one entry for each token and no window; sparse attention (DeepSeek-V3.2) chooses among these; a
window alone has no entries; DeepSeek-V4's layers have a window and entries of 4 tokens, of which an indexer chooses, or
of 128 tokens (its report, section 2.3). Entries may stand for tokens of the window, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from perfmodel.core.work import Number, minimum, plain
from perfmodel.operators.attention import chunk_pairs


class Reach(NamedTuple):
    """What a query of a layer attends to.

    Attributes
    ----------
    window : the last tokens that it sees as they are; 0 for none.
    ratio : tokens that each entry stands for; 1 for the tokens themselves, 0 where there are no entries.
    chosen : most entries that an indexer leaves; 0 where there is none and all of them are attended to.
    chunked : the window is a piece of the sequence, to whose keys alone its queries attend (Llama 4).
    """

    window: int = 0
    ratio: int = 1
    chosen: int = 0
    chunked: bool = False

    @property
    def compresses(self) -> bool:
        """Whether entries stand for several tokens."""
        return self.ratio > 1

    def entries(self, tokens: Number) -> Number:
        """Return how many entries a sequence of so many tokens has."""
        return plain(tokens // self.ratio if self.ratio else 0.0 * tokens)

    def kept(self, tokens: Number) -> Number:
        """Return how many keys a layer keeps of a sequence: those of the window, and all entries.

        >>> Reach().kept(1000), Reach(128, ratio=0).kept(1000), Reach(128, ratio=4).kept(1000)
        (1000.0, 128.0, 378.0)
        """
        return plain(minimum(tokens, self.window) + self.entries(tokens))

    def keys(self, tokens: Number) -> Number:
        """Return how many keys the query of the last of so many tokens attends to; see the formula above.

        >>> Reach(128, 4, 512).keys(1000), Reach(128, 4, 512).keys(100_000), Reach(128, 128).keys(100_000)
        (378.0, 640.0, 909.0)
        """
        entries = self.entries(tokens)
        return plain(minimum(tokens, self.window) + (minimum(entries, self.chosen) if self.chosen else entries))

    def pairs(self, queries: Number, tokens: Number) -> Number:
        """Return the (query, key) pairs of the last ``queries`` of so many tokens: the sum of `keys` over them.

        >>> Reach().pairs(4, 4), Reach(2, ratio=0).pairs(4, 4), Reach(0, 2).pairs(4, 4)
        (10.0, 7.0, 4.0)
        """
        if self.chunked:
            return chunk_pairs(queries, tokens, self.window)
        before = tokens - queries
        seen = _summed(tokens, 1, self.window) - _summed(before, 1, self.window) if self.window else 0.0
        if self.ratio:
            most = self.chosen or math.inf
            seen = seen + _summed(tokens, self.ratio, most) - _summed(before, self.ratio, most)
        return plain(seen)


def _summed(tokens: Number, ratio: int, most: float) -> Number:
    """Return the sum of min(floor(i / ratio), most) over i from 1 to ``tokens``.

    With e entries at the end, ratio queries have each smaller number, and the others have e:
    ratio e (e - 1) / 2 + e (tokens - ratio e + 1).
    """
    entries = minimum(1.0 * (tokens // ratio), most)
    return 0.5 * ratio * entries * (entries - 1.0) + entries * (tokens - ratio * entries + 1.0)


class Attending(Protocol):
    """The layers of a model, or of a part of it, as `perfmodel.workloads.model_shape.ModelShape` names them."""

    @property
    def attending_layers(self) -> float:
        """Layers that attend to keys."""

    @property
    def window(self) -> int:
        """Most keys of a window."""

    @property
    def window_layers(self) -> float:
        """Layers with a window alone."""

    @property
    def chunked(self) -> bool:
        """Whether the window is a piece of the sequence."""

    @property
    def index_heads(self) -> int:
        """Heads of an indexer, 0 without one."""

    @property
    def index_keys(self) -> int:
        """Keys that an indexer leaves."""

    @property
    def index_ratio(self) -> int:
        """Tokens of a key that it chooses among."""

    @property
    def index_layers(self) -> float:
        """Layers with an indexer of their own."""

    @property
    def block_indexer(self) -> bool:
        """Whether layers without an indexer attend to all keys."""

    @property
    def pool_ratio(self) -> int:
        """Tokens of a key in layers that attend to all compressed ones."""

    @property
    def pool_layers(self) -> float:
        """Layers that attend to all compressed keys."""


def compressed_layers(of: Attending) -> float:
    """Return how many layers attend to keys that stand for several tokens, beside a window."""
    return of.index_layers * (of.index_ratio > 1) + of.pool_layers


class Reaches(NamedTuple):
    """What the queries of each kind of layers attend to.

    Attributes
    ----------
    full : of layers that attend to all keys, or to those that an indexer chooses among them.
    indexed, pooled : of layers with compressed keys, those that an indexer chooses and all of them; where an indexer
        chooses blocks, the first of layers that have one.
    windowed : of layers with a window alone.
    """

    full: Reach
    indexed: Reach
    pooled: Reach
    windowed: Reach


def reaches_of(of: Attending) -> Reaches:
    """Return what the queries of each kind of layers attend to."""
    chosen = of.index_keys if of.index_heads else 0
    return Reaches(
        full=Reach(chosen=0 if of.index_ratio > 1 or of.block_indexer else chosen),
        indexed=Reach(of.window, of.index_ratio, chosen),
        pooled=Reach(of.window, of.pool_ratio),
        windowed=Reach(of.window, ratio=0, chunked=of.chunked),
    )


def counted_reaches(of: Attending) -> tuple[tuple[Reach, float], ...]:
    """Return what the queries of each kind of layers attend to, and how many of these there are, where there are any.

    Those with a window alone come last.
    """
    indexed = of.index_layers if of.index_ratio > 1 or of.block_indexer else 0.0
    full = of.attending_layers - of.window_layers - indexed - of.pool_layers
    counts = (full, indexed, of.pool_layers, of.window_layers)
    return tuple((reach, layers) for reach, layers in zip(reaches_of(of), counts, strict=True) if layers > 0)
