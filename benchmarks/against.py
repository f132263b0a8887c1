"""Predictions of matrix products by this version and by that of another checkout, in turns: ratios of one run.

    python benchmarks/against.py CHECKOUT

Each version runs in a process of its own and waits for its turn, which takes some milliseconds, so that what else runs
on the machine slows both alike. Times are those of the processor; for each case the least and the median of the turns
are printed, and the ratio of the medians, other version over this one: above 1 this one is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TURNS = 40
#: points of a turn of a sweep, two pieces of it; single calls of a turn
POINTS, CALLS = 131072, 40
MACHINES = (("h100-sxm5-80gb", "bf16"), ("h100-sxm5-80gb", "fp8"), ("a100-sxm4-40gb", "fp32"))
SHAPES = ((4096, 4096, 4096), (64, 512, 1000))


def cases() -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is timed by its name, each with the predictions that it makes."""
    import numpy as np

    import perfmodel as pm

    def swept(op: pm.Operator, hardware: pm.Hardware) -> Callable[[], object]:
        return lambda: sum(1 for _ in pm.sweep(op, hardware))

    made: dict[str, tuple[Callable[[], object], int]] = {}
    for name, dtype in MACHINES:
        hardware = pm.hardware(name)
        m, n, k = np.exp(np.random.default_rng(0).uniform(0.0, np.log(16384.0), (3, POINTS))).round()
        side = np.arange(1.0, 1025.0)
        made[f"{dtype} sweep, all sizes"] = swept(pm.Gemm(m=m, n=n, k=k, dtype=dtype), hardware), POINTS
        grid = pm.Gemm(m=31.0 * side[:128, None], n=side, k=512, dtype=dtype)
        made[f"{dtype} sweep, a grid of m and n"] = swept(grid, hardware), POINTS
        for rows, columns, depth in SHAPES:
            one = pm.Gemm(m=rows, n=columns, k=depth, dtype=dtype)

            def alone(one: pm.Operator = one, hardware: pm.Hardware = hardware) -> None:
                for _ in range(CALLS):
                    pm.predict(one, hardware)

            made[f"{dtype} one call, {rows} x {columns} x {depth}"] = alone, CALLS
    return made


def serve() -> None:
    """Time the case that each line names, and print the time of one prediction [s]; a process of one version."""
    made = cases()
    for line in sys.stdin:
        act, predictions = made[line.strip()]
        begin = time.process_time()
        act()
        print((time.process_time() - begin) / predictions, flush=True)


def started(checkout: Path) -> subprocess.Popen[str]:
    """Return the process of one version."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def turn(version: subprocess.Popen[str], name: str) -> float:
    """Return the time of one prediction of a case [s]."""
    assert version.stdin is not None
    assert version.stdout is not None
    print(name, file=version.stdin, flush=True)
    return float(version.stdout.readline())


def main() -> int:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, nargs="?", help="folder of the other version")
    parser.add_argument("--turns", type=int, default=TURNS, help="of each case (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return 0
    if given.checkout is None:
        print("nothing to compare with: name the folder of another version")
        return 0
    if not (given.checkout / "perfmodel").is_dir():
        parser.error(f"{given.checkout} holds no folder perfmodel")
    versions = [started(HERE), started(given.checkout.resolve())]
    names = [f"{dtype} {kind}" for _, dtype in MACHINES for kind in ("sweep, all sizes", "sweep, a grid of m and n")]
    names += [f"{dtype} one call, {m} x {n} x {k}" for _, dtype in MACHINES for m, n, k in SHAPES]
    for name in names:
        for version in versions:
            turn(version, name)  # caches
        taken = [[turn(version, name) for version in versions] for _ in range(given.turns)]
        mine, other = zip(*taken, strict=True)
        unit, scale = ("ns", 1e9) if "sweep" in name else ("us", 1e6)
        least, median = [scale * min(mine), scale * min(other)], [statistics.median(mine), statistics.median(other)]
        print(
            f"{name:<36} least {least[0]:4.0f} and {least[1]:4.0f} {unit}, median {scale * median[0]:4.0f} and "
            f"{scale * median[1]:4.0f} {unit}: ratio {median[1] / median[0]:.2f}",
            flush=True,
        )
    for version in versions:
        version.communicate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
