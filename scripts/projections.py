"""Project measured runs of whole models from one machine to another, and compare with what was measured there.

    python scripts/projections.py [HARDWARE ...]

reads the runs of ``scripts/whole_models.py`` (fp32 inference of BERT, GPT-2 and OPT in PyTorch, sitar-lab/NeuSight @
6945927d9afc): one model with one batch on V100, A100 and H100, or on the named machines. The total measured on the
first machine is divided over the operators by their predictions there, projected as `perfmodel project` does, and
compared with the total measured on the second.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import public_data

sys.path.insert(0, str(Path(__file__).resolve().parent))

from whole_models import JUDGED, TABLE, Row, comparison

from perfmodel.diagnosis.projection.project import ProjectedPart, project
from perfmodel.hardware_catalog import hardware
from perfmodel.operators import load_operator
from perfmodel.profile.profile import Profile, ProfileEntry


@dataclass(frozen=True)
class Pair:
    """One model on two machines: what was measured on the second, and what the first one's run projects to."""

    first: Row
    second: Row
    projected: ProjectedPart

    @property
    def error(self) -> float:
        """Projected over measured, less 1."""
        return self.projected.projected_time_s / self.second.measured_s - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the interval."""
        return self.projected.low <= self.second.measured_s <= self.projected.high


def profile_of(row: Row) -> Profile:
    """Return a measured run as a table of operators, its time divided by their predictions."""
    share = row.measured_s / row.predicted.time_s
    entries = []
    for number, part in enumerate(row.predicted.parts):
        p = part.prediction
        op = load_operator(p.op)(**{key: p.params[key] for key in p.given if key != "dtype"}, dtype=p.dtype)
        entries.append(ProfileEntry(f"{number} {p.label}", part.time_s * share, p.count, "kernel", op))
    return Profile.from_entries(entries, source=f"{row.model} on {row.hardware}")


def pairs(folder: Path, names: Iterable[str] = JUDGED) -> list[Pair]:
    """Return every measured run with its projections to the other machines on which the same was measured."""
    rows = comparison(folder, names)
    made = []
    for first, second in itertools.permutations(rows, 2):
        same = (first.model, first.batch, first.seq) == (second.model, second.batch, second.seq)
        if same and first.hardware != second.hardware:
            projection = project(profile_of(first), hardware(first.hardware), hardware(second.hardware))
            made.append(Pair(first, second, projection.whole))
    return made


def lines(found: list[Pair]) -> Iterable[str]:
    """Yield the error of each pair, of each pair of machines, and of all."""
    for pair in found:
        yield (
            f"{pair.first.hardware:16} -> {pair.second.hardware:16} {pair.first.model:11} {pair.first.batch:3} "
            f"{1e3 * pair.second.measured_s:8.1f} ms {1e3 * pair.projected.projected_time_s:8.1f} ms {pair.error:+7.1%}"
            f"{'' if pair.inside else '  outside'}"
        )
    machines = dict.fromkeys((pair.first.hardware, pair.second.hardware) for pair in found)
    for first, second in machines:
        these = [p for p in found if (p.first.hardware, p.second.hardware) == (first, second)]
        yield f"{first} -> {second}: mean error {_mean(these):.1%} of {len(these)} runs"
    inside = sum(pair.inside for pair in found) / len(found)
    width = math.exp(sum(math.log(p.projected.high / p.projected.low) for p in found) / len(found))
    yield f"all: mean error {_mean(found):.1%} of {len(found)}, {inside:.0%} inside, mean high over low {width:.2f}"


def _mean(found: list[Pair]) -> float:
    return sum(abs(pair.error) for pair in found) / len(found)


def main() -> int:
    """Print the projections between the machines that are named, or those of the stated accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "machines", metavar="HARDWARE", nargs="*", help="machines; those of docs/accuracy.md by default"
    )
    machines = parser.parse_args().machines
    folder = public_data.path_of()
    if not (folder / TABLE).is_file():
        return public_data.missing(folder / TABLE)
    sys.stdout.writelines(f"{line}\n" for line in lines(pairs(folder, machines or JUDGED)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
