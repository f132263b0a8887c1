"""Selections: reads and comparisons by hand."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.prediction.algorithms.topk import PROBLEM
from perfmodel.prediction.latency.reduction import IDLE

ALGORITHMS = ("radix_select", "sort", "heap")


def test_counts_by_hand() -> None:
    # 2 rows of 1000 fp32: 4 reads to find, 1 to gather; 10 values of 4 B and indices of 8 B a row are written
    select = pm.Topk(rows=2, cols=1000, k=10).work()
    assert (select.bytes_read, select.bytes_written, select.flop) == (5 * 8000, 240, 5 * 2000)
    assert select.least_bytes == 8000 + 240
    # keys of 2 B have two digits
    assert pm.Topk(rows=2, cols=1000, k=10, dtype="bf16").work().bytes_read == 3 * 4000
    # a sort of pairs moves 100 B a key, and what is kept is written
    sort = pm.Topk(cols=1000, k=10, algorithm="sort").work()
    assert (sort.bytes, sort.least_bytes) == (100_000 + 120, 4000 + 120)
    heap = pm.Topk(cols=1000, k=10, algorithm="heap").work()
    assert heap.bytes_read == 4000
    assert heap.flop == pytest.approx(1000 + 10 * np.log(100) * np.log2(10))


def test_a_selection_of_all_is_allowed_and_of_more_is_not() -> None:
    assert pm.Topk(cols=8, k=8, algorithm="heap").flop() == 8
    with pytest.raises(UsageError, match="k=9 is above cols=8"):
        pm.Topk(cols=8, k=9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scalar_equals_array_and_never_beats_its_bound(algorithm: str) -> None:
    cols = np.array([64.0, 4096.0, 2.0**20])
    op = pm.Topk(rows=16, cols=cols, k=np.array([1.0, 50.0, 64.0]), algorithm=algorithm)
    prediction = pm.predict(op, "h100")
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    alone = pm.predict(pm.Topk(rows=16, cols=2**20, k=64, algorithm=algorithm), "h100")
    assert alone.predicted_time_s == pytest.approx(prediction.predicted_time_s[2])  # type: ignore[index]
    assert alone.calibration == "never seen"


def seconds(rows: int, cols: int, algorithm: str = "radix_select", library: str = "") -> float:
    op = pm.Topk(rows=rows, cols=cols, k=50, algorithm=algorithm)
    return float(pm.predict(op, "h100", library=library).predicted_time_s)


def test_one_long_row_leaves_multiprocessors_idle() -> None:
    """One block a row: 50 rows of a million cost about as much as one, where a sort costs 50 times as much."""
    assert seconds(50, 2**20, "heap") < 1.5 * seconds(1, 2**20, "heap")
    assert seconds(50, 2**20, "sort") > 20 * seconds(1, 2**20, "sort")


def test_several_blocks_share_a_long_row_of_a_selection() -> None:
    """As in PyTorch: one row of 16 M elements had 17 reads by one block, and took 50 times as long as there."""
    one = seconds(1, 2**24)
    assert seconds(1, 2**24, library="torch") / 4 < one < seconds(1, 2**24, library="torch")
    assert seconds(50, 2**20) > 2 * seconds(1, 2**20)
    found = pm.predict(pm.Topk(cols=2**24, k=50), "h100")
    assert found.estimate.terms.adds[IDLE] == 0.0
    assert "radix_select_multi" in found.prediction_basis
    assert "radix_select_multi" not in pm.predict(pm.Topk(cols=1000, k=50), "h100").prediction_basis
    # no jump, and no size at which they are slower than one block would be
    cols = np.arange(1000.0, 200_000.0, 500.0)
    times = np.asarray(pm.predict(pm.Topk(cols=cols, k=50), "h100").predicted_time_s)
    assert np.all(np.diff(times) > -1e-12)
    choice = pm.choose("topk", "h100", cols=2**24, k=50)
    assert choice["radix_select"].time_s > 20 * choice["radix_select_multi"].time_s


@pytest.mark.parametrize(
    ("rows", "cols", "algorithm"), [(64, 128000, "radix_select_multi"), (6400, 1000, "radix_select")]
)
def test_the_algorithm_that_is_predicted_takes_as_long_among_the_others(rows: int, cols: int, algorithm: str) -> None:
    op = pm.Topk(rows=rows, cols=cols, k=50)
    costs = {cost.algorithm: cost for cost in PROBLEM.costs(op, pm.hardware("h100"))}
    assert costs[algorithm].time_s == pytest.approx(float(pm.predict(op, "h100").predicted_time_s))
