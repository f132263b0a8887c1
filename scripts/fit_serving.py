"""Fit host, gaps and load of serving engines on half of the open runs, and judge them on the other half.

    python scripts/fit_serving.py [ENGINE ...]

The halves are parted by a hash of each run's deployment and lengths, so that loads of one configuration stay together.
For each engine: the error of a step's time with the shipped constants and with those fitted on one half, on both
halves; and the deviation that makes 80 % intervals cover 80 % of the half that was fitted, with its coverage on the
other. Nothing is written: the constants stand in ``engine_specs/serving``, each with its source.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable

import numpy as np
import public_data
from numpy.typing import NDArray

from perfmodel.accuracy.published import PublishedRow
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.uncertainty import Z80
from perfmodel.serving.engine import engine_names, find_engine
from perfmodel.serving.fit_engine import engine_cases, fit_engine, step_error
from perfmodel.serving.published import judge
from perfmodel.serving.published_case import Case

DATA = public_data.path_of("e2e_serving")
TABLES = ("trtllm_max_throughput", "aic_silicon_agg", "trtllm_static_v05_v09", "trtllm_online_serving",
          "lmdeploy_a100_static", "consumer_single_stream")  # fmt: skip
#: what a step's time says of a run; the time to the first token has its own deviation
QUANTITIES = ("tpot_s", "output_tokens_per_s")


def fitted(case: Case) -> bool:
    """Return whether a run belongs to the half on which constants are fitted."""
    key = f"{case.setup} {case.isl:.0f} {case.osl:.0f}"
    return bool(hashlib.sha256(key.encode()).digest()[0] % 2)


def fitted_row(row: PublishedRow) -> bool:
    """Return whether a judged run belongs to that half, by its labels and name."""
    key = " ".join([row.name, *(row.label(name) for name in ("hardware", "model", "engine", "dtype", "tp"))])
    return bool(hashlib.sha256(key.encode()).digest()[0] % 2)


def constants(names: Iterable[str]) -> None:
    """Print the fitted constants of engines beside the shipped ones, with the errors on both halves."""
    tables = [read_run_table(DATA / f"{name}.csv") for name in TABLES]
    print(f"{'engine':16} {'runs':>5} {'host':>9} {'gap':>9} {'hot':>5}   shipped: half, other   fitted: half, other")
    for name in names:
        engine = find_engine(name)
        try:
            cases = engine_cases(tables, engine)
            halves = [[case for case in cases if fitted(case) is half] for half in (True, False)]
            fit = fit_engine(halves[0], engine, hardware)
        except InputFileError as error:
            print(f"{name:16} {error.message}")
            continue
        errors = [step_error(half, profile, hardware) for profile in (engine, fit.engine) for half in halves]
        hot = max(fit.engine.hot.values(), default=1.0)
        shown = "   ".join(f"{100 * a:9.1f} % {100 * b:6.1f} %" for a, b in (errors[:2], errors[2:]))
        print(f"{name:16} {len(cases):5} {fit.engine.host_s:9.1e} {fit.engine.gap_s:9.1e} {hot:5.2f} {shown}")


def deviations() -> None:
    """Print the deviation of each engine that makes its intervals cover 80 % of one half, and what they then cover."""
    rows = [row for name in TABLES for row in judge(read_run_table(DATA / f"{name}.csv"), hardware).rows]
    print(f"\n{'engine':16} {'kind':6} {'rows':>5}  deviation  covers, other half   shipped covers")
    groups: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        if row.quantity in QUANTITIES:
            groups.setdefault((row.label("engine"), row.label("kind")), []).append(row)
    for (name, kind), members in sorted(groups.items()):
        shipped = find_engine(name).deviation
        halves = [_widths([row for row in members if fitted_row(row) is half], shipped) for half in (True, False)]
        if min(map(len, halves)) < 10:
            continue
        best = next((d for d in np.arange(0.0, 0.8, 0.005) if _coverage(halves[0], d) >= 0.8), 0.8)
        other, now = _coverage(halves[1], best), np.mean([row.low <= row.measured <= row.high for row in members])
        print(f"{name:16} {kind:6} {len(members):5} {best:10.3f} {100 * other:12.0f} % {100 * now:18.0f} %")


def _widths(rows: Iterable[PublishedRow], shipped: float) -> NDArray[np.float64]:
    """Return |ln(measured / predicted)| of each row, and the variance of its kernels."""
    found = [(abs(np.log(row.ratio)), np.log(row.high / row.predicted) ** 2 - (Z80 * shipped) ** 2) for row in rows]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def _coverage(rows: NDArray[np.float64], deviation: float) -> float:
    """Return the share of rows inside an interval with this deviation of the engine."""
    return float(np.mean(rows[:, 0] <= np.sqrt(np.maximum(rows[:, 1], 0.0) + (Z80 * deviation) ** 2)))


def main() -> None:
    """Print the constants of the engines that are named, of all by default, and the deviations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", metavar="ENGINE", nargs="*", help="engines; all by default")
    engines = parser.parse_args().engines
    constants(engines or [name for name in engine_names() if name != "generic"])
    deviations()


if __name__ == "__main__":
    main()
