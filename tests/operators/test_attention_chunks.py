"""Pairs of queries and keys where queries attend to their own piece of the sequence alone."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.operators.attention import Attention, chunk_pairs


@pytest.mark.parametrize("chunk", [1, 4, 7, 100])
@pytest.mark.parametrize(("start", "queries"), [(0, 1), (0, 9), (0, 28), (3, 6), (0, 4)])
def test_pairs_one_by_one(chunk: int, start: int, queries: int) -> None:
    end = start + queries
    pairs = sum(key // chunk == query // chunk for query in range(start, end) for key in range(query + 1))
    if start < chunk:
        assert chunk_pairs(queries, end, chunk) == pairs


def test_the_place_of_a_later_query_in_its_chunk_is_unknown() -> None:
    mean = np.mean([query % 64 + 1 for query in range(640, 704)])
    assert chunk_pairs(1, 700, 64) == mean
    assert chunk_pairs(16, 700, 64) == 16 * mean


def test_a_long_sequence_has_half_the_pairs_of_a_window() -> None:
    window = Attention(heads=1, head_dim=1, seq_q=2**20, causal=True, window=2**10)
    assert chunk_pairs(2**20, 2**20, 2**10) / window.pairs() == pytest.approx(0.5, rel=2e-3)


def test_numbers_and_arrays_agree() -> None:
    queries, keys = np.array([1.0, 9.0, 30.0]), np.array([40.0, 12.0, 30.0])
    each = [chunk_pairs(*sizes, 8) for sizes in zip(queries, keys, strict=True)]
    assert list(chunk_pairs(queries, keys, 8)) == each
