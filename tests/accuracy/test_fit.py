"""The fit: it finds what made the rows, keeps what the rows cannot tell, and shrugs off bad rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.accuracy.calibration import calibrate_family
from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.accuracy.libraries import FittedConstants, fit_libraries, intervals, residuals, sample
from perfmodel.core.latency_table import REGIMES
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import Constants
from perfmodel.prediction.latency.family import Constant, Family
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Terms

COLD = Conditions()
MACHINE = Machine(100, 1e9, 1e13, "vector", "fp32", 1e13, 1e12, 0.0, np.inf)
RATE = Constant("rate", "", 0.8, 0.1, 1.0, 0.2, "share of the bandwidth")
START = Constant("start", "s", 2e-6, 1e-7, 1e-4, 0.5, "start of a kernel", library=True)
UNUSED = Constant("unused", "", 3.0, 1.0, 9.0, 0.5, "enters no formula")
FAMILY = Family(
    "test",
    (RATE, START, UNUSED),
    lambda op, machine, c, conditions: Terms(
        {HBM: op.work().bytes / (c["rate"] * machine.bandwidth_bytes_per_s), LAUNCH: c["start"]}
    ),
    (HBM, LAUNCH),
    dispatched=False,
)


def rows(count: int, rate: float, start: float, library: str = "", noise: float = 0.0, seed: int = 0) -> Group:
    """Rows of additions between 1 kB and 1 GB that follow the formula, spread by a lognormal noise."""
    random = np.random.default_rng(seed)
    op = Elementwise(numel=np.unique(np.floor(10.0 ** random.uniform(2, 8, count))))
    time = op.work().bytes / (rate * 1e12) + start
    return Group(op, MACHINE, Conditions(library=library), time * np.exp(noise * random.standard_normal(time.shape)))


@given(rate=st.floats(0.4, 0.95), start=st.floats(5e-7, 8e-6))
def test_it_finds_what_made_the_rows(rate: float, start: float) -> None:
    found = fit(FAMILY, [rows(200, rate, start)])
    # the defaults pull a little: 200 rows of 3 % against one default
    assert found.values["rate"] == pytest.approx(rate, rel=0.02)
    assert found.values["start"] == pytest.approx(start, rel=0.02)


def test_rows_that_hardly_spend_time_on_the_start_do_not_tell_it() -> None:
    """3 us of at least 100 pass for what the closed form leaves over, however clearly the rows show them."""
    group = rows(200, 0.7, 3e-6)
    found = fit(FAMILY, [group.take(group.time_s > 100e-6)])
    assert "start" in found.unidentified
    assert found.values["start"] == fit(FAMILY, [group.take(group.time_s > 1e-3)]).values["start"]


def test_what_the_rows_cannot_tell_keeps_its_default_exactly() -> None:
    found = fit(FAMILY, [rows(100, 0.7, 4e-6)])
    assert found.unidentified == ("unused",)
    assert found.values["unused"] == UNUSED.default
    assert found.certainty["unused"] == pytest.approx(1.0)
    assert found.certainty["rate"] < 0.3


def test_without_small_rows_the_start_is_not_identified() -> None:
    group = rows(200, 0.7, 4e-6)
    found = fit(FAMILY, [group.take(group.time_s > 5e-4)])
    assert "start" in found.unidentified
    assert found.values["start"] == START.default
    assert found.values["rate"] == pytest.approx(0.7, rel=0.03)


def test_a_tenth_of_wild_rows_hardly_moves_it() -> None:
    group = rows(200, 0.7, 4e-6, noise=0.02)
    wild = group.time_s.copy()
    wild[::10] *= 5.0
    clean, dirty = fit(FAMILY, [group]), fit(FAMILY, [Group(group.op, MACHINE, group.conditions, wild)])
    assert dirty.values["rate"] == pytest.approx(clean.values["rate"], rel=0.03)


def test_twenty_rows_are_enough() -> None:
    found = fit(FAMILY, [rows(20, 0.6, 4e-6, noise=0.03)])
    assert found.values["rate"] == pytest.approx(0.6, rel=0.06)


def test_constants_stay_inside_what_physics_allows() -> None:
    impossible = fit(FAMILY, [rows(100, 3.0, 1e-6)])  # three times the bandwidth
    assert impossible.values["rate"] <= RATE.high


def test_a_library_has_its_own_constants_only_beside_another() -> None:
    fast, slow = rows(60, 0.7, 2e-6, "fast"), rows(60, 0.7, 8e-6, "slow", seed=1)
    defaults = {constant.name: constant.default for constant in FAMILY.constants}
    assert fit_libraries(FAMILY, [fast], defaults).libraries == {}
    both = fit_libraries(FAMILY, [fast, slow], defaults)
    assert both.values("fast")["start"] == pytest.approx(2e-6, rel=0.1)
    assert both.values("slow")["start"] == pytest.approx(8e-6, rel=0.1)
    assert both.values("other") == both.shared.values
    # what is not the library's is shared
    assert both.values("fast")["rate"] == both.values("slow")["rate"]


BLOCKS = Constant("blocks", "", 2.0, 0.1, 1e4, 0.4, "ns of a block", True, between_kernels=1.2, starts=(50.0,))
#: a stream, or as long as its blocks take where that is longer: the blocks have no slope where they are hidden
BY_BLOCKS = Family(
    "blocks",
    (RATE, BLOCKS),
    lambda op, machine, c, conditions: Terms(
        {
            HBM: np.maximum(
                op.work().bytes / (c["rate"] * machine.bandwidth_bytes_per_s), c["blocks"] * 1e-9 * op.numel / 1024.0
            )
        }
    ),
    (HBM,),
    dispatched=False,
)


def by_blocks(library: str, blocks: float) -> Group:
    """Rows of a kernel whose blocks take some nanoseconds each; 1024 elements stream in 15 ns."""
    group = rows(60, 0.8, 0.0, library)
    return replace(group, time_s=BY_BLOCKS.formula(group.op, MACHINE, {"rate": 0.8, "blocks": blocks}, COLD).time_s)


def test_a_kernel_of_another_kind_is_found_where_nothing_leads_to_it() -> None:
    """Blocks of 2 ns are hidden by the stream, and so are those of 4: no slope says that they take 100."""
    assert fit(BY_BLOCKS, [by_blocks("", 100.0)]).values["blocks"] == pytest.approx(100.0, rel=0.1)
    blind = replace(BY_BLOCKS, constants=(RATE, replace(BLOCKS, starts=())))
    assert fit(blind, [by_blocks("", 100.0)]).values["blocks"] == BLOCKS.default


def test_what_all_machines_told_of_a_kernel_stays_its_own_on_a_machine_that_does_not_tell() -> None:
    """Kernels of two libraries differ by much, and one library's on two machines by little."""
    groups = [by_blocks("slow", 100.0), by_blocks("fast", 1.0)]
    typical = {constant.name: constant.default for constant in BY_BLOCKS.constants}
    found = fit_libraries(BY_BLOCKS, groups, typical, kernels={"slow": {"blocks": 90.0}, "fast": {"blocks": 3.0}})
    assert found.own()["fast"]["blocks"] == pytest.approx(3.0)
    assert 90.0 < found.own()["slow"]["blocks"] <= 101.0
    assert "blocks" not in {name for name in found.common() if name in found.shared.certainty}


