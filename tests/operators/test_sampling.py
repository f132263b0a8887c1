"""Sampling: passes over the logits by hand, and what circulates about Gumbel-max."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.sampling import ALGORITHMS

#: passes over 4 rows of 1000 fp32 logits, 16 000 B; the drawn tokens are 32 B
PASSES = {"multinomial": 7, "gumbel": 7, "gumbel_fused": 1, "top_p_pivot": 4}


@pytest.mark.parametrize("algorithm", PASSES)
def test_passes_by_hand(algorithm: str) -> None:
    """All logits are read once, tokens are written once; a cache may serve the passes in between."""
    work = pm.Sampling(rows=4, vocab=1000, algorithm=algorithm).work()
    assert (work.bytes, work.least_bytes) == (16_000 * PASSES[algorithm] + 32, 16_000 + 32)


def test_arithmetic_by_hand() -> None:
    # softmax 5, random number, quotient and comparison; logarithm twice, difference and comparison; 2 in each read
    flop = {"multinomial": 8, "gumbel": 4, "gumbel_fused": 4, "top_p_pivot": 8, "top_p": 8 + 1}
    assert {name: pm.Sampling(rows=4, vocab=1000, algorithm=name).flop() / 4000 for name in flop} == flop
    # 5 comparisons of each logit, then 8 for those that are left
    assert pm.Sampling(rows=4, vocab=1000, k=50, algorithm="top_k").flop() == 4 * (5 * 1000 + 8 * 50)


def test_top_k_and_top_p_by_hand() -> None:
    # 5 reads of the row; 50 values of 4 B and indices of 8 B are written, and raced among in 6 passes of 200 B
    top_k = pm.Sampling(rows=1, vocab=1000, k=50, algorithm="top_k")
    assert top_k.work().bytes == 5 * 4000 + 600 + 6 * 200 + 8
    # a sort of pairs, 100 B, and 8 passes of 4 B over the sorted row
    assert pm.Sampling(rows=1, vocab=1000, algorithm="top_p").work().bytes == 1000 * (100 + 32) + 8
    with pytest.raises(UsageError, match="k=50 is above vocab=10"):
        pm.Sampling(rows=1, vocab=10, algorithm="top_k")


def test_gumbel_max_moves_no_fewer_bytes_unless_it_is_fused() -> None:
    multinomial, gumbel, fused = (
        pm.Sampling(rows=64, vocab=128256, algorithm=name) for name in ("multinomial", "gumbel", "gumbel_fused")
    )
    assert gumbel.work().bytes == multinomial.work().bytes
    assert fused.work().bytes < multinomial.work().bytes / 6.9
    times = [pm.predict(op, "h100").predicted_time_s for op in (multinomial, gumbel, fused)]
    assert times[1] > 0.9 * times[0]
    assert times[2] < 0.2 * times[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scalar_equals_array_and_never_beats_its_bound(algorithm: str) -> None:
    vocab = np.array([64.0, 32000.0, 262144.0])
    prediction = pm.predict(pm.Sampling(rows=8, vocab=vocab, algorithm=algorithm), "h100")
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    assert np.all(np.diff(prediction.predicted_time_s) > 0)
    alone = pm.predict(pm.Sampling(rows=8, vocab=32000, algorithm=algorithm), "h100")
    assert alone.predicted_time_s == pytest.approx(prediction.predicted_time_s[1])  # type: ignore[index]
    assert alone.calibration == "never seen"
