"""Attention of a larger size takes no less time: more sequences, queries, keys, or a lesser machine."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.phases import BLOCK_QUERIES
from perfmodel.prediction.latency.attention.prefill import PREFILL
from perfmodel.prediction.latency.machine import Machine

Floats = NDArray[np.float64]

COUNT = 300
#: of all instructions, with residual surfaces and without, measured and not
MACHINES = (
    "a100-sxm4-80gb", "a2", "b200-sxm-180gb", "h100-sxm5-80gb", "l40s", "mi300x", "rtx-4060", "rtx-4090",
    "rtx-5000-ada",
)  # fmt: skip
#: all but TensorRT-LLM, whose choices among its kernels step both ways
LIBRARIES = ("", "cudnn", "fa2", "fa3", "flashinfer", "sglang", "torch-2.8", "triton", "vllm")
#: what rounding, and the exponent of a smooth maximum, leave
TOLERANCE = 1.02
#: residual surfaces of causal prompts, which were fitted to rows, may fall by so much; of cuDNN also what a smooth
#: maximum adds to a wave of equal blocks, 2^(1/4)
SURFACE, WAVE = 1.1, 1.19


def random_calls(seed: int, most_queries: float) -> dict[str, Floats]:
    """Return sizes of calls of 1 to 2^``most_queries`` queries, two fifths of them prompts and the rest of a cache."""
    rng = np.random.default_rng(seed)
    kv_heads = np.exp2(rng.integers(0, 5, COUNT))
    queries = np.floor(np.exp2(rng.uniform(0, most_queries, COUNT)))
    cached = np.where(rng.random(COUNT) < 0.4, 0.0, np.floor(np.exp2(rng.uniform(0, 14, COUNT))))
    return {
        "batch": np.floor(np.exp2(rng.uniform(0, 8, COUNT))),
        "heads": kv_heads * rng.choice([1.0, 2, 3, 4, 5, 8, 16], COUNT),
        "kv_heads": kv_heads,
        "head_dim": rng.choice([64.0, 128, 256], COUNT),
        "seq_q": queries,
        "seq_kv": queries + cached,
    }


def seconds(machine: str, library: str, sizes: Mapping[str, Floats], *, causal: bool, dtype: str = "bf16") -> Floats:
    op = Attention(dtype=dtype, causal=causal, **sizes)  # type: ignore[arg-type]
    return np.asarray(pm.predict(op, machine, library=library).predicted_time_s)


def larger(sizes: Mapping[str, Floats]) -> dict[str, dict[str, Floats]]:
    """Return calls with more of one size."""
    queries, keys = sizes["seq_q"], sizes["seq_kv"]
    return {
        "twice the batch": {**sizes, "batch": 2.0 * sizes["batch"]},
        "a sequence": {**sizes, "batch": sizes["batch"] + 1.0},
        "a query": {**sizes, "seq_q": queries + 1.0, "seq_kv": np.maximum(keys, queries + 1.0)},
        "twice the queries": {**sizes, "seq_q": 2.0 * queries, "seq_kv": np.maximum(keys, 2.0 * queries)},
        "a key": {**sizes, "seq_kv": keys + 1.0},
        "half as many keys": {**sizes, "seq_kv": np.ceil(1.5 * keys)},
    }


@pytest.mark.waiting
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("machine", MACHINES)
def test_more_of_a_size_takes_no_less_time(machine: str, library: str, causal: bool) -> None:
    for most_queries in (7.2, 12.0):
        sizes = random_calls(7, most_queries)
        # cuDNN's blocks of heads of 256 columns wait for their keys up to 64 queries, as measured
        sizes["head_dim"] = np.minimum(sizes["head_dim"], 128.0 if library == "cudnn" else 256.0)
        with contextlib.suppress(UsageError):  # no such kernel on the machine
            here = seconds(machine, library, sizes, causal=causal)
            for name, more in larger(sizes).items():
                ratio = here / seconds(machine, library, more, causal=causal)
                limit = (WAVE if library == "cudnn" else SURFACE) if causal else TOLERANCE
                worst = {size: int(values[ratio.argmax()]) for size, values in sizes.items()}
                assert ratio.max() <= limit, f"{name} more is {ratio.max():.3f} times as fast: {worst}"


@pytest.mark.parametrize("machine", ["a2", "rtx-4060", "b200-sxm-180gb", "h100-sxm5-80gb"])
@pytest.mark.parametrize("dtype", ["fp32", "fp8"])
def test_kernels_that_nobody_measured_keep_the_order_of_few_queries(machine: str, dtype: str) -> None:
    sizes = random_calls(8, 6.0)
    with contextlib.suppress(UsageError):
        here = seconds(machine, "", sizes, causal=False, dtype=dtype)
        for name, more in larger(sizes).items():
            assert np.all(here <= TOLERANCE * seconds(machine, "", more, causal=False, dtype=dtype)), name


@pytest.mark.parametrize(
    ("machine", "library", "sizes"),
    [
        ("b200-sxm-180gb", "", {"batch": 29, "heads": 296, "kv_heads": 37, "head_dim": 64, "seq_q": 3}),
        ("b200-sxm-180gb", "vllm", {"batch": 64, "heads": 12, "head_dim": 64, "seq_q": 8}),
        ("a100-sxm4-80gb", "torch", {"batch": 64, "heads": 12, "head_dim": 64, "seq_q": 8}),
    ],
)
def test_a_short_prompt_of_attention_alone_is_as_many_queries_of_a_cache(
    machine: str, library: str, sizes: dict[str, int]
) -> None:
    prompt, cached = (
        float(
            pm.predict(
                pm.Attention(**sizes, seq_kv=sizes["seq_q"] + more, causal=True, dtype="bf16"), machine, library=library
            ).predicted_time_s
        )
        for more in (0, 3)
    )
    assert prompt <= cached < 1.1 * prompt


@pytest.mark.parametrize("machine", ["l40s", "rtx-5000-ada", "h100-sxm5-80gb", "rtx-4090"])
@pytest.mark.parametrize("tokens", [129, 192, 256])
def test_flashattention_2_splits_no_keys_where_joining_them_takes_longer(machine: str, tokens: int) -> None:
    op = pm.Attention(heads=32, kv_heads=8, seq_q=tokens, head_dim=128, causal=True, dtype="bf16")
    one, two, longer = (
        float(pm.predict(call, machine, library="torch/fa2").predicted_time_s)
        for call in (op, op.changed(batch=2), op.changed(seq_q=tokens + 1, seq_kv=None))
    )
    assert one <= two
    assert one <= WAVE * longer < 2.0 * one


def test_joining_the_parts_of_split_keys_is_a_term_of_its_own() -> None:
    op = pm.Attention(heads=4, seq_q=2048, head_dim=128, dtype="bf16")
    few, many = (pm.predict(x, "h100", library="torch/fa2").predicted_terms_s for x in (op, op.changed(batch=64)))
    assert few["split-k"] > 0.0
    assert many.get("split-k", 0.0) == 0.0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("instruction", ["mma.sync", "wgmma"])
@pytest.mark.parametrize("library", ["fa2", "fa3", "torch/fa2", "cudnn"])
def test_more_sms_of_one_kind_are_not_slower(instruction: str, library: str, causal: bool) -> None:
    """A machine of graphics memory: what two parts of the keys write takes long there, unless it lies in L2."""
    small = Machine(
        142.0, 2.5e9, 362e12, "tensor", "bf16", 8.64e11, 9e13, 1e8, np.inf, matrix_instruction=instruction
    )  # fmt: skip
    large = replace(small, sm_count=1.2 * small.sm_count, peak_flop_per_s=1.2 * small.peak_flop_per_s)
    values = {constant.name: constant.default for constant in PREFILL.all_constants}
    rng = np.random.default_rng(9)
    op = Attention(
        dtype="bf16",
        causal=causal,
        batch=rng.integers(1, 9, 1000).astype(float),
        heads=8.0 * rng.integers(1, 9, 1000),
        seq_q=rng.integers(1, 2000, 1000).astype(float),
        head_dim=128,
    )
    slow, fast = (
        np.asarray(PREFILL.formula(op, machine, values, Conditions(library=library)).time_s)
        for machine in (small, large)
    )
    assert np.all(fast <= TOLERANCE * slow)


# ---- kernels that do not split


@pytest.mark.parametrize("machine", ["a100-pcie-80gb", "h100-sxm5-80gb"])
def test_cudnn_splits_the_keys_of_one_query_alone_whoever_calls_it(machine: str) -> None:
    """9 heads: 4 queries of 62208 keys take an A100 seven times as long as one (`examples/published`)."""
    sizes = {"heads": 9, "seq_kv": 62208, "head_dim": 128, "dtype": "bf16"}
    one, few, block = (
        float(pm.predict(pm.Attention(**sizes, seq_q=n), machine, library="cudnn").predicted_time_s)
        for n in (1, 4, 128)
    )
    assert 4.0 * one < few <= block


def test_cudnn_has_blocks_of_64_rows_by_mma_sync() -> None:
    op = pm.Attention(heads=9, seq_q=64, seq_kv=62208, head_dim=128, dtype="bf16")
    half, whole = (
        float(pm.predict(op.changed(seq_q=n), "a100-pcie-80gb", library="cudnn").predicted_time_s) for n in (64, 65)
    )
    assert 1.8 * half < whole < 2.2 * half


def test_waves_of_equal_blocks_of_cudnn_are_whole() -> None:
    """On 108 SMs 72 blocks take no longer than 9: all run at once."""
    op = pm.Attention(heads=9, seq_q=128, seq_kv=62208, head_dim=128, dtype="bf16")
    few, many = (
        float(pm.predict(op.changed(seq_q=n), "a100-pcie-80gb", library="cudnn").predicted_time_s) for n in (128, 1024)
    )
    assert many < 1.1 * few


def test_a_kernel_that_nobody_described_may_not_split_the_keys_of_a_few_queries() -> None:
    op = pm.Attention(heads=9, seq_q=4, seq_kv=62208, head_dim=128, dtype="bf16")

    def width(library: str, **changed: float) -> float:
        found = pm.predict(op.changed(**changed), "a100-pcie-80gb", library=library)
        return float(found.predicted_time_high_s / found.predicted_time_s)

    assert width("nobody") > 1.5 * width("nobody", batch=64)
    # nor may one by hand, or in Triton, split those of one query; what libraries run does
    assert width("nobody", seq_q=1) > 1.5 * width("nobody", seq_q=1, batch=64)
    assert width("triton", seq_q=1) > 1.5 * width("triton", seq_q=1, batch=64)
    assert width("flashinfer", seq_q=1) < 1.2 * width("flashinfer", seq_q=1, batch=64)
    assert width("nobody") > 1.5 * width("nobody", seq_q=BLOCK_QUERIES + 1)
    # the name of a kernel within another's name is none of its
    assert width("cudnn_oss") == pytest.approx(width("nobody"))
    assert width("fa3") == pytest.approx(width("fa3", seq_q=1), rel=0.2)


@pytest.mark.parametrize(("batch", "seq", "measured_s"), [(32, 512, 209e-6), (8, 2048, 634e-6), (1, 16384, 4612e-6)])
def test_triton_on_hopper_has_blocks_of_128_rows_and_is_as_far_from_the_peak_at_each_length(
    batch: int, seq: int, measured_s: float
) -> None:
    """An H100's rates of 16 heads rise from 329 to 477 TFLOP/s (pytorch-benchmark-2391 in `examples/published`)."""
    op = pm.Attention(batch=batch, heads=16, seq_q=seq, head_dim=128, dtype="bf16")
    found = pm.predict(op, "h100", library="triton").predicted_time_s
    assert found == pytest.approx(measured_s, rel=0.08)
    # FlashAttention-3's warps take turns, so that products hide exponentials
    assert pm.predict(op, "h100", library="fa3").predicted_time_s < 0.9 * float(found)


@pytest.mark.parametrize(
    ("machine", "library", "sizes", "measured_s"),
    [
        ("b200", "fa4", (4, 16, 16, 8192, 128, "bf16"), 1433e-6),
        ("gb200", "cudnn", (2, 64, 8, 16384, 128, "bf16"), 10587e-6),
        ("gb200", "cudnn", (2, 64, 8, 16384, 128, "fp8"), 7961e-6),
        ("gb300", "cudnn", (2, 32, 32, 32768, 64, "fp16"), 15329e-6),
        ("gb300", "fa4", (2, 32, 32, 32768, 64, "fp16"), 14219e-6),
    ],
)
def test_on_tcgen05_the_longer_of_softmax_and_products_counts(
    machine: str, library: str, sizes: tuple[int, int, int, int, int, str], measured_s: float
) -> None:
    """Published times of whole prompts (`examples/published`): heads of 64 have half the products for a score."""
    batch, heads, kv_heads, seq, head_dim, dtype = sizes
    op = pm.Attention(batch=batch, heads=heads, kv_heads=kv_heads, seq_q=seq, head_dim=head_dim, dtype=dtype)
    assert pm.predict(op, machine, library=library).predicted_time_s == pytest.approx(measured_s, rel=0.18)
