"""The slowest of many: known expectations, and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfmodel.errors import UsageError
from perfmodel.training.stragglers import expected_maximum, slowdown


def test_known_expectations_of_the_normal_maximum():
    assert expected_maximum(1) == 0.0
    assert expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-3)
    assert expected_maximum(3) == pytest.approx(3 / (2 * math.sqrt(math.pi)), abs=1e-3)
    assert expected_maximum(10) == pytest.approx(1.53875, abs=1e-3)
    assert expected_maximum(1000) == pytest.approx(3.24144, abs=2e-3)


@pytest.mark.parametrize(("deviation", "rel"), [(0.05, 0.005), (0.3, 0.015)])
def test_it_is_the_mean_of_drawn_maxima(deviation, rel):
    """Of wide distributions the mean of the maximum lies some per mille above the exponential of the mean."""
    draws = np.random.default_rng(0).lognormal(0.0, math.sqrt(math.log1p(deviation**2)), size=(4000, 256))
    assert draws.std() / draws.mean() == pytest.approx(deviation, rel=0.01)
    drawn = draws.max(axis=1).mean() / draws.mean()
    assert slowdown(256, deviation) == pytest.approx(drawn, rel=rel)


def test_more_gpus_and_more_jitter_are_never_faster():
    times = [slowdown(n, 0.02) for n in (1, 8, 64, 512, 4096)]
    assert times == sorted(times)
    assert times[0] == 1.0
    assert slowdown(64, 0.0) == 1.0 < slowdown(64, 0.01) < slowdown(64, 0.02)


@pytest.mark.parametrize(("gpus", "deviation"), [(0, 0.1), (8, -0.1), (8, math.nan)])
def test_what_is_none_is_refused(gpus, deviation):
    with pytest.raises(UsageError):
        slowdown(gpus, deviation)
