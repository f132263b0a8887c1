"""Copies of a shipped file with other figures: their measurements are those of another machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.core.fitted_with import with_tables
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Calibration, ErrorSource
from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog.find import load_all
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.write import template_text

PRODUCT = pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")
STREAM = pm.Elementwise(numel=10**9, dtype="bf16")
SUM = pm.AllReduce(bytes=2**26, num_gpus=8)
BANDWIDTH, FASTER = 'bandwidth = "3352 GB/s"', 'bandwidth = "4500 GB/s"'

Copied = Callable[..., Hardware]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """Return a copy of the H100's file with some edits, under a name of its own."""

    def copy(*edits: tuple[str, str], text: str = "") -> Hardware:
        text = text or (shipped_folder() / "h100-sxm5-80gb.toml").read_text()
        for before, after in (('name = "h100-sxm5-80gb"', 'name = "mine"'), *edits):
            assert before in text
            text = text.replace(before, after, 1)
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return pm.hardware(path)

    return copy


def width(found: pm.Prediction) -> float:
    return float(found.predicted_time_high_s / found.predicted_time_low_s)


def test_a_copy_with_the_same_figures_is_the_machine(copied: Copied) -> None:
    for op, library in ((PRODUCT, "torch"), (STREAM, "torch"), (SUM, "nccl")):
        before, after = (pm.predict(op, machine, library=library) for machine in ("h100-sxm5-80gb", copied()))
        assert after.calibration == before.calibration == Calibration.CALIBRATED
        assert after.predicted_time_high_s == before.predicted_time_high_s


@pytest.mark.parametrize(
    ("edits", "key"),
    [
        ([("sm_count = 132", "sm_count = 16"), (BANDWIDTH, 'bandwidth = "419 GB/s"')], "chip.sm_count"),
        ([("sm_count = 132", "sm_count = 264")], "chip.sm_count"),
        ([('tdp = "700 W"', 'tdp = "200 W"')], "chip.tdp"),
        ([('capacity = "50 MiB"', 'capacity = "100 MiB"')], "memory.l2.capacity"),
        ([(BANDWIDTH, FASTER)], "memory.hbm.bandwidth"),
    ],
)
def test_constants_of_a_machine_with_other_figures_are_those_of_another_machine(
    copied: Copied, edits: list[tuple[str, str]], key: str
) -> None:
    machine = copied(*edits)
    for op in (PRODUCT, STREAM):
        before, after = (pm.predict(op, one, library="torch") for one in ("h100-sxm5-80gb", machine))
        assert after.calibration == Calibration.SAME_GENERATION
        assert ErrorSource.MACHINE in set(after.uncertainty)
        assert width(after) > width(before)
        assert key in after.prediction_basis
        # a specification that is changed in code is no other
        figures = {"sm_count": machine.sm_count, "tdp_w": machine.tdp_w, "memory": machine.memory}
        changed = replace(pm.hardware("h100-sxm5-80gb"), **figures)
        assert width(pm.predict(op, changed, library="torch")) == pytest.approx(width(after))


def test_the_power_limit_leaves_the_chip_as_it_is(copied: Copied) -> None:
    limited = pm.predict(STREAM, copied(('tdp = "700 W"', 'tdp = "500 W"')), library="torch")
    cut = pm.predict(STREAM, copied(("sm_count = 132", "sm_count = 100")), library="torch")
    assert width(limited) < width(cut)


def test_links_count_for_exchanges_alone(copied: Copied) -> None:
    machine = copied(('per_direction = "450 GB/s"', 'per_direction = "900 GB/s"'))
    assert pm.predict(PRODUCT, machine, library="torch").calibration == Calibration.CALIBRATED
    assert ErrorSource.MACHINE in set(pm.predict(SUM, machine, library="nccl").uncertainty)


def test_constants_that_were_fitted_anew_are_those_of_the_file(copied: Copied) -> None:
    tables = [name for name in pm.hardware("h100-sxm5-80gb").latency if name.startswith("elementwise")]
    assert tables == ["elementwise"]
    text = (shipped_folder() / "h100-sxm5-80gb.toml").read_text()
    head, _, tail = text.partition("[latency.elementwise]\n")
    own = head + "[latency.elementwise]\n" + tail.replace('source = "', 'source = "own rows, not ', 1)
    machine = copied(('tdp = "700 W"', 'tdp = "500 W"'), text=own)
    assert pm.predict(STREAM, machine, library="torch").calibration == Calibration.CALIBRATED
    assert pm.predict(PRODUCT, machine, library="torch").calibration == Calibration.SAME_GENERATION


@pytest.mark.parametrize("exported", [False, True])
def test_more_bandwidth_is_faster_by_as_much(copied: Copied, exported: bool) -> None:
    """A measured rate stays the share of the peak that it was measured as, in a copy and in an export."""
    text = template_text(shipped_folder() / "h100-sxm5-80gb.toml")[0] if exported else ""
    same, faster = copied(text=text), copied((BANDWIDTH, FASTER), text=text)
    times = [float(pm.predict(STREAM, machine).predicted_time_s) for machine in (same, faster)]
    assert times[0] / times[1] == pytest.approx(4500 / 3352, rel=0.01)
    assert faster.main_memory.sustained_bytes_per_s / 4500e9 == pytest.approx(2890 / 3352)
    warned = {finding.code for finding in lint_file(faster.path) if finding.key == "sustained.memory.hbm"}
    assert warned == {"sustained-implausible"}


def test_a_rate_of_the_files_own_stays(copied: Copied) -> None:
    machine = copied((BANDWIDTH, FASTER), ('hbm = "2890 GB/s"', 'hbm = "3900 GB/s"'))
    assert machine.main_memory.sustained_bytes_per_s == 3900e9


def test_the_shipped_machines_have_their_own_constants() -> None:
    for machine in load_all():
        assert machine.fitted_with.keys() == machine.latency.keys()
        found = {key for name in machine.latency for key in machine.fitted_with[name]}
        assert not found or "chip.sm_count" in found


def test_constants_that_were_fitted_on_the_changed_machine_are_its_own(copied: Copied) -> None:
    machine = copied(("sm_count = 132", "sm_count = 100"))
    fitted = with_tables(machine, {"elementwise": machine.latency["elementwise"]})
    assert pm.predict(STREAM, fitted, library="torch").calibration == Calibration.CALIBRATED
    assert pm.predict(PRODUCT, fitted, library="torch").calibration == Calibration.SAME_GENERATION
