"""Compare predicted with measured times of whole models: fp32 inference of BERT, GPT-2 and OPT in PyTorch.

    python scripts/whole_models.py [HARDWARE ...]

reads ``$PERFMODEL_DATA/e2e/neusight_e2e_fp32.csv`` and the models' configurations in ``hf_configs`` (default:
``../shared/data`` beside the checkout), from sitar-lab/NeuSight @ 6945927d9afc. Each time there is the mean of the
five fastest of 25 forward passes between two events, eager mode, TF32 off. BERT ran as a sequence classifier, so
without the language model's head that its configuration names; its op graph shows that.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import public_data

from perfmodel.core.hardware import Hardware
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.whole_model import WholeModel, predict_model
from perfmodel.workloads.config import read_model_config
from perfmodel.workloads.transformer import forward_pass

TABLE = "e2e/neusight_e2e_fp32.csv"
#: whose kernels ran: those of softmax and of embedding before PyTorch 2.7 are others than today's
LIBRARY = "torch-2.1"
#: the table's name of a machine -> the catalog's, and of a model -> its configuration
MACHINES = {
    "V100-PCIE-32GB": "v100-pcie-32gb",
    "A100-PCIE-40GB": "a100-pcie-40gb",
    "H100-SXM-80GB": "h100-sxm5-80gb",
    "P100-PCIE-16GB": "p100-pcie-16gb",
    "T4": "t4",
    "P4": "p4",
    "MI100": "mi100",
    "MI210": "mi210",
    "MI250": "mi250",
}
CONFIGS = {
    "BERT-Large": "neusight__bert-large.json",
    "GPT2-Large": "neusight__gpt2-large.json",
    "GPT3-XL": "neusight__gpt3-xl.json",
    "OPT-1.3B": "neusight__opt-1.3b.json",
}
#: the machines that the stated accuracy is about
JUDGED = ("v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm5-80gb")


@dataclass(frozen=True)
class Row:
    """One measured run of a whole model and its prediction.

    Attributes
    ----------
    hardware, model, batch, seq : what ran where.
    measured_s : measured time [s].
    predicted : the prediction.
    """

    hardware: str
    model: str
    batch: int
    seq: int
    measured_s: float
    predicted: WholeModel

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.time_s / self.measured_s - 1.0


def comparison(folder: Path, names: Iterable[str] = JUDGED, machine: Callable[[str], Hardware] = hardware) -> list[Row]:
    """Return the measured inference runs on the named machines, each with its prediction.

    ``machine`` gives the specification for a name, so that a calibration of one's own can be judged.
    """
    wanted = set(names)
    made = []
    with (folder / TABLE).open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            name = MACHINES.get(row["gpu"])
            if name not in wanted or row["mode"] != "inference" or row["variant"] != "eager":
                continue
            batch, seq = int(row["batch_size"]), int(row["seq_len"])
            config = read_model_config(folder / "hf_configs" / CONFIGS[row["model"]])
            head = "classifier" if config.model_type == "bert" else "lm"
            operators = forward_pass(config, batch, seq, row["dtype"], head=head)
            predicted = predict_model(operators, machine(name), library=LIBRARY)
            made.append(Row(name, row["model"], batch, seq, float(row["e2e_ms"]) / 1e3, predicted))
    return made


def mean_error(rows: Iterable[Row]) -> float:
    """Return the mean absolute error as a fraction."""
    errors = [abs(row.error) for row in rows]
    return sum(errors) / len(errors)


def lines(rows: list[Row]) -> Iterable[str]:
    """Yield a table of the rows, and the mean error of each machine."""
    yield "machine          model       batch   seq   measured  predicted   error  what the kernels are"
    for row in rows:
        shares = {name: time / row.predicted.kernels_s for name, time in row.predicted.by_family().items()}
        said = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > 0.005)
        yield (
            f"{row.hardware:16} {row.model:11} {row.batch:5} {row.seq:5} {1e3 * row.measured_s:7.1f} ms"
            f" {1e3 * row.predicted.time_s:7.1f} ms {row.error:+7.1%}  {said}, {row.predicted.limiter}-bound"
        )
    for name in dict.fromkeys(row.hardware for row in rows):
        of_machine = [row for row in rows if row.hardware == name]
        yield f"{name}: mean error {mean_error(of_machine):.1%} of {len(of_machine)} runs"
    yield f"all: mean error {mean_error(rows):.1%} of {len(rows)} runs"


def main() -> int:
    """Print the comparison for the machines that are named, for those of the stated accuracy otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "machines", metavar="HARDWARE", nargs="*", help="machines; those of docs/accuracy.md by default"
    )
    machines = parser.parse_args().machines
    folder = public_data.path_of()
    if not (folder / TABLE).is_file():
        return public_data.missing(folder / TABLE)
    rows = comparison(folder, machines or JUDGED)
    if not rows:
        sys.stderr.write(f"no runs on {' '.join(machines)}. There are {', '.join(MACHINES.values())}.\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in lines(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
