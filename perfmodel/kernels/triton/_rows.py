"""What the kernels over rows share: the search space of row blocks, and the part of it that suits a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton

from perfmodel.kernels.triton._tune import config

#: the search space: rows per block, and warps
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
#: elements per thread: with fewer it is idle, more do not fit its registers
_LEAST_OF_A_THREAD, _MOST_OF_A_THREAD = 2, 32


def row_fits(configs: list[triton.Config], arguments: Mapping[str, Any], **given: Any) -> list[triton.Config]:
    """Drop configurations with too few elements per thread, or more than its registers can hold."""
    columns = {**arguments, **given}["BLOCK"]

    def of_a_thread(candidate: triton.Config) -> float:
        return float(candidate.kwargs["ROWS"] * columns / (32 * candidate.num_warps))

    kept = [c for c in configs if _LEAST_OF_A_THREAD <= of_a_thread(c) <= _MOST_OF_A_THREAD]
    return kept or [min(configs, key=lambda c: abs(of_a_thread(c) - _MOST_OF_A_THREAD / 2))]
