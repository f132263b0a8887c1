"""A calibration and a check of a real GPU: what physics says of their figures. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfmodel.cli._device import base_machine, measured_machine  # noqa: E402 -- after the check that torch is there
from perfmodel.core.hardware import Hardware  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.measure.calibration.calibrate import Figures  # noqa: E402
from perfmodel.measure.calibration.plan import CalibrationPlan  # noqa: E402
from perfmodel.measure.calibration.sustained import CalibratedMachine  # noqa: E402
from perfmodel.measure.health.verdict import Verdict  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU"),
    pytest.mark.filterwarnings(r"ignore:::torch\."),  # advice of torch's own machinery
]


@pytest.fixture(scope="module")
def measured() -> CalibratedMachine:
    """Return the machine with the figures of a short calibration of everything."""
    device = open_device("cuda")
    plan = CalibrationPlan(rounds=1, samples=5, product_s=0.1, everything=True)
    return measured_machine(device, base_machine(device, None), ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"), plan)


@pytest.fixture(scope="module")
def sheet(measured: CalibratedMachine) -> Hardware:
    """Return the machine with its datasheet figures alone."""
    assert measured.reference is not None
    return measured.reference


@pytest.fixture(scope="module")
def figures(measured: CalibratedMachine) -> Figures:
    """Return what was measured."""
    return measured.figures


def test_no_figure_is_above_its_datasheet(measured: CalibratedMachine, sheet: Hardware, figures: Figures) -> None:
    bandwidth = sheet.main_memory.bandwidth_bytes_per_s
    assert bandwidth is not None
    assert all(0.5 * bandwidth < rate <= 1.02 * bandwidth for rate in figures.bandwidth_bytes_per_s.values())
    for peak in measured.machine.peaks:
        if peak.sustained_flop_per_s:
            assert 0.2 * peak.flop_per_s < peak.sustained_flop_per_s <= 1.05 * peak.flop_per_s, peak.dtype
    for dtype in ("fp32", "fp16", "bf16"):
        vector = sheet.find_peak(dtype, "vector")
        assert vector is not None
        assert 0.85 * vector.flop_per_s < figures.vector_flop_per_s[dtype] <= 1.02 * vector.flop_per_s, dtype


def test_inner_levels_are_faster_than_outer_ones(figures: Figures) -> None:
    levels = figures.levels_bytes_per_s
    assert figures.bandwidth_bytes_per_s["read"] < levels["l2"] < levels["l1"]
    # one array: shared memory and L1 both give 128 B a clock and SM
    assert levels["shared"] == pytest.approx(levels["l1"], rel=0.35)


def test_a_graph_launches_faster_than_a_stream_and_pinned_memory_copies_faster_than_pageable(figures: Figures) -> None:
    assert 0.3e-6 < figures.empty_kernel_s["graph"] <= figures.empty_kernel_s["stream"] < 1e-4
    rates = {copy.name: copy.bandwidth_bytes_per_s for copy in figures.transfers}
    assert rates["h2d pinned"] > rates["h2d pageable"]
    assert rates["d2h pinned"] > rates["d2h pageable"]
    assert all(1e-6 < copy.latency_s < 1e-3 for copy in figures.transfers)


def test_nothing_is_left_out_for_a_fault(figures: Figures) -> None:
    assert not [reason for reason in figures.left_out if "Error" in reason]


def test_check_judges_every_area(perfmodel: Callable[..., Any]) -> None:
    ran = perfmodel("bench", "--check", "--device", "cuda", "--format", "json")
    assert ran.code in (0, 1)
    found = {row["area"] for row in ran.json["rows"] if row["verdict"] != Verdict.NOT_JUDGED}
    assert {"bandwidth", "compute", "pcie"} <= found
