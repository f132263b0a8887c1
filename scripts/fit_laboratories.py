"""Find what laboratories differ by in served loads: runs of those whose runs are not fitted (examples/published).

    python scripts/fit_laboratories.py            prints what the intervals hold
    python scripts/fit_laboratories.py --write    writes engine_specs/serving/defaults/laboratories.toml as well

What steps differ by follows from times per token and throughput of batches and of a steady number of users, in which a
step that takes longer shows as it is. What the time to the first token differs by beyond them is found with it. Loads
with random arrivals fit nothing: how far they are off says what the intervals are worth where requests queue.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from elsewhere import Groups, RunOff, Source, Widening, covered, left_out, widening, widths

from perfmodel.accuracy.published import PublishedRow
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.files import write_atomic
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.engine import find_engine
from perfmodel.serving.laboratories import (
    ELSEWHERE,
    HYBRID,
    INDEXED,
    ITSELF,
    UNMEASURED,
    UNPROFILED,
    YOUNG,
    elsewhere_of,
)
from perfmodel.serving.published import judge
from perfmodel.serving.published_case import RATE, TTFT
from perfmodel.workloads.catalog import find_model

ROOT = Path(__file__).resolve().parents[1]
TABLES = {kind: ROOT / "examples" / "published" / f"serving_{kind}.csv"
          for kind in ("users", "offline", "static", "stream", "arrivals")}  # fmt: skip
FILE = ROOT / "engine_specs" / "serving" / "defaults" / "laboratories.toml"
#: whose runs are fitted, as the beginning of their sources, and the vendors of their machines
NAMES = (
    "ai-dynamo/aiconfigurator", "TensorRT-LLM perf-overview", "NVIDIA/TensorRT-LLM docs perf-overview",
    "InternLM/lmdeploy docs", "casys-kaist/LLMServingSim",
)  # fmt: skip
VENDORS = ("NVIDIA",)
KINDS = (ELSEWHERE, UNMEASURED, UNPROFILED, YOUNG, HYBRID, INDEXED)
#: the quantities: steps show in all but the first
QUANTITIES = ("time per token", "throughput", "time to the first token")


class Judged(NamedTuple):
    """A figure of a run: its load, source, kind of deployment, and how far it is off without laboratories."""

    load: str
    source: Source
    kind: str
    quantity: str
    run: RunOff


def read() -> list[Judged]:
    """Return all figures, predicted as if a laboratory had run them whose runs are fitted."""
    found = []
    for load, path in TABLES.items():
        table = read_run_table(path)
        sources = {run.place: run.text("source") for run in table.runs}
        engines = {run.place: run.text("engine") for run in table.runs}
        runs = tuple(dataclasses.replace(run, cells={**run.cells, "source": ITSELF}) for run in table.runs)
        for row in judge(dataclasses.replace(table, runs=runs), hardware).rows:
            source = (sources[row.place], row.label("hardware"), engines[row.place])
            quantity = QUANTITIES[2 if row.quantity == TTFT else 1 if row.quantity == RATE else 0]
            found.append(Judged(load, source, kind_of(row), quantity, off_of(row)))
    return found


def kind_of(row: PublishedRow) -> str:
    """Return which kind of deployment a run of another laboratory is of; hybrids are one, whatever ran them."""
    version = row.label("engine_version")
    engine = find_engine(row.label("engine"))
    model, machine = find_model(row.label("model")), hardware(row.label("hardware"))
    if model.linear_layers or model.index_heads:
        return HYBRID if model.linear_layers else INDEXED
    latent = model.kv_lora > 0
    return elsewhere_of(machine, engine, version, "", release_known=bool(version), latent=latent).kind


def off_of(row: PublishedRow) -> RunOff:
    """Return how far a figure is off, as a time: a rate that is lower is a time that is longer."""
    off = math.log(row.measured / row.predicted)
    below, above = math.log(row.predicted / row.low), math.log(row.high / row.predicted)
    return RunOff(-off, above, below) if row.quantity == RATE else RunOff(off, below, above)


def groups(found: list[Judged], kind: str, *, first: bool, arrivals: bool = False) -> dict[Source, list[RunOff]]:
    """Return the figures of a kind by source: times to the first token, or all others."""
    chosen: dict[Source, list[RunOff]] = {}
    for one in found:
        if one.kind == kind and (one.quantity == QUANTITIES[2]) is first and (one.load == "arrivals") is arrivals:
            chosen.setdefault(one.source, []).append(one.run)
    return chosen


def with_steps(runs: Groups, steps: Widening) -> dict[Source, list[RunOff]]:
    """Return the figures with intervals that count what steps differ by."""
    return {
        source: [RunOff(run.off, math.hypot(run.down, steps.down), math.hypot(run.up, steps.up)) for run in kept]
        for source, kept in runs.items()
    }


class Fitted(NamedTuple):
    """What a kind of deployments differs by in steps, and beyond them in the time to the first token."""

    step: Widening
    first: Widening


def fit(found: list[Judged]) -> dict[str, Fitted]:
    """Return what each kind of deployments differs by."""
    steps = {kind: widening(groups(found, kind, first=False)) for kind in KINDS}
    first = {kind: with_steps(groups(found, kind, first=True), step) for kind, step in steps.items()}
    # Few sources print times to the first token of the other kinds, so that all of them tell of these. Those of
    # hybrids, a third of which take four times as long as predicted, and of an indexer tell of their own kind alone.
    every = {
        kind: widening({
            (*source, other): runs
            for other, sources in first.items() if other not in (HYBRID, INDEXED) or other == kind
            for source, runs in sources.items()
        })
        for kind in KINDS
    }  # fmt: skip
    return {kind: Fitted(steps[kind], widening(first[kind]) if kind == ELSEWHERE else every[kind]) for kind in KINDS}


def text(fitted: dict[str, Fitted], date: str) -> str:
    """Return the file."""

    def spans(name: str) -> list[str]:
        ends = {kind: getattr(one, name) for kind, one in fitted.items()}
        return [f"[{name}]", *(f"{kind} = {{ low = {by.low:.3f}, high = {by.high:.3f} }}" for kind, by in ends.items())]

    source = "examples/published/serving_{}.csv, a tenth of each source's figures beyond either end in the mean"
    lines = [
        "# What laboratories differ by in served loads. scripts/fit_laboratories.py --write writes this file.",
        "",
        f"names = {msgspec.json.encode(NAMES).decode()}",
        f"vendors = {msgspec.json.encode(VENDORS).decode()}",
        f'date = "{date}"',
        "",
        *spans("step"),
        "",
        *spans("first"),
        "",
        "[sources]",
        'names = "the sources of the tables that constants of engines were fitted on"',
        f'step = "times per token and throughput in {source.format("users, offline, static, stream")}"',
        f'first = "times to the first token in {source.format("users, static, stream")}, beyond what steps differ by"',
        "",
    ]
    return "\n".join(lines)


def markdown(found: list[Judged], fitted: dict[str, Fitted]) -> str:
    """Return what the intervals hold: those of laboratories that were fitted, and with what others differ by."""
    lines = [
        "| deployments | figures | n | groups | mean | median | bias | of a laboratory fitted | inside | width | "
        "each source left out |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    titles = {
        ELSEWHERE: "releases measured, NVIDIA",
        UNMEASURED: "older or unknown releases, AMD",
        UNPROFILED: "engines without a profile",
        YOUNG: "first releases with latent attention",
        HYBRID: "models whose layers keep a state",
        INDEXED: "models with sparse attention",
    }
    for kind, by in fitted.items():
        for load in ("steps", "first token", "arrivals: rate, time per token", "arrivals: first token"):
            first, arrivals = "first token" in load, load.startswith("arrivals")
            runs = groups(found, kind, first=first, arrivals=arrivals)
            if not runs:
                continue
            wider = with_steps(runs, by.step) if first else runs
            more = by.first if first else by.step
            lines.append(f"| {titles[kind]} | {load} | {_cells(runs, wider, more, judged=arrivals)} |")
    return "\n".join(lines)


def _cells(runs: Groups, wider: Groups, by: Widening, *, judged: bool) -> str:
    """Return the figures of a line; loads that fit nothing have no source to leave out."""
    count = {source: len(kept) for source, kept in runs.items()}
    total = sum(count.values())

    def share(inside: dict[Source, float]) -> str:
        return f"{sum(inside[source] * rows for source, rows in count.items()) / total:.0%}"

    ratio = np.exp([-run.off for kept in runs.values() for run in kept])
    off = np.abs(ratio - 1.0)
    return " | ".join((
        f"{total}", f"{len(runs)}", f"{np.mean(off):.0%}", f"{np.median(off):.0%}", f"{np.median(ratio - 1.0):+.0%}",
        share(covered(runs, Widening(0.0, 0.0))), share(covered(wider, by)), f"{np.median(widths(wider, by)):.2f}",
        "-" if judged else share(left_out(wider)),
    ))  # fmt: skip


def page() -> str:
    """Return the table of docs/accuracy.md."""
    found = read()
    return markdown(found, fit(found))


def main() -> None:
    """Fit, print, and write the file where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the file")
    options = parser.parse_args()
    found = read()
    fitted = fit(found)
    print(markdown(found, fitted))
    for kind, one in fitted.items():
        step, first = one
        print(f"{kind}: steps {step.low:.3f} to {step.high:.3f}, first {first.low:.3f} to {first.high:.3f}")
    if options.write:
        write_atomic(FILE, text(fitted, str(np.datetime64("today"))))


if __name__ == "__main__":
    main()
