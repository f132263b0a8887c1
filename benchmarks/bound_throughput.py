"""GEMM bounds a second on one core, in a vectorised sweep of random shapes."""

from __future__ import annotations

import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import perfmodel as pm

POINTS = 1_000_000
REPEATS = 5
WANTED_PER_S = 5e6


def main() -> int:
    """Print the rates; return 1 when the bounds are slower than wanted."""
    machine = pm.hardware("a100-sxm4-40gb")
    m, n, k = np.random.default_rng(0).integers(1, 16384, (3, POINTS)).astype(np.float64)
    rates = {}
    for name, function in {"bound_time": pm.bound_time, "predict": pm.predict}.items():
        best = float("inf")
        for _ in range(REPEATS):
            begin = time.perf_counter()
            function(pm.Gemm(m=m, n=n, k=k, dtype="fp16"), machine)
            best = min(best, time.perf_counter() - begin)
        rates[name] = POINTS / best
        print(f"{name:<11} {rates[name] / 1e6:6.1f} million GEMMs a second, operator built and checked included")
    print(f"wanted: bound_time at {WANTED_PER_S / 1e6:.0f} million a second")
    return int(rates["bound_time"] < WANTED_PER_S)


if __name__ == "__main__":
    sys.exit(main())
