"""The sentences below a table of predictions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware
from perfmodel.prediction.summary import summarize


def said(*ops: pm.Operator, machine: Hardware) -> str:
    return "\n".join(summarize([pm.predict(op, machine) for op in ops]))


def test_counted_calls_are_summed_one_after_another(simple_gpu: Hardware) -> None:
    # 48 x 2.5 ms + 10 x 120 us of bound
    text = said(
        pm.Gemm(m=5000, n=5000, k=5000, dtype="fp16", count=48),
        pm.Elementwise(numel=10_000_000, count=10),
        machine=simple_gpu,
    )
    assert "58 calls one after another: bound 121.2 ms" in text


def test_a_single_call_is_no_sum(simple_gpu: Hardware) -> None:
    assert "one after another" not in said(pm.Elementwise(numel=10), machine=simple_gpu)
    assert "2 calls one after another" in said(pm.Elementwise(numel=10, count=2), machine=simple_gpu)


def test_a_sweep_has_no_total(simple_gpu: Hardware) -> None:
    text = said(pm.Elementwise(numel=np.array([10, 20]), count=3), machine=simple_gpu)
    assert "one after another" not in text


def test_advice_names_its_operators(simple_gpu: Hardware) -> None:
    text = said(pm.Elementwise(numel=1, name="tiny"), pm.Memcpy(bytes=10**9, name="load"), machine=simple_gpu)
    assert "or a CUDA graph changes that: tiny." in text
    assert "or overlap with compute, changes that: load." in text


def test_caches_and_capacity(simple_gpu: Hardware) -> None:
    text = said(
        pm.Elementwise(numel=500_000, name="small"), pm.Elementwise(numel=10**12, name="huge"), machine=simple_gpu
    )
    assert "bound with the data already in a cache: small (l2: 1.5 us by l2)" in text
    assert "Larger than the device's memory, so that it cannot run: huge (12 TB) on simple." in text


def test_a_cache_of_unknown_bandwidth_has_no_bound() -> None:
    l40s = pm.hardware("l40s")
    assert next(level for level in l40s.caches if level.name == "l2").bandwidth_bytes_per_s is None
    text = said(pm.Embedding(tokens=4096, vocab=128256, dim=4096, dtype="bf16"), machine=l40s)
    assert "bound with the data already in a cache" not in text
    sentence = "in a cache without a datasheet bandwidth, and so without a bound: embedding"
    for sustained, level in ((2e12, "l2: 2 TB/s sustained"), (None, "l2")):
        memory = tuple(
            replace(one, sustained_bytes_per_s=sustained) if one.name == "l2" else one for one in l40s.memory
        )
        machine = replace(l40s, memory=memory)
        text = said(pm.Embedding(tokens=4096, vocab=128256, dim=4096, dtype="bf16"), machine=machine)
        assert f"{sentence} ({level})." in text


def test_launch_bound_does_not_mean_that_starting_takes_most_of_the_time() -> None:
    # 12 MB in L2 take less than a launch, and the model expects 85 % of the time for the memory (case 3).
    add = pm.predict(pm.Elementwise(numel=10**6, dtype="fp32"), "a100-sxm4-40gb")
    assert add.predicted_terms_s["launch"] < 0.5 * float(add.predicted_time_s)
    assert add.advice.startswith("launch-bound with its data in a cache, memory-bound without")


def test_arithmetic_that_outlasts_a_launch_is_not_called_launch_bound() -> None:
    # 4 MB in L2 take less than a launch, but the rows' arithmetic takes three times a launch: data in a cache or
    # batched calls leave it. The advice is that of the terms, one row at a time as in an array.
    norm = pm.LayerNorm(rows=128, cols=4096, dtype="fp32")
    alone = pm.predict(norm, "a100-sxm4-40gb")
    assert alone.predicted_terms_s["launch"] < 0.25 * float(alone.predicted_time_s)
    assert alone.advice.startswith("memory-bound, but its arithmetic is expected to take longer")
    rows = np.array([1, 128, 100_000])
    of_rows = pm.predict(pm.LayerNorm(rows=rows, cols=4096, dtype="fp32"), "a100-sxm4-40gb").advice
    assert of_rows[0].startswith("little work, but expected to take longer than its launch")
    assert of_rows[1] == alone.advice
    assert of_rows[2].startswith("memory-bound")


def test_long_lists_are_counted(simple_gpu: Hardware) -> None:
    ops = [pm.Elementwise(numel=10_000_000, name=f"op{index}") for index in range(9)]
    assert "op5 and 3 more" in said(*ops, machine=simple_gpu)


def test_odd_rows_are_less_sure_and_faster_when_padded() -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    text = said(pm.Gemm(m=4096, n=50257, k=768, dtype="bf16", name="logits"), machine=machine)
    assert "Less sure: logits, since calls measured were of sizes that take other kernels, or of fewer devices." in text
    assert "Rows of logits begin off 16 B on h100-sxm5-80gb: padded (n 50257 to 50264) it is expected to take" in text
    text = said(pm.Gemm(m=4096, n=50304, k=768, dtype="bf16"), pm.Gemm(m=63, n=63, k=63), machine=machine)
    assert "Less sure" not in text
    assert "padded" not in text


def test_a_kernel_whose_releases_differ_says_so() -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    op = pm.AllReduce(bytes=65536, num_gpus=8, dtype="bf16")
    for library, unsure in (("sglang", True), ("sglang-0.5.9", False), ("nccl", False), ("sglang-0.6.0", True)):
        text = "\n".join(summarize([pm.predict(op, machine, library=library)]))
        assert (
            "Less sure: all_reduce, since releases of this library differ, and none that was measured is named." in text
        ) is unsure


def test_a_convolution_that_winograd_speeds_up_says_why_it_may_pass_its_bound() -> None:
    sizes = {"n": 32, "c": 64, "h": 56, "w": 56, "k": 64, "padding": 1}
    passed = pm.predict(pm.Conv2d(**sizes, r=3, s=3, dtype="fp32"), "a100-sxm4-80gb")
    assert passed.predicted_time_s < passed.bound_time_s
    assert any("Winograd's algorithm needs 25%" in text for text in summarize([passed]))
    pointwise = pm.predict(pm.Conv2d(**{**sizes, "padding": 0}, r=1, s=1, dtype="fp32"), "a100-sxm4-80gb")
    assert not any("Winograd" in text for text in summarize([pointwise]))


def test_data_in_a_cache_may_beat_the_bound_of_a_cold_call() -> None:
    """A matrix of 34 MB fits the L2 of 96 MB, so that warm calls do not wait for the memory as the bound does."""
    op = pm.Gemm(m=1, n=4096, k=4096, dtype="fp16")
    cold, warm = (pm.predict(op, "l40s", cache=cache) for cache in ("cold", "warm"))
    assert warm.predicted_time_s < warm.bound_time_s == cold.bound_time_s <= cold.predicted_time_s
    sentence = "The bound is that of a cold call, which calls with warm caches may beat: gemm."
    assert sentence in summarize([warm])
    assert not any("cold call" in text for text in summarize([cold]))
    headings = [next(c.heading for c in p.report().columns if c.key == "bound_time_s") for p in (warm, cold)]
    assert headings == ["cold bound", "bound"]


@pytest.mark.parametrize(
    ("machine", "num_gpus", "said"),
    [("rtx-2080-ti", 2, True), ("rtx-3090", 4, True), ("h100-sxm5-80gb", 2, False), ("l40s", 2, False),
     ("mi210", 4, True), ("mi300a", 4, False), ("mi300x", 4, False)],
)  # fmt: skip
def test_an_exchange_over_a_bridge_says_how_to_leave_it_out(machine: str, num_gpus: int, said: bool) -> None:
    found = pm.predict(pm.AllReduce(bytes=2**20, num_gpus=num_gpus, dtype="fp32"), machine, library="nccl")
    name, key = ("xGMI", "xgmi") if machine.startswith("mi") else ("NVLink", "nvlink")
    sentence = f"The {name} bridge of {machine} is an accessory; without it take [link.{key}] out of a copy of its file"
    assert any(text.startswith(sentence) for text in summarize([found])) is said


@pytest.mark.parametrize(("nodes", "said"), [(None, True), (2, False)])
def test_an_exchange_on_a_board_says_that_nodes_may_have_fewer(nodes: int | None, said: bool) -> None:
    """Most nodes with a GH200 have one; two of them in two nodes exchange over the network alone."""
    text = "\n".join(summarize([pm.predict(pm.AllReduce(bytes=2**20, num_gpus=2, nodes=nodes), "gh200")]))
    assert ("NVLink joins the 4 gh200-96gb of a board; nodes=N says" in text) is said
    assert "accessory" not in text


ALONE, WITH = "The product alone; --library sglang, trtllm or vllm adds", "With the kernel that quantises A"


@pytest.mark.parametrize(
    ("library", "params", "text"),
    [
        ("", {"dtype": "fp8"}, ALONE),
        ("torch", {"dtype": "fp8"}, ALONE),
        ("", {"dtype": "int8"}, ALONE),
        ("vllm", {"dtype": "fp8"}, WITH),
        ("sglang", {"dtype": "fp8"}, WITH),
        ("", {"dtype": "fp8", "quantized": True}, ""),
        ("vllm", {"dtype": "fp8", "quantized": True}, ""),
        ("vllm", {"dtype": "bf16"}, ""),
        ("", {"dtype": "bf16", "weight_dtype": "int4", "scale": "group:128"}, ""),
    ],
)
def test_what_a_product_of_few_bits_contains_is_said(library: str, params: dict[str, Any], text: str) -> None:
    op = pm.Gemm(m=4096, n=4096, k=4096, **params)
    sentences = summarize([pm.predict(op, "h100", library=library)])
    told = [sentence for sentence in sentences if sentence.startswith((ALONE, WITH))]
    assert len(told) == bool(text)
    assert all(sentence.startswith(text) for sentence in told)
    # where it is said to be in the time, it is; where it is said not to be, it is not
    given = pm.predict(op.changed(quantized=True), "h100", library=library).predicted_time_s
    assert (pm.predict(op, "h100", library=library).predicted_time_s > given) == (text == WITH)


def test_the_advice_comes_before_where_the_figures_come_from() -> None:
    lines = summarize([pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp8"), "h100")])
    starts = [
        next(place for place, line in enumerate(lines) if word in line) for word in ("ompute-bound", "Predicted from")
    ]
    assert starts == [0, len(lines) - 1]


def test_whose_rows_set_the_constants_is_said_where_it_is_asked_for() -> None:
    found = [pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16"), "h100")]
    short, full = (summarize(found, sources=sources)[-1] for sources in (False, True))
    assert full == f"Predicted from {found[0].prediction_basis}."
    assert "aiconfigurator" in full
    assert "aiconfigurator" not in short
    whole = "Predicted from gemm_bf16, constants of this machine: fitted on N rows; residual surface fitted on N rows."
    assert re.sub(r"\d+ rows", "N rows", short) == whole
