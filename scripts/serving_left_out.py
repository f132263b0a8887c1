"""Judge served runs that set no constant: the other half of the runs, and engines, machines and models left out.

    python scripts/serving_left_out.py

Host, gaps and front end of an engine are fitted to the runs that are kept and judged on the others; an engine that is
left out is predicted as one that nobody measured. Kernels keep the constants that tables of kernels gave them, and
formulas stay as they are: both were chosen with all runs in view.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import public_data
from fit_serving import fitted
from numpy.typing import NDArray

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import GENERIC, find_engine
from perfmodel.serving.fit_engine import GAPS, HOSTS
from perfmodel.serving.published import predicted
from perfmodel.serving.published_case import RATE, TPOT, TTFT, Case, Setup, SkipRun
from perfmodel.serving.published_tables import reader_of

DATA = public_data.path_of("e2e_serving")
TABLES = ("trtllm_max_throughput", "aic_silicon_agg")
#: front ends that are tried [s]
FRONT_ENDS = np.linspace(0.0, 0.3, 151)
#: an engine is fitted to this many figures at least; with fewer it is predicted as one that nobody measured
FEWEST = 12

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A measured time of a run, and its prediction with the shipped constants, without an engine's, and as generic.

    Attributes
    ----------
    engine, machine, family : of the run.
    first : it is a time to the first token, not one of a step.
    half : the run belongs to the half on which constants are fitted.
    measured, shipped, bare : times [s]; ``bare`` has no host, gap and front end.
    kernels : kernels of a step.
    width : ln of the high end over the prediction.
    generic, generic_width : prediction and width as an engine that nobody measured.
    """

    engine: str
    machine: str
    family: str
    first: bool
    half: bool
    measured: float
    shipped: float
    bare: float
    kernels: float
    width: float
    generic: float
    generic_width: float


def figures() -> list[Figure]:
    """Return the figures of all runs under a steady load."""
    groups: dict[Setup, list[Case]] = {}
    for name in TABLES:
        table = read_run_table(DATA / f"{name}.csv")
        for case in cases_of(table.runs, reader_of(table.columns)):
            groups.setdefault(case.setup, []).append(case)
    return [figure for setup, cases in groups.items() for figure in _figures(setup, cases)]


def cases_of(runs: Iterable[object], reader: Callable[..., Case] | None) -> Iterator[Case]:
    """Yield the runs of a table that can be predicted."""
    for run in runs:
        try:
            if reader:
                yield reader(run)
        except SkipRun:
            continue


def _figures(setup: Setup, cases: Sequence[Case]) -> Iterator[Figure]:
    longest = max(int(case.isl + case.osl) for case in cases) + 1
    try:
        shipped = setup.deployment(hardware, longest)
        profile = shipped.profile
        bare = setup.deployment(hardware, longest, replace(profile, host_s=0.0, gap_s=0.0, front_end_s=0.0))
        generic = setup.deployment(hardware, longest, find_engine(GENERIC))
    except SkipRun:
        return
    kernels = shipped.table.kernels_per_layer * shipped.part.layers * shipped.pp
    family = setup.model.split("/")[-1].lower().split("-")[0]
    for case in cases:
        try:
            each = [_times(deployment, case) for deployment in (shipped, bare, generic)]
        except UsageError:
            continue
        for quantity, value in case.measured.items():
            (now, width), (base, _), (other, wide) = (times[quantity] for times in each)
            measured = value if quantity != RATE else 1.0 / value
            scale = each[0]["batch"][0] if quantity == RATE else 1.0
            yield Figure(
                profile.name, setup.hardware, family, quantity == TTFT, fitted(case), scale * measured, scale * now,
                scale * base, kernels, width, scale * other, wide,
            )  # fmt: skip


def _times(deployment: Deployment, case: Case) -> dict[str, tuple[float, float]]:
    """Return the predicted times [s] with ln of the high end over each; a rate is the time of one token of all."""
    found = predicted(deployment, case)
    times = {name: (value, float(np.log(high / value))) for name, (value, _, high) in found.items() if name != RATE}
    rate, low, _ = found[RATE]
    return times | {RATE: (1.0 / rate, float(np.log(rate / low))), "batch": (found[TPOT][0] * rate, 0.0)}


