"""Compressed gradients and other what-ifs of a step."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.compression import Compression, compressed_data_s
from perfmodel.training.options import with_compression, with_loading, with_stragglers
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-3.1-8b")
SLOW = Cluster.of(hardware("a100-sxm4-80gb"), 32, nic="10Gb/s")
PLAN = TrainingPlan(batch=32, seq=2048, tp=8, framework="megatron-te")


def test_what_is_sent_of_a_matrix_by_hand():
    assert Compression.parse("topk:0.01").sent_bytes(1000, 1000) == 0.01 * 1e6 * 8  # a value and an index
    assert Compression.parse("topk:1%") == Compression.parse("topk:0.01") == Compression.parse("topk")
    assert Compression.parse("powersgd:4").sent_bytes(1000, 500) == 4 * 1500 * 4  # two factors in fp32
    assert Compression.parse("1bit").sent_bytes(1000, 1000) == 1e6 / 8
    assert Compression.parse("fp8").sent_bytes(1000, 1000) == 1e6


def test_a_slow_network_gains_and_the_kernels_cost():
    step = train(LLAMA, SLOW, PLAN)
    faster = with_compression(LLAMA, step, "powersgd:4")
    assert faster.terms_s["data"] < step.terms_s["data"]
    assert faster.terms_s["compression"] > 0
    assert faster.time_s == pytest.approx(sum(faster.terms_s.values()))
    assert faster.time_s < step.time_s
    assert "powersgd:4" in faster.notes[-1]


def test_gathered_methods_move_more_with_more_ranks():
    few, many = (SLOW.resized(count) for count in (16, 128))
    times = []
    for cluster in (few, many):
        step = train(LLAMA, cluster, PLAN.changed(batch=cluster.gpus))
        times.append(compressed_data_s(LLAMA, step, Compression.parse("1bit")).exchange_s)
    assert times[1] > 4 * times[0]


def test_one_rank_compresses_nothing():
    step = train(LLAMA, SLOW.resized(8), PLAN)
    with pytest.raises(UsageError, match="exchanges no gradients"):
        compressed_data_s(LLAMA, step, Compression.parse("fp8"))


@pytest.mark.parametrize("text", ["zip", "topk:2", "topk:x", "powersgd:0", "1bit:3"])
def test_what_is_no_method_is_refused(text):
    with pytest.raises(UsageError):
        Compression.parse(text)


def test_gradients_that_are_shared_out_are_refused():
    step = train(LLAMA, SLOW, PLAN.changed(zero=3))
    with pytest.raises(UsageError, match="zero = 3"):
        with_compression(LLAMA, step, "fp8")


def test_stragglers_and_loaders_add_terms():
    step = train(LLAMA, SLOW, PLAN)
    jittery = with_stragglers(step, 0.02)
    assert jittery.time_s == pytest.approx(step.time_s + jittery.terms_s["stragglers"])
    assert 1.01 < jittery.time_s / step.time_s < 1.1
    # 32 sequences from one loader at 1 a second take 32 s
    starved = with_loading(step, 1, 1.0)
    assert starved.time_s == pytest.approx(max(32.0, step.time_s))
    assert with_loading(step, 1000, 1000.0).time_s == step.time_s
