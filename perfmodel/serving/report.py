"""Reports of steps and of the memory of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perfmodel.core.report import Column, Report, report
from perfmodel.serving import load_report as load_report
from perfmodel.serving.deployment import Step
from perfmodel.serving.meanings import MEANINGS
from perfmodel.serving.memory import Memory


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
        "activations": memory.activations_bytes,
        "graphs and buffers": memory.workspace_bytes,
    }
    rows: list[dict[str, Any]] = [{"part": name, "bytes": size} for name, size in parts.items()]
    rest = memory.capacity_bytes - sum(parts.values())
    rows.append({"part": "not used by the engine", "bytes": rest})
    notes = (
        f"{memory.kv_tokens} tokens of keys and values fit; {memory.kv_bytes_token:.0f} B for each over all GPUs "
        "of a copy.",
    )
    facts = {"kv_tokens": memory.kv_tokens, "kv_bytes_token": memory.kv_bytes_token}
    columns = (Column("part"), Column("bytes", "on one GPU", "iB"))
    return Report("serve", columns, rows, {**facts, **(context or {})}, notes, title="Memory of one GPU")
