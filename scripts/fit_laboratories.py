"""Find what laboratories differ by in served loads: runs of those whose runs are not fitted (examples/published).

    python scripts/fit_laboratories.py            prints what the intervals hold
    python scripts/fit_laboratories.py --write    writes engine_specs/serving/defaults/laboratories.toml as well

What steps differ by follows from times per token and throughput of batches and of a steady number of users, in which a
step that takes longer shows as it is. What the time to the first token differs by beyond them is found with it, and
what those of several users, whose prompts meet, differ by beyond that. What all differ by beyond that where requests
arrive at random, or all at once, is found after it (`open_loops`).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import open_loops
from elsewhere import Groups, RunOff, Source, Widening, covered, left_out, widening, widths
from laboratory_runs import KINDS, TABLES, kind_of, off_of
from open_loops import Open, OpenRun

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.files import write_atomic
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.laboratories import (
    ELSEWHERE,
    HYBRID,
    INDEXED,
    ITSELF,
    UNMEASURED,
    UNPROFILED,
    YOUNG,
    Laboratories,
    Span,
    laboratories,
)
from perfmodel.serving.published import judge
from perfmodel.serving.published_case import RATE, TTFT

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "engine_specs" / "serving" / "defaults" / "laboratories.toml"
#: whose runs are fitted, as the beginning of their sources, and the vendors of their machines
NAMES = (
    "ai-dynamo/aiconfigurator", "TensorRT-LLM perf-overview", "NVIDIA/TensorRT-LLM docs perf-overview",
    "InternLM/lmdeploy docs", "casys-kaist/LLMServingSim",
)  # fmt: skip
VENDORS = ("NVIDIA",)
#: whether requests arrive all at once -> what the file calls it, and the table
OPEN, LOADS = {False: "open", True: "burst"}, {False: "arrivals", True: "all at once"}
#: runs of more users than one
SEVERAL_USERS = "several users"
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
        bursts = {run.place for run in table.runs if run.text("qps") == "inf"}
        several = {run.place for run in table.runs if run.number("concurrency") > 1}
        runs = tuple(dataclasses.replace(run, cells={**run.cells, "source": ITSELF}) for run in table.runs)
        for row in judge(dataclasses.replace(table, runs=runs), hardware).rows:
            source = (sources[row.place], row.label("hardware"), engines[row.place])
            quantity = QUANTITIES[2 if row.quantity == TTFT else 1 if row.quantity == RATE else 0]
            kept = LOADS[row.place in bursts] if load == "arrivals" else SEVERAL_USERS if row.place in several else load
            found.append(Judged(kept, source, kind_of(row), quantity, off_of(row)))
    return found


def groups(found: list[Judged], kind: str, *, first: bool, load: str = "") -> dict[Source, list[RunOff]]:
    """Return the figures of a kind by source: times to the first token, or all others, of a load or those without.

    Loads of their own are those of `LOADS`, and `SEVERAL_USERS` for times to the first token.
    """
    own = (*LOADS.values(), SEVERAL_USERS) if first else tuple(LOADS.values())
    chosen: dict[Source, list[RunOff]] = {}
    for one in found:
        if (
            one.kind == kind
            and (one.quantity == QUANTITIES[2]) is first
            and load == (one.load if one.load in own else "")
        ):
            chosen.setdefault(one.source, []).append(one.run)
    return chosen


def with_steps(runs: Groups, steps: Widening) -> dict[Source, list[RunOff]]:
    """Return the figures with intervals that count what steps differ by."""
    return {
        source: [RunOff(run.off, math.hypot(run.down, steps.down), math.hypot(run.up, steps.up)) for run in kept]
        for source, kept in runs.items()
    }


class Fitted(NamedTuple):
    """What a kind of deployments differs by in steps, beyond them in first tokens, and in those of several users."""

    step: Widening
    first: Widening
    loaded_first: Widening


def fit(found: list[Judged]) -> dict[str, Fitted]:
    """Return what each kind of deployments differs by."""
    steps = {kind: widening(groups(found, kind, first=False)) for kind in KINDS}
    first = _beyond({kind: with_steps(groups(found, kind, first=True), step) for kind, step in steps.items()})
    loaded = _beyond({kind: several(found, kind, steps[kind], first[kind]) for kind in KINDS})
    return {kind: Fitted(steps[kind], first[kind], loaded[kind]) for kind in KINDS}


def several(found: list[Judged], kind: str, step: Widening, first: Widening) -> dict[Source, list[RunOff]]:
    """Return first tokens of several users with intervals that count what steps and those of one differ by."""
    return with_steps(with_steps(groups(found, kind, first=True, load=SEVERAL_USERS), step), first)


def _beyond(runs: dict[str, dict[Source, list[RunOff]]]) -> dict[str, Widening]:
    """Return what times to the first token differ by beyond the intervals that they have.

    Where few sources of a kind print these, all of them tell of it, too: it takes the wider of what they ask for and of
    its own at each end. Those of hybrids, a third of which take four times as long as predicted, and of an indexer tell
    of their own kind alone.
    """
    every = {
        kind: {
            (*source, other): kept
            for other, sources in runs.items() if other not in (HYBRID, INDEXED) or other == kind
            for source, kept in sources.items()
        }
        for kind, own in runs.items() if len(own) < open_loops.LEAST
    }  # fmt: skip
    return {kind: _wider(widening(own), widening(every.get(kind, own))) for kind, own in runs.items()}


def _wider(one: Widening, other: Widening) -> Widening:
    return Widening(max(one.down, other.down), max(one.up, other.up))


def with_fitted(fitted: dict[str, Fitted]) -> Laboratories:
    """Return the shipped file's contents with what was found of loads without random arrivals."""
    names = Fitted._fields
    spans = {name: {kind: _span(getattr(by, name)) for kind, by in fitted.items()} for name in names}
    return msgspec.structs.replace(laboratories(), **spans)


