"""Training steps in fp32 on machines of AMD, of which no published table of steps has a run.

    python scripts/whole_steps.py

Reads the runs of ``training`` in ``$PERFMODEL_DATA/e2e/neusight_e2e_fp32.csv`` (sitar-lab/NeuSight @ 6945927d9afc; as
`whole_models`): a forward and a backward pass of transformers' models in eager mode with TF32 off, without an update of
the weights. The runs on machines of NVIDIA stand in ``e2e_training``, and are judged by ``scripts/fit_training.py``.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import public_data
from beside import Beside
from whole_models import CONFIGS, MACHINES, TABLE

import perfmodel as pm
from perfmodel.core.units import format_si
from perfmodel.workloads.config import read_model_config

HEAD = ("machine", "model", "batch", "sequence", "measured", "predicted", "error", "80 % interval")


@dataclass(frozen=True, kw_only=True)
class Step(Beside):
    """One measured step and its prediction.

    Attributes
    ----------
    hardware, model, batch, seq : what ran where.
    """

    hardware: str
    model: str
    batch: int
    seq: int


def steps(folder: Path) -> Iterator[Step]:
    """Yield the runs of the table with their predictions."""
    with (folder / TABLE).open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            name = MACHINES.get(row["gpu"], "")
            if row["mode"] != "training" or not name.startswith("mi"):
                continue
            batch, seq = int(row["batch_size"]), int(row["seq_len"])
            plan = pm.TrainingPlan(
                batch=batch, seq=seq, micro_batch=batch, dtype=row["dtype"], framework="huggingface",
                attention="eager-unfused", optimizer="none",
            )  # fmt: skip
            config = read_model_config(folder / "hf_configs" / CONFIGS[row["model"]])
            step = pm.train(config, pm.Cluster(name, gpus=1), plan)
            measured = float(row["e2e_ms"]) / 1e3
            yield Step(
                hardware=name, model=row["model"], batch=batch, seq=seq, measured_s=measured,
                predicted_s=step.time_s, low_s=step.low_s, high_s=step.high_s,
            )  # fmt: skip


def lines(rows: Iterable[Step]) -> list[list[str]]:
    """Return a line for each run."""
    return [
        [
            row.hardware, row.model, f"{row.batch}", f"{row.seq}", format_si(row.measured_s, "s"),
            format_si(row.predicted_s, "s"), f"{100.0 * row.error:+.1f} %",
            f"{format_si(row.low_s, 's', 3)} to {format_si(row.high_s, 's', 3)}",
        ]
        for row in sorted(rows, key=lambda row: (row.hardware, row.model, row.batch))
    ]  # fmt: skip


def main() -> int:
    """Print each run."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    folder = public_data.path_of()
    if not (folder / TABLE).is_file():
        return public_data.missing(folder / TABLE)
    rows = list(steps(folder))
    for cells in [list(HEAD), *lines(rows)]:
        print("  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
