"""MiniMax-M3: an indexer chooses blocks of keys for each head of these, in all layers but the first."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import Kind, layer_kinds, reach_of

H200 = pm.hardware("h200-sxm-141gb")
M3 = named_model("MiniMaxAI/MiniMax-M3")
#: the same without indexers
DENSE = dataclasses.replace(M3, index_heads=0, index_layers=0)
SPARSE = {"sparse_index_dim": 16, "sparse_num_index_heads": 2, "sparse_topk_blocks": 4, "sparse_block_size": 32}
#: as the checkpoint states it: the language model has the type of MiniMax-M2
SMALL = {
    "model_type": "minimax_m2",
    "hidden_size": 64,
    "intermediate_size": 24,
    "dense_intermediate_size": 96,
    "shared_intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
    "moe_layer_freq": [0, 1, 1, 1],
    "sparse_attention_config": SPARSE | {"sparse_attention_freq": [0, 1, 1, 1]},
}


def read(**change):
    return config_of({"model_type": "minimax_m3_vl", "text_config": SMALL | change}, "config.json")


def deployed(config=M3, **options):
    return Deployment(config, H200, **{"engine": "sglang", "tp": 4, "weights": "fp8", "kv_tokens": 10**6, **options})


def test_its_parameters():
    """428 billion with the vision tower, of which 23 are active: its release notes, as repositories quote them."""
    assert M3.parameters / 1e9 == pytest.approx(428, rel=0.005)
    tables = 2 * M3.vocab * M3.hidden
    assert (M3.active_parameters - tables) / 1e9 == pytest.approx(23, abs=0.6)


def test_a_layer_by_hand():
    """An indexer has queries of its own, one key, and a norm of each."""
    hidden = 64
    attention = hidden * (64 + 2 * 32) + 64 * hidden + 2 * 16 + 2 * hidden
    indexer = hidden * (2 * 16 + 16) + 2 * 16
    experts = 8 * 3 * 24 * hidden + 3 * 40 * hidden + 8 * (hidden + 1)
    config = read()
    layers = 4 * attention + 3 * (indexer + experts) + 3 * 96 * hidden
    assert config.parameters == layers + 2 * 1000 * hidden + hidden
    assert config.kv_bytes_per_token() == 4 * 2 * 2 * 16 * 2 + 3 * 16 * 2
    assert (config.index_keys, config.index_layers) == (128, 3)
    reaches = [reach_of(config, kind).chosen for kind in layer_kinds(config)]
    assert sorted(reaches) == [0, 128, 128, 128]
    assert reach_of(config, Kind()).keys(1000) == 1000
    assert reach_of(config, Kind(indexed=True)).keys(1000) == 128


def test_transformers_writes_other_keys():
    own = {"index_n_heads": 2, "index_head_dim": 16, "index_block_size": 32, "index_topk_blocks": 4}
    types = ["full_attention", *["minimax_m3_sparse"] * 3]
    other = read(sparse_attention_config=None, model_type="minimax_m3_vl_text", layer_types=types, **own)
    assert other == read()
    assert read(sparse_attention_config=None).index_heads == 0


def test_the_type_of_the_whole_is_that_of_its_class():
    """The part alone is MiniMax-M2, whose class has neither indexers nor dense layers."""
    assert config_of(SMALL, "config.json").model_type == "minimax_m2"
    assert read().model_type == "minimax_m3_vl_text"
    with pytest.raises(InputFileError, match="has layers of cross attention to images"):
        config_of({"model_type": "mllama", "text_config": SMALL | {"model_type": "llama"}}, "config.json")


def test_a_list_of_another_length_is_refused():
    with pytest.raises(InputFileError, match="sparse_attention_freq has 2 entries for 4 layers"):
        read(sparse_attention_config=SPARSE | {"sparse_attention_freq": [0, 1]})


def test_attention_is_that_of_all_keys_up_to_as_many_as_are_chosen():
    sparse, dense = (deployed(config).step(decode=16, context=2000).terms_s["kv"] for config in (M3, DENSE))
    assert sparse == pytest.approx(dense)


def test_beyond_them_a_longer_context_costs_what_indexers_and_three_layers_read():
    contexts = np.array([1.0e4, 1.1e5])
    growth, usual = (np.diff(deployed(one).step(decode=16, context=contexts).terms_s["kv"])[0] for one in (M3, DENSE))
    # a key of an indexer has 256 B in 57 layers, and one head of keys and values 512 B in 3, on each of four GPUs
    read_s = 16 * 1.0e5 * (57 * 256 + 3 * 512) / H200.main_memory.bandwidth_bytes_per_s
    assert read_s < growth < 2 * read_s
    assert growth < usual


def test_long_prompts_multiply_the_chosen_keys():
    long = [(1, 131072, 131072)]
    sparse, dense = (float(deployed(one).step(prefill=long).terms_s["prefill"]) for one in (M3, DENSE))
    pairs = 131072 * 2048 - 2048 * 2047 / 2
    whole = 131072 * 131073 / 2
    flop = 4 * 16 * 128 * (57 * pairs + 3 * whole) + 57 * 2 * 128 * whole
    assert flop / H200.best_peak("bf16").flop_per_s < sparse < 0.4 * dense


def test_nobody_measured_it_and_its_interval_says_so():
    sparse, dense = (deployed(one).step(decode=16, context=100_000) for one in (M3, DENSE))
    widths = [float(np.log(step.high_s / step.low_s)) for step in (sparse, dense)]
    assert widths[0] > widths[1] + 0.3


def test_parts_keep_the_key_of_indexers_each():
    memory, dense = (deployed(config).memory() for config in (M3, DENSE))
    assert memory.kv_bytes_token_gpu - dense.kv_bytes_token_gpu == 57 * 256
    held = 8 * Deployment(M3, H200, engine="sglang", tp=8, ep=8).memory().weights_bytes
    heads = 60 * 4 * 2 * 128 * 6144 + 57 * 6144 * (4 * 128 + 7 * 128)  # of keys, and of indexers with their key
    routers = 7 * 57 * 128 * 6144
    assert held == pytest.approx(2 * (M3.parameters + heads + routers), rel=1e-3)


def test_its_training_is_refused():
    with pytest.raises(UsageError, match="indexer that chooses keys"):
        train(M3, Cluster.of(H200, 8), TrainingPlan(batch=8, seq=1024))