def _span(by: Widening) -> Span:
    return Span(round(by.low, 3), round(by.high, 3))


def text(fitted: dict[str, Fitted], opened: dict[bool, dict[str, Open]], date: str) -> str:
    """Return the file."""

    def spans(name: str, ends: dict[str, Widening]) -> list[str]:
        return [
            f"[{name}]", *(f"{kind} = {{ low = {by.low:.3f}, high = {by.high:.3f} }}" for kind, by in ends.items()), "",
        ]  # fmt: skip

    source = "examples/published/serving_{}.csv, a tenth of each source's figures beyond either end in the mean"
    arrivals = source.format("arrivals").replace("each source's", "each group's")
    lines = [
        "# What laboratories differ by in served loads. scripts/fit_laboratories.py --write writes this file.",
        "",
        f"names = {msgspec.json.encode(NAMES).decode()}",
        f"vendors = {msgspec.json.encode(VENDORS).decode()}",
        f'date = "{date}"',
        "",
        *spans("step", {kind: by.step for kind, by in fitted.items()}),
        *spans("first", {kind: by.first for kind, by in fitted.items()}),
        *spans("loaded_first", {kind: by.loaded_first for kind, by in fitted.items()}),
        *(
            line
            for at_once, name in OPEN.items() for part in ("step", "first")
            for line in spans(f"{name}_{part}", {kind: getattr(by, part) for kind, by in opened[at_once].items()})
        ),
        "[sources]",
        'names = "the sources of the tables that constants of engines were fitted on"',
        f'step = "times per token and throughput in {source.format("users, offline, static, stream")}"',
        f'first = "times to the first token of one user in {source.format("users, static, stream")}, beyond what steps '
        'differ by"',
        'loaded_first = "the same of several users, beyond those"',
        f'open_step = "times per token and throughput in {arrivals}, with steps of that span simulated"',
        f'open_first = "times to the first token in {arrivals}, beyond what steps differ by"',
        'burst_step = "the same of requests that arrive all at once"',
        'burst_first = "the same of requests that arrive all at once"',
        "",
    ]  # fmt: skip
    return "\n".join(lines)


TITLES = {
    ELSEWHERE: "releases measured, NVIDIA",
    UNMEASURED: "older or unknown releases, AMD",
    UNPROFILED: "engines without a profile",
    YOUNG: "first releases with latent attention",
    HYBRID: "models whose layers keep a state",
    INDEXED: "models with sparse attention",
}


