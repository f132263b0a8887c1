"""Operators of which PyTorch's kernels alone were measured, predicted for no library, or one that nobody knows."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.uncertainty import Z80

CALLS = [
    pm.BatchNorm(n=64, c=64, hw=3136, dtype="fp16"),
    pm.GroupNorm(n=16, groups=32, c=320, hw=4096, dtype="bf16"),
    pm.Pool2d(n=64, c=64, h=112, w=112, k=3, stride=2, padding=1, dtype="bf16"),
    pm.Gather(numel=1e7, table=2**24),
    pm.Scan(rows=4096, cols=32768, dtype="bf16"),
    pm.Sort(cols=1e7),
    pm.Topk(cols=2**24, k=50),
    pm.RmsNorm(rows=4096, cols=4096, dtype="bf16", backward=True),
]


@pytest.mark.parametrize("timing", ["kernel", "event"])
@pytest.mark.parametrize("op", CALLS, ids=lambda op: op.op)
def test_the_interval_reaches_what_pytorch_takes(op: pm.Operator, timing: str) -> None:
    own, serving = (pm.predict(op, "h100", library=name, timing=timing) for name in ("torch", "vllm"))
    for library in ("", "foolib"):
        found = pm.predict(op, "h100", library=library, timing=timing)
        assert found.predicted_time_low_s <= own.predicted_time_s <= found.predicted_time_high_s * (1 + 1e-12)
        if timing == "kernel":  # hosts differ
            assert found.predicted_time_s == pytest.approx(float(serving.predicted_time_s))
    # that of a library with kernels of its own is what it was
    low, high = serving.predicted_time_low_s, serving.predicted_time_high_s
    assert timing == "event" or not low <= own.predicted_time_s <= high


def test_what_it_grows_by_is_what_libraries_differ_by() -> None:
    found, other = (pm.predict(pm.Sort(cols=1e7), "h100", library=name) for name in ("", "vllm"))
    width = [float(np.log(one.predicted_time_high_s / one.predicted_time_low_s)) / 2 / Z80 for one in (found, other)]
    variances = [one.uncertainty.variances(one.regime) for one in (found, other)]
    added = variances[0][ErrorSource.LIBRARY] - variances[1].get(ErrorSource.LIBRARY, 0.0)
    assert added == pytest.approx(width[0] ** 2 - width[1] ** 2)


def test_points_of_a_sweep_have_the_intervals_of_single_calls() -> None:
    """Also those of a long one, which is put together from parts, and where some of them need nothing."""
    cols = np.unique(np.geomspace(64, 2**24, 40_000).round())
    many = pm.predict(pm.Topk(cols=cols, k=50), "h100")
    assert len(cols) > 2**14
    for place in (0, len(cols) // 3, len(cols) // 2, len(cols) - 1):
        one = pm.predict(pm.Topk(cols=float(cols[place]), k=50), "h100")
        for name in ("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s"):
            assert getattr(many, name)[place] == pytest.approx(float(getattr(one, name)))
        for source, variance in many.uncertainty.variances(many.regime).items():
            alone = one.uncertainty.variances(one.regime).get(source, 0.0)
            assert np.ravel(variance)[place] == pytest.approx(float(alone))


def test_forward_norms_have_no_such_kernels() -> None:
    norm = pm.LayerNorm(rows=4096, cols=4096, dtype="bf16")
    times = [
        (one.predicted_time_low_s, one.predicted_time_high_s)
        for one in (pm.predict(norm, "h100", library=name) for name in ("", "torch"))
    ]
    assert times[0] == pytest.approx(times[1])
