"""What steps of other laboratories were predicted to take when they came, before anything was changed for them.

    python scripts/training_first_sight.py TABLE COMMIT    records the runs of training.csv from this table on, as the
                                                           checked out commit predicts them

What the model learned from a run is no news of the next laboratory: its interval has to hold the errors of predictions
made without sight of the runs. The record has those since the host's dispatch is modelled (4fda8d0a), made anew with
each commit's own code: 26 rows of boards of four GH200 as the GH200 that it knew.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perfmodel.accuracy.run_table import read_run_table
from perfmodel.hardware_catalog import hardware
from perfmodel.training.framework import nearest_framework
from perfmodel.training.published_run import read_run

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "examples" / "published" / "training.csv"
RECORD = ROOT / "examples" / "published" / "training_first_sight.csv"
COLUMNS = ("id", "commit", "predicted_s", "described")


class FirstSight(NamedTuple):
    """A prediction at first sight [s], and whether a file described the framework then."""

    predicted_s: float
    described: bool


def at_first_sight(path: Path = RECORD) -> dict[str, FirstSight]:
    """Return the recorded predictions by the id of the run."""
    with path.open(newline="") as stream:
        return {
            row["id"]: FirstSight(float(row["predicted_s"]), row["described"] == "1") for row in csv.DictReader(stream)
        }


def main(arguments: Sequence[str]) -> int:
    """Record the runs from a table on; those that are there keep what was recorded."""
    known = at_first_sight()
    runs = read_run_table(RUNS).runs
    tables = [run.text("table") for run in runs]
    if len(arguments) != 2 or arguments[0] not in tables:
        call = f"training_first_sight.py {tables[-1]} ade9294c"
        print(f"name the first new table of {RUNS.name} and the commit, as in: {call}", file=sys.stderr)
        return 2
    new = [run for run in runs[tables.index(arguments[0]) :] if run.text("id") not in known]
    with RECORD.open("a", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        for run in new:
            step = read_run(run, hardware).step()
            described = nearest_framework(run.text("framework"))[1]
            lines.writerow((run.text("id"), arguments[1], f"{step.time_s:.6g}", int(described)))
    print(f"{len(new)} runs recorded in {RECORD.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
