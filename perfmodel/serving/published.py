"""Published inference runs: reading their tables, and predicting each run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.published import PUBLISHED_BY, PublishedRow, PublishedRuns
from perfmodel.accuracy.run_table import Run, RunTable
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import simulate
from perfmodel.serving.published_case import RATE, TPOT, TTFT, Case, Setup, SkipRun, profile_of
from perfmodel.serving.published_replay import judge_replays
from perfmodel.serving.published_tables import REQUEST_COLUMNS, reader_of
from perfmodel.serving.requests import conversation_lengths, open_loop
from perfmodel.serving.static_batch import StaticBatch, static_batch
from perfmodel.serving.steady import capacity, steady

#: the grouping keys of the runs; the last two of tables by users alone
KEYS = (
    *PUBLISHED_BY, "source", "hardware", "model", "engine", "engine_version", "dtype", "kind", "tp", "dtype_known",
    "lengths",
)  # fmt: skip
BASELINE = "weights and keys and values over the bandwidth (TTFT: FLOP over the peak)"
#: half of the range of lengths over their mean under random arrivals: assumed, tables have means alone
SPREAD = 0.3
#: standard deviation of ln(tokens of the answers drawn / requests x their stated mean), which shows where the arrivals
#: alone set the throughput: 36 runs of TensorRT-LLM 0.14 behind Triton
LENGTHS_DEVIATION = 0.06
#: lengths that are drawn go beyond their mean
LONGER = 2
#: quantity -> value, low and high end
Estimates = dict[str, tuple[float, float, float]]


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one of inference runs."""
    return reader_of(columns) is not None or set(columns) >= REQUEST_COLUMNS


