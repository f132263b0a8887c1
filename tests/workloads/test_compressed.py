"""Compressed attention: a window, and keys that stand for several tokens, chosen or all of them (DeepSeek-V4)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import layer_kinds
from perfmodel.workloads.reach import Reach

FLASH, PRO = named_model("deepseek-v4-flash"), named_model("deepseek-v4-pro")
#: what DeepSeek-V4-Flash's configuration states
CONFIG = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "sliding_window": 128,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "hc_mult": 4,
    "num_hash_layers": 3,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 6,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
    "max_position_embeddings": 1048576,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "expert_dtype": "fp4",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0],
}
#: sequences of every relation to a window of 4, groups of 3 and 2 chosen entries
SMALL = Reach(4, 3, 2)


def test_keys_and_pairs_by_counting():
    """A query sees the last 4 tokens and 2 of the entries of 3 tokens that are complete."""
    keys = [min(n, 4) + min(n // 3, 2) for n in range(1, 30)]
    assert [SMALL.keys(n) for n in range(1, 30)] == keys
    for first, last in ((0, 1), (0, 29), (3, 7), (8, 20)):
        assert SMALL.pairs(last - first, last) == sum(keys[first:last])


@pytest.mark.parametrize("reach", [Reach(), Reach(7, ratio=0), Reach(chosen=5), Reach(7, 4, 3), Reach(7, 4)])
def test_pairs_are_the_sum_of_keys_for_arrays_too(reach):
    tokens = np.arange(1.0, 60.0)
    assert np.allclose(reach.pairs(tokens, tokens), np.cumsum(reach.keys(tokens)))


def test_limits_of_a_reach():
    """A sequence within the window and the first entry has the keys of a window alone; all are monotonic."""
    window, all_keys = Reach(128, ratio=0), Reach()
    for tokens in (1, 100, 127):
        assert Reach(128, 128).keys(tokens) == window.keys(tokens) == all_keys.keys(tokens) == tokens
    assert Reach(0, 1, 2048).keys(100_000) == Reach(2048, ratio=0).keys(100_000) == 2048
    keys = Reach(128, 4, 512).keys(np.arange(1.0, 5000.0))
    assert np.all(np.diff(keys) >= 0)
    assert keys[-1] == keys[3000] == 640


def test_pairs_grow_linearly_once_as_many_as_are_chosen_exist():
    reach = Reach(128, 4, 512)
    assert reach.pairs(200_000, 200_000) - reach.pairs(100_000, 100_000) == 100_000 * 640


def test_parameters_of_flash_by_hand():
    h, q, d, heads = 4096, 1024, 512, 64
    attention = h * q + q * heads * d + h * d + 8 * 1024 * 4096 + 8 * 1024 * h + q + d + heads
    assert FLASH.attention_parameters == attention
    compressor = 2 * h * 1024 + 4 * 1024 + 512
    indexer = q * 64 * 128 + h * 64 + 2 * h * 256 + 4 * 256 + 128
    assert FLASH.index_parameters == compressor + indexer
    assert FLASH.pool_parameters == 2 * h * 512 + 128 * 512 + 512
    assert FLASH.mixing_parameters == 24 * 4 * h + 24 + 3
    expert = 3 * h * 2048
    layer = attention + 2 * h + 2 * (24 * 4 * h + 27) + 257 * expert + 256 * h + 256
    outer = 2 * 129280 * h + h + 4 * 4 * h + 5
    whole = 43 * layer + 21 * (compressor + indexer) + 20 * FLASH.pool_parameters + outer - 3 * 256
    assert FLASH.parameters == whole == 284_332_240_471
    assert FLASH.active_parameters == whole - 43 * 250 * expert


@pytest.mark.parametrize(("config", "total", "active"), [(FLASH, 284e9, 13e9), (PRO, 1.6e12, 49e9)])
def test_parameters_are_those_that_deepseek_states(config, total, active):
    """284 B with 13 B active, and 1.6 T with 49 B: figures of the model cards, active ones without the embedding."""
    assert config.parameters == pytest.approx(total, rel=0.02)
    assert config.active_parameters - config.embedding_parameters == pytest.approx(active, rel=0.03)


@pytest.mark.parametrize("tokens", [100, 1024, 131072, 1048576])
def test_the_cache_by_hand(tokens):
    """Vectors of 512 numbers: 128 in each of 43 layers, and one for 4 and for 128 tokens; keys of indexers in 132 B."""
    vectors = 43 * min(tokens, 128) + 21 * (tokens // 4) + 20 * (tokens // 128)
    assert FLASH.kv_bytes(tokens) == vectors * 1024 + 21 * (tokens // 4) * 132
    assert FLASH.kv_bytes(tokens, 1.0) == vectors * 512 + 21 * (tokens // 4) * 132


def test_a_million_tokens_of_pro_take_what_vllm_states():
    """9.62 GiB a sequence of 1 M tokens with all keys in bf16 (vLLM's post on DeepSeek V4, 2026-04-24)."""
    wide = PRO.kv_bytes(2**20) + 30 * 2**18 * (2 * 128 - 132)
    assert wide / 2**30 == pytest.approx(9.62, abs=0.01)


def test_tokens_that_no_key_holds_yet_are_kept_in_fp32():
    """8 rows of 1,024 keys and gates, and as many of 256 for the indexer; 128 rows of 512."""
    assert FLASH.unfinished_bytes == 21 * 8 * 8 * (1024 + 256) + 20 * 8 * 128 * 512


def test_the_configuration_is_the_catalogs():
    config = config_of(CONFIG, "config.json")
    assert dataclasses.replace(config, name="deepseek-v4-flash") == FLASH
    assert config.stored == "fp4_experts"
    assert config_of(CONFIG | {"expert_dtype": "fp8"}, "config.json").stored == "fp8_block"


def test_the_form_of_transformers_says_the_same():
    kinds = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    other = {key: value for key, value in CONFIG.items() if key not in ("compress_ratios", "num_hash_layers")}
    other["layer_types"] = [kinds[ratio] for ratio in CONFIG["compress_ratios"][:43]]
    other["mlp_layer_types"] = ["hash_moe"] * 3 + ["moe"] * 40
    assert config_of(other, "config.json") == config_of(CONFIG, "config.json")


def test_layers_that_attend_to_all_compressed_keys_need_no_window_alone():
    assert (PRO.window, PRO.window_layers, PRO.index_layers, PRO.pool_layers) == (128, 0, 30, 31)
    kinds = layer_kinds(PRO)
    assert sum(kind.indexed for kind in kinds) == 30
    assert sum(kind.pooled for kind in kinds) == 31
    assert [kind.windowed for kind in layer_kinds(FLASH)[:3]] == [True, True, False]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"compress_ratios": [0, 8]}, "does not state 0, 4 or 128 for each of 43 layers"),
        ({"compress_ratios": [0, 4]}, "does not state 0, 4 or 128 for each of 43 layers"),
        ({"compress_ratios": 4}, "does not state"),
        ({"layer_types": ["full_attention_of_blocks"] * 43}, "full_attention_of_blocks layers"),
        ({"o_groups": 0}, "groups of the output = 0 is not a whole number above 0"),
    ],
)
def test_what_is_wrong_of_a_configuration_is_named(changes, said):
    with pytest.raises(InputFileError) as error:
        config_of(CONFIG | changes, "config.json")
    assert said in str(error.value)


