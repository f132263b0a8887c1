"""What runs whose requests wait for no other differ by in other laboratories, beyond what steps do.

A server of less capacity than predicted lets requests queue. What steps differ by beyond those of other loads, the
simulation shows: the least span of their times is taken with which a tenth of a group's times per token and rates lies
beyond each end in the mean. What the time to the first token differs by is found beyond that, as in `elsewhere`.
Requests at random times and requests all at once are loads of their own. A group is what one laboratory ran on one
machine with one engine; each laboratory is left out as a whole, with all of its sources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
from elsewhere import OUTSIDE, RunOff, Source, Widening, covered, widening
from laboratory_runs import TABLES, kind_of, off_of
from numpy.typing import NDArray

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.hardware_catalog import hardware
from perfmodel.serving import laboratories as shipped
from perfmodel.serving.laboratories import Laboratories, Span
from perfmodel.serving.published import judge
from perfmodel.serving.published_case import TTFT

#: spans of steps with which the runs are predicted: between them the ends of a run lie on straight lines of logarithms
SPANS = ((1.0, 1.0), (0.85, 1.4), (0.7, 2.0), (0.55, 3.0), (0.4, 4.5))
_DOWN, _UP = (np.array([sign * math.log(span[end]) for span in SPANS]) for end, sign in ((0, -1.0), (1, 1.0)))
#: step of the search, ln of a ratio
STEP = 0.02
#: laboratories of which several sources are: the beginnings of their names
SEVERAL = ("gpustack-", "dstack-", "sgl-cookbook-", "djangodevreng-")
#: laboratories that a kind has to have for a span of its own, and the share of figures inside that asks for none
LEAST, ENOUGH = 10, 0.75

Ends = NDArray[np.float64]


class OpenRun(NamedTuple):
    """A figure of a run whose requests arrive whether or not others have ended.

    Attributes
    ----------
    laboratory : who ran it; the first word of the sources of those who have several.
    machine, engine : on what.
    kind : of the deployment.
    at_once : whether all requests arrive at once.
    first : whether it is a time to the first token.
    off : ln(measured / predicted) as a time.
    downs, ups : how far the interval reaches with each of `SPANS`.
    """

    laboratory: str
    machine: str
    engine: str
    kind: str
    at_once: bool
    first: bool
    off: float
    downs: Ends
    ups: Ends

    @property
    def group(self) -> Source:
        """What counts once."""
        return self.laboratory, self.machine, self.engine

    def at(self, steps: Widening) -> RunOff:
        """Return the figure with the interval that a span of steps gives."""
        down, up = np.interp(steps.down, _DOWN, self.downs), np.interp(steps.up, _UP, self.ups)
        return RunOff(self.off, float(down), float(up))


class Open(NamedTuple):
    """What open loops differ by: in steps, and beyond them in the time to the first token."""

    step: Widening = Widening(0.0, 0.0)
    first: Widening = Widening(0.0, 0.0)


def read(known: Laboratories) -> list[OpenRun]:
    """Return all figures of such runs, with what ``known`` says of other loads."""
    table = read_run_table(TABLES["arrivals"])
    cells = {run.place: (run.text("source"), run.text("engine"), run.text("qps") == "inf") for run in table.runs}
    none = dict.fromkeys(known.step, Span(1.0, 1.0))
    found = []
    for low, high in SPANS:
        open_step = dict.fromkeys(known.step, Span(low, high))
        changed = msgspec.structs.replace(
            known, open_step=open_step, open_first=none, burst_step=open_step, burst_first=none
        )
        with patch.object(shipped, "laboratories", lambda changed=changed: changed):
            found.append(judge(table, hardware).rows)
    runs = []
    for rows in zip(*found, strict=True):
        source, engine, at_once = cells[rows[0].place]
        ends = [off_of(row) for row in rows]
        runs.append(OpenRun(
            laboratory_of(source), rows[0].label("hardware"), engine, kind_of(rows[0]), at_once,
            rows[0].quantity == TTFT, ends[0].off,
            np.array([run.down for run in ends]), np.array([run.up for run in ends]),
        ))  # fmt: skip
    return runs


def laboratory_of(source: str) -> str:
    """Return who a source is of.

    >>> laboratory_of("gpustack-glm46-h200"), laboratory_of("nerdalert-l40s")
    ('gpustack', 'nerdalert-l40s')
    """
    return next((name.rstrip("-") for name in SEVERAL if source.startswith(name)), source)


def fit(runs: Sequence[OpenRun]) -> dict[str, Open]:
    """Return what such runs of each kind of deployments differ by: those at random times, or all at once.

    Kinds of which few laboratories tell take what all runs ask for, and none where most figures lie inside without it.
    Those of hybrids and of models with an indexer tell of their own kind alone.
    """
    found = {}
    for kind in shipped.laboratories().step:
        own = [run for run in runs if run.kind == kind]
        if len({run.laboratory for run in own}) >= LEAST:
            found[kind] = fitted(own)
        else:
            inside = sum(share(part, Open(), first=first) * len(part) for first, part in _apart(own).items())
            every = [run for run in runs if run.kind not in (shipped.HYBRID, shipped.INDEXED) or run.kind == kind]
            found[kind] = Open() if inside >= ENOUGH * len(own) else fitted(every)
    return found


def _apart(runs: Sequence[OpenRun]) -> dict[bool, list[OpenRun]]:
    """Return times to the first token apart from all other figures."""
    return {first: [run for run in runs if run.first is first] for first in (False, True)}


def fitted(runs: Sequence[OpenRun]) -> Open:
    """Return the least spans with which each end leaves out a tenth of the figures of a group in the mean."""
    step = Widening(*(_span([run for run in runs if not run.first], sign) for sign in (-1.0, 1.0)))
    first = groups([run for run in runs if run.first], step)
    return Open(step, widening(first) if first else Widening(0.0, 0.0))


def _span(runs: Sequence[OpenRun], sign: float) -> float:
    """Return the least span of steps to one side, at most the widest of `SPANS`."""
    widths = np.arange(0.0, (_UP if sign > 0 else _DOWN)[-1], STEP)
    apart: dict[Source, list[NDArray[np.bool_]]] = {}
    for run in runs:
        reach = np.interp(widths, *((_UP, run.ups) if sign > 0 else (_DOWN, run.downs)))
        apart.setdefault(run.group, []).append(sign * run.off > reach)
    if not apart:
        return 0.0
    outside = np.mean([np.mean(kept, axis=0) for kept in apart.values()], axis=0)
    return float(next((width for width, out in zip(widths, outside, strict=True) if out <= OUTSIDE), widths[-1]))


def groups(runs: Sequence[OpenRun], step: Widening) -> dict[Source, list[RunOff]]:
    """Return figures by group, with the intervals that a span of steps gives."""
    found: dict[Source, list[RunOff]] = {}
    for run in runs:
        found.setdefault(run.group, []).append(run.at(step))
    return found


def share(runs: Sequence[OpenRun], by: Open, *, first: bool) -> float:
    """Return the share of figures inside: times to the first token, or all others; 1 of none."""
    chosen = groups([run for run in runs if run.first is first], by.step)
    inside = covered(chosen, by.first if first else Widening(0.0, 0.0))
    count = sum(len(kept) for kept in chosen.values())
    return sum(inside[group] * len(kept) for group, kept in chosen.items()) / count if count else 1.0


def left_out(runs: Sequence[OpenRun], *, first: bool) -> dict[str, tuple[float, float]]:
    """Return by kind how many figures lie inside what all laboratories but theirs ask for.

    The share of all figures of the kind, and the mean of its laboratories' shares.
    """
    inside: dict[str, dict[str, tuple[float, int]]] = {}
    for laboratory in sorted({run.laboratory for run in runs}):
        found = fit([run for run in runs if run.laboratory != laboratory])
        for kind, by in found.items():
            own = [run for run in runs if run.laboratory == laboratory and run.kind == kind and run.first is first]
            if own:
                inside.setdefault(kind, {})[laboratory] = share(own, by, first=first), len(own)
    return {
        kind: (
            sum(part * rows for part, rows in shares.values()) / sum(rows for _, rows in shares.values()),
            float(np.mean([part for part, _ in shares.values()])),
        )
        for kind, shares in inside.items()
    }
