"""How many rows of a table differ among those looked up, and what the operators that look up refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators import load_operator
from perfmodel.operators.lookup import distinct, harmonic, most_repeated


def test_even_draws_by_hand() -> None:
    # 131072 (1 - (1 - 1/131072)^16384) = 131072 (1 - exp(-0.125)) to four digits
    assert pm.Embedding(tokens=16384, vocab=131072, dim=8).unique == 15401
    # two draws out of two rows: 1 with probability 1/2, else 2, which rounds to the even one
    assert distinct(2, 2) == 2
    assert distinct(1, 1000) == 1
    assert distinct(1000, 1) == 1


def test_zipf_draws_agree_with_the_sum_over_the_ranks() -> None:
    for draws, rows in ((100, 1000), (50_000, 32_000), (10, 10)):
        ranks = np.arange(1, rows + 1)
        probability = 1.0 / ranks / np.sum(1.0 / ranks)
        exact = np.sum(1.0 - (1.0 - probability) ** draws)
        assert distinct(draws, rows, "zipf") == pytest.approx(exact, rel=0.05, abs=0.5), (draws, rows)
        assert harmonic(rows) == pytest.approx(np.sum(1.0 / ranks), rel=2e-3)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from(("even", "zipf", "same")))
def test_distinct_rows_are_at_most_draws_and_rows_and_grow_with_draws(draws: int, rows: int, spread: str) -> None:
    hit = distinct(draws, rows, spread)
    assert 1 <= hit <= min(draws, rows)
    assert hit == int(hit) <= distinct(2 * draws, rows, spread)
    assert distinct(np.array([draws]), rows, spread)[0] == hit  # type: ignore[index]
    assert 1 <= most_repeated(draws, rows, spread) <= draws
    # Zipf's law repeats more than even draws, and those more than one row alone
    assert distinct(draws, rows, "same") <= distinct(draws, rows, "zipf") <= 1.06 * distinct(draws, rows, "even") + 1


@pytest.mark.parametrize(
    ("op", "params", "part"),
    [
        ("rope", {"tokens": 1}, "heads is missing"),
        ("rope", {"tokens": 1, "kv_heads": 2, "dim": 128}, "heads is missing"),
        ("rope", {"tokens": 1, "heads": 2, "head_dim": 8, "dim": 33}, "is not .* = 32"),
        ("rope", {"tokens": 1, "heads": 2, "head_dim": 8, "rotary": 9}, "above head_dim=8"),
        ("rope", {"tokens": 1, "heads": 2, "head_dim": 8, "rotary": 5}, "rotary=5 is odd"),
        ("rope", {"tokens": 1, "heads": 2, "head_dim": 7}, "head_dim=7 is odd"),
        ("rope", {"tokens": 1, "dim": 1000}, "dim=1000 is not a multiple of head_dim=128"),
        ("group_norm", {"n": 1, "groups": 3, "c": 4, "hw": 1}, "c=4 is not a multiple of groups=3"),
        ("pool2d", {"n": 1, "c": 1, "h": 2, "w": 4, "k": 3}, "the output is empty.*h=2"),
        ("pool2d", {"n": 1, "c": 1, "h": 4, "w": 4, "k": 2, "padding": 2}, "above half of the window"),
        ("pool2d", {"n": 1, "c": 1, "h": 0, "w": 4, "k": 2}, "h=0 is below 1"),
        ("scatter_add", {"rows": 3, "table": 2, "unique": 3}, "more than min"),
        ("quantize", {"rows": 1, "cols": 100, "scale": "group:64"}, "does not divide cols=100"),
        ("dequantize", {"rows": 1, "cols": 100, "scale": "group:64"}, "does not divide cols=100"),
        ("dequantize", {"rows": 1, "cols": 1, "in_dtype": "fp16"}, "Allowed: fp4, fp8, int8"),
        ("optimizer", {"parameters": 1, "kind": "adam8bit", "algorithm": "loop"}, "does not exist for adam8bit"),
        ("optimizer", {"parameters": 1, "kind": "adamm"}, "Did you mean 'adamw'"),
        ("elementwise", {"numel": 1, "kind": "add", "backward": True}, "no gradient of its own"),
        ("attention", {"heads": 1, "seq_q": 1, "head_dim": 1, "kv_write": True, "backward": True}, "no call is both"),
        ("conv2d", {**dict.fromkeys("nchwkrs", 1), "gradient": "input"}, "needs backward=true"),
        ("conv2d", {**dict.fromkeys("nchwkrs", 1), "algorithm": "im2col", "backward": True}, "no backward pass"),
        ("ssm_scan", {"seq": 1, "channels": 0}, "channels=0 is below 1"),
        ("resample", {"c": 1, "w": 8, "q": 8, "axes": 4}, "axes=4 is above 3"),
        ("fft", {"n": 8, "others": 4, "axes": 1}, "axes=1 and others=4"),
    ],
)
def test_wrong_parameters_are_refused(op: str, params: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        load_operator(op)(**params)


@pytest.mark.parametrize(
    ("op", "params", "part"),
    [
        ("all_reduce", {"bytes": 1, "nodes": [1, 16], "num_gpus": [1024, 8]}, "nodes=16 is more than num_gpus=8"),
        ("attention", {"heads": 1, "head_dim": 8, "seq_q": [1, 9], "seq_kv": 4, "causal": True}, "seq_q=9 in"),
        ("mla", {"heads": 1, "seq_q": [1, 9], "seq_kv": 4, "causal": True}, "seq_kv=4 is below seq_q=9 in"),
        ("conv2d", {**dict.fromkeys("nckrs", 1), "h": 3, "w": [3, 3], "dilation": 2, "r": [1, 3]}, "of 3 .* fit 3"),
        ("conv2d", {**dict.fromkeys("nhwrs", 1), "c": 4, "k": [4, 9], "groups": 4}, "k=9 .* groups=4"),
        ("embedding", {"tokens": [9, 4], "vocab": 9, "dim": 1, "unique": 5}, r"unique=5 is .* = 4\."),
        ("group_norm", {"n": 1, "groups": [2, 3], "c": 4, "hw": 1}, "c=4 .* groups=3"),
        ("moe", {**dict.fromkeys(("tokens", "hidden", "inter"), 1), "experts": [4, 2], "top_k": 3}, "k=3 .* experts=2"),
        ("moe", {**dict.fromkeys(("tokens", "hidden", "top_k"), 1), "experts": 1, "inter": [4, 5], "tp": 2}, "inter=5"),
        ("pool2d", {**dict.fromkeys("nc", 1), "h": 8, "w": [8, 2], "k": 3}, "k=3 does not fit w=2"),
        ("pool2d", {**dict.fromkeys("nc", 1), "h": 8, "w": 8, "k": 3, "padding": [1, 2]}, "padding=2 is above"),
        ("quantize", {"rows": 1, "cols": [128, 100], "scale": "group:64"}, "does not divide cols=100"),
        ("rope", {"tokens": 1, "heads": [4, 3], "head_dim": 64, "dim": 512}, r"dim=512 is not .* = 384\."),
        ("rope", {"tokens": 1, "heads": 1, "head_dim": [8, 7]}, "head_dim=7 is odd"),
        ("rope", {"tokens": 1, "heads": 1, "head_dim": 8, "rotary": [8, 10]}, "rotary=10 is above head_dim=8"),
        ("sampling", {"rows": 1, "vocab": [9, 4], "k": 5, "algorithm": "top_k"}, "k=5 is above vocab=4"),
        ("scatter_add", {"rows": [9, 3], "table": 9, "unique": 5}, r"unique=5 is .* = 3\."),
        ("topk", {"cols": [9, 4], "k": 5}, "k=5 is above cols=4"),
    ],
)
def test_of_a_sweep_the_message_has_the_first_point_that_is_wrong(op: str, params: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part) as raised:
        load_operator(op)(**params)
    assert "[" not in raised.value.message


def test_a_backward_pass_is_a_dimension_only_where_it_is_one() -> None:
    assert pm.LayerNorm(rows=1, cols=2).params() == {"rows": 1, "cols": 2}
    assert pm.LayerNorm(rows=1, cols=2, backward=True).params() == {"rows": 1, "cols": 2, "backward": True}
    assert pm.LayerNorm(rows=1, cols=2, backward=True).given() == ("rows", "cols", "backward")


def test_compositions_do_the_work_of_the_whole() -> None:
    for op in (
        pm.CrossEntropy(rows=300, vocab=5000, backward=True),
        pm.Attention(heads=3, seq_q=40, head_dim=8, algorithm="unfused", backward=True),
        pm.Conv2d(n=2, c=4, h=9, w=9, k=8, r=3, s=3, padding=1, backward=True),
        pm.LinearCrossEntropy(rows=64, hidden=16, vocab=128, dtype="bf16"),
    ):
        parts = op.composition()
        assert parts
        moved = sum(part.count * part.work().bytes for part in parts)
        assert moved == pytest.approx(op.work().bytes, rel=0.06), op.op
        products = [part for part in parts if part.op in ("gemm", "conv2d")]
        if products:
            done = sum(part.count * part.flop() for part in products)
            assert done == pytest.approx(op.flop(), rel=0.05 if op.op != "linear_cross_entropy" else 0.1)


def test_the_last_chunk_of_a_loss_has_the_rows_that_are_left() -> None:
    """1025 rows are 1024 and one, not 2 x 1024, and no chunk has more rows than there are; V H may be odd."""
    for sizes in (
        {"rows": 1025, "hidden": 4096, "vocab": 8192},
        {"rows": 999, "hidden": 1001, "vocab": 32003},
        {"rows": 10, "hidden": 64, "vocab": 128, "chunk": 1000},
    ):
        op = pm.LinearCrossEntropy(**sizes, dtype="bf16")
        products = [part for part in op.composition() if part.op == "gemm"]
        assert sum(part.count * part.flop() for part in products) == 6.0 * op.rows * op.hidden * op.vocab
        assert op.peak_bytes <= 2.0 * op.rows * op.vocab


def test_the_memory_of_a_chunk_is_what_the_fused_loss_buys() -> None:
    op = pm.LinearCrossEntropy(rows=16384, hidden=4096, vocab=128256, dtype="bf16")
    assert (op.chunk, op.chunks) == (512, 32)
    (dweight,) = [tensor for tensor in op.tensors() if tensor.name == "dweight"]
    assert (dweight.reads + dweight.writes) * dweight.size_bytes == pytest.approx(67.2e9, rel=1e-3)
    assert op.flop() == pytest.approx(51.6e12, rel=1e-2)
    assert op.peak_bytes == 512 * 128256 * 2


def test_kernels_of_an_optimizer() -> None:
    """36 tensors a kernel with four lists, 64 with two; a kernel has 320 blocks of 65,536 elements."""
    assert pm.Optimizer(parameters=1000, num_tensors=36).kernels() == 1
    assert pm.Optimizer(parameters=1000, num_tensors=37).kernels() == 2
    assert pm.Optimizer(parameters=3 * 320 * 65536).kernels() == 3
    assert pm.Optimizer(parameters=1000, num_tensors=64, algorithm="foreach").kernels() == 8
    assert pm.Optimizer(parameters=1000, num_tensors=64, algorithm="loop").kernels() == 8 * 64


def test_a_second_read_that_a_cache_may_serve_is_in_no_bound() -> None:
    norm = pm.BatchNorm(n=256, c=64, hw=3136)
    assert norm.work().least_bytes == pytest.approx(2 / 3 * norm.work().bytes)
    rate = pm.hardware("a100").main_memory.bandwidth_bytes_per_s
    assert pm.predict(norm, "a100").bound_time_s == pytest.approx(norm.work().least_bytes / rate)  # type: ignore[operator]
