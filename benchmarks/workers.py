"""A sweep of GEMM predictions and a search of training plans, in this process and shared by workers.

For each: points or plans a second of a core (processor time), the speed-up of the workers by the clock on the wall, and
their processor seconds beside those of one process. ``--points 1e9`` and ``--plans 1e6`` make them long; memory stays
the same. A speed-up means something on an idle machine only: elsewhere the processor seconds say what sharing costs.

One process and several work in turns, and the speed-up is the median of the turns, since machines are noisy.

Cores share caches, memory and clock, so that the machine has a ceiling of its own: the work that as many processes do
side by side, which know nothing of each other, over that of one, and the processor seconds that each of them takes. It
is measured in turns with a single one, and stands beside the speed-up to explain it; what is wanted stays the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import perfmodel as pm

#: sizes of the two without options: long enough that the start of a worker, 0.3 s, is a small part
POINTS, PLANS = 100_000_000, 40_000
#: points of each process for the machine's ceiling, its turns, and those of the two works
CEILING_POINTS, CEILING_TURNS, TURNS = 5_000_000, 5, 3
#: speed-up of two workers on an idle machine, and the processor seconds that they may take beside one process
WANTED_SPEED_UP, WANTED_CPU = 1.7, 1.2
#: load average below which a machine is idle
IDLE = 0.3


@dataclass(frozen=True)
class Run:
    """One run: its result, its length on the clock, and the processor seconds of all its processes."""

    result: object
    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object]) -> Run:
    """Return the times of some work, those of its finished workers included."""
    begin, before = time.perf_counter(), os.times()
    result = work()
    wall_s, after = time.perf_counter() - begin, os.times()
    return Run(result, wall_s, sum(after[:4]) - sum(before[:4]))


def sweep(points: int, workers: int) -> float:
    """Return the sum of the times of the products of a square of sizes [s]."""
    side = round(points**0.5)
    sizes = np.arange(1.0, side + 1.0)
    op = pm.Gemm(m=sizes[:, None], n=sizes, k=512, dtype="bf16")
    return float(sum(np.sum(part.predicted_time_s) for part in pm.sweep(op, "h100-sxm5-80gb", workers=workers)))


def search(plans: int, workers: int) -> tuple[int, list[float]]:
    """Return how many plans were considered, and the times of the best ones [s]."""
    cluster = pm.Cluster("h100-sxm5-80gb", gpus=64, nic="400Gb/s")
    plan = pm.TrainingPlan(batch=512, seq=4096, framework="megatron-te")
    others = 8 * 3 * 5 * 4 * 2 * 2
    batches = [64 * (place + 1) for place in range(max(1, round(plans / others)))]
    found = pm.search(
        "llama-3.1-8b", cluster, plan, workers=workers, batch=batches, micro_batch=range(1, 9), tp=(1, 2, 4),
        cp=(1,), pp=(1, 2, 4, 8, 16), vp=(1, 2, 4, 8), zero=(1, 3), recompute=("none", "full"),
    )  # fmt: skip
    return found.considered, [set_up.step.time_s for set_up in found.best]


def alone(points: int) -> tuple[float, float]:
    """Return the time of a sweep in this process, after a short one, and its processor seconds [s]."""
    sweep(100_000, 1)
    run = timed(lambda: sweep(points, 1))
    return run.wall_s, run.cpu_s


def ceiling(workers: int) -> tuple[float, float]:
    """Return how much more independent processes do side by side than one, and their processor seconds over its."""
    ratios, costs = [], []
    with get_context("spawn").Pool(workers) as pool:
        pool.map(alone, [1000] * workers, chunksize=1)
        for _ in range(CEILING_TURNS):
            wall_s, cpu_s = pool.apply(alone, (CEILING_POINTS,))
            together = pool.map(alone, [CEILING_POINTS] * workers, chunksize=1)
            ratios.append(workers * wall_s / max(wall for wall, _ in together))
            costs.append(statistics.mean(cpu for _, cpu in together) / cpu_s)
    return statistics.median(ratios), statistics.median(costs)


def compared(
    name: str,
    unit: str,
    count: int,
    work: Callable[[int], object],
    workers: int,
    idle: bool,
    possible: tuple[float, float],
) -> bool:
    """Print what one process and several make of some work; return whether sharing it is worth it."""
    turns = [(timed(lambda: work(1)), timed(lambda: work(workers))) for _ in range(TURNS)]
    speed_ups = sorted(single.wall_s / shared.wall_s for single, shared in turns)
    speed_up, cost = statistics.median(speed_ups), statistics.median(s.cpu_s / one.cpu_s for one, s in turns)
    single, shared = (statistics.median(pair[place].wall_s for pair in turns) for place in (0, 1))
    cpu_s = statistics.median(one.cpu_s for one, _ in turns)
    most, dearer = possible
    print(f"{name} of {count:.3g} {unit}, medians of {TURNS} turns")
    print(f"  one process: {count / cpu_s:,.0f} {unit} a second of a core, {single:.1f} s")
    load = "" if idle else " (machine not idle)"
    print(
        f"  {workers} workers: {shared:.1f} s, speed-up {speed_up:.2f} ({speed_ups[0]:.2f} to {speed_ups[-1]:.2f}) of "
        f"{most:.2f} possible{load}"
    )
    print(f"  processor seconds: {cost:.2f} x those of one process, of which the machine {dearer:.2f} x")
    same = all(one.result == several.result for one, several in turns)
    print(f"  results {'are the same' if same else 'DIFFER'}")
    return same and cost <= WANTED_CPU and (speed_up >= WANTED_SPEED_UP * workers / 2 or not idle)


def main() -> int:
    """Print the figures; return 1 when one is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=float, default=POINTS, help="of the sweep (default: %(default)s)")
    parser.add_argument("--plans", type=float, default=PLANS, help="of the search (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    given = parser.parse_args()
    points, plans = round(given.points**0.5) ** 2, int(given.plans)
    cores, load = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(), os.getloadavg()
    idle = load[0] < IDLE and (cores or 1) >= given.workers
    print(f"{cores} cores, load average {load[0]:.1f}")
    most = ceiling(given.workers)
    print(
        f"{given.workers} independent processes side by side do {most[0]:.2f} times the work of one, "
        f"at {most[1]:.2f} x its processor seconds each"
    )
    pm.predict(pm.Gemm(m=1, n=1, k=1), "h100-sxm5-80gb")  # imports
    good = [compared("sweep", "points", points, lambda workers: sweep(points, workers), given.workers, idle, most)]
    memory = [resource.getrusage(who).ru_maxrss / 1e3 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"  most memory: {memory[0]:.0f} MB here, {memory[1]:.0f} MB in a worker")
    search(1000, 1)  # imports
    good += [compared("search", "plans", plans, lambda workers: search(plans, workers), given.workers, idle, most)]
    print(f"wanted: speed-up {WANTED_SPEED_UP} of two workers on an idle machine, {WANTED_CPU} x the processor seconds")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