def judge(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return the runs of a table beside their predictions; those that cannot be predicted are counted by reason."""
    if set(table.columns) >= REQUEST_COLUMNS:
        return judge_replays(table, find)
    reader = reader_of(table.columns)
    assert reader is not None
    skipped: dict[str, list[str]] = {}
    groups: dict[Setup, list[Case]] = {}
    for run in table.runs:
        try:
            case = reader(run)
        except SkipRun as reason:
            skipped.setdefault(str(reason), []).append(run.place)
            continue
        groups.setdefault(case.setup, []).append(case)
    rows: list[PublishedRow] = []
    for setup, cases in groups.items():
        try:
            longest = max(int(case.isl + case.osl) for case in cases)
            deployment = setup.deployment(find, LONGER * longest)
        except SkipRun as reason:
            skipped.setdefault(str(reason), []).extend(case.run.place for case in cases)
            continue
        for case in cases:
            try:
                rows += _judged(deployment, case)
            except UsageError as error:
                skipped.setdefault(error.message, []).append(case.run.place)
    order = {run.place: index for index, run in enumerate(table.runs)}
    rows.sort(key=lambda row: order[row.place])
    left_out = tuple(Skipped(reason, len(places), places[0]) for reason, places in skipped.items())
    return PublishedRuns(tuple(rows), left_out, BASELINE)


def _judged(deployment: Deployment, case: Case) -> list[PublishedRow]:
    """Return the measured quantities of a run beside their predictions."""
    estimates, floor = predicted(deployment, case), _bound(deployment, case)
    labels, name = _labels(case, bool(deployment.config.experts)), name_of(case.run)
    return [
        PublishedRow(quantity, measured, *estimates[quantity], floor[quantity], labels, name, case.run.place)
        for quantity, measured in case.measured.items()
    ]


def predicted(deployment: Deployment, case: Case) -> Estimates:
    """Return the predicted quantities of a run with their 80 % intervals.

    Raises
    ------
    UsageError
        When the load does not fit the deployment.
    """
    users = None if np.isnan(case.users) else case.users
    if case.load == "static":
        return _values(static_batch(deployment, users or 1.0, case.isl, case.osl))
    if case.load == "open":
        return _open(deployment, case)
    requests = None if np.isnan(case.requests) else case.requests
    return _values(steady(deployment, case.isl, case.osl, concurrency=users, requests=requests))


def predicted_step(deployment: Deployment, case: Case) -> list[tuple[float, float]]:
    """Return measured and predicted time of a step [s] of a steady run: its TPOT, or its batch over its throughput."""
    try:
        state = steady(deployment, case.isl, case.osl, concurrency=None if np.isnan(case.users) else case.users)
    except UsageError:
        return []
    pairs = [(case.measured[TPOT], float(state.tpot_s))] if TPOT in case.measured else []
    if RATE in case.measured:
        requests = None if np.isnan(case.requests) else case.requests
        rate = float(steady(deployment, case.isl, case.osl, requests=requests).output_tokens_per_s)
        pairs.append((float(state.batch) / case.measured[RATE], float(state.batch) / rate))
    return pairs


def _open(deployment: Deployment, case: Case) -> Estimates:
    """Return the quantities of a run with random arrivals, as a simulation finds them: with its ends."""
    count = int(case.requests)
    sizes: tuple[ArrayLike, ArrayLike] = case.isl, case.osl
    if case.conversations:
        sizes = conversation_lengths(count, case.isl, seed=1), conversation_lengths(count, case.osl, seed=2)
    load = open_loop(case.qps, count, *sizes, spread=SPREAD)
    if np.isfinite(case.qps):  # arrivals that last as long as their mean rate says, whatever was drawn
        load = replace(load, arrival_s=load.arrival_s * (load.rate_per_s / case.qps))
    replay = simulate(deployment, load)
    ends = replay.ends or (replay, replay, replay)

    def mean(quantity: str) -> tuple[float, float, float]:
        found = replay.statistics(quantity, ())
        return found["mean"], found["mean_low"], found["mean_high"]

    rate = float(np.sum(replay.requests.output)) / replay.duration_s
    slow, expected, fast = (float(np.sum(end.requests.output)) / end.duration_s for end in reversed(ends))
    drawn = Z80 * LENGTHS_DEVIATION
    low, high = Stretch(drawn, drawn).widened(rate, rate * slow / expected, rate * fast / expected)
    return {TTFT: mean("ttft_s"), TPOT: mean("tpot_s"), RATE: (rate, low, high)}


def _values(state: Steady | StaticBatch) -> Estimates:
    def three(name: str, low: str, high: str) -> tuple[float, float, float]:
        return float(getattr(state, name)), float(getattr(state, low)), float(getattr(state, high))

    return {
        TTFT: three("ttft_s", "ttft_low_s", "ttft_high_s"),
        TPOT: three("tpot_s", "tpot_low_s", "tpot_high_s"),
        RATE: three("output_tokens_per_s", "output_tokens_per_s_low", "output_tokens_per_s_high"),
    }


def _bound(deployment: Deployment, case: Case) -> dict[str, float]:
    """Return what the bandwidth alone would allow: all weights and the batch's keys and values in each step."""
    memory, hardware = deployment.memory(), deployment.hardware
    batch = case.users
    if np.isnan(batch):
        batch = float(capacity(deployment, case.isl, case.osl))
    rate = hardware.main_memory.bandwidth_bytes_per_s or np.nan
    keys = batch / deployment.dp * float(memory.moved_bytes(case.isl + case.osl / 2.0))
    token = (memory.weights_bytes + keys) / rate * deployment.pp
    dtype = deployment.format.compute if not deployment.format.weight_only else "bf16"
    peak = hardware.best_peak(dtype if dtype in hardware.dtypes() else "fp16").flop_per_s
    prompts = batch if case.load == "static" else 1.0
    first = 2.0 * deployment.config.multiplied_parameters * case.isl * prompts / (peak * deployment.gpus)
    served = batch / token if case.load != "open" or np.isinf(case.qps) else case.qps * case.osl
    return {TTFT: first, TPOT: token, RATE: served}


def _labels(case: Case, mixture: bool) -> dict[str, str]:
    run, setup = case.run, case.setup
    model = setup.model.split("/")[-1].lower()
    return {
        "table": run.table,
        "source": run.text("source"),
        "hardware": setup.hardware,
        "model": model,
        "engine": profile_of(setup.engine, setup.version),
        "engine_version": setup.version,
        "dtype": setup.weights,
        "kind": "moe" if mixture else "dense",
        "tp": str(setup.tp),
        **case.labels,
    }


def name_of(run: Run) -> str:
    """Return a run's own name, or what tells it from the others of its table."""
    return run.text("id") or " ".join(
        run.text(name) for name in ("model", "hardware", "tp", "batch", "isl", "osl", "qps", "test") if run.text(name)
    )
