"""GEMM latencies predicted a second on one core, in a vectorised sweep of mixed shapes, and the time of one alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import perfmodel as pm
from perfmodel.analysis.ceilings import resolve_peak
from perfmodel.analysis.latency._base import Machine, View
from perfmodel.analysis.latency.gemm import family_of

POINTS = 1_000_000
REPEATS = 3
SCALARS = 200
WANTED_PER_S = 5e5
WANTED_SCALAR_S = 200e-6
#: the fp32 family on the vector engine, and the 16-bit one on the tensor engine
CASES = (("h100-sxm5-80gb", "bf16"), ("a100-pcie-40gb", "fp32"))


def fastest(function: Callable[[], object], calls: int) -> float:
    """Return the time of one call in the fastest of REPEATS runs of some calls [s]."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def main() -> int:
    """Print the rates; return 1 when a family is slower than wanted."""
    # Sizes from 1 to 16384, as many of each order of magnitude: half of them are small enough to be split along k.
    m, n, k = np.exp(np.random.default_rng(0).uniform(0.0, np.log(16384.0), (3, POINTS))).round()
    good = True
    for name, dtype in CASES:
        hardware = pm.hardware(name)
        many, one = pm.Gemm(m=m, n=n, k=k, dtype=dtype), pm.Gemm(m=64, n=512, k=1000, dtype=dtype)
        machine = Machine.of(hardware, resolve_peak(one, hardware))
        family = family_of(machine)
        values = {constant.name: constant.default for constant in family.all_constants}
        rate = POINTS / fastest(lambda: family.terms(many, machine, values, View()), 1)  # noqa: B023
        scalar = fastest(lambda: family.terms(one, machine, values, View()), SCALARS)  # noqa: B023
        print(f"{family.name:<10} {rate / 1e6:5.2f} million products a second; one alone {scalar * 1e6:4.0f} us")
        good &= rate > WANTED_PER_S and scalar < WANTED_SCALAR_S
    print(f"wanted: {WANTED_PER_S / 1e6:.1f} million a second, {WANTED_SCALAR_S * 1e6:.0f} us")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
