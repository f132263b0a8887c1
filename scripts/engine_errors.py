"""Print the error of each fitted constant of the serving engines: how far it moves when other runs were measured.

    python scripts/engine_errors.py [ENGINE ...]

One constant at a time is changed, the others held, and the value with the least mean of |ln(predicted / measured)| is
found for 400 draws with replacement from an engine's configurations (a model, a machine, its GPUs and formats; all
loads of a configuration stay together). The error is half the width of the middle 68 % of those values. Where many
draws end at an edge of what was tried, the runs do not tell the constant. Times of steps judge the
constants of steps, times to the first token those of prompts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from serving_left_out import DATA, cases_of

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.engine import Engine, engine_names, find_engine
from perfmodel.serving.published import predicted
from perfmodel.serving.published_case import RATE, TPOT, TTFT, Case, Setup, SkipRun, profile_of
from perfmodel.serving.published_tables import reader_of

TABLES = ("trtllm_max_throughput", "aic_silicon_agg", "trtllm_online_serving", "lmdeploy_a100_static")
STEPS, FIRST = (TPOT, RATE), (TTFT,)
#: constant -> the value at which it has no effect, and the quantities that judge it
CONSTANTS: Mapping[str, tuple[float, tuple[str, ...]]] = {
    "host_s": (0.0, STEPS),
    "host_sequence_s": (0.0, STEPS),
    "gap_s": (0.0, STEPS),
    "hot": (1.0, STEPS),
    "experts_start_s": (0.0, STEPS),
    "exchange_slower": (1.0, STEPS),
    "slower": (1.0, STEPS),
    "imbalance": (1.0, STEPS),
    "front_end_s": (0.0, FIRST),
    "prompt_launch_s": (0.0, FIRST),
    "balance_steps": (0.0, FIRST),
}
#: distances from no effect that are computed, over that of the shipped value; between them times are straight lines
TRIED = (0.0, 1.0, 3.0)
#: values that are tried, over the same, and draws
GRID, DRAWS = np.linspace(0.0, 3.0, 301), 400

Array = NDArray[np.float64]


def cases_by_engine() -> dict[str, dict[Setup, list[Case]]]:
    """Return the open runs by profile and configuration."""
    found: dict[str, dict[Setup, list[Case]]] = {}
    for name in TABLES:
        table = read_run_table(DATA / f"{name}.csv")
        for case in cases_of(table.runs, reader_of(table.columns)):
            profile = profile_of(case.setup.engine, case.setup.version)
            found.setdefault(profile, {}).setdefault(case.setup, []).append(case)
    return found


def changed(engine: Engine, constant: str, factor: float) -> Engine:
    """Return the engine with a constant at a distance from no effect, over that of its shipped value."""
    neutral, _ = CONSTANTS[constant]

    def moved(value: float) -> float:
        return neutral + factor * (value - neutral)

    value = getattr(engine, constant)
    new = {key: moved(item) for key, item in value.items()} if isinstance(value, Mapping) else moved(value)
    return replace(engine, **{constant: new})


def logs(engine: Engine, groups: Mapping[Setup, Sequence[Case]], wanted: Sequence[str]) -> dict[str, Array]:
    """Return ln(predicted / measured) of each configuration's figures of some quantities."""
    found = {}
    for setup, cases in groups.items():
        try:
            deployment = setup.deployment(hardware, int(max(case.isl + case.osl for case in cases)) + 1, engine)
        except SkipRun:
            continue
        found[f"{setup}"] = np.array(
            [
                np.log(value / case.measured[name]) * (-1 if name == RATE else 1)
                for case in cases
                for name, (value, _, _) in _predicted(deployment, case).items()
                if name in wanted and name in case.measured
            ]
        )
    return {name: values for name, values in found.items() if len(values)}


def _predicted(deployment: object, case: Case) -> Mapping[str, tuple[float, float, float]]:
    try:
        return predicted(deployment, case)  # type: ignore[arg-type]
    except UsageError:
        return {}


def spread(each: Sequence[dict[str, Array]]) -> tuple[float, float, float, int]:
    """Return best value, error, share of draws at an edge and number of figures, over the shipped distance."""
    names = sorted(set.intersection(*(set(found) for found in each)))
    sums, counts = np.empty((len(names), len(GRID))), np.empty(len(names))
    for index, name in enumerate(names):
        values = np.exp(np.stack([found[name] for found in each]))
        times = np.stack([np.interp(GRID, TRIED, column) for column in values.T])
        sums[index], counts[index] = np.abs(np.log(times)).sum(axis=0), len(times)
    random = np.random.default_rng(0)
    weights = random.multinomial(len(names), np.full(len(names), 1.0 / len(names)), size=DRAWS)
    least = np.argmin((weights @ sums) / (weights @ counts)[:, None], axis=1)
    low, high = np.quantile(GRID[least], (0.16, 0.84))
    best = float(GRID[int(np.argmin(sums.sum(axis=0)))])
    edge = float(np.mean((least == 0) | (least == len(GRID) - 1)))
    return best, float(high - low) / 2.0, edge, int(counts.sum())


def report(names: Sequence[str]) -> None:
    """Print a line for each engine and constant."""
    print(f"{'engine':15} {'constant':16} {'figures':>7} {'shipped':>9} {'best':>9} {'error':>9}  at an edge")
    by_engine = cases_by_engine()
    for name in names:
        engine, groups = find_engine(name), by_engine.get(name, {})
        shipped = {wanted: logs(engine, groups, wanted) for wanted in (STEPS, FIRST)}
        for constant, (neutral, wanted) in CONSTANTS.items():
            value = getattr(engine, constant)
            top = max(value.values(), default=neutral) if isinstance(value, Mapping) else value
            if top == neutral or len(shipped[wanted]) < 2:
                continue
            ends = [logs(changed(engine, constant, factor), groups, wanted) for factor in (TRIED[0], TRIED[-1])]
            best, error, edge, count = spread((ends[0], shipped[wanted], ends[1]))
            far = top - neutral
            shown = f"{top:9.2g} {neutral + best * far:9.2g} {error * far:9.2g}"
            print(f"{name:15} {constant:16} {count:7} {shown}  {100 * edge:3.0f} %", flush=True)


def main() -> None:
    """Print the errors of the engines that are named, of all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", metavar="ENGINE", nargs="*", help="engines; all by default")
    engines = parser.parse_args().engines
    report(engines or engine_names())


if __name__ == "__main__":
    main()
