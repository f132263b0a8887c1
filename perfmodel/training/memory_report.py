"""The memory of a training step as a report: the first, the fullest and the last GPU of a pipeline, part by part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_binary
from perfmodel.training.constants import constants
from perfmodel.training.memory_result import PARTS, Memory, StageMemory
from perfmodel.training.unmeasured import MEMORY

MEMORY_TITLE = "Memory of a GPU at its peak"
#: what each part of memory is, for people
MEANING = {
    "weights": "parameters that stay",
    "gradients": "between the micro batches",
    "optimizer": "master weights and moments",
    "copies": "of whole weights, cast to the products' dtype",
    "gathered": "sharded weights in use",
    "activations": "kept for backward",
    "logits": "of the head, and the loss",
    "temporary": "computed anew, gradients of activations",
    "communication": "staged by exchanges",
    "pools": "reserved for other streams",
}


@report.register
def _(memory: Memory, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the memory of the first, the fullest and the last GPU of a pipeline, part by part."""
    peak = memory.peak
    shown: dict[str, StageMemory] = {"first": memory.stages[0]}
    if len(memory.stages) > 1:
        shown["last"] = memory.stages[-1]
        if peak.stage not in (0, len(memory.stages) - 1):
            shown["fullest"] = peak
    rows: list[dict[str, Any]] = [
        {"part": part, "what": MEANING[part], **{name: stage.parts[part] for name, stage in shown.items()}}
        for part in PARTS
        if any(stage.parts[part] > 0 for stage in memory.stages)
    ]
    rows.append({"part": "total", "what": "", **{name: stage.total_bytes for name, stage in shown.items()}})
    columns = memory_columns({name: f"stage {stage.stage}" for name, stage in shown.items()})
    moments = ", ".join(f"stage {stage.stage}: {stage.moment}" for stage in shown.values())
    printed = constants().intervals[MEMORY]
    wanted = format_binary(peak.pools_bytes)
    cut = f"Pools have what is left of the GPU: they are given back when memory runs out, and would hold {wanted} else."
    notes = (
        *([cut] if peak.wanted_bytes > peak.total_bytes else []),
        *_host_notes(memory),
        f"A GPU has {format_binary(memory.capacity_bytes)}. Moment of the peak: {moments}. On the fullest GPU "
        f"{format_binary(memory.low_bytes)} live, and up to {format_binary(memory.high_bytes)} are reserved with "
        f"fragmentation of {memory.fragmentation:.0%}.",
        f"Other laboratories print {printed.low:.2f} to {printed.high:.2f} times as much for their runs: peaks of the "
        "allocator, or the whole device's memory in use, and code of their own.",
    )
    return Report("train", columns, rows, context or {}, notes, MEMORY_TITLE)


def memory_columns(stages: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of the memory of some stages, by their headings."""
    return (
        Column("part"),
        *(Column(name, heading, "iB") for name, heading in stages.items()),
        Column("what", "is", drop=1),
    )


def _host_notes(memory: Memory) -> list[str]:
    """Return what lives on a host, and whether it has the memory."""
    if not memory.host_bytes:
        return []
    sharing = memory.sharing_host
    parts = ", ".join(f"{part} {format_binary(sharing * size)}" for part, size in memory.host_parts.items())
    has = sharing * memory.host_capacity_bytes
    if math.isinf(has):
        room = "Nobody stated its memory: --host-memory does."
    elif memory.host_fits:
        room = f"It has {format_binary(has)}."
    else:
        room = f"It has {format_binary(has)}, which is too little. Use more hosts, or a smaller --offload-fraction."
    gpus = "a GPU" if sharing == 1 else f"{sharing} GPUs"
    return [f"On the host of {gpus}, pinned: {parts}, together {format_binary(memory.host_bytes)}. {room}"]
