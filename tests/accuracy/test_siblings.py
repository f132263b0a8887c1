"""Rows of one collective on a machine tell something about its others: how much, and what the machine then states."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.own_rows import MachineCalibration, calibrate_calls
from perfmodel.accuracy.siblings import ALIKE, Offset, told_by
from perfmodel.core.report import report
from perfmodel.core.vocabulary import CacheState, Calibration, ErrorSource, Timing
from perfmodel.hardware_catalog.write import write_spec

#: a machine of which no collective was measured, and by how much its collectives take longer than predicted
MACHINE, SLOWER = "mi300x", 1.3
SIZES = np.geomspace(1024, 2**28, 20).round() * 8


def measured(op: type[Any], seed: int = 0) -> MeasuredCalls:
    """Made-up rows of a collective among eight GPUs that takes longer than predicted, with 3 % of noise."""
    rows = op(bytes=SIZES, num_gpus=np.full(SIZES.size, 8.0), dtype="bf16")
    times = np.asarray(pm.predict(rows, MACHINE, library="nccl").predicted_time_s)
    noise = np.exp(0.03 * np.random.default_rng(seed).standard_normal(SIZES.size))
    return MeasuredCalls(
        MACHINE, rows, times * SLOWER * noise, Timing.KERNEL, CacheState.COLD, "nccl-2.27",
        np.full(SIZES.size, ""), "mine.csv", np.arange(SIZES.size),
    )  # fmt: skip


def calibrated(*ops: type[Any]) -> MachineCalibration:
    return calibrate_calls([measured(op) for op in ops], pm.hardware(MACHINE), "mine.csv", "2026-11-23")


def predicted(op: type[Any], machine: Any, size: float) -> Any:
    return pm.predict(op(bytes=size, num_gpus=8, dtype="bf16"), machine, library="nccl")


def test_one_family_by_hand() -> None:
    # without noise: the mean is r of the sibling's, and 1 - r^2 of the variance remains
    mean, left = told_by([Offset("all_gather", 0.3, 0.2, 0.0)], 0.1, 0.8)
    assert mean == pytest.approx(0.8 * 0.1 * 1.5)
    assert left == pytest.approx(0.1 * 0.6)
    assert told_by([], 0.1) == (0.0, 0.1)


@given(st.floats(0.0, 0.99), st.floats(0.0, 1.0), st.integers(1, 3))
def test_rows_never_widen_and_more_families_tell_more(correlation: float, noise: float, families: int) -> None:
    offsets = [Offset("f", 0.2, 0.3, noise)] * families
    (_, fewer), (_, more) = told_by(offsets, 0.25, correlation), told_by([*offsets, offsets[0]], 0.25, correlation)
    assert more <= fewer + 1e-12
    assert fewer <= 0.25 + 1e-12
    assert more >= 0.25 * math.sqrt(1.0 - correlation) - 1e-12  # what the family has for itself stays


def test_rows_of_one_collective_shift_and_narrow_the_others() -> None:
    found = calibrated(pm.AllGather)
    assert {one.family.name for one in found.siblings} == set(ALIKE) - {"all_gather"}
    for size in (4096, 2**28):
        before, after = (predicted(pm.ReduceScatter, machine, size) for machine in (found.before, found.hardware))
        assert 1.05 < after.predicted_time_s / before.predicted_time_s < SLOWER + 0.05
        assert after.predicted_time_high_s / after.predicted_time_low_s < (
            before.predicted_time_high_s / before.predicted_time_low_s
        )
        assert after.predicted_time_low_s < SLOWER * before.predicted_time_s < after.predicted_time_high_s


def test_the_calibration_says_that_the_machine_is_known_from_other_collectives() -> None:
    machine = calibrated(pm.AllGather).hardware
    after = predicted(pm.AllReduce, machine, 4096)
    assert after.calibration != Calibration.CALIBRATED
    assert after.rows()[0]["not_seen"] == ["machine_here"]
    assert predicted(pm.AllGather, machine, 4096).calibration == Calibration.CALIBRATED
    assert "rows of all_gather on this machine: mine.csv, 20 rows" in machine.latency["all_reduce"].source


def test_rows_of_its_own_come_first() -> None:
    found = calibrated(pm.AllGather, pm.ReduceScatter)
    assert {one.family.name for one in found.siblings} == {"all_reduce", "alltoall"}
    assert ErrorSource.MACHINE_HERE not in found.hardware.latency["reduce_scatter"].deviations
    again = calibrate_calls([measured(pm.Alltoall)], found.hardware, "more.csv", "2026-11-24")
    assert {one.family.name for one in again.siblings} == {"all_reduce"}


def test_a_measured_machine_keeps_its_tables() -> None:
    call = measured(pm.AllGather)
    known = pm.hardware("h100")
    assert calibrate_calls([replace(call, hardware=known.name)], known, "mine.csv", "2026-11-23").siblings == ()


def test_the_report_and_the_file_have_them(tmp_path: Any) -> None:
    found = calibrated(pm.AllGather)
    (table,) = [report(found).more["siblings"]]
    widths = {(row["family"], row["regime"]): (row["width_before"], row["width_80"]) for row in table.rows}
    assert len(widths) == 9
    assert all(after < before for before, after in widths.values())
    write_spec(found.hardware, tmp_path / "mine.toml")
    kept, made = (machine.latency["alltoall"] for machine in (pm.hardware(tmp_path / "mine.toml"), found.hardware))
    assert kept.deviations["machine_here"] == pytest.approx(made.deviations["machine_here"], rel=0.01)
