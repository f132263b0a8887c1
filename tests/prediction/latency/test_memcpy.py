"""Copies between host and device: bytes over PCIe, and a start that depends on the direction."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm


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
