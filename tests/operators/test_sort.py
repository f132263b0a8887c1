"""Sorts: bytes and comparisons counted by hand, and the passes of each algorithm."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm

MIB = 2.0**20


def test_a_radix_sort_by_hand() -> None:
    # 2^20 keys of 4 B: a read for the histograms and 4 passes of a read and a write, 9 x 4 MiB
    keys = pm.Sort(cols=2**20)
    assert keys.work().bytes == 36 * MIB
    assert keys.flop() == 0
    # with indices of 8 B: 4 + 4 x 2 x 12 B each
    assert pm.Sort(cols=2**20, value_dtype="int64").work().bytes == 100 * MIB
    # keys of 8 B: 17 x 8 B
    assert pm.Sort(cols=2**20, dtype="fp64").work().bytes == 136 * MIB
    assert keys.kernels() == 4 + 3
    # where caches serve all passes, keys are read once and written once
    assert keys.work().least_bytes == 8 * MIB


def test_merge_and_bitonic_by_hand() -> None:
    # 8192 keys: tiles of 2048, then 2 merges: 3 passes of a read and a write; 13 comparisons deep; a merge partitions
    merge = pm.Sort(cols=8192, algorithm="merge")
    assert (merge.work().bytes, merge.flop(), merge.kernels()) == (3 * 2 * 8192 * 4, 8192 * 13, 5)
    # tiles of 4096, one stage of 1 pass over memory and 1 within tiles: 1 + 1 x 4 / 2
    bitonic = pm.Sort(cols=8192, algorithm="bitonic")
    assert (bitonic.work().bytes, bitonic.kernels()) == (3 * 2 * 8192 * 4, 3)
    assert bitonic.flop() == 8192 * 13 * 14 / 4
    # three stages of 1, 2 and 3 passes over memory and 1 within tiles each
    assert pm.Sort(cols=32768, algorithm="bitonic").passes() == 1 + 6 + 3
    # a row that fits a tile is sorted in one pass
    assert [pm.Sort(cols=1024, algorithm=name).passes() for name in ("merge", "bitonic")] == [1, 1]
    # four rows move and compare as much as four calls
    assert pm.Sort(rows=4, cols=8192, algorithm="merge").flop() == 4 * merge.flop()


def test_radix_ranks_its_keys_where_memory_is_faster():
    # 1.29 clocks of 148 SMs at 1.965 GHz for each of 2^28 keys in each of four passes, and of one
    keys = pm.Sort(cols=2**28)
    for op, passes in ((keys, 4), (keys.changed(dtype="int8"), 1)):
        found = pm.predict(op, "b200-sxm-180gb")
        ranked_s = 1.29 * passes * 2**28 / (148 * 1.965e9)
        assert found.predicted_time_s - found.predicted_terms_s["launch"] == pytest.approx(ranked_s)
        assert found.predicted_terms_s["math"] > found.predicted_terms_s["hbm"]
    # merges rank nothing
    assert pm.predict(keys.changed(algorithm="merge"), "b200-sxm-180gb").predicted_terms_s["math"] == 0.0


@pytest.mark.parametrize("algorithm", ["radix", "merge", "bitonic"])
def test_scalar_equals_array_and_more_keys_move_more(algorithm: str) -> None:
    cols = np.array([1.0, 100.0, 5000.0, 2.0**20])
    together = pm.Sort(cols=cols, algorithm=algorithm, value_dtype="int64").work()
    for index, size in enumerate(cols):
        alone = pm.Sort(cols=int(size), algorithm=algorithm, value_dtype="int64").work()
        assert np.broadcast_to(together.bytes, 4)[index] == alone.bytes
        assert np.broadcast_to(together.flop, 4)[index] == alone.flop
    assert np.all(np.diff(together.bytes) > 0)


def test_radix_reaches_the_published_rate_and_says_that_no_table_has_rows() -> None:
    """Onesweep: 29.4 billion 32-bit keys a second on an A100, and 1.5 times fewer with 3 accesses a pass."""
    prediction = pm.predict(pm.Sort(cols=2**28), "a100-sxm4-40gb")
    assert 2**28 / prediction.predicted_time_s / 1e9 == pytest.approx(29.4, rel=0.03)
    assert prediction.calibration == "never seen"
    assert prediction.predicted_time_high_s > 1.9 * prediction.predicted_time_s


@pytest.mark.parametrize("algorithm", ["radix", "merge", "bitonic"])
def test_no_sort_beats_its_bound(algorithm: str) -> None:
    prediction = pm.predict(pm.Sort(cols=2.0 ** np.arange(1, 30), algorithm=algorithm), "h100")
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    assert np.all(np.diff(prediction.predicted_time_s) >= 0)


def test_the_floor_is_one_read_and_one_write() -> None:
    """What passes between the kernels may stay in a cache: an honest sort of few keys beats its bound, no floor."""
    from perfmodel.prediction.predict import floor_time

    a100 = pm.hardware("a100-sxm4-40gb")
    memory = a100.main_memory.bandwidth_bytes_per_s
    assert floor_time(pm.Sort(cols=2**26, value_dtype="int64"), a100) == pytest.approx(2**26 * 24 / memory)
    assert floor_time(pm.Topk(cols=2**26, k=1, algorithm="sort"), a100) == pytest.approx((2**26 * 4 + 12) / memory)
    assert floor_time(pm.Sampling(rows=64, vocab=2**20), a100) == pytest.approx((64 * 2**22 + 512) / memory)
    assert floor_time(pm.Scan(cols=2**26, algorithm="hillis_steele"), a100) == pytest.approx(2**26 * 8 / memory)
