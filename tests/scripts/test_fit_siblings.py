"""A machine that nobody measured is no surer than the measured ones of its generation."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.prediction.latency.families import family_names

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_siblings import no_narrower, siblings


def test_shared_intervals_hold_those_of_the_members_and_their_spreads() -> None:
    own = pm.hardware("h100-sxm5-80gb").latency["gemm_bf16"]
    one = dataclasses.replace(own, intervals={"launch": (0.9, 1.1), "mid": (0.8, 1.1)}, apart={}, spread={"vllm": 1.5})
    other = dataclasses.replace(own, intervals={"mid": (0.9, 1.4)}, apart={}, spread={"trtllm": 0.7})
    shared = dataclasses.replace(own, intervals={"mid": (0.95, 1.05), "large": (0.9, 1.2)}, apart={}, spread={})
    made = no_narrower(shared, [one, other])
    assert made.intervals == {"launch": (0.9, 1.1), "mid": (0.8, 1.4), "large": (0.9, 1.2)}
    # a library whose shapes differ less on one member has 1 on the others
    assert made.spread == {"trtllm": 1.0, "vllm": 1.5}
    assert no_narrower(made, [one, other]) == made
    told = no_narrower(shared, [dataclasses.replace(one, apart={"mid": (0.5, 1.0)})])
    assert told.apart["mid"] == (0.5, 1.05)


def test_shipped_tables_are_as_wide_as_their_members() -> None:
    assert list(siblings(family_names())) == []


@pytest.mark.parametrize(
    ("measured", "sibling", "op", "library"),
    [
        ("b200-sxm-180gb", "gb200-nvl72", pm.AllReduce(bytes=2**20, num_gpus=8, dtype="bf16"), "nccl"),
        ("l40s", "l20", pm.Gemm(m=256, n=4096, k=4096, dtype="fp8"), "vllm"),
    ],
)
def test_a_sibling_is_no_surer_than_the_machine_that_lent_it_constants(measured, sibling, op, library) -> None:
    def width(machine: str) -> float:
        found = pm.predict(op, machine, library=library)
        return float(found.predicted_time_high_s) / float(found.predicted_time_low_s)

    assert width(sibling) >= width(measured)
