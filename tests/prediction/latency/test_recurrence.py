"""Linear attention and the delta rule: chunks one after another, heads beside one another, and published times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.operators.linear_attention import LinearAttention
from perfmodel.prediction.predict import predict

H200 = pm.hardware("h200-sxm-141gb")
GB200 = pm.hardware("gb200-nvl72")
B200 = pm.hardware("b200-sxm-180gb")


def seconds(hardware=H200, library="", **sizes):
    op = GatedDelta(**{"head_dim": 128, "dtype": "bf16", **sizes})
    return float(predict(op, hardware, library=library).predicted_time_s)


#: QwenLM/FlashQLA @ 6e5d2ea1 and 5f6aa530, benchmark_results_H200.txt and _GB200.txt: flash-linear-attention's kernels
PUBLISHED = (
    (H200, {"heads": 8, "key_heads": 2, "seq": 2048}, 81e-6),
    (H200, {"heads": 8, "key_heads": 2, "seq": 32768}, 902e-6),
    (H200, {"heads": 64, "key_heads": 16, "seq": 4096, "batch": 8}, 3390e-6),
    (GB200, {"heads": 8, "key_heads": 2, "seq": 8192}, 264e-6),
    (GB200, {"heads": 64, "key_heads": 16, "seq": 4096, "batch": 8}, 2852e-6),
    (H200, {"heads": 32, "key_heads": 16, "seq": 32768, "backward": True}, 5697e-6),
    (GB200, {"heads": 4, "seq": 32768, "backward": True}, 2640e-6),
)


@pytest.mark.parametrize(("hardware", "sizes", "measured"), PUBLISHED)
def test_published_times_lie_within_a_quarter(hardware, sizes, measured):
    carried = {} if sizes.get("backward") else {"carried": True}
    assert seconds(hardware, **sizes, **carried) == pytest.approx(measured, rel=0.25)


def test_a_decode_step_takes_as_long_as_its_states():
    """FlashInfer's on a B200 (pull request 2583): 23.2, 89.9 and 333 us for 32, 128 and 512 sequences."""
    for batch, measured in ((32, 23.2e-6), (128, 89.9e-6), (512, 333e-6)):
        time = seconds(B200, batch=batch, heads=32, key_heads=16, seq=1, carried=True, algorithm="recurrent")
        assert time == pytest.approx(measured, rel=0.1)


def test_a_long_sequence_of_few_heads_waits_for_its_chain_and_many_heads_do_not():
    """Twice the heads of a long sequence take hardly longer; eight times the heads of many take eight times as long."""
    few, twice = (seconds(heads=heads, seq=65536) for heads in (1, 2))
    assert twice < 1.1 * few
    many, more = (seconds(heads=heads, seq=4096, batch=8) for heads in (32, 256))
    assert more > 6.0 * many


@given(st.integers(1, 200_000), st.sampled_from(["chunked", "recurrent"]), st.booleans())
def test_scalar_equals_array_and_nothing_beats_the_bound(seq, algorithm, backward):
    sizes = {
        "heads": 16,
        "key_heads": 4,
        "head_dim": 128,
        "dtype": "bf16",
        "algorithm": algorithm,
        "backward": backward,
    }
    one = predict(GatedDelta(seq=seq, **sizes), H200)
    several = predict(GatedDelta(seq=np.array([seq, seq + 64]), **sizes), H200)
    assert several.predicted_time_s[0] == pytest.approx(one.predicted_time_s, rel=1e-12)
    assert one.predicted_time_s >= one.bound_time_s
    assert several.predicted_time_s[1] >= several.predicted_time_s[0]


def test_one_kernel_keeps_what_is_between_on_the_chip():
    """FlashInfer's takes an H200 320 and 841 us where flash-linear-attention's take 902 and 3390."""
    for sizes, measured in (
        ({"heads": 8, "key_heads": 2, "seq": 32768}, 320e-6),
        ({"heads": 64, "key_heads": 16, "seq": 4096, "batch": 8}, 841e-6),
    ):
        assert seconds(library="flashinfer", carried=True, **sizes) == pytest.approx(measured, rel=0.25)


#: inclusionAI/cuLA @ 0b252e7e, BENCHMARK_GB200.md: flash-linear-attention's kernels, 64 heads of 128 columns
LINEAR = (
    ({"batch": 1, "seq": 4096}, 173e-6),
    ({"batch": 1, "seq": 16384}, 632e-6),
    ({"batch": 2, "seq": 4096}, 303e-6),
    ({"batch": 2, "seq": 16384}, 1129e-6),
    ({"batch": 64, "seq": 1, "algorithm": "recurrent", "carried": True}, 98.1e-6),
    ({"batch": 256, "seq": 1, "algorithm": "recurrent", "carried": True}, 345.5e-6),
)


def linear_seconds(hardware=GB200, **sizes):
    op = LinearAttention(**{"heads": 64, "head_dim": 128, "dtype": "bf16", **sizes})
    return float(predict(op, hardware).predicted_time_s)


@pytest.mark.parametrize(("sizes", "measured"), LINEAR)
def test_published_times_of_linear_attention_lie_within_a_quarter(sizes, measured):
    assert linear_seconds(**sizes) == pytest.approx(measured, rel=0.25)


def test_both_passes_of_few_heads_take_as_long_as_their_chunks():
    """Gated linear attention of 8 heads of 64 columns on an H200: 0.23 to 1.84 ms (tile-ai/TileOPs, pull 534)."""
    for seq, measured in ((2048, 0.23e-3), (4096, 0.47e-3), (8192, 0.94e-3), (16384, 1.84e-3)):
        sizes = {"batch": 2, "heads": 4, "head_dim": 64, "seq": seq}
        both = linear_seconds(H200, **sizes) + linear_seconds(H200, backward=True, **sizes)
        assert both == pytest.approx(measured, rel=0.3)


@given(st.integers(1, 100_000), st.booleans())
def test_linear_attention_takes_no_longer_than_the_delta_rule(seq, backward):
    """Its chunks have fewer products, and its chain fewer of them in a row."""
    sizes = {"heads": 32, "seq": seq, "head_dim": 128, "dtype": "bf16", "backward": backward}
    linear, delta = (predict(kind(**sizes), H200) for kind in (LinearAttention, GatedDelta))
    assert linear.bound_time_s <= linear.predicted_time_s <= delta.predicted_time_s


def test_one_kernel_that_keeps_the_states_does_not_beat_the_bound():
    """cuLA's, 2 sequences of 64 heads on a GB200: 634 us, which writing and reading all states would not allow."""
    op = LinearAttention(batch=2, heads=64, seq=16384, head_dim=128, dtype="bf16")
    found = predict(op, GB200)
    assert found.bound_time_s < 634e-6 < found.work.bytes / found.attainable_bytes_per_s
