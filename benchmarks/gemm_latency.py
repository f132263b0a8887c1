"""GEMM predictions a second on one core in a vectorised sweep, the time of one call alone, and memory of a long sweep.

"predict" is the whole of `perfmodel.predict` with bound, interval, terms and advice; "formula" its latency model alone.
Constants are those of the shipped, calibrated machines.
"""

from __future__ import annotations

import os
import sys
import time
import tracemalloc
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import perfmodel as pm
from perfmodel.analysis.ceilings import resolve_peak
from perfmodel.analysis.latency._base import Machine, View
from perfmodel.analysis.latency.gemm import family_of
from perfmodel.analysis.latency.model import constants

POINTS = 500_000
REPEATS = 3
SCALARS = 200
WANTED_PER_S = 5e5
WANTED_SCALAR_S = 300e-6
#: points of the sweep whose memory is measured, and what it may take beside its sizes [B]
LONG_SWEEP = 4_000_000
WANTED_BYTES = 300e6
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


def speed(name: str, dtype: str) -> bool:
    """Print the rates on one machine; return whether they are as wanted."""
    # Sizes from 1 to 16384, as many of each order of magnitude: half of them are small enough to be split along k.
    m, n, k = np.exp(np.random.default_rng(0).uniform(0.0, np.log(16384.0), (3, POINTS))).round()
    hardware = pm.hardware(name)
    many, one = pm.Gemm(m=m, n=n, k=k, dtype=dtype), pm.Gemm(m=64, n=512, k=1000, dtype=dtype)
    machine = Machine.of(hardware, resolve_peak(one, hardware))
    family = family_of(machine)
    values = constants(family, hardware).values
    whole = POINTS / fastest(lambda: [None for _ in pm.sweep(many, hardware)], 1)
    formula = fastest(lambda: family.terms(one, machine, values, View()), SCALARS)
    scalar = fastest(lambda: pm.predict(one, hardware), SCALARS)
    print(
        f"{family.name} on {name}: {whole / 1e6:.2f} million predictions a second; "
        f"one alone {scalar * 1e6:.0f} us, of which the formula {formula * 1e6:.0f} us"
    )
    return whole > WANTED_PER_S and formula < WANTED_SCALAR_S


def memory() -> bool:
    """Print the memory that a long sweep takes; return whether it is bounded."""
    sizes = np.arange(1.0, LONG_SWEEP**0.5 + 1.0)
    sweep = pm.sweep(pm.Gemm(m=sizes[:, None], n=sizes, k=512, dtype="bf16"), pm.hardware(CASES[0][0]))
    tracemalloc.start()
    points = sum(np.size(part.predicted_time_s) for part in sweep)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"a sweep of {points / 1e6:.0f} million points takes {peak / 1e6:.0f} MB at most")
    return peak < WANTED_BYTES


def main() -> int:
    """Print the figures; return 1 when one is not as wanted."""
    good = [speed(name, dtype) for name, dtype in CASES] + [memory()]
    wanted = f"{WANTED_PER_S / 1e6:.1f} million a second, {WANTED_SCALAR_S * 1e6:.0f} us, {WANTED_BYTES / 1e6:.0f} MB"
    print(f"wanted: {wanted}")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
