"""cuDNN's choice between implicit GEMM and the others in fp32, by the names of the kernels that it ran."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import pytest

import perfmodel as pm

#: names of kernels that are no implicit GEMM: fused Winograd, complex products of Fourier, products of Winograd's tiles
_OTHERS = re.compile(r"winograd|gcgemm|(?:volta|maxwell)_sgemm_\d+x\d+_nn")
_SIZES = ("n", "c", "h", "w", "k", "r", "s", "stride", "padding")
#: every so many rows of the table
_EVERY = 25


@pytest.mark.parametrize(("machine", "least"), [("v100-pcie-32gb", 0.88), ("t4", 0.86), ("p100-pcie-16gb", 0.86)])
def test_gemm_or_not_is_right_in_nine_of_ten_convolutions(data_dir: Path, machine: str, least: float) -> None:
    path = data_dir / "measurements" / "neusight_conv2d_fp32.csv.gz"
    if not path.is_file():
        pytest.skip("no table of convolutions")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["hardware"] == machine and row["kernel"]][::_EVERY]
    right = 0
    for row in rows:
        best = pm.choose(pm.Conv2d(**{key: int(row[key]) for key in _SIZES}), machine).best
        right += (best == "implicit_gemm") == (_OTHERS.search(row["kernel"]) is None)
    assert right / len(rows) >= least, (right, len(rows))
