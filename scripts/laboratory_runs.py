"""Published runs of laboratories whose runs are not fitted: their tables, kinds of deployments, and how far off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from elsewhere import RunOff

from perfmodel.accuracy.published import PublishedRow
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.engine import find_engine
from perfmodel.serving.laboratories import (
    ELSEWHERE,
    HYBRID,
    INDEXED,
    UNMEASURED,
    UNPROFILED,
    YOUNG,
    elsewhere_of,
)
from perfmodel.serving.published_case import RATE
from perfmodel.workloads.catalog import find_model

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "published"
TABLES: Mapping[str, Path] = {
    kind: FOLDER / f"serving_{kind}.csv" for kind in ("users", "offline", "static", "stream", "arrivals")
}
KINDS = (ELSEWHERE, UNMEASURED, UNPROFILED, YOUNG, HYBRID, INDEXED)


def kind_of(row: PublishedRow) -> str:
    """Return which kind of deployment a run of another laboratory is of; hybrids are one, whatever ran them."""
    version = row.label("engine_version")
    engine = find_engine(row.label("engine"))
    model, machine = find_model(row.label("model")), hardware(row.label("hardware"))
    if model.linear_layers or model.index_heads or model.compressed_layers:
        return HYBRID if model.linear_layers else INDEXED
    latent = model.kv_lora > 0
    return elsewhere_of(machine, engine, version, "", release_known=bool(version), latent=latent).kind


def off_of(row: PublishedRow) -> RunOff:
    """Return how far a figure is off, as a time: a rate that is lower is a time that is longer."""
    off = math.log(row.measured / row.predicted)
    below, above = math.log(row.predicted / row.low), math.log(row.high / row.predicted)
    return RunOff(-off, above, below) if row.quantity == RATE else RunOff(off, below, above)
