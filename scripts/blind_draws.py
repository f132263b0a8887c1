"""Operators drawn at random on a GPU: how far off they were when nobody had looked at them, and how far they are now.

    python scripts/blind_draws.py

Each record has the predictions of the commit that measured it. Its rows have been looked at since, and formulas mended
with them in view, so that only the figures of that time judge. `scripts/draw_shapes.py` draws the operators. Kernels
that run several operators one after another, which no draw counts among its calls, have a table of their own. The last
table has each of the last two after `calibrate --from` the other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import open_tables

from perfmodel import hardware_catalog
from perfmodel.accuracy.measured import Measurements
from perfmodel.accuracy.own_rows import calibrate_calls
from perfmodel.accuracy.validate import judge
from perfmodel.core.hardware import Hardware
from perfmodel.kernels.registry import parts_of
from perfmodel.records.record import read_record
from perfmodel.records.schema import Status, is_composed

HEAD = ("record", "commit", "rows", "MAPE", "coverage", "width", "now: MAPE", "coverage", "width", "roofline")
#: end of a record's name -> the commit whose predictions it has
DRAWS = {"_unseen": "505329b", "_drawn": "06562ca", "_drawn2": "1433dae"}
CALIBRATED_HEAD = ("record", "calibrated on", "rows", *HEAD[3:6], "calibrated: MAPE", *HEAD[7:9])


@dataclass(frozen=True)
class Score:
    """Errors of the predictions of a record.

    Attributes
    ----------
    rows : calls.
    mape : mean of abs(predicted / measured - 1).
    coverage : share of the rows inside their interval.
    width : median of its high / low end.
    """

    rows: int
    mape: float
    coverage: float
    width: float

    def cells(self) -> list[str]:
        """Return the figures as a table has them."""
        return [f"{100 * self.mape:.1f} %", f"{100 * self.coverage:.1f} %", f"{self.width:.2f}"]


@dataclass(frozen=True)
class Draw:
    """A record of drawn operators.

    Attributes
    ----------
    name, commit : of the record, and the one that measured it.
    then, now : errors of the predictions that it has, and of today's.
    roofline : mean error of the datasheet roofline.
    """

    name: str
    commit: str
    then: Score
    now: Score
    roofline: float

    def cells(self) -> list[str]:
        """Return its line of the table."""
        figures = [f"{self.then.rows}", *self.then.cells(), *self.now.cells(), f"{100 * self.roofline:.1f} %"]
        return [self.name, self.commit, *figures]


def draws() -> list[Draw]:
    """Return the records in the order in which they were measured."""
    return [_draw(end, commit) for end, commit in DRAWS.items()]


def _draw(end: str, commit: str) -> Draw:
    (measurements,) = open_tables.judge_records(end)
    now, roofline = _score(measurements, hardware_catalog.hardware)
    return Draw(_name(measurements), commit, as_predicted(Path(measurements.place)), now, roofline)


def compositions() -> list[Draw]:
    """Return the calls of the same records that run several operators one after another."""
    found = []
    for end, commit in DRAWS.items():
        (everything,) = open_tables.judge_records(end, parts_of)
        composed = replace(everything, calls=tuple(call for call in everything.calls if call.parts))
        now, roofline = _score(composed, hardware_catalog.hardware)
        then = as_predicted(Path(composed.place), composed=True)
        found.append(Draw(_name(composed), commit, then, now, roofline))
    return found


def _name(measurements: Measurements) -> str:
    return f"`{Path(measurements.place).name.partition('.')[0]}`"


def _score(measurements: Measurements, find: Callable[[str], Hardware]) -> tuple[Score, float]:
    """Return the errors of the predictions of some machines, and that of the datasheet roofline."""
    all_rows = judge([measurements], find).by([])[-1]
    figures = (all_rows["mape"], all_rows["coverage_80"], all_rows["width_80"])
    return Score(int(all_rows["rows"]), *figures), all_rows["bound_mape"]


def calibrated() -> list[list[str]]:
    """Return a line for each of the last two records: the errors today, and after calibration on the other."""
    (first,), (second,) = map(open_tables.judge_records, list(DRAWS)[-2:])
    lines = []
    for judged, known in ((first, second), (second, first)):
        (name,) = {call.hardware for call in known.calls}
        machine = calibrate_calls(known.calls, hardware_catalog.hardware(name), known.place, "").hardware
        before, _ = _score(judged, hardware_catalog.hardware)
        after, _ = _score(judged, {name: machine}.__getitem__)
        lines.append([_name(judged), _name(known), f"{before.rows}", *before.cells(), *after.cells()])
    return lines


def as_predicted(path: Path, *, composed: bool = False) -> Score:
    """Return the errors of the predictions that a record has: of calls of one kernel, or of ``composed`` ones."""
    rows = [row for row in read_record(path, ("bench",)).values if row["status"] == Status.OK]
    kind = "composition" if composed else "predicted"
    pairs = [pair for row in rows if is_composed(row) == composed and (pair := _compared(row, kind))]
    ratios, inside, widths = zip(*pairs, strict=True)
    mape = statistics.fmean(abs(ratio - 1.0) for ratio in ratios)
    return Score(len(pairs), mape, statistics.fmean(inside), statistics.median(widths))


def _compared(row: Mapping[str, Any], kind: str) -> tuple[float, bool, float] | None:
    """Return expected over measured time, whether it is in the interval, and its width; None without a comparison.

    ``kind`` begins the keys of the expected time: "predicted", or "composition" for that of the kernel's parts.
    """
    keys = ("measured_time_s", f"{kind}_time_s", f"{kind}_time_low_s", f"{kind}_time_high_s")
    measured, predicted, low, high = (row.get(key) for key in keys)
    if not (measured and predicted and low and high):
        return None
    return predicted / measured, low <= measured <= high, high / low


def main() -> int:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for title, found in (("calls of one kernel", draws()), ("compositions", compositions())):
        print(f"{title}:")
        for cells in [list(HEAD), *(draw.cells() for draw in found)]:
            print("  ".join(cells))
    for cells in [list(CALIBRATED_HEAD), *calibrated()]:
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