SHAPE = "layers=8 hidden=512 heads=8 kv_heads=1 head_dim=64 vocab=32000 type=deepseek_v4 q_lora=64 rope_head_dim=16"


def test_a_shape_has_compressed_layers_and_a_ratio_of_nothing_is_a_window():
    words = f"{SHAPE} window=32 pool_layers=4 pool_ratio=16 index_heads=2 index_layers=3 index_ratio=4 index_keys=8"
    config = find_model(words)
    assert [(tuple(reach)[:3], count) for reach, count in config.reaches] == [
        ((32, 4, 8), 3), ((32, 16, 0), 4), ((32, 0, 0), 1),
    ]  # fmt: skip
    alone = find_model(f"{SHAPE} window=32")
    assert alone.window_layers == 8
    assert alone.kv_bytes(1000) == 8 * 32 * 64 * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pool_ratio=16", "the shape has no pool_layers"),
        ("pool_layers=4", "the shape has no pool_ratio"),
        ("pool_layers=4 pool_ratio=16", "attend to a window, too, and the model has none"),
        ("window=32 pool_layers=4 pool_ratio=16 window_layers=3", "4 layers with compressed keys and 3 with a window"),
        ("output_groups=3 output_lora=8", "3 groups of the output do not divide 8 heads"),
        ("index_heads=2 index_ratio=0", "index_ratio = 0 is not a whole number from 1"),
        ("type=llama window=32 pool_layers=4 pool_ratio=16", "one vector is key and value"),
    ],
)
def test_what_is_impossible_of_a_shape_is_named(words, said):
    shape = SHAPE.replace("type=deepseek_v4 q_lora=64 rope_head_dim=16", "") if "type=" in words else SHAPE
    with pytest.raises(UsageError) as error:
        find_model(f"{shape} {words}")
    assert said in str(error.value)
