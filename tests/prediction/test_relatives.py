"""Sustained rates that a machine takes from measured ones of its generation."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware
from perfmodel.hardware_catalog import load_all
from perfmodel.prediction import relatives
from perfmodel.prediction.ceilings import ASSUMED_COMPUTE, launch_time, sustained_ceilings
from perfmodel.prediction.designs import generation

GPUS = [machine for machine in load_all() if machine.kind == "gpu"]
#: what two measured machines with one figure on the datasheet may differ by
TOLERANCE = 1.02


def figures(machine: Hardware) -> Iterator[tuple[str, float, float | None, float]]:
    """Yield the name, datasheet, measurement and sustained figure of each ceiling of a machine."""
    sustained = sustained_ceilings(machine, None, {}).memory
    for level in machine.memory:
        if level.bandwidth_bytes_per_s:
            sheet, found = level.bandwidth_bytes_per_s, level.sustained_bytes_per_s
            yield relatives.name_of_level(level), sheet, found, sustained[level.name]
    for peak in machine.peaks:
        compute = sustained_ceilings(machine, peak, {}).compute
        assert compute is not None
        yield f"{peak.engine} {peak.dtype}", peak.flop_per_s, peak.sustained_flop_per_s, compute


def test_the_measured_figures_are_those_of_the_shipped_specs() -> None:
    stated: dict[tuple[str, str], set[tuple[float, float]]] = defaultdict(set)
    launches: dict[str, set[float]] = defaultdict(set)
    for machine in GPUS:
        for name, sheet, measured, _ in figures(machine):
            if measured:
                stated[generation(machine), name].add((sheet, measured))
        if machine.launch.overhead_s and "assumed" not in machine.launch.source:
            launches[generation(machine)].add(machine.launch.overhead_s)
    listed = {(key, name) for key, by_name in relatives.MEASURED.items() for name in by_name}
    assert listed <= set(stated)
    for (key, name), pairs in stated.items():
        known = relatives.MEASURED.get(key, {}).get(name)
        unit = 1e9 if " " not in name or name.startswith("hbm") else 1e12
        for sheet, measured in pairs:
            near = [rate for x, rate in known or () if sheet == pytest.approx(x * unit, rel=2e-3)]
            # boards that borrowed the share of another one, and so its figures, stand in the list once
            assert [rate for rate in near if measured == pytest.approx(rate * unit, rel=2e-3)], (key, name, sheet)
    for key, seconds in relatives.LAUNCHES.items():
        assert sorted(launches[key]) == pytest.approx(sorted(1e-6 * one for one in seconds))


@pytest.mark.parametrize("key", sorted({generation(machine) for machine in GPUS}))
def test_a_higher_figure_on_the_datasheet_sustains_no_less(key: str) -> None:
    by_name: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for machine in GPUS:
        if generation(machine) == key:
            for name, sheet, _, rate in figures(machine):
                by_name[name].append((sheet, rate, machine.name))
    for found in by_name.values():
        for (less, slow, one), (more, fast, other) in itertools.permutations(found, 2):
            assert less > more or slow <= TOLERANCE * fast, (key, one, other)


def test_a_v100_on_a_module_sustains_the_share_that_the_card_was_measured_at() -> None:
    module, card = pm.hardware("v100-sxm2-16gb"), pm.hardware("v100-pcie-16gb")
    rates = [sustained_ceilings(one, one.find_peak("fp32", "vector"), {}).compute or 0.0 for one in (module, card)]
    assert rates[1] == pytest.approx(13.79e12)
    assert rates[0] == pytest.approx(15.7e12 * 13.79 / 14.03, rel=1e-3)
    assert rates[0] / 15.7e12 > 1.2 * ASSUMED_COMPUTE


def test_a_board_far_from_the_measured_one_keeps_the_usual_share() -> None:
    # a T4 sustains 76 % of 320 GB/s; an RTX 2080 Ti has 616
    assert sustained_ceilings(pm.hardware("rtx-2080-ti"), None, {}).memory["hbm"] == pytest.approx(0.85 * 616e9)
    # memory of another technology
    assert sustained_ceilings(pm.hardware("rtx-4090"), None, {}).memory["hbm"] == pytest.approx(0.85 * 1008e9, rel=1e-3)


def test_streams_on_the_same_memory_take_as_long_on_the_board_that_nobody_measured() -> None:
    op = pm.Optimizer(parameters=1e8, dtype="fp32")
    for board, measured in (("a800-sxm4-80gb", "a100-sxm4-80gb"), ("p100-sxm2-16gb", "p100-pcie-16gb")):
        found = [pm.predict(op, name).predicted_time_s for name in (board, measured)]
        assert found[0] == pytest.approx(found[1], rel=0.01)


def test_a_prediction_says_which_share_it_took() -> None:
    found = pm.predict(pm.Transpose(rows=8192, cols=8192, dtype="fp32"), "l20")
    assert "84% of datasheet hbm" in found.prediction_basis
    assert launch_time(pm.hardware("l20")) == pytest.approx(1.64e-6)
    assert "1.6 us of launch" in found.prediction_basis
