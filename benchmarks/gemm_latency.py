"""GEMM predictions a second on one core in a vectorised sweep, the time of one call alone, and memory of a long sweep.

One call is the whole of `perfmodel.predict` with bound and interval, on an operator that no call had before: an
operator keeps what was counted of it, so that a call on the same one again is faster. Both are printed, and the time to
make an operator beside them. Terms are found when they are asked for, which is counted apart on an operator that is
used again, as are the formula that finds the time and a call that names its machine.
Constants are those of the shipped, calibrated machines, or the defaults of their generation. ``--points 1e8`` makes
the long sweep as long as the claim about its memory. Rates are those of a core, points a second of processor time,
since machines are shared, and so are the times of one call alone, which still differ by a tenth with what else a
machine does. The time that is wanted is that of one call on a new operator, with bound and interval.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import perfmodel as pm
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.gemm import family_of
from perfmodel.prediction.latency.machine import Machine

POINTS = 500_000
REPEATS = 3
#: single calls of a batch, and batches
SCALARS, BATCHES = 200, 10
WANTED_PER_S = 5e6
WANTED_SCALAR_S = 50e-6
#: points of the sweep whose memory is measured, and what it may take beside its sizes [B]
LONG_SWEEP = 4_000_000
WANTED_BYTES = 100e6
#: points of one call, and the memory of its result, 19 B a point, with what it takes to find it [B]
ONE_CALL, WANTED_CALL_BYTES = 10_000_000, 300e6
#: the 16-bit family on the tensor engine, and the fp32 one on the vector engine
CASES = (("h100-sxm5-80gb", "bf16"), ("a100-sxm4-40gb", "fp32"))
#: a large product, and one that is small enough to be split along k
SHAPES = ((4096, 4096, 4096), (64, 512, 1000))


def median(function: Callable[[Any], object], argument: Callable[[int], Any]) -> float:
    """Return the median time of one call, warmed up: the least of some batches, since machines are shared [s].

    Each call has an argument of its own, made from its number before the batch is timed.
    """
    medians = []
    for _ in range(BATCHES):
        times = []
        for one in [argument(number) for number in range(SCALARS)]:
            begin = time.process_time()
            function(one)
            times.append(time.process_time() - begin)
        medians.append(statistics.median(times))
    return min(medians)


def _same(one: pm.Gemm, number: int) -> pm.Gemm:
    return one


def swept(name: str, dtype: str) -> bool:
    """Print the rate of a sweep on one machine; return whether it is as wanted."""
    # Sizes from 1 to 16384, as many of each order of magnitude: half of them are small enough to be split along k.
    m, n, k = np.exp(np.random.default_rng(0).uniform(0.0, np.log(16384.0), (3, POINTS))).round()
    many, hardware = pm.Gemm(m=m, n=n, k=k, dtype=dtype), pm.hardware(name)
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.process_time()
        for _ in pm.sweep(many, hardware):
            pass
        best = min(best, time.process_time() - begin)
    print(f"{dtype} on {name}: {POINTS / best / 1e6:.2f} million predictions a second in a sweep")
    return POINTS / best > WANTED_PER_S


def alone(name: str, dtype: str) -> bool:
    """Print the time of single calls on one machine; return whether the whole call is as fast as wanted."""
    hardware, good = pm.hardware(name), True
    for m, n, k in SHAPES:

        def made(number: int, m: int = m, n: int = n, k: int = k) -> pm.Gemm:
            return pm.Gemm(m=m + number % 8, n=n, k=k + 8 * number, dtype=dtype)

        one = made(0)
        machine = Machine.of(hardware, resolve_peak(one, hardware))
        family = family_of(machine)
        values = constants(family, hardware).values
        making = median(made, int)
        whole = median(lambda op: pm.predict(op, hardware), made)
        again, named, terms, formula = (
            median(function, functools.partial(_same, one))
            for function in (
                lambda op: pm.predict(op, hardware),
                lambda op: pm.predict(op, name),
                lambda op: pm.predict(op, hardware).predicted_terms_s,
                lambda op: family.timed_total(op, machine, values, Conditions()),  # noqa: B023 -- called at once
            )
        )
        print(
            f"{family.name} {m} x {n} x {k} on {name}: one call on a new operator {whole * 1e6:.0f} us, to make it "
            f"{making * 1e6:.0f} us; on the same one again {again * 1e6:.0f} us, of which the formula "
            f"{formula * 1e6:.0f} us; with the name of the machine {named * 1e6:.0f} us, with its terms "
            f"{terms * 1e6:.0f} us"
        )
        good &= whole < WANTED_SCALAR_S
    return good


def memory(points: int) -> bool:
    """Print rate and memory of a long sweep of distinct sizes; return whether its memory is bounded."""
    side = round(points**0.5)
    sizes, hardware = np.arange(1.0, side + 1.0), pm.hardware(CASES[0][0])
    pm.predict(pm.Gemm(m=sizes[:1], n=1, k=512, dtype="bf16"), hardware)
    before, begin = _most_bytes(), time.process_time()
    sweep = pm.sweep(pm.Gemm(m=sizes[:, None], n=sizes, k=512, dtype="bf16"), hardware)
    done = sum(np.size(part.predicted_time_s) for part in sweep)
    taken, most = time.process_time() - begin, _most_bytes()
    print(
        f"a sweep of {done / 1e6:.0f} million points: {done / taken / 1e6:.2f} million a second, "
        f"{(most - before) / 1e6:.0f} MB more than the {before / 1e6:.0f} MB of the process"
    )
    return most - before < WANTED_BYTES


def one_call() -> bool:
    """Print rate and memory of one call with many points; return whether its memory is as wanted."""
    m = np.random.default_rng(0).random(ONE_CALL)
    m *= 16384.0
    np.ceil(m, out=m)  # in place, so that the most memory so far is that of the sizes
    n, k = m[::-1], np.roll(m, 7)
    hardware, before, begin = pm.hardware(CASES[0][0]), _most_bytes(), os.times()
    made = pm.predict(pm.Gemm(m=m, n=n, k=k, dtype="bf16"), hardware)
    after, most = os.times(), _most_bytes()
    system = after.system - begin.system  # in which the kernel hands out the memory of the result
    taken = after.user - begin.user + system
    print(
        f"one call of {np.size(made.predicted_time_s) / 1e6:.0f} million points: {ONE_CALL / taken / 1e6:.2f} million "
        f"a second, {ONE_CALL / (taken - system) / 1e6:.2f} without the system's time, "
        f"{(most - before) / 1e6:.0f} MB more than the process and the sizes"
    )
    return most - before < WANTED_CALL_BYTES


def _most_bytes() -> float:
    """Return the most memory that this process has had [B]."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1.0 if sys.platform == "darwin" else 1024.0)


def main() -> int:
    """Print the figures; return 1 when one is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=float, default=LONG_SWEEP, help="of the long sweep (default: %(default)s)")
    points = int(parser.parse_args().points)
    good = [memory(points), one_call()]  # first, while the process is small
    for case in CASES:
        good += [swept(*case), alone(*case)]
    print(
        f"wanted: {WANTED_PER_S / 1e6:.1f} million a second, {WANTED_SCALAR_S * 1e6:.0f} us, "
        f"{WANTED_BYTES / 1e6:.0f} MB, and {WANTED_CALL_BYTES / 1e6:.0f} MB of one call"
    )
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
