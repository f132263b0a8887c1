"""Reports of steps and of the memory of a deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_binary, format_si
from perfmodel.serving import load_report as load_report
from perfmodel.serving.cycle import Steady
from perfmodel.serving.fit_engine import EngineFit
from perfmodel.serving.meanings import MEANINGS
from perfmodel.serving.memory import Memory
from perfmodel.serving.step import Step


@report.register
def _(step: Step, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the terms of a step, the largest first; for arrays of steps their sums."""
    total = float(np.sum(step.time_s))
    terms = sorted(((name, float(np.sum(value))) for name, value in step.terms_s.items()), key=lambda item: -item[1])
    rows = [
        {"term": name, "time_s": time, "share": time / total, "meaning": MEANINGS[name]} for name, time in terms if time
    ]
    columns = (Column("term"), Column("time_s", "time", "s"), Column("share", unit="fraction"), Column("meaning"))
    interval = {"low_s": float(np.sum(step.low_s)), "high_s": float(np.sum(step.high_s)), "time_s": total}
    return Report("serve", columns, rows, {**interval, **(context or {})}, title="Terms of a step")


@report.register
def _(memory: Memory, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return what the memory of one GPU holds."""
    parts = {
        "weights": memory.weights_bytes,
        "keys and values": memory.kv_bytes,
        **({"states": memory.state_pool_bytes} if memory.state_pool_bytes else {}),
        "activations": memory.activations_bytes,
        "graphs and buffers": memory.workspace_bytes,
    }
    rows: list[dict[str, Any]] = [{"part": name, "bytes": size} for name, size in parts.items()]
    rest = memory.capacity_bytes - sum(parts.values())
    rows.append({"part": "not used by the engine", "bytes": rest})
    notes: tuple[str, ...] = (
        f"{memory.kv_tokens} tokens of keys and values fit; {memory.kv_bytes_token:.0f} B for each over all GPUs "
        "of a copy."
        if memory.kv_bytes_token
        else "No layer keeps keys and values: a sequence takes no more memory as it grows.",
    )
    for window, share in memory.windows:
        where = "All layers" if math.isclose(share, 1.0) else f"Layers with {100 * share:.0f} % of these bytes"
        pool = ", in a pool of their own" if memory.windows_apart else ""
        notes += (f"{where} have a window: they keep the last {window} tokens of a sequence at most{pool}.",)
    if memory.cross_tokens:
        notes += (
            f"The decoder keeps keys and values of the encoder's {memory.cross_tokens} tokens of each sequence: "
            f"{format_binary(memory.sequence_bytes)} on one GPU, as much as "
            f"{memory.sequence_bytes / memory.kv_bytes_token_gpu:.0f} tokens.",
        )
    elif memory.sequence_bytes:
        notes += (
            f"Layers with compressed keys keep {format_binary(memory.sequence_bytes)} of each sequence on one GPU "
            "beside these, however long it is, for the window and for tokens that no key holds yet: as much as "
            f"{memory.sequence_bytes / memory.kv_bytes_token_gpu:.0f} tokens. The new tokens of the largest step take "
            f"{format_binary(memory.step_bytes)} of it first.",
        )
    if memory.state_bytes:
        if memory.state_pool_bytes:
            worth = f"a pool of their own holds those of {memory.most_states:.0f} sequences"
        else:
            worth = f"as much as {memory.state_bytes / memory.kv_bytes_token_gpu:.0f} tokens"
        notes += (
            f"Layers with a state keep {format_binary(memory.state_bytes)} of each sequence on one GPU, however long "
            f"it is: {worth}.",
        )
    facts = {"kv_tokens": memory.kv_tokens, "kv_bytes_token": memory.kv_bytes_token}
    columns = (Column("part"), Column("bytes", "on one GPU", "iB"))
    return Report("serve", columns, rows, {**facts, **(context or {})}, notes, title="Memory of one GPU")


#: columns of a steady state: key, heading, unit
_STEADY = (
    Column("isl"),
    Column("osl"),
    Column("concurrency"),
    Column("batch"),
    *(
        Column(f"{name}{end}", heading if not end else "", unit, shown=not end)
        for name, heading, unit in (("ttft", "TTFT", "s"), ("tpot", "TPOT", "s"))
        for end in ("_s", "_low_s", "_high_s")
    ),
    Column("output_tokens_per_s", "tokens/s"),
    Column("output_tokens_per_s_low", "tokens/s, low", shown=False),
    Column("output_tokens_per_s_high", "tokens/s, high", shown=False),
    Column("tokens_per_s_per_gpu", "a GPU", drop=1),
    Column("tokens_per_s_per_user", "a user", drop=2),
    Column("kv_tokens", "KV tokens", drop=3),
)


@report.register
def _(state: Steady, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return throughput and latency, a row for each load."""
    keys = [column.key for column in _STEADY]
    columns = np.broadcast_arrays(*(np.asarray(getattr(state, key), dtype=np.float64) for key in keys))
    points = zip(*(column.ravel().tolist() for column in columns), strict=True)
    rows = [dict(zip(keys, point, strict=True)) for point in points]
    return Report("serve", _STEADY, rows, context or {}, title="Steady state")


#: attribute, key in the profile, unit, meaning
_FITTED = (
    ("host_s", "host", "s", "time of the host that no kernel hides, a step"),
    ("gap_s", "gap", "s", "idle time between two kernels"),
)
_ENGINE_COLUMNS = (
    Column("constant"),
    Column("before", show_row=lambda row: format_si(row["before"], row["unit"])),
    Column("fitted", show_row=lambda row: format_si(row["fitted"], row["unit"])),
    Column("unit", shown=False),
    Column("identified"),
    Column("meaning", drop=1),
)


def saved(table: Report) -> Report:
    """Return loads, ranked deployments or the constants of an engine that were read from JSON as commands show them."""
    if table.command == "calibrate":
        return with_columns(table, _ENGINE_COLUMNS)
    if {"isl", "ttft_s"} <= {key for row in table.rows for key in row} and "deployment" not in table.rows[0]:
        return with_columns(table, _STEADY)
    return load_report.saved(table)


@report.register
def _(fit: EngineFit, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the fitted constants of an engine beside those before."""
    rows: list[dict[str, Any]] = [
        {
            "constant": key, "before": getattr(fit.before, name), "fitted": getattr(fit.engine, name), "unit": unit,
            "identified": fit.identified[key], "meaning": meaning,
        }
        for name, key, unit, meaning in _FITTED
    ]  # fmt: skip
    rows += [
        {
            "constant": f"hot {kind}", "before": fit.before.hot.get(kind, 1.0), "fitted": value, "unit": "",
            "identified": fit.identified["hot"], "meaning": "products under sustained load, over a benchmark",
        }
        for kind, value in fit.engine.hot.items()
    ]  # fmt: skip
    note = (
        f"mean of |ln(predicted / measured)| of the time of a step on {fit.runs} runs: {fit.error_before:.3f} before, "
        f"{fit.error:.3f} with these constants."
    )
    facts = {"engine": fit.before.name, "runs": fit.runs, "error_before": fit.error_before, "error": fit.error}
    return Report(
        "calibrate", _ENGINE_COLUMNS, rows, {**facts, **(context or {})}, (note,), title="Constants of an engine"
    )
