"""Tables with one row a request: each run is replayed through the simulation, request by request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.published import PublishedRow, PublishedRuns
from perfmodel.accuracy.run_table import Run, RunTable
from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import simulate
from perfmodel.serving.published_case import Setup, SkipRun, engine_of, format_of, given, model_of, profile_of
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import Requests

Times = NDArray[np.float64]
#: figures of a run's requests: name -> function of the times
_FIGURES: Mapping[str, Callable[[Times], float]] = {
    "mean": lambda times: float(np.mean(times)),
    "p99": lambda times: float(np.quantile(times, 0.99)),
}
#: what tells runs apart
_RUN_COLUMNS = ("engine", "hardware", "model", "tp", "dp", "max_num_seqs", "max_num_batched_tokens", "kv_tokens")


def judge_replays(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return means and 99th percentiles of TPOT and latency of each run beside those of its simulation."""
    runs: dict[tuple[str, ...], list[Run]] = {}
    for run in table.runs:
        runs.setdefault(tuple(run.text(column) for column in _RUN_COLUMNS), []).append(run)
    rows: list[PublishedRow] = []
    skipped: list[Skipped] = []
    for requests in runs.values():
        try:
            rows += _judged(requests, find)
        except SkipRun as reason:
            skipped.append(Skipped(str(reason), len(requests), requests[0].place))
    return PublishedRuns(tuple(rows), tuple(skipped), "weights and keys and values over the bandwidth in each step")


def _judged(runs: list[Run], find: Callable[[str], Hardware]) -> list[PublishedRow]:
    first = runs[0]
    runs = sorted(runs, key=lambda run: run.number("queued_s"))
    engine, version = engine_of(first.text("engine"))
    mixture = bool(model_of(first.text("model")).experts)
    dp = first.whole("dp", 1) or 1
    setup = Setup(
        first.text("model"), first.text("hardware"), first.whole("tp", 1), ep=dp if mixture else 1, dp=dp,
        engine=engine, version=version, weights=format_of(first.text("wdtype")),
        kv=format_of(first.text("kvdtype")), max_num_seqs=given(first, "max_num_seqs"),
        max_batched_tokens=given(first, "max_num_batched_tokens"), kv_tokens=given(first, "kv_tokens"),
        laboratory=first.text("source"),
    )  # fmt: skip
    prompt, output = (np.array([run.whole(name) for run in runs]) for name in ("input", "output"))
    queued, token, last = (np.array([run.number(name) for run in runs]) for name in ("queued_s", "first_s", "last_s"))
    deployment = setup.deployment(find, int(np.max(prompt + output)) + 1)
    load = Requests(queued - queued[0], prompt, output)
    try:
        replay = simulate(deployment, load)
    except UsageError as error:
        raise SkipRun(error.message) from None
    several = output > 1
    measured = {
        "tpot": ((last - token)[several] / (output[several] - 1)),
        "latency": last - queued,
        "ttft": token - queued,
    }
    labels = {
        "table": first.table, "source": first.text("source"), "hardware": setup.hardware,
        "model": setup.model.split("/")[-1].lower(),
        "engine": profile_of(engine, version), "engine_version": version, "dtype": setup.weights,
        "kind": "moe" if mixture else "dense", "tp": str(setup.tp),
    }  # fmt: skip
    floor = _floor(deployment, replay, prompt, output)
    rows = []
    for name, times in measured.items():
        for figure, of in _FIGURES.items():
            value, low, high = _three(replay, name, of)
            rows.append(
                PublishedRow(f"{name}_{figure}_s", of(times), value, low, high, floor[name], labels,
                             f"{setup.model} on {setup.hardware}", first.place)
            )  # fmt: skip
    return rows


def _three(replay: Replay, name: str, of: Callable[[Times], float]) -> tuple[float, float, float]:
    """Return a figure of the simulation, and those with all steps at the ends of their interval."""
    value = of(getattr(replay, f"{name}_s"))
    if replay.ends is None:
        return value, value, value
    low, expected, high = (of(getattr(end, f"{name}_s")) for end in replay.ends)
    return value, value * min(low / expected, 1.0), value * max(high / expected, 1.0)


def _floor(
    deployment: Deployment, replay: Replay, prompt: NDArray[np.int64], output: NDArray[np.int64]
) -> dict[str, float]:
    memory, rate = deployment.memory(), deployment.hardware.main_memory.bandwidth_bytes_per_s or np.nan
    keys = replay.mean_batch / deployment.replica.dp * float(memory.moved_bytes(replay.mean_context))
    token = (memory.weights_bytes + keys) / rate
    peak = deployment.hardware.best_peak("bf16").flop_per_s * deployment.gpus
    first = 2.0 * deployment.config.multiplied_parameters * float(np.mean(prompt)) / peak
    return {"tpot": token, "latency": first + token * float(np.mean(output)), "ttft": first}
