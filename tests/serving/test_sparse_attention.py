"""Serving with sparse attention: a query reads the keys that an indexer chose, and the indexer all of its own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.laboratories import INDEXED, laboratories
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

H200 = pm.hardware("h200-sxm-141gb")
SPARSE, DENSE = named_model("deepseek-v3.2"), named_model("deepseek-v3")


def deployed(config=SPARSE, **options):
    return Deployment(config, H200, **{"engine": "sglang", "tp": 8, "weights": "fp8_block", **options})


def test_decode_is_that_of_all_keys_up_to_as_many_as_are_chosen():
    sparse, dense = (deployed(config).step(decode=16, context=1000).terms_s["kv"] for config in (SPARSE, DENSE))
    assert sparse == dense


def test_beyond_them_a_longer_context_costs_what_the_indexer_reads():
    """64 heads share one key of 132 B a token in each of 61 layers, where latent attention reads 1152 B."""
    contexts = np.array([2.0e4, 1.2e5])
    growth, usual = (
        np.diff(deployed(config).step(decode=16, context=contexts).terms_s["kv"])[0] for config in (SPARSE, DENSE)
    )
    assert 0.05 * usual < growth < 0.5 * usual
    read = 16 * 61 * 132 * 1.0e5 / H200.main_memory.bandwidth_bytes_per_s
    assert growth > read


def test_the_chosen_keys_bound_what_attention_of_long_prompts_computes():
    """All pairs take 61 layers x 2 x 128 heads x (192 + 128) FLOP, scores 2 x 64 x 128; rows of 16 heads fill 64."""
    long, copies = [(1, 131072, 131072)], {"tp": 1, "dp": 8, "ep": 8}
    sparse, dense, shared = (
        float(deployed(config, **options).step(prefill=long).terms_s["prefill"])
        for config, options in ((SPARSE, copies), (DENSE, copies), (SPARSE, {}))
    )
    assert sparse < 0.5 * dense
    assert shared > sparse / 4


def test_engines_without_a_short_cut_choose_among_the_keys_of_short_prompts_too():
    """vLLM's prompts multiply 2,048 keys in latent form however few they have; SGLang's short ones attend to all."""
    short = [(1, 512, 512)]
    plain, chosen = (float(deployed(engine=e).step(prefill=short).terms_s["prefill"]) for e in ("sglang", "vllm"))
    flop = 61 * 2 * 512 * 2048 * 16 * (2 * 512 + 64)
    assert chosen > flop / H200.best_peak("bf16").flop_per_s > plain


def test_a_token_keeps_the_key_of_the_indexer_too():
    memory, dense = (deployed(config).memory() for config in (SPARSE, DENSE))
    assert memory.kv_bytes_token_gpu - dense.kv_bytes_token_gpu == 61 * 132
    indexers = 61 * (7168 * 128 + 1536 * 64 * 128)  # each GPU has all of it
    assert memory.weights_bytes - dense.weights_bytes == pytest.approx(indexers * 1.0, rel=0.05)


def test_fewer_indexers_cost_less():
    shared = dataclasses.replace(SPARSE, index_layers=20)
    every, some = (deployed(config).step(decode=16, context=50000) for config in (SPARSE, shared))
    assert some.time_s < every.time_s


def test_no_laboratory_whose_runs_were_fitted_ran_one():
    known = laboratories().names[0]
    assert deployed(laboratory=known).elsewhere.kind == deployed().elsewhere.kind == INDEXED
    assert deployed(DENSE, laboratory=known).elsewhere.kind == ""


def test_training_is_refused_by_name():
    plan = TrainingPlan(batch=256, seq=4096, ep=8)
    with pytest.raises(UsageError, match="indexer that chooses keys"):
        train(SPARSE, Cluster.of(H200, 256), plan)
