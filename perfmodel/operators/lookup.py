"""What look-ups by index have in common: how many of the rows differ, and the sectors of memory that a row touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, minimum, plain
from perfmodel.operators.base import choice

#: smallest part of a cache line that memory delivers: four sectors of 32 B make a line of 128 B (NVIDIA, Nsight
#: Compute documentation, "Memory Tables")
SECTOR_BYTES = 32.0
#: how the indices of a call are spread over the rows of its table
DISTRIBUTIONS = ("even", "zipf", "same")
#: points at which the sum over the ranks of Zipf's law is taken; 400 give four digits up to 1e12 rows
_POINTS = 400


def distribution() -> Any:
    """Declare the dimension ``distribution``."""
    return choice("even", DISTRIBUTIONS, doc="indices: at random, by Zipf's law (words of a text), or all the same")


def distinct(draws: Number, rows: Number, spread: str = "even") -> Number:
    """Return how many different rows some draws hit on average, as a whole number.

    even: u = V (1 - (1 - 1/V)^T), the expectation for T draws out of V. zipf: the sum of 1 - (1 - p_r)^T with
    p_r = 1 / (r H_V). same: 1.

    >>> distinct(16384, 131072), distinct(300, 7), distinct(300, 7, "same")
    (15401.0, 7.0, 1.0)
    """
    drawn, of = np.asarray(draws, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    if spread == "same":
        return plain(np.ones(np.broadcast(drawn, of).shape))
    hit = _zipf_distinct(drawn, of) if spread == "zipf" else -of * np.expm1(drawn * _log_missed(of))
    return minimum(minimum(plain(np.maximum(np.rint(hit), 1.0)), plain(drawn + 0.0 * of)), plain(of + 0.0 * drawn))


def _log_missed(rows: np.ndarray) -> np.ndarray:
    """Return ln(1 - 1/V), of a single row a number so low that its power is 0."""
    return np.where(rows > 1.0, np.log1p(-1.0 / np.maximum(rows, 2.0)), -np.inf)


def _zipf_distinct(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the sum over ranks r of 1 - exp(-T p_r), by the midpoint rule in ln r."""
    draws, rows = np.broadcast_arrays(draws[..., None], rows[..., None])
    edges = np.exp(
        np.linspace(0.0, 1.0, _POINTS + 1) * np.log(rows + 0.5) + (1 - np.linspace(0, 1, _POINTS + 1)) * np.log(0.5)
    )
    middle = np.sqrt(edges[..., 1:] * edges[..., :-1])
    hit: np.ndarray = np.sum(np.diff(edges) * -np.expm1(-draws / (middle * harmonic(rows))), axis=-1)
    return hit


def harmonic(rows: Number) -> Number:
    """Return H_V, the sum of 1 / r up to V, to 1e-4: ln(V + 0.5) + 0.5772."""
    return np.log(np.asarray(rows) + 0.5) + 0.5772


def most_repeated(draws: Number, rows: Number, spread: str = "even") -> Number:
    """Return how often the most frequent row is drawn: its mean, and for even draws three deviations more."""
    if spread == "same":
        return 1.0 * draws
    if spread == "zipf":
        return plain(np.maximum(1.0, draws / harmonic(rows)))
    mean = np.asarray(draws / np.asarray(rows, dtype=np.float64))
    return minimum(1.0 * draws, plain(np.maximum(1.0, mean + 3.0 * np.sqrt(mean))))


def sector_columns(cols: Number, dtype: str) -> Number:
    """Return the elements of a row with those that its last sector brings along: 4 B at random cost 32 B."""
    size = dtype_bytes(dtype)
    return plain(np.ceil(np.asarray(cols * size) / SECTOR_BYTES) * SECTOR_BYTES / size)
