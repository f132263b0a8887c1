"""What is usual in families like one: hosts, and tables of several vendors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_deviations import GENERATIONS, VENDORS, LeftOut
from fit_shared import Shared
from fit_usual import HOST_SPREAD, FittedFamily, Usual, usual_in

from perfmodel.accuracy.fit import Fit
from perfmodel.accuracy.libraries import FittedConstants
from perfmodel.core.latency_table import REGIMES, LatencyTable

FIT = FittedConstants(Fit({}, (), {}, 0.0, 0))
USUAL = Usual({GENERATIONS: (0.1,) * 3, VENDORS: (0.1,) * 3}, (0.0,) * 3, {})


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
    near, far = (usual_in("softmax", {"softmax": made}).machines[GENERATIONS] for made in (several, one))
    assert max(near) < min(far)
