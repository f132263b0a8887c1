"""The gated delta rule: FLOP, bytes and limits by hand."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError


def test_products_of_chunks_by_hand() -> None:
    """Each product of a chunk has the FLOP of a matrix product of its sizes."""
    c, d, e, chunks, heads = 64, 128, 96, 5, 3
    op = pm.GatedDelta(heads=heads, seq=c * chunks, head_dim=d, value_dim=e, chunk=c)
    sizes = {
        "K K^T": (c, c, d), "T K": (c, d, c), "T V": (c, e, c), "W S": (c, e, d),
        "Q K^T": (c, c, d), "(Q K^T) V'": (c, e, c), "Q S": (c, e, d), "K^T V'": (d, e, c),
    }  # fmt: skip
    flop = {name: float(pm.Gemm(m=m, n=n, k=k).flop()) for name, (m, n, k) in sizes.items()}
    assert op.flop() == heads * chunks * sum(flop.values())
    anew = ("K K^T", "Q K^T", "T K", "T V", "W S", "K^T V'")
    backward = 2 * sum(flop.values()) + sum(flop[name] for name in anew)
    assert op.changed(backward=True).flop() == heads * chunks * backward


def test_steps_by_hand() -> None:
    # k S, the outer product and q S: 2 d e each; backward two gradients of each, and the first two anew
    op = pm.GatedDelta(heads=3, seq=5, head_dim=8, value_dim=4, algorithm="recurrent")
    assert op.flop() == 15 * 3 * 2 * 32
    assert op.changed(backward=True).flop() == 15 * (6 + 2) * 2 * 32
    # chunks of one token have the FLOP of steps, and products of single numbers
    assert op.changed(algorithm="chunked", chunk=1).flop() == op.flop() + 15 * 2 * (3 * 8 + 2 * 4)


def test_a_key_serves_neighbouring_heads() -> None:
    alone, shared = (pm.GatedDelta(heads=8, key_heads=k, seq=64, head_dim=16, dtype="bf16") for k in (8, 2))
    assert alone == pm.GatedDelta(heads=8, seq=64, head_dim=16, dtype="bf16")
    assert shared.flop() == alone.flop()
    # six of eight heads of q and of k less
    assert alone.work().bytes - shared.work().bytes == 2 * 6 * 64 * 16 * 2
    with pytest.raises(UsageError, match="heads=8 is not a multiple of key_heads=3"):
        pm.GatedDelta(heads=8, key_heads=3, seq=64, head_dim=16)
    with pytest.raises(UsageError, match=r": heads=16 is not a multiple of key_heads=32\. Each"):
        pm.GatedDelta(heads=np.array([[16], [32]]), key_heads=np.array([16, 32]), seq=64, head_dim=16)


def test_a_carried_state_is_read_and_written_in_fp32() -> None:
    op = pm.GatedDelta(batch=2, heads=4, seq=1, head_dim=8, value_dim=6, algorithm="recurrent", dtype="bf16")
    state = 2 * 4 * 8 * 6 * 4
    plain, carried = op.work(), op.changed(carried=True).work()
    assert (carried.bytes_read - plain.bytes_read, carried.bytes_written - plain.bytes_written) == (state, state)
    with pytest.raises(UsageError, match="carried=true has no backward pass"):
        op.changed(carried=True, backward=True)
    assert op.changed(carried=True, state_dtype="bf16").work().bytes_read - plain.bytes_read == state / 2
    assert op.changed(state_dtype="fp32") == op
    for kind in (op, pm.LinearAttention(heads=4, seq=8, head_dim=8)):
        with pytest.raises(UsageError, match="state_dtype=bf16 is that of a carried state, and carried=false"):
            kind.changed(state_dtype="bf16")


def test_no_floor_counts_what_kernels_leave_each_other() -> None:
    """One kernel of all chunks can keep it on the chip, and the steps write nothing of it."""
    sizes = {"heads": 2, "seq": 256, "head_dim": 64, "dtype": "bf16"}
    chunked, steps = (pm.GatedDelta(**sizes, algorithm=a) for a in ("chunked", "recurrent"))
    assert chunked.work().least_bytes == steps.work().bytes
    backward = chunked.changed(backward=True)
    assert backward.work().least_bytes == steps.changed(backward=True).work().bytes
    # T, W, U and V' have 64 columns each, a state 64 x 64 for 64 tokens
    assert chunked.work().bytes - steps.work().bytes == 2 * 5 * 2 * 256 * 64 * 2
    assert [t.name for t in chunked.buffers()] == ["q", "k", "v", "decay", "beta", "o"]
    assert [t.name for t in chunked.changed(carried=True).buffers()][-3:] == ["state", "o", "last_state"]


def test_a_step_of_a_server_takes_as_long_as_its_state() -> None:
    """Qwen3-Next-80B-A3B, a layer, 64 sequences: 64 x 32 states of 64 KiB are read and written."""
    op = pm.GatedDelta(
        batch=64, heads=32, key_heads=16, seq=1, head_dim=128, algorithm="recurrent", carried=True, dtype="bf16"
    )
    state = 2 * 64 * 32 * 128 * 128 * 4
    assert state < op.work().bytes < 1.02 * state
    prediction = pm.predict(op, "h100-sxm5-80gb")
    assert prediction.limiter == "hbm"
    assert state / 3.4e12 < prediction.bound_time_s <= prediction.predicted_time_s < 1.5 * state / 3.35e12
    # twice the sequences: twice the time, but for the launch
    twice = pm.predict(op.changed(batch=128), "h100-sxm5-80gb")
    assert twice.predicted_time_s == pytest.approx(2 * prediction.predicted_time_s, rel=0.05)


@pytest.mark.parametrize("algorithm", ["chunked", "recurrent"])
@pytest.mark.parametrize("changed", [{}, {"backward": True}, {"carried": True}, {"key_heads": 2}])
def test_scalar_equals_array_grows_and_is_above_the_bound(algorithm: str, changed: dict[str, int]) -> None:
    seq = np.array([1.0, 2.0, 63.0, 64.0, 65.0, 100.0, 4096.0, 65536.0])
    sizes = {"heads": 8, "head_dim": 128, "dtype": "bf16", "algorithm": algorithm, **changed}
    together = pm.predict(pm.GatedDelta(seq=seq, **sizes), "h100-sxm5-80gb")
    assert np.all(together.predicted_time_s >= together.bound_time_s)
    assert np.all(np.diff(together.predicted_time_s) > 0)
    for index, tokens in enumerate(seq):
        alone = pm.predict(pm.GatedDelta(seq=int(tokens), **sizes), "h100-sxm5-80gb")
        assert alone.predicted_time_s == pytest.approx(together.predicted_time_s[index], rel=1e-9)  # type: ignore[index]
    assert together.calibration == "never seen"


def test_the_gradient_costs_more_and_long_sequences_are_no_attention() -> None:
    op = pm.GatedDelta(heads=32, key_heads=16, seq=8192, head_dim=128, dtype="bf16")
    forward, backward = (pm.predict(one, "h100-sxm5-80gb") for one in (op, op.changed(backward=True)))
    assert 2 < backward.predicted_time_s / forward.predicted_time_s < 4
    # in proportion to the tokens, where attention grows with their square
    longer = pm.predict(op.changed(seq=4 * 8192), "h100-sxm5-80gb")
    assert longer.predicted_time_s < 4.01 * forward.predicted_time_s
