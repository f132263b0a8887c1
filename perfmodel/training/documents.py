"""Sequences of several documents: attention within each document alone, and how unequal the work of sequences is.

A sequence of S tokens that consists of documents of l tokens has S / E[l] of them. Attention counts the pairs within
each, l (l + 1) / 2, so that it takes S (E[l^2] / E[l] + 1) / 2: as many as if all documents had E[l^2] / E[l] tokens,
the mean length of the document of a token. Products, norms and the rest follow the tokens. Documents are whole: those
longer than a sequence count as one of its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.errors import UsageError
from perfmodel.training.stragglers import slowdown

_PLACE = "training plan"
#: the longest document that is believed
_LONGEST = 10**9
#: lengths by which a uniform distribution is taken
_POINTS = 16


def document_lengths(lengths: Any, spread: float) -> tuple[int, ...]:
    """Return the lengths of documents that a plan states: a list, one number, or () or None for whole sequences.

    Raises
    ------
    UsageError
        For a length that is no whole number from 1 on, and a spread that is not from 0 to 1 or that none has.
    """
    listed = tuple(lengths) if isinstance(lengths, list | tuple) else () if lengths is None else (lengths,)
    for length in listed:
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= _LONGEST:
            raise UsageError(
                f"documents = {length!r} is not a whole number of tokens from 1 to 10^9.",
                place=_PLACE,
                remedy="Write documents = 512, or a list of lengths that are equally frequent.",
            )
    if not 0 <= spread <= 1:
        raise UsageError(f"length_spread = {spread:g} is not from 0 to 1.", place=_PLACE, remedy="Use 0.5.")
    if spread and not listed:
        raise UsageError(
            f"length_spread = {spread:g} is of documents, and there are none.",
            place=_PLACE,
            remedy="Give documents, or leave length_spread out.",
        )
    return listed


def spread_lengths(lengths: Sequence[int], spread: float, seq: int) -> tuple[float, ...]:
    """Return equally frequent lengths that stand for those of a plan, none longer than the sequence [tokens].

    Uniform lengths within ``spread`` of each of ``lengths`` are the midpoints of `_POINTS` equal parts.

    >>> spread_lengths((100, 300), 0.0, 200), spread_lengths((), 0.0, 200)
    ((100.0, 200.0), ())
    """
    parts = [2.0 * (index + 0.5) / _POINTS - 1.0 for index in range(_POINTS)] if spread else [0.0]
    return tuple(min(max(length * (1.0 + spread * part), 1.0), float(seq)) for length in lengths for part in parts)


def weighted_length(lengths: Sequence[float]) -> float:
    """Return the mean length of the document of a token, E[l^2] / E[l] [tokens].

    >>> weighted_length((100.0, 300.0))
    250.0
    """
    return sum(length**2 for length in lengths) / sum(lengths)


def of_sequence(lengths: Sequence[float], seq: float, counted: Callable[[float], float]) -> float:
    """Return what is counted of each document, summed over the documents of a sequence: S E[f(l)] / E[l]."""
    return seq * sum(counted(length) for length in lengths) / sum(lengths)


def work_deviation(lengths: Sequence[float], tokens: float) -> float:
    """Return the relative standard deviation of the pairs of so many tokens of random documents.

    The sum of l^2 over the documents that fill T tokens has the mean T c, c = E[l^2] / E[l], and for many documents the
    variance T Var(l^2 - c l) / E[l] (renewal-reward processes; Asmussen 2003, Applied Probability and Queues, V.3).

    >>> work_deviation((512.0,), 8192)
    0.0
    """
    mean, weighted = sum(lengths) / len(lengths), weighted_length(lengths)
    variance = sum((length**2 - weighted * length) ** 2 for length in lengths) / len(lengths)
    return math.sqrt(tokens * variance / mean) / (tokens * weighted)


def imbalance(lengths: Sequence[float], seq: float, tokens: float, ranks: int) -> float:
    """Return the expected work of attention of the busiest of some ranks over the mean, each with so many tokens.

    It is at most that of whole sequences, (S + 1) / (c + 1).
    """
    if not lengths or ranks == 1:
        return 1.0
    most = (seq + 1.0) / (weighted_length(lengths) + 1.0)
    return min(slowdown(ranks, min(work_deviation(lengths, tokens), 9.0)), most)
