"""Sparse attention: an indexer chooses the keys that latent attention reads (DeepSeek-V3.2, GLM-5)."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of

#: what GLM-5's configuration states, at small sizes
SMALL = {
    "model_type": "glm_moe_dsa",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 20,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 128,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


def test_parameters_of_an_indexer_by_hand():
    """Queries from the compressed ones, a key with a norm of its own, and a weight for each head."""
    config = config_of(SMALL, "config.json")
    indexer = 2 * 16 * 32 + 16 * 64 + 2 * 16 + 2 * 64
    assert config.index_parameters == indexer
    without = dataclasses.replace(config, index_heads=0)
    assert config.parameters - without.parameters == 6 * indexer
    assert (config.index_layers, without.index_layers) == (6, 0)


@pytest.mark.parametrize(("name", "parameters"), [("deepseek-v3.2", 671_877_944_064), ("glm-5", 743_911_218_432)])
def test_parameters_are_those_of_the_classes(name, parameters):
    """As transformers 5.24 builds them without weights, with the correction of each expert's score, a buffer there."""
    assert named_model(name).parameters == parameters


def test_layers_may_take_what_the_one_before_them_chose():
    for change, layers in (
        ({"indexer_types": ["full", "shared"] * 3}, 3),
        ({"index_topk_pattern": "FSSFSS"}, 2),
        ({"index_topk_freq": 2}, 4),  # the first two, and every second one from there
        ({"index_topk_freq": 1}, 6),
    ):
        assert config_of(SMALL | change, "config.json").index_layers == layers


def test_an_indexer_keeps_a_key_in_8_bits_with_its_scale():
    config = config_of(SMALL, "config.json")
    assert config.kv_bytes_per_token(2.0) == 6 * (24 + 8) * 2 + 6 * (16 + 4)
    v3, sparse = named_model("deepseek-v3"), named_model("deepseek-v3.2")
    assert sparse.kv_bytes_per_token(2.0) - v3.kv_bytes_per_token(2.0) == 61 * 132


def test_what_is_wrong_about_an_indexer_is_named():
    with pytest.raises(InputFileError, match="index heads"):
        config_of({key: value for key, value in SMALL.items() if key != "index_n_heads"}, "config.json")
    with pytest.raises(UsageError, match="has no kv_lora"):
        find_model("layers=8 hidden=512 heads=8 vocab=32000 index_heads=4")
