"""Copies between host and device: bytes over PCIe, and a start that depends on the direction."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.prediction.explain import meaning


def copied(machine: str = "h100-sxm5-80gb", **params: object) -> np.ndarray:
    return np.asarray(pm.predict(pm.Memcpy(**params), machine).predicted_time_s)


@pytest.mark.parametrize(("direction", "start_s"), [("h2d", 1.0e-6), ("d2h", 2.3e-6)])
def test_a_few_bytes_take_the_start_of_the_copy(direction: str, start_s: float) -> None:
    """Open traces: 0.78 us to an H100 for 8 B, 2.2 and 2.4 us from one for 1 B."""
    assert copied(bytes=8, direction=direction) == pytest.approx(start_s, rel=0.01)


def test_where_the_queue_holds_the_dispatch_a_copy_does_too() -> None:
    """An open trace: 4.5 us from an MI300X for 256 B."""
    assert copied("mi300x", bytes=256, direction="d2h") == pytest.approx(4.4e-6, rel=0.01)


def test_large_copies_take_the_share_of_pcie_that_copies_reach() -> None:
    """By hand: 1 GB over 63.02 GB/s of PCIe 5, of which page-locked memory reaches 80 %, other memory half."""
    pinned, pageable = (copied(bytes=10**9, direction="h2d", pinned=pinned) for pinned in (True, False))
    assert pinned == pytest.approx(1 / (0.80 * 63.02), rel=0.01)
    assert pageable == pytest.approx(2 * pinned, rel=0.01)


def test_more_bytes_take_longer_and_scalars_are_as_arrays() -> None:
    sizes = 2.0 ** np.arange(0, 34)
    together = copied(bytes=sizes, direction="d2h")
    assert np.all(np.diff(together) > 0)
    assert together[20] == pytest.approx(copied(bytes=2**20, direction="d2h"), rel=1e-12)
    bound = pm.predict(pm.Memcpy(bytes=sizes, direction="d2h"), "h100-sxm5-80gb").bound_time_s
    assert np.all(together >= bound)


@pytest.mark.parametrize("machine", ["gb10", "mi300a"])
@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_where_host_and_device_share_one_memory_a_copy_reads_and_writes_it(machine: str, direction: str) -> None:
    """By hand: 2 x 1 GB over 273 GB/s of a GB10, 5325 GB/s of an MI300A."""
    between = pm.predict(pm.Memcpy(bytes=10**9, direction=direction), machine)
    within = pm.predict(pm.Memcpy(bytes=10**9, direction="d2d"), machine)
    rate = {"gb10": 273e9, "mi300a": 5325e9}[machine]
    assert between.bound_time_s == pytest.approx(2e9 / rate, rel=1e-3)
    assert (between.limiter, between.link_bytes) == ("hbm", 0)
    assert (between.bytes_read, between.bytes_written) == (1e9, 1e9)
    assert between.predicted_time_s == within.predicted_time_s
    assert between.params["direction"] == direction
    sizes = pm.predict(pm.Memcpy(bytes=np.full(20_000, 1e9), direction=direction), machine)
    assert np.all(sizes.predicted_time_s == within.predicted_time_s)
    assert np.all(sizes.bound_time_s == within.bound_time_s)


def test_memory_that_is_not_page_locked_is_less_sure_where_both_share_it() -> None:
    ends = [pm.predict(pm.Memcpy(bytes=10**9, pinned=pinned), "mi300a") for pinned in (True, False)]
    pinned, pageable = (end.predicted_time_high_s / end.predicted_time_low_s for end in ends)
    assert pageable > 1.2 * pinned


def test_a_rate_measured_between_host_and_device_predicts_there_too() -> None:
    gb10 = pm.hardware("gb10")
    measured = dataclasses.replace(gb10, sustained_links=MappingProxyType({"pcie": 60e9}))
    assert pm.predict(pm.Memcpy(bytes=10**9), measured).predicted_time_s == pytest.approx(1 / 60, rel=1e-3)


@pytest.mark.parametrize("machine", ["gh200-96gb", "gb200-nvl72", "gb300-nvl72"])
def test_the_link_of_a_superchip_has_its_name(machine: str) -> None:
    prediction = pm.predict(pm.Memcpy(bytes=10**9), machine)
    assert prediction.largest_term == "NVLink-C2C"
    assert "of datasheet NVLink-C2C" in prediction.prediction_basis
    assert meaning("NVLink-C2C") == "traffic over NVLink-C2C between host and device"
    assert pm.predict(pm.Memcpy(bytes=10**9), "h100").largest_term == "pcie"
