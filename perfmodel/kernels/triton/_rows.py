"""What the kernels over rows share: the declared space of row blocks, and which of it fits a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton

from perfmodel.kernels.triton._tune import config

#: the declared space: rows that one block takes together, and its warps
ROW_CONFIGS = (
    config(4, 1, ROWS=1),
    config(8, 1, ROWS=1),
    config(16, 1, ROWS=1),
    config(32, 1, ROWS=1),
    config(4, 1, ROWS=2),
    config(8, 1, ROWS=2),
    config(4, 1, ROWS=4),
    config(4, 1, ROWS=16),
)
INTERPRETED = {"ROWS": 2}
#: elements a thread of a block: fewer leave it idle, more do not fit its registers
_LEAST_OF_A_THREAD, _MOST_OF_A_THREAD = 2, 32


def row_fits(configs: list[triton.Config], arguments: Mapping[str, Any], **given: Any) -> list[triton.Config]:
    """Leave out configurations that give a thread very few elements of a block of rows, or more than it can hold."""
    columns = {**arguments, **given}["BLOCK"]

    def of_a_thread(candidate: triton.Config) -> float:
        return float(candidate.kwargs["ROWS"] * columns / (32 * candidate.num_warps))

    kept = [c for c in configs if _LEAST_OF_A_THREAD <= of_a_thread(c) <= _MOST_OF_A_THREAD]
    return kept or [min(configs, key=lambda c: abs(of_a_thread(c) - _MOST_OF_A_THREAD / 2))]
