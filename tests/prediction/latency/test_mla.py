"""Latent attention: rows of heads that share a block, keys that share SMs, and what others published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.validate import judge
from perfmodel.hardware_catalog import hardware
from perfmodel.records.measurements import read_measurements

PUBLISHED = Path(__file__).parents[3] / "examples" / "published" / "mla.csv"
MACHINES = ("a100-sxm4-80gb", "rtx-4090", "h20-96gb", "h100-sxm5-80gb", "b200-sxm-180gb", "mi300x")


def time_s(machine: str, **dimensions: object) -> float:
    op = pm.Mla(**{"heads": 128, "batch": 32, "seq_kv": 4096, "dtype": "bf16", **dimensions})
    return float(pm.predict(op, machine).predicted_time_s)


def test_all_heads_read_one_cache_once():
    """Attention with one key head reads its keys and values apart: nearly twice the bytes of 576 columns."""
    op = pm.Mla(heads=128, seq_kv=4096, batch=32, dtype="bf16")
    apart = op.attention()
    assert op.flop() == apart.flop()
    cache, values = 32 * 4096 * 576 * 2, 32 * 4096 * 512 * 2
    assert apart.work().bytes - op.work().bytes == values
    assert op.work().bytes == cache + 32 * 128 * (576 + 512) * 2


def test_heads_fill_the_rows_of_a_block_on_hopper():
    """16 to 64 rows take an H20, whose arithmetic is slower than its memory, as long; 80 take twice."""
    times = [time_s("h20-96gb", batch=128, heads=heads) for heads in (16, 32, 64, 80)]
    assert times[0] == pytest.approx(times[2], rel=0.01)
    assert times[3] == pytest.approx(2 * times[2], rel=0.05)


def test_memory_limits_it_where_arithmetic_is_fast():
    few = pm.predict(pm.Mla(heads=16, batch=128, seq_kv=4096, dtype="bf16"), "h100")
    many = pm.predict(pm.Mla(heads=128, batch=128, seq_q=2, seq_kv=8192, dtype="bf16"), "h100")
    assert (few.predicted_limiter, many.predicted_limiter) == ("hbm", "compute")
    assert many.predicted_flop_per_s == pytest.approx(660e12, rel=0.12)  # what FlashMLA states of an H800


def test_a_cache_of_eight_bits_is_read_faster_and_chosen_keys_of_it_are_widened():
    dense, narrow = (time_s("h100", heads=16, batch=128, kv_dtype=dtype) for dtype in ("bf16", "fp8"))
    assert narrow < 0.7 * dense
    dense, narrow = (time_s("h100", batch=128, chosen=2048, kv_dtype=dtype) for dtype in ("bf16", "fp8"))
    assert narrow > dense


def test_an_indexer_leaves_as_many_keys_however_long_the_sequence_is():
    short, long = (time_s("h200", chosen=2048, seq_kv=keys) for keys in (8192, 131072))
    assert short == long < time_s("h200", seq_kv=131072) / 8


@pytest.mark.parametrize("machine", MACHINES)
@given(
    heads=st.integers(1, 256), batch=st.integers(1, 512), seq_q=st.integers(1, 8), keys=st.integers(16, 2**17),
    kv_dtype=st.sampled_from(("bf16", "fp8")), chosen=st.sampled_from((0, 2048)),
)  # fmt: skip
def test_more_is_never_faster_nor_faster_than_the_bound(machine, heads, batch, seq_q, keys, kv_dtype, chosen):
    op = pm.Mla(
        heads=heads, batch=batch, seq_q=seq_q, seq_kv=keys, causal=True, chosen=chosen, kv_dtype=kv_dtype, dtype="bf16"
    )
    found = pm.predict(op, machine)
    assert found.bound_time_s <= found.predicted_time_s
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    for name in ("heads", "batch", "seq_q", "seq_kv"):
        more = pm.predict(op.changed(**{name: getattr(op, name) + 1}), machine).predicted_time_s
        assert found.predicted_time_s * (1 - 1e-9) <= more <= 3.0 * found.predicted_time_s


def test_scalar_equals_array():
    keys, chosen = np.array([100.0, 4096.0, 70000.0]), np.array([0.0, 2048.0, 2048.0])
    sweep = pm.predict(pm.Mla(heads=16, batch=4, seq_kv=keys, chosen=chosen, dtype="bf16"), "h200")
    for place, (size, few) in enumerate(zip(keys, chosen, strict=True)):
        one = pm.predict(pm.Mla(heads=16, batch=4, seq_kv=int(size), chosen=int(few), dtype="bf16"), "h200")
        assert sweep.predicted_time_s[place] == pytest.approx(one.predicted_time_s, rel=1e-12)
        assert sweep.predicted_time_high_s[place] == pytest.approx(one.predicted_time_high_s, rel=1e-3)


def test_what_others_published():
    """The constants are read off these rows; FlashMLA on an H20 shows the rows of a block, an H100 the bandwidth."""
    found = judge([read_measurements(PUBLISHED)], hardware)
    assert len(found) == 32
    for op, most in (("mla", 0.04), ("attention", 0.13)):
        parts = [part for part in found.judged if part.calls.op.op == op]
        errors = np.concatenate([np.abs(part.predicted_s / part.calls.time_s - 1.0) for part in parts])
        assert errors.mean() < most, op