def test_a_constant_that_only_some_libraries_identify_is_in_the_table_for_the_others() -> None:
    certain, vague = (fit(FAMILY, [group]) for group in (rows(60, 0.7, 2e-6), rows(60, 0.7, 2e-6)))
    vague = replace(vague, unidentified=("start", "unused"))
    fitted = FittedConstants(vague, {"fast": certain, "slow": vague})
    assert "start" in fitted.own()["fast"]
    assert "start" not in fitted.own()["slow"]
    assert "start" in fitted.common(), "the slow one takes the shared value"
    assert fitted.in_table("start")


def test_the_stated_interval_holds_four_of_five_unseen_rows() -> None:
    start = Constants({c.name: c.default for c in FAMILY.constants}, dict.fromkeys(REGIMES, (0.5, 2.0)), "", "")
    made = calibrate_family(FAMILY, [rows(600, 0.7, 4e-6, noise=0.08)], start, "test", "2026-01-01")
    unseen = rows(2000, 0.7, 4e-6, noise=0.08, seed=7)
    ratio, regime = residuals(FAMILY, [unseen], FittedConstants(made.fit))
    low, high = (np.array([made.table.intervals[name][side] for name in REGIMES])[regime] for side in (0, 1))
    inside = (np.exp(-ratio) >= low) & (np.exp(-ratio) <= high)
    assert 0.75 < inside.mean() < 0.85
    assert made.table.constants.keys() == {"rate", "start"}, "what the rows do not identify is left to the defaults"


def test_quantiles_by_hand() -> None:
    # measured / predicted = 0.50, 0.51 ... 1.50; rank 0.9 * 102 = 91.8 of 101: the 93rd, 1.42, and 0.58 from below
    ratio = -np.log(np.linspace(0.5, 1.5, 101))
    found = intervals(ratio, np.full(101, 2), dict.fromkeys(REGIMES, (0.3, 3.0)))
    assert found["large"] == pytest.approx((0.58, 1.42), abs=0.011)
    assert found["mid"] == (0.3, 3.0), "no rows: as before"
    # all rows slower than predicted: the interval still holds the prediction
    slow = intervals(-np.log(np.linspace(1.1, 1.2, 50)), np.full(50, 1), {})
    assert slow["mid"][0] == 1.0


def test_a_sample_keeps_the_share_of_each_group() -> None:
    small, large = rows(100, 0.7, 1e-6), rows(900, 0.7, 1e-6, seed=3)
    taken = sample([small, large], 100)
    assert [len(group) for group in taken] == pytest.approx([len(small) / 10, len(large) / 10], rel=0.15)
    assert sample([small], 1000)[0] is small


def test_log_ratio_is_zero_where_the_formula_is_right() -> None:
    group = rows(10, 0.8, 2e-6)
    defaults = {constant.name: constant.default for constant in FAMILY.constants}
    assert np.abs(log_ratio(FAMILY, defaults, [group])).max() < 1e-12
