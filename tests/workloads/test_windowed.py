"""Layers with a window whose heads are other ones than those of layers that attend to all keys."""

from __future__ import annotations

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of

BASE = {
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "intermediate_size": 96,
}
GEMMA = {
    **BASE,
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 64,
    "hidden_size_per_layer_input": 0,
}
SHARED = GEMMA | {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
EXPERTS = SHARED | {
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 40,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
}
MIMO = {
    **BASE,
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 13,
    "head_dim": 24,
    "v_head_dim": 16,
    "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
}
STEP = {
    **BASE,
    "model_type": "step3p5",
    "num_hidden_layers": 6,
    "head_dim": 16,
    "moe_intermediate_size": 40,
    "moe_num_experts": 6,
    "moe_top_k": 2,
    "share_expert_dim": 56,
    "sliding_window": 64,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 2,
    "attention_other_setting": {"num_attention_heads": 8},
    "moe_layers_enum": "2,3,4,5",
}
#: configurations and what the classes of transformers 5.24 hold, built without weights, with the corrections of routers
CLASSES = [
    (GEMMA, 262_432),
    (SHARED, 256_288),
    (EXPERTS, 548_996),
    (SHARED | {"layer_types": ["full_attention"] + ["sliding_attention"] * 5}, 262_464),  # the last attends to all, too
    (SHARED | {"num_hidden_layers": 8}, 324_480),
    (GEMMA | {"model_type": "gemma4_unified_text"}, 262_432),
    (GEMMA | {"model_type": "gemma4_unified_text", "attention_k_eq_v": True, "num_global_key_value_heads": 2}, 258_336),
    (MIMO, 956_720),
    (MIMO | {"attention_bias": True, "num_key_value_heads": 1}, 900_008),
    (STEP, 503_832),
    (
        STEP
        | {
            "layer_types": ["full_attention", "sliding_attention"] * 4,
            "num_nextn_predict_layers": 2,
            "attention_other_setting": None,
            "num_sliding_attention_heads": 6,
            "moe_layers_enum": None,
        },
        443_922,
    ),
]


#: of named models, as the classes hold them
NAMED = {
    "gemma-4-12b": 11_907_350_272,
    "gemma-4-31b": 30_697_345_280,
    "gemma-4-26b-a4b": 25_233_141_760,
    "mimo-v2-flash": 308_778_780_864,
    "step-3.5-flash": 196_956_130_368,
}


@pytest.mark.parametrize("name", NAMED)
def test_parameters_of_named_models_are_those_of_the_classes(name):
    assert named_model(name).parameters == NAMED[name]


@pytest.mark.parametrize(("document", "parameters"), CLASSES)
def test_parameters_are_those_of_the_classes(document, parameters):
    assert config_of(document, "config.json").parameters == parameters


def test_both_kinds_of_gemma_by_hand():
    """Five of six layers have a window and heads of 16; the last one heads of 32, whose keys are values, too."""
    config = config_of(SHARED, "config.json")
    full = 64 * 4 * 32 + 64 * 32 + 4 * 32 * 64 + 2 * 32  # queries, one key head, output, and two norms of a head
    narrow = 64 * 4 * 16 + 2 * 64 * 2 * 16 + 4 * 16 * 64 + 2 * 16
    assert (config.window_layers, config.attending_layers) == (5, 6)
    assert config.attention_parameters == full
    assert config.windowed.attention_parameters == narrow
    assert config.parameters == 1000 * 64 + full + 5 * narrow + 6 * (3 * 64 * 96 + 4 * 64) + 64
    assert config.windowed.windowed is config.windowed


def test_a_window_limits_what_its_own_heads_keep():
    """Keys and values of both kinds, 2 B each: one head of 32 in one layer, two of 16 in five."""
    config = config_of(SHARED, "config.json")
    full, narrow = 2 * 32 * 2, 5 * 2 * 2 * 16 * 2
    assert config.kv_bytes_per_token() == full + narrow
    assert config.kv_bytes(64) == 64 * (full + narrow)
    assert config.kv_bytes(1000) == 1000 * full + 64 * narrow


def test_experts_of_gemma_stand_beside_an_mlp():
    config = config_of(EXPERTS, "config.json")
    assert (config.moe_layers, config.mlp_layers, config.shared_ffn) == (6, 0, 96)
    router = 6 * 64 + 6 + 64  # a matrix, a factor for each expert, and one for each column of the input
    each = config.attention_parameters + 7 * 64 + 3 * 64 * 96 + router + 6 * 3 * 64 * 40
    assert config.moe_layer_parameters == each


def test_mimo_has_sinks_in_windows_alone_and_values_of_another_size():
    config = config_of(MIMO, "config.json")
    assert config.window_layers == 13 - 3  # the first, the sixth and the twelfth attend to all keys
    assert (config.kv_heads, config.windowed.kv_heads) == (2, 4)
    assert config.kv_bytes_per_token() == 2 * (3 * 2 + 10 * 4) * (24 + 16)
    assert config.windowed.attention_parameters - config.attention_parameters == 2 * 64 * (24 + 16) + 4
    stated = {"hybrid_layer_pattern": [0, 1] * 6 + [0], "moe_layer_freq": [0, 0] + [1] * 11}
    listed = config_of(MIMO | stated, "config.json")
    assert (listed.window_layers, listed.moe_layers) == (6, 11)
    assert (config.window, config_of(MIMO | {"sliding_window_size": 64}, "config.json").window) == (129, 65)


@pytest.mark.parametrize("key", ["hybrid_layer_pattern", "moe_layer_freq", "mlp_layer_types"])
def test_a_list_of_layers_has_as_many_entries(key):
    with pytest.raises(InputFileError, match=f"{key} has 2 entries for 13 layers"):
        config_of(MIMO | {key: [0, 1]}, "config.json")
    further = MIMO | {"num_nextn_predict_layers": 2, "moe_layer_freq": [0] + [1] * 14}
    assert config_of(further, "config.json").moe_layers == 12


def test_step_has_more_queries_in_windows_and_a_gate_a_head():
    config = config_of(STEP, "config.json")
    assert (config.heads, config.windowed.heads, config.windowed.kv_heads) == (4, 8, 2)
    assert config.windowed.attention_parameters - config.attention_parameters == 2 * 64 * 4 * 16 + 4 * 64
    assert (config.moe_layers, config.shared_ffn) == (4, 56)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_kv_shared_layers": 2}, "leaves no layer of some kind whose keys others share"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types has 5 entries for 6 layers"),
        ({"global_head_dim": 0}, "size of a head without a window = 0"),
    ],
)
def test_other_models_of_the_family_are_refused_with_the_reason(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(GEMMA | change, "config.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            MIMO | {"swa_num_key_value_heads": 3},
            "heads of layers with a window (4) are not a multiple of key and value",
        ),
        (SHARED | {"num_global_key_value_heads": 3}, "heads of layers without a window (4) are not a multiple"),
        (STEP | {"attention_other_setting": {"num_attention_heads": 65}}, "heads of layers with a window (65) are not"),
        (STEP | {"num_attention_heads": 65}, "heads of layers without a window (65) are not a multiple"),
    ],
)
def test_heads_of_both_kinds_are_multiples_of_their_key_heads(document, said):
    with pytest.raises(InputFileError) as error:
        config_of(document, "config.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "window=512 window_kv_heads=3",
            "heads of layers with a window (8) are not a multiple of key and value heads (3)",
        ),
        ("window_heads=16", "window_heads = 16, and the model has no window: give window too"),
        (
            "window_layers=2 window_value_dim=64",
            "window_layers = 2 and window_value_dim = 64, and the model has no window",
        ),
    ],
)
def test_a_shape_states_heads_of_windows_that_it_can_have(words, said):
    with pytest.raises(UsageError) as error:
        find_model(f"layers=4 hidden=1024 heads=8 kv_heads=2 vocab=32000 {words}")
    assert said in str(error.value)


def test_a_configuration_whose_layers_all_attend_to_all_keys_has_no_heads_of_windows():
    config = config_of(MIMO | {"hybrid_layer_pattern": [0] * 13, "swa_num_key_value_heads": 3}, "config.json")
    assert (config.window, config.window_kv_heads, config.windowed.kv_heads) == (0, 0, 2)


def test_a_shape_in_words():
    words = "layers=6 hidden=64 heads=4 kv_heads=1 head_dim=32 ffn=96 vocab=1000 tied=true qk_norm=true norms=4"
    words += " window=64 window_layers=5 window_kv_heads=2 window_head_dim=16 keys_are_values=true"
    assert find_model(words).parameters == config_of(SHARED, "config.json").parameters
    assert named_model("gemma-3-27b").windowed is named_model("gemma-3-27b")
