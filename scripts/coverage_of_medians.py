"""Print how often the interval of a record's median holds the true one, for noise whose neighbours correlate.

    python scripts/coverage_of_medians.py

Each series is AR(1) noise of 2 %; the nominal level is 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
from numpy.typing import NDArray

from perfmodel.measure.timing.statistics import bootstrap_medians, median_interval

SERIES, SIGMA, START = 300, 0.02, 200


def series(rho: float, count: int, repeats: int, seed: int = 0) -> NDArray[np.float64]:
    """Return stationary AR(1) series around 1, shape (repeats, count)."""
    steps = np.random.default_rng(seed).standard_normal((repeats, count + START))
    for place in range(1, count + START):
        steps[:, place] = rho * steps[:, place - 1] + math.sqrt(1 - rho**2) * steps[:, place]
    return np.asarray(1 + SIGMA * steps[:, START:])


def coverage(rho: float, count: int, repeats: int = SERIES) -> tuple[float, float]:
    """Return how often the interval of the median holds 1: as recorded, and by single samples alone."""
    blocks = single = 0
    for seed, values in enumerate(series(rho, count, repeats)):
        low, high = median_interval(values, seed)
        blocks += low <= 1 <= high
        ends = np.quantile(bootstrap_medians(np.sort(values), seed), (0.025, 0.975))
        single += bool(ends[0] <= 1 <= ends[1])
    return blocks / repeats, single / repeats


def main() -> int:
    """Print a table of correlations and lengths."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sys.stdout.write("correlation  samples  recorded  single samples\n")
    for rho in (0.0, 0.3, 0.6, 0.9, 0.97):
        for count in (30, 100, 400):
            blocks, single = coverage(rho, count)
            sys.stdout.write(f"{rho:11.2f}  {count:7d}  {blocks:8.0%}  {single:14.0%}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
