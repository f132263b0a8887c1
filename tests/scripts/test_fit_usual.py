"""What is usual in families like one: hosts, and tables of several vendors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_deviations import GENERATIONS, VENDORS, LeftOut
from fit_hierarchy import assumed
from fit_shared import Shared, _by_host
from fit_usual import HOST_SPREAD, FittedFamily, Usual, usual_in

from perfmodel.accuracy.fit import Fit, Group
from perfmodel.accuracy.libraries import FittedConstants
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import Timing
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.machine import Machine

FIT = FittedConstants(Fit({}, (), {}, 0.0, 0))
USUAL = Usual({GENERATIONS: (assumed(0.1),) * 3, VENDORS: (assumed(0.1),) * 3}, (0.0,) * 3, {})


def table(*machines: LeftOut, between: str = GENERATIONS, by_host: bool = False) -> Shared:
    return Shared(LatencyTable({}), FIT, machines, 1, between=between, by_host=by_host)


def deviation(shared: Shared) -> tuple[float, ...]:
    return FittedFamily({"generic": shared}, {}).tables(USUAL)["generic"].deviations["machine"]


def test_calls_that_a_host_dispatches_differ_by_what_hosts_do_in_the_launch_regime_alone() -> None:
    on_device, by_host = deviation(table()), deviation(table(by_host=True))
    assert by_host[0] / on_device[0] == pytest.approx(HOST_SPREAD / 0.1)
    assert by_host[1:] == on_device[1:]


def test_what_vendors_differ_by_is_not_usual_between_the_machines_of_one() -> None:
    rows = np.full(60, 0.5), np.repeat(np.arange(len(REGIMES)), 20)
    apart = [LeftOut(name, *rows, name) for name in ("a", "b", "c")]
    one = FittedFamily({"generic": table(*apart)}, {})
    several = FittedFamily({"generic": replace(one.shared["generic"], between=VENDORS)}, {})
    near, far = (
        [regime.variance.value for regime in usual_in("softmax", {"softmax": made}).machines[GENERATIONS]]
        for made in (several, one)
    )
    assert max(near) < min(far)


def test_most_rows_tell_whether_a_host_dispatches_not_most_groups_of_rows() -> None:
    one = Elementwise(numel=1, dtype="fp32", kind="add")
    event, kernel = (Conditions(timing=timing) for timing in (Timing.EVENT, Timing.KERNEL))
    machine = Machine.of(hardware("t4"), resolve_peak(one, hardware("t4")))

    def group(conditions: Conditions, rows: int) -> Group:
        return Group(one, machine, conditions, np.ones(rows))

    assert _by_host({"t4": [group(event, 90), *(group(kernel, 10) for _ in range(8))]})
    assert not _by_host({"t4": [*(group(event, 10) for _ in range(8)), group(kernel, 90)]})
