"""Kernels that other people published, predicted with nothing fitted on their rows.

    python scripts/published_kernels.py

Reads ``examples/published/kernels.csv``; the README beside it names the sources. Rows that are flagged, whose inputs
are all alike, are judged apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from beside import Beside, figures

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
    groups: dict[tuple[str, ...], list[Beside]] = defaultdict(list)
    alike: list[Beside] = []
    others: list[Beside] = []
    for part in parts:
        calls = part.calls
        kernel = calls.op.op + (" backward" if calls.op.params().get("backward") else "")
        rows = _rows(part)
        groups[calls.source, part.hardware.name, kernel, calls.library] += rows
        for row, flag in zip(rows, calls.flags, strict=True):
            (alike if flag else others).append(row)
    made = [[*key, *figures(group)] for key, group in sorted(groups.items())]
    everywhere = ["all"] * 3
    return [
        *made,
        ["all, numbers alike", *everywhere, *figures(alike)],
        ["all others", *everywhere, *figures(others)],
    ]


def _rows(part: JudgedCalls) -> list[Beside]:
    columns = (part.calls.time_s, part.predicted_s, part.low_s, part.high_s)
    return [
        Beside(measured_s=measured, predicted_s=predicted, low_s=low, high_s=high)
        for measured, predicted, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]


def main() -> int:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for line in [list(HEAD), *lines(judged())]:
        print(" | ".join(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
