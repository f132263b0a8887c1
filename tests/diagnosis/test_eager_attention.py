"""Eager attention as PyTorch records it, in every spelling, and products of odd sizes; see scripts/record_eager.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfmodel.diagnosis.advice.padding import multiple_of, padded
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.limits import limit
from perfmodel.diagnosis.profiled import profiled_time
from perfmodel.formats import read_profile
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.attention import Attention
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import Profile, ProfileEntry

EAGER = Path(__file__).parent / "eager"
H100 = hardware("h100-sxm5-80gb")


def advised(name, kind="attention"):
    diagnosis = diagnose(read_profile(EAGER / f"{name}.json.gz"), H100)
    return diagnosis, [item for item in diagnosis.advice if item.kind == kind]


@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("plain", ["div", "_softmax"]),
        ("video", ["mul", "_softmax"]),
        ("baddbmm", ["baddbmm", "copy_", "_softmax", "div_", "mul"]),
        ("einsum", ["mul", "copy_", "masked_fill_", "_softmax"]),
        ("grouped", ["mul", "add", "copy_", "_softmax", "div_"]),
    ],
)
def test_attention_is_found_whatever_lies_between_its_products(name, between):
    _, items = advised(name)
    forward = next(item for item in items if "gradient" not in item.candidate.name)
    targets = " ".join(forward.candidate.targets)
    assert all(f"aten::{word}(" in targets for word in between)
    assert forward.time_saved_low_s <= forward.time_saved_s <= forward.time_saved_high_s


def test_the_saving_is_the_time_of_the_parts_less_that_of_the_fused_kernel():
    diagnosis, (item,) = advised("video")
    parts_s = sum(entry.time_s for entry in diagnosis.wall.entries if entry.name in item.candidate.targets)
    fused = Attention(heads=4, seq_q=3137, seq_kv=3137, head_dim=64, dtype="bf16")
    expected_s = parts_s - profiled_time(predict(fused, H100, library="torch"), H100)
    assert item.time_saved_s == pytest.approx(expected_s)
    # 3137 tokens are no multiple of 8, whichever way it is computed
    assert "pad n 3137 to 3144, k 3137 to 3144 (a multiple of 8)" in item.text
    assert "pad" not in advised("plain")[1][0].text
    # the copies of the values are other tensors: they stay
    assert not any("copy_" in target for target in item.candidate.targets)


def test_the_gradient_of_attention_is_found_too():
    _, items = advised("grouped")
    assert [item.candidate.name.startswith("fused gradient of attention") for item in items] == [False, True]
    targets = items[1].candidate.targets
    assert any("_softmax_backward_data" in target for target in targets)
    assert sum("bmm" in target for target in targets) >= 3


def test_a_softmax_between_other_products_is_no_attention():
    assert advised("router")[1] == []


@pytest.mark.parametrize(("dtype", "multiple"), [("bf16", 8), ("fp16", 8), ("fp8", 16), ("int8", 16), ("tf32", 4)])
def test_whole_loads_are_16_bytes(dtype, multiple):
    assert multiple_of(dtype) == multiple


def test_odd_row_lengths_are_padded_and_counts_of_rows_are_not():
    new, words = padded(Gemm(m=3137, n=3137, k=64, dtype="bf16"))
    assert (new.m, new.n, new.k) == (3137, 3144, 64)
    assert words == "n 3137 to 3144"
    assert padded(Gemm(m=3137, n=64, k=64, dtype="bf16"))[1] == ""


def _profile(time_s, n=3137):
    op = Gemm(m=3137, n=n, k=1024, batch=16, dtype="bf16")
    return Profile((ProfileEntry("scores", time_s, 1, "kernel", op),))


def test_padding_is_advised_for_odd_products_that_are_slower_than_padded_ones_may_be():
    whole = Gemm(m=3137, n=3144, k=1024, batch=16, dtype="bf16")
    padded_s = profiled_time(predict(whole, H100), H100)
    slow, fine = (diagnose(_profile(time_s), H100).advice for time_s in (3.0 * padded_s, padded_s))
    (item,) = [item for item in slow if item.kind == "pad"]
    assert "3137 to 3144" in item.text
    assert item.time_saved_s == pytest.approx(2.0 * padded_s)
    assert not [item for item in fine if item.kind == "pad"]
    assert not [item for item in diagnose(_profile(3.0 * padded_s, n=3144), H100).advice if item.kind == "pad"]


def test_what_nobody_measured_is_no_reason_to_tune():
    # layer norms in 64 bits were not measured on any machine; fp32 products were on this one
    op = Gemm(m=4096, n=4096, k=4096, dtype="fp32")
    for library, tuned in (("aten::mm", True), ("aten::native_layer_norm", False)):
        one = op if tuned else _norm()
        slow = ProfileEntry("slow", 3 * float(predict(one, H100).predicted_time_s), 1, "kernel", one, library)
        diagnosis = diagnose(Profile((slow,)), H100)
        assert any(item.kind == "tune-kernel" for item in diagnosis.advice) is tuned
        assert any("tuning is not advised" in text for text in diagnosis.not_advised) is not tuned


def _norm():
    from perfmodel.operators.layer_norm import LayerNorm

    return LayerNorm(rows=65536, cols=4096, dtype="fp64")


def test_kernels_below_their_interval_are_reported():
    op = Gemm(m=512, n=512, k=512, dtype="fp32")
    entry = ProfileEntry("fast", 1.0, 1, "kernel", op, "aten::mm")
    expected = limit(entry, H100)
    entry = replace(entry, time_s=(expected.predicted_low_s + expected.floor_time_s) / 2)
    diagnosis = diagnose(Profile((entry,)), H100)
    assert any(text.startswith("Faster than their expectation's interval") for text in diagnosis.not_advised)
    assert "tune-kernel" not in {item.kind for item in diagnosis.advice}
    # the same kernel at three times its expectation is to be tuned
    slow = diagnose(Profile((replace(entry, time_s=3 * expected.predicted_high_s),)), H100)
    assert "tune-kernel" in {item.kind for item in slow.advice}
