"""The fit of the constants of training steps, and the rows that were not fitted: see `fit_training`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import msgspec
import numpy as np
import open_tables
from numpy.typing import NDArray

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.latency import power
from perfmodel.training.constants import Constants, constants
from perfmodel.training.published_run import PublishedRun, UnusableRunError, measured_time, read_run
from perfmodel.training.step import train

#: energies of a FLOP in minutes of work over that in replays that are tried: the shipped one, which was chosen by the
#: frameworks left out, since rows of known frameworks hardly tell it from slower memory-bound kernels
ENERGIES = (power.SUSTAINED_ENERGY,)
#: the fitted constants of dense models and of experts, with where the search starts
DENSE = {"counted": 1.25, "fsdp1": 2.2, "casts": 2.1, "fsdp_share": 0.5, "fa1": 0.8}
EXPERTS = {"routing": 0.65, "host_s": 1.7e-3}
#: frameworks that are left out together -> beginnings of their tables
SOURCES = {
    "llm-foundry": ("llmfoundry",), "torchtitan": ("torchtitan",), "NeMo, Bridge": ("nemo", "bridge"),
    "Megatron": ("megatron", "korthikanti"),
}  # fmt: skip
#: tables that fit nothing: fp32 runs without an optimizer, and fine-tuning on packed samples
UNFITTED = ("neusight_train", "nemo_launcher_h100_sft")
Rows = Sequence[PublishedRun]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """Constants, and the energy that they were fitted with."""

    energy: float
    constants: Constants


def read_rows() -> list[PublishedRun]:
    """Return every open run that can be predicted."""
    rows = []
    for path in sorted((open_tables.folder().parent / "e2e_training").glob("*.csv")):
        for run in read_run_table(path).runs:
            try:
                rows.append(read_run(run, hardware))
            except UnusableRunError:
                continue
    return rows


def table_of(row: PublishedRun) -> str:
    """Return the name of a row's table."""
    return row.run.table


def dense(rows: Rows) -> list[PublishedRun]:
    """Return the rows without experts."""
    return [row for row in rows if not row.config.experts]


def first_half(row: PublishedRun) -> bool:
    """Return whether a row belongs to the half that is fitted, by a hash of its id."""
    return hashlib.md5(row.run.text("id").encode(), usedforsecurity=False).digest()[0] % 2 == 1


@contextmanager
def energy(value: float, rows: Rows) -> Iterator[None]:
    """Predict with another energy of a FLOP in minutes of work; predictions that are kept are dropped."""
    machines = {id(row.cluster.hardware): row.cluster.hardware for row in rows}.values()
    with mock.patch.object(power, "SUSTAINED_ENERGY", value):
        for machine in machines:
            vars(machine).pop("_cached", None)
        yield
    for machine in machines:
        vars(machine).pop("_cached", None)


def ratios(rows: Rows, fixed: Constants) -> Vector:
    """Return predicted over measured time of each row."""
    steps = (train(row.config, row.cluster, row.plan, fixed, checked=False).time_s for row in rows)
    return np.array([time / measured_time(row.run) for time, row in zip(steps, rows, strict=True)])


def with_values(values: Mapping[str, float], base: Constants | None = None) -> Constants:
    """Return constants with some values by their names."""
    base = base or constants()
    memory = {name: values.get(name, base.memory_bound[name]) for name in ("counted", "fsdp1")}
    chart = {"fa1": values.get("fa1", base.chart_factor["fa1"])}
    others = {name: values[name] for name in ("casts", "fsdp_share", "routing", "host_s") if name in values}
    return msgspec.structs.replace(base, memory_bound=memory, chart_factor=chart, **others)


def unfitted() -> Constants:
    """Return constants that no training step has seen: every kernel as predicted alone, charts as drawn."""
    values = {"counted": 1.0, "fsdp1": 1.0, "casts": 1.0, "fsdp_share": constants().sm_share, "fa1": 1.0}
    return with_values({**values, "routing": 1.0, "host_s": 0.0})


def loss(rows: Rows, fixed: Constants) -> float:
    """Return the mean |ln(predicted / measured)| of each table, weighted by the root of its rows."""
    error = np.abs(np.log(ratios(rows, fixed)))
    tables = np.array([table_of(row) for row in rows])
    names = sorted(set(tables.tolist()))
    weights = np.array([math.sqrt(float(np.sum(tables == name))) for name in names])
    means = np.array([float(np.mean(error[tables == name])) for name in names])
    return float(np.dot(weights, means) / np.sum(weights))


