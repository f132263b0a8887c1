"""Kernels that other people published, predicted with nothing fitted on their rows.

    python scripts/published_kernels.py

Reads ``examples/published/kernels.csv``; the README beside it names the sources. Rows that are flagged, whose inputs
are all alike, are judged apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import perfmodel as pm
from perfmodel.accuracy.judge import JudgedCalls, judge_calls
from perfmodel.records.measurements import read_measurements

TABLE = Path(__file__).parents[1] / "examples" / "published" / "kernels.csv"
HEAD = ("source", "machine", "kernel", "library", "rows", "error", "bias", "in the interval", "width")


def judged() -> tuple[JudgedCalls, ...]:
    """Return all rows of the table beside their predictions, flagged ones too."""
    parts, skipped = judge_calls([read_measurements(TABLE)], pm.hardware, flagged=True)
    if skipped:
        raise SystemExit(f"{TABLE}: {skipped[0]}")
    return parts


def lines(parts: Iterable[JudgedCalls]) -> list[list[str]]:
    """Return a line for each source, machine, operator and library, and two for all that are and are not flagged."""
    groups: dict[tuple[str, ...], list[JudgedCalls]] = defaultdict(list)
    for part in parts:
        calls = part.calls
        kernel = calls.op.op + (" backward" if calls.op.params().get("backward") else "")
        groups[calls.source, part.hardware.name, kernel, calls.library].append(part)
    every = [part for group in groups.values() for part in group]
    doubted = [part for part in every if (part.calls.flags != "").all()]
    others = [part for part in every if not (part.calls.flags != "").any()]
    made = [[*key, *_figures(group)] for key, group in sorted(groups.items())]
    return [
        *made,
        ["all, numbers alike", "all", "all", "all", *_figures(doubted)],
        ["all others", "all", "all", "all", *_figures(others)],
    ]


def _figures(parts: Sequence[JudgedCalls]) -> list[str]:
    measured, predicted, low, high = (
        np.concatenate(values)
        for values in zip(
            *((part.calls.time_s, part.predicted_s, part.low_s, part.high_s) for part in parts), strict=True
        )
    )
    error, inside = predicted / measured - 1.0, (low <= measured) & (measured <= high)
    return [
        f"{error.size}", f"{100.0 * np.mean(abs(error)):.1f} %", f"{100.0 * np.mean(error):+.1f} %",
        f"{100.0 * np.mean(inside):.0f} %", f"{np.median(high / low):.2f}",
    ]  # fmt: skip


def main() -> int:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for line in [list(HEAD), *lines(judged())]:
        print(" | ".join(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
