"""Loaders beside steps."""

from __future__ import annotations

import math

import pytest

from perfmodel.errors import UsageError
from perfmodel.training.data_loading import data_loading


def test_loaders_that_keep_up_never_starve():
    loading = data_loading(step_s=1.0, samples=1000, workers=20, rate_per_s=50.0)
    assert (loading.starved_s, loading.starves_after_s, loading.workers_needed) == (0.0, math.inf, 20)


def test_half_of_the_loaders_double_the_step():
    loading = data_loading(step_s=1.0, samples=1000, workers=10, rate_per_s=50.0, prefetched=5000)
    assert loading.starved_s == 1.0
    # 1000 a second are used and 500 come: 5000 last 10 s
    assert loading.starves_after_s == 10.0
    assert loading.workers_needed == 20


@pytest.mark.parametrize("change", [{"step_s": 0.0}, {"workers": 0}, {"rate_per_s": math.inf}, {"prefetched": -1}])
def test_figures_that_are_none_are_refused(change):
    with pytest.raises(UsageError):
        data_loading(**({"step_s": 1.0, "samples": 8, "workers": 1, "rate_per_s": 1.0} | change))