def minimum(cost: Callable[[Vector], float], start: Vector, evaluations: int) -> Vector:
    """Return where a cost is least near a start: Nelder and Mead's simplex in the logarithms of the values."""
    points = [np.log(start), *(np.log(start) + 0.12 * row for row in np.eye(len(start)))]
    costs = [cost(np.exp(point)) for point in points]
    used = len(points)
    while used < evaluations:
        order = np.argsort(costs)
        points, costs = [points[i] for i in order], [costs[i] for i in order]
        centre = np.mean(points[:-1], axis=0)
        away = centre - points[-1]
        reflected = cost(np.exp(centre + away))
        step = 2.0 if reflected < costs[0] else 0.5 if reflected < costs[-1] else -0.5
        other = cost(np.exp(centre + step * away))
        used += 2
        value, point = min((reflected, centre + away), (other, centre + step * away), key=lambda pair: pair[0])
        if value < costs[-1]:
            points[-1], costs[-1] = point, value
        else:
            points = [points[0], *(points[0] + 0.5 * (old - points[0]) for old in points[1:])]
            costs = [costs[0], *(cost(np.exp(old)) for old in points[1:])]
            used += len(points) - 1
    best: Vector = np.exp(points[int(np.argmin(costs))])
    return best


def fit(rows: Rows, names: Mapping[str, float], base: Constants, evaluations: int = 110) -> Constants:
    """Return constants with the named ones fitted to some rows."""
    keys = list(names)

    def cost(values: Vector) -> float:
        return loss(rows, with_values(dict(zip(keys, values.tolist(), strict=True)), base))

    found = minimum(cost, np.array(list(names.values())), evaluations)
    return with_values(dict(zip(keys, found.tolist(), strict=True)), base)


def fit_all(rows: Rows, energies: Iterable[float] = ENERGIES) -> Fitted:
    """Return the constants of dense models and experts that fit some rows; what no row has stays at the counted one."""
    used = [row for row in dense(rows) if table_of(row) not in UNFITTED]
    tables = {table_of(row) for row in used}
    foundry = any(name.startswith("llmfoundry") for name in tables)
    fitting = {name: value for name, value in DENSE.items() if foundry or name not in ("fsdp1", "fa1")}
    best: tuple[float, Fitted] | None = None
    for value in energies:
        with energy(value, rows):
            found = fit(used, fitting, constants())
            if not foundry:
                found = with_values({"fsdp1": found.memory_bound["counted"], "fa1": 1.0}, found)
            cost = loss(used, found)
        if best is None or cost < best[0]:
            best = (cost, Fitted(value, found))
    assert best is not None
    sparse = [row for row in rows if row.config.experts]
    if sparse:
        with energy(best[1].energy, rows):
            return Fitted(best[1].energy, fit(sparse, EXPERTS, best[1].constants, 60))
    return best[1]


def judged(rows: Rows, fitted: Fitted) -> Vector:
    """Return predicted over measured by fitted constants."""
    with energy(fitted.energy, rows):
        return ratios(rows, fitted.constants)


@dataclass(frozen=True)
class Findings:
    """Errors of all rows under several constants; NaN for a row that they were fitted on.

    Attributes
    ----------
    rows : all rows.
    unfitted : predicted over measured without any fitted constant.
    shipped : the fit on one half, and the ratios of all rows with it.
    other_half : each row by the constants of the half that it is not in.
    left_out : each row by the constants of all frameworks but its own.
    """

    rows: Rows
    unfitted: Vector
    shipped: Fitted
    ratios: Vector
    other_half: Vector
    left_out: Vector

    def mask(self, *, kind: str = "dense", table: str = "", fitted: bool | None = None) -> NDArray[np.bool_]:
        """Return which rows are of a kind, of tables that begin so, and in the fitted half or not."""
        return np.array(
            [
                (bool(row.config.experts) == (kind == "experts"))
                and table_of(row).startswith(table)
                and (fitted is None or first_half(row) == fitted)
                for row in self.rows
            ]
        )


def find(rows: Rows) -> Findings:
    """Return the errors of some rows under every constants."""
    with energy(1.0, rows):
        plain = ratios(rows, unfitted())
    one = fit_all([row for row in rows if first_half(row)])
    other = fit_all([row for row in rows if not first_half(row)], [one.energy])
    by_one, by_other = judged(rows, one), judged(rows, other)
    halves = np.array([first_half(row) for row in rows])
    left = np.full(len(rows), np.nan)
    for names in SOURCES.values():
        out = np.array([table_of(row).startswith(names) for row in rows])
        kept = fit_all([row for row, gone in zip(rows, out, strict=True) if not gone and not row.config.experts],
                       [one.energy])  # fmt: skip
        left[out] = judged(rows, kept)[out]
    return Findings(rows, plain, one, by_one, np.where(halves, by_other, by_one), left)