def markdown(found: list[Judged], fitted: dict[str, Fitted], arrivals: list[OpenRun]) -> str:
    """Return what the intervals hold: those of laboratories that were fitted, and with what others differ by."""
    lines = [
        "| deployments | figures | n | groups | mean | median | bias | of a laboratory fitted | inside | width | "
        "each source left out |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, by in fitted.items():
        for load, first in (("steps", False), ("first token", True)):
            runs = groups(found, kind, first=first)
            wider = with_steps(runs, by.step) if first else runs
            if runs:
                cells = _cells(runs, wider, by.first if first else by.step)
                out = _weighted(left_out(wider), runs)
                lines.append(f"| {TITLES[kind]} | {load} | {cells} | {out:.0%} |")
        alone = with_steps(groups(found, kind, first=True, load=SEVERAL_USERS), by.step)
        if alone:
            cells = _cells(
                groups(found, kind, first=True, load=SEVERAL_USERS), with_steps(alone, by.first), by.loaded_first
            )
            out = _weighted(left_out(with_steps(alone, by.first)), alone)
            lines.append(f"| {TITLES[kind]} | first token, {SEVERAL_USERS} | {cells} | {out:.0%} |")
        lines += open_lines(found, kind, arrivals)
    return "\n".join(lines)


def open_lines(found: list[Judged], kind: str, arrivals: list[OpenRun]) -> list[str]:
    """Return the lines of a kind's runs whose requests wait for no other."""
    lines = []
    for at_once, load in LOADS.items():
        every = [run for run in arrivals if run.at_once is at_once]
        by = open_loops.fit(every)[kind]
        for figures, first in (("rate, time per token", False), ("first token", True)):
            runs = groups(found, kind, first=first, load=load)
            own = [run for run in every if run.kind == kind and run.first is first]
            if runs:
                cells = _cells(runs, open_loops.groups(own, by.step), by.first if first else Widening(0.0, 0.0))
                out = open_loops.left_out(every, first=first)[kind][0]
                lines.append(f"| {TITLES[kind]} | {load}: {figures} | {cells} | {out:.0%} |")
    return lines


def _cells(runs: Groups, wider: Groups, by: Widening) -> str:
    """Return the figures of a line: runs without what laboratories differ by, and with a part of it, and ``by``."""
    offs = [run.off for kept in runs.values() for run in kept]
    ratio = np.exp(np.negative(offs))
    off = np.abs(ratio - 1.0)
    return " | ".join((
        f"{len(offs)}", f"{len(wider)}", f"{np.mean(off):.0%}", f"{np.median(off):.0%}",
        f"{np.median(ratio - 1.0):+.0%}",
        f"{_weighted(covered(runs, Widening(0.0, 0.0)), runs):.0%}", f"{_weighted(covered(wider, by), wider):.0%}",
        f"{np.median(widths(wider, by)):.2f}",
    ))  # fmt: skip


def _weighted(inside: dict[Source, float], runs: Groups) -> float:
    """Return the share of all figures inside from that of each group."""
    count = {source: len(kept) for source, kept in runs.items()}
    return sum(inside[source] * rows for source, rows in count.items()) / sum(count.values())


def page() -> str:
    """Return the table of docs/accuracy.md."""
    found = read()
    fitted = fit(found)
    return markdown(found, fitted, open_loops.read(with_fitted(fitted)))


def main() -> None:
    """Fit, print, and write the file where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the file")
    options = parser.parse_args()
    found = read()
    fitted = fit(found)
    arrivals = open_loops.read(with_fitted(fitted))
    opened = {at_once: open_loops.fit([run for run in arrivals if run.at_once is at_once]) for at_once in LOADS}
    print(markdown(found, fitted, arrivals))
    for kind, one in fitted.items():
        spans = {"others": (one.step, one.first), SEVERAL_USERS: (one.step, one.loaded_first)}
        spans |= {load: (opened[at_once][kind].step, opened[at_once][kind].first) for at_once, load in LOADS.items()}
        for loads, (step, first) in spans.items():
            ends = step.low, step.high, first.low, first.high
            print("{}, {}: steps {:.3f} to {:.3f}, first {:.3f} to {:.3f}".format(kind, loads, *ends))
    if options.write:
        write_atomic(FILE, text(fitted, opened, str(np.datetime64("today"))))


if __name__ == "__main__":
    main()