def refitted(rows: Sequence[Figure], kept: Sequence[bool]) -> tuple[Array, Array]:
    """Return predictions and widths of all rows, each engine's constants fitted to the rows of it that are kept."""
    predictions = np.array([row.generic for row in rows])
    widths = np.array([row.generic_width for row in rows])
    for engine in {row.engine for row in rows}:
        for first in (False, True):
            mine = np.array([row.engine == engine and row.first == first for row in rows])
            train = mine & np.asarray(kept)
            if train.sum() < FEWEST:
                continue
            bare, kernels, measured, own = (
                np.array([getattr(row, name) for row in rows]) for name in ("bare", "kernels", "measured", "width")
            )
            added = (
                _front_end(bare[train], measured[train])
                if first
                else _host(bare[train], kernels[train], measured[train])
            )
            predictions[mine] = bare[mine] + added[0] + added[1] * kernels[mine]
            widths[mine] = own[mine]
    return predictions, widths


def _front_end(bare: Array, measured: Array) -> tuple[float, float]:
    errors = np.minimum(np.abs(np.log((bare + FRONT_ENDS[:, None]) / measured)), 1.0).mean(axis=1)
    return float(FRONT_ENDS[int(np.argmin(errors))]), 0.0


def _host(bare: Array, kernels: Array, measured: Array) -> tuple[float, float]:
    times = bare + HOSTS[:, None, None] + GAPS[None, :, None] * kernels
    errors = np.abs(np.log(times / measured)).mean(axis=-1)
    host, gap = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return float(HOSTS[host]), float(GAPS[gap])


def _line(title: str, rows: Sequence[Figure], predictions: Array, widths: Array, judged: Array) -> list[str]:
    """Return mean and median error and coverage of steps, and of the time to the first token."""
    measured, first = np.array([row.measured for row in rows]), np.array([row.first for row in rows])
    cells = [title]
    for part in (judged & ~first, judged & first):
        if not part.any():
            cells += ["0", "", "", ""]
            continue
        errors = np.abs(predictions / measured - 1.0)[part]
        inside = np.mean(np.abs(np.log(measured / predictions))[part] <= widths[part])
        shown = (errors.mean(), np.median(errors), inside)
        cells += [str(int(part.sum())), *(f"{100 * value:.1f} %" for value in shown)]
    return cells


HEAD = ("judged", "TPOT, tokens/s: n", "mean", "median", "covered", "TTFT: n", "mean", "median", "covered")


def left_out(rows: Sequence[Figure]) -> list[list[str]]:
    """Return the lines of the table: what was judged, with errors and coverage."""
    shipped, width = np.array([row.shipped for row in rows]), np.array([row.width for row in rows])
    half = np.array([row.half for row in rows])
    everything = np.ones(len(rows), dtype=bool)
    fit, wide = refitted(rows, half)
    lines = [
        _line("shipped constants, all runs", rows, shipped, width, everything),
        _line("fitted on half, that half", rows, fit, wide, half),
        _line("fitted on half, the other half", rows, fit, wide, ~half),
    ]
    for what, title in (("engine", "engine"), ("machine", "GPU"), ("family", "model family")):
        labels = np.array([getattr(row, what) for row in rows])
        joined, spread = np.empty(len(rows)), np.empty(len(rows))
        parts = []
        for name in sorted(set(labels)):
            out = labels == name
            one, its = refitted(rows, ~out)
            joined[out], spread[out] = one[out], its[out]
            parts.append(_line(f"... {name}", rows, one, its, out))
        lines += [_line(f"each {title} left out", rows, joined, spread, everything), *parts]
    return lines


def markdown() -> str:
    """Return the table as Markdown."""
    lines = [HEAD, ["---"] * len(HEAD), *left_out(figures())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(markdown())
