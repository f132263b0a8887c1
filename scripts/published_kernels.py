"""Kernels that other people published, predicted with nothing fitted on their rows.

    python scripts/published_kernels.py

Reads ``kernels.csv``, ``second.csv`` to ``eighteenth.csv`` and ``between_nodes.csv`` of
``examples/published``; the README beside them names the sources. Rows that are flagged, whose inputs are all alike or
whose clocks were locked, are judged apart. Exchanges between nodes of all tables have a table of their own, too,
without flagged ones.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from beside import Beside, figures

import perfmodel as pm
from perfmodel.accuracy.between_nodes import crossing_rows
from perfmodel.accuracy.judge import JudgedCalls, judge_calls
from perfmodel.records.measurements import read_measurements

FOLDER = Path(__file__).parents[1] / "examples" / "published"
TABLE = FOLDER / "kernels.csv"
#: what was gathered after that, one batch after another
_NAMES = (
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
)
BATCHES = {name: FOLDER / f"{name}.csv" for name in _NAMES}
BETWEEN_NODES = FOLDER / "between_nodes.csv"
#: batch -> sources, and what was found at first sight: commit, mean error, median, rows inside, width, and the roofline
FIRST_SIGHT = {
    "first": ("15", "", "33.7 %", "-", "60 %", "1.68", "-"),
    "second": ("71", "8dc31a2", "26.5 %", "11.5 %", "78 %", "1.96", "43 %"),
    "third": ("29", "825c132", "28.5 %", "22.3 %", "62 %", "2.32", "54 %"),
    "fourth": ("27", "689beae", "22.6 %", "9.9 %", "75 %", "1.96", "37.5 %"),
    "fifth": ("38", "80faf614", "38.2 %", "21.4 %", "73 %", "2.09", "60 %"),
    "sixth": ("89", "69d6dfb9", "31.2 %", "21.5 %", "79 %", "3.22", "62 %"),
    "seventh": ("117", "d347f902", "22.4 %", "14.8 %", "80 %", "2.25", "47 %"),
    "eighth": ("94", "68feadea", "27.7 %", "20.1 %", "78 %", "2.71", "56 %"),
    "ninth": ("112", "98cbeec2", "34.5 %", "17.7 %", "80 %", "2.89", "51 %"),
    "tenth": ("88", "4fda8d0a", "25.4 %", "11.7 %", "82 %", "2.18", "45 %"),
    "eleventh": ("59", "9d5de119", "43.2 %", "18.1 %", "78 %", "2.50", "47 %"),
    "twelfth": ("67", "cc6b9b3d", "35.0 %", "17.3 %", "80 %", "2.57", "46 %"),
    "thirteenth": ("41", "4c0be53c", "26.1 %", "14.7 %", "86 %", "2.75", "50 %"),
    "fourteenth": ("35", "05f6a07d", "20.7 %", "13.6 %", "87 %", "2.38", "44 %"),
    "fifteenth": ("20", "7c3f89d6", "28.7 %", "22.0 %", "83 %", "4.00", "66 %"),
    "sixteenth": ("18", "395d6553", "22.5 %", "15.7 %", "92 %", "4.10", "59 %"),
    "seventeenth": ("20", "6481b6ba", "81.4 %", "29.6 %", "74 %", "3.59", "54 %"),
    "eighteenth": ("22", "30849a1e", "22.5 %", "16.7 %", "86 %", "3.45", "60 %"),
}
FIGURES = ("rows", "error", "bias", "in the interval", "width")
HEAD = ("source", "machine", "kernel", "library", *FIGURES)
BY_MACHINE = ("kernel", "machine", "sources", *FIGURES)
BY_SOURCE = ("source", "machine", "kernel", *FIGURES)
BY_BATCH = (
    "batch", "sources", "commit", "at first sight: error", "median", "in the interval", "width", "datasheet roofline",
    "today: rows", "error", "median", "in the interval", "width",
)  # fmt: skip
#: what nobody predicts: dtypes that a machine lacks, and computes in another one
UNPREDICTED = "has no peak for dtype"


def judged(table: Path = TABLE) -> tuple[JudgedCalls, ...]:
    """Return the rows of a table beside their predictions, flagged ones too."""
    parts, skipped = judge_calls([read_measurements(table)], pm.hardware, flagged=True)
    if unread := [one for one in skipped if UNPREDICTED not in str(one)]:
        raise SystemExit(f"{table}: {unread[0]}")
    return parts


def lines(parts: Iterable[JudgedCalls]) -> list[list[str]]:
    """Return a line for each source, machine, operator and library, and two for all that are and are not flagged."""
    groups: dict[tuple[str, ...], list[Beside]] = defaultdict(list)
    alike: list[Beside] = []
    others: list[Beside] = []
    for part in parts:
        calls = part.calls
        rows = _rows(part)
        groups[calls.source, part.hardware.name, _kernel(part), calls.library] += rows
        for row, flag in zip(rows, calls.flags, strict=True):
            (alike if flag else others).append(row)
    made = [[*key, *figures(group)] for key, group in sorted(groups.items())]
    everywhere = ["all"] * 3
    return [
        *made,
        ["all, numbers alike", *everywhere, *figures(alike)],
        ["all others", *everywhere, *figures(others)],
    ]


def by_machine(parts: Iterable[JudgedCalls]) -> list[list[str]]:
    """Return a line for each operator and machine, without the flagged rows, for each operator, and for all."""
    groups: dict[tuple[str, str], list[Beside]] = defaultdict(list)
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for part in parts:
        rows = _unflagged(part)
        kernel = _kernel(part)
        for key in ((kernel, part.hardware.name), (kernel, "all"), ("all", "all")) if rows else ():
            groups[key] += rows
            sources[key].add(part.calls.source)
    several = {kernel for kernel in {kernel for kernel, _ in groups} if sum(one == kernel for one, _ in groups) > 2}

    def place(key: tuple[str, str]) -> tuple[bool, str, bool, str]:
        kernel, machine = key
        return kernel == "all", kernel, machine == "all", machine

    shown = [key for key in sorted(groups, key=place) if key[1] != "all" or key[0] in {"all", *several}]
    return [[*key, str(len(sources[key])), *figures(groups[key])] for key in shown]


def by_batch(batches: Mapping[str, Iterable[JudgedCalls]]) -> list[list[str]]:
    """Return a line for each batch: what was found at first sight, and today without the flagged rows."""
    made = []
    for name, parts in batches.items():
        rows = [row for part in parts for row in _unflagged(part)]
        number, error, _, inside, width = figures(rows)
        middle = f"{100.0 * float(np.median([abs(row.error) for row in rows])):.1f} %"
        made.append([name, *FIRST_SIGHT[name], number, error, middle, inside, width])
    return made


def crossing() -> list[list[str]]:
    """Return a line for each source, machine and operator of all exchanges between nodes, and one for all."""
    groups: dict[tuple[str, str, str], list[Beside]] = defaultdict(list)
    for table in (*BATCHES.values(), BETWEEN_NODES):
        for part in judged(table):
            crosses = crossing_rows(part.calls, part.hardware)
            rows = [
                row
                for row, here, flag in zip(_rows(part), crosses.tolist(), part.calls.flags, strict=True)
                if here and not flag
            ]
            if rows:
                groups[part.calls.source, part.hardware.name, _kernel(part)] += rows
    every = [row for rows in groups.values() for row in rows]
    return [*([*key, *figures(rows)] for key, rows in sorted(groups.items())), ["all", "all", "all", *figures(every)]]


def _kernel(part: JudgedCalls) -> str:
    return part.calls.op.op + (" backward" if part.calls.op.params().get("backward") else "")


def _unflagged(part: JudgedCalls) -> list[Beside]:
    return [row for row, flag in zip(_rows(part), part.calls.flags, strict=True) if not flag]


def _rows(part: JudgedCalls) -> list[Beside]:
    columns = (part.calls.time_s, part.predicted_s, part.low_s, part.high_s)
    return [
        Beside(measured_s=measured, predicted_s=predicted, low_s=low, high_s=high)
        for measured, predicted, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]


def main() -> int:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for line in [list(HEAD), *lines(judged())]:
        print(" | ".join(line))
    for table in BATCHES.values():
        for line in [[], list(BY_MACHINE), *by_machine(judged(table))]:
            print(" | ".join(line))
    for line in [[], list(BY_SOURCE), *crossing()]:
        print(" | ".join(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
