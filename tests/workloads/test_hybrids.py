"""Hybrids: models some of whose layers keep a state of the sequence, in place of keys or beside them."""

from __future__ import annotations

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.transformer import forward_pass

#: what the configurations of Qwen3.5's mixtures state, at the smallest sizes that tell all of them apart
SMALL = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 40,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}


def test_parameters_by_hand():
    """Six of eight layers are linear: every fourth attends, with a gate as wide as its queries."""
    config = config_of(SMALL, "config.json")
    assert (config.linear_layers, config.attending_layers) == (6, 2)
    keys, values = 2 * 16, 6 * 24
    into, rates, out = 64 * (2 * keys + 2 * values), 64 * 2 * 6, 64 * values
    convolution, decays, norm = 4 * (2 * keys + values), 2 * 6, 24
    linear = into + rates + out + convolution + decays + norm
    attention = 64 * (2 * 4 * 32) + 2 * 64 * (2 * 32) + 64 * (4 * 32) + 2 * 32  # queries with a gate, norms of 32
    experts = 6 * 3 * 64 * 48 + 3 * 64 * 40 + 6 * 64 + 64  # routed, shared, router and the gate of the shared one
    assert config.state_layer.parameters == linear
    assert config.attention_parameters == attention
    assert config.parameters == 2 * 1000 * 64 + 64 + 8 * (experts + 2 * 64) + 6 * linear + 2 * attention


#: as the classes of Hugging Face's transformers 5.24 hold them, built without weights
PARAMETERS = {
    "qwen3-next-80b-a3b": 79_674_391_296,
    "qwen3.5-9b": 8_953_803_264,
    "qwen3.5-27b": 26_895_998_464,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "qwen3.5-122b-a10b": 122_111_526_912,
    "qwen3.5-397b-a17b": 396_346_350_336,
    "nemotron-h-4b": 4_489_223_040,
    "nemotron-h-8b": 8_100_852_736,
    "nemotron-h-47b": 46_791_554_816,
    "nemotron-h-56b": 56_324_350_464,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "nemotron-nano-12b-v2": 12_310_001_152,
    "nemotron-3-nano-30b-a3b": 31_577_940_288,
    "nemotron-3-super-120b-a12b": 120_668_707_840,
    "nemotron-3-ultra-550b-a55b": 549_308_993_536,
    "granite-4.0-h-small": 32_207_337_984,
    "granite-4.0-h-tiny": 6_939_037_248,
    "granite-4.0-h-micro": 3_191_396_096,
    "granite-4.0-h-1b": 1_461_538_368,
    "granite-4.0-h-350m": 340_332_224,
    "granite-4.0-micro": 3_402_836_480,
    "granite-4.0-1b": 1_631_750_144,
    "granite-4.0-350m": 352_379_904,
    "bamba-9b": 9_780_235_392,
    "falcon-h1-tiny-90m": 91_131_072,
    "falcon-h1-0.5b": 521_411_104,
    "falcon-h1-1.5b": 1_554_863_488,
    "falcon-h1-1.5b-deep": 1_554_874_768,
    "falcon-h1-3b": 3_149_392_384,
    "falcon-h1-7b": 7_585_654_880,
    "falcon-h1-34b": 33_642_516_224,
    "kimi-linear-48b-a3b": 49_122_681_728,
    "minimax-text-01": 456_089_655_296,
    "lfm2-350m": 354_483_968,
    "lfm2-700m": 742_489_344,
    "lfm2-1.2b": 1_170_340_608,
    "lfm2-2.6b": 2_569_272_320,
    "lfm2-8b-a1b": 8_339_930_560,
    "lfm2.5-8b-a1b": 8_467_856_832,
    "lfm2-24b-a2b": 23_843_661_440,
    "olmo-hybrid-7b": 7_430_870_688,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_classes(name):
    assert named_model(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("qwen3-next-80b-a3b", 3e9),
        ("qwen3.5-397b-a17b", 17e9),
        ("nemotron-3-nano-30b-a3b", 3e9),
        ("nemotron-3-super-120b-a12b", 12e9),
        ("kimi-linear-48b-a3b", 3e9),
    ],
)
def test_names_state_the_parameters_that_a_token_visits(name, active):
    assert named_model(name).active_parameters == pytest.approx(active, rel=0.3)


def test_layers_may_be_listed_or_follow_from_an_interval():
    listed = ["linear_attention", "full_attention"] * 4
    assert config_of(SMALL | {"layer_types": listed}, "config.json").linear_layers == 4
    assert config_of(SMALL | {"full_attention_interval": 2}, "config.json").linear_layers == 4
    assert config_of(SMALL | {"full_attention_interval": 3}, "config.json").linear_layers == 6


def test_a_multimodal_configuration_has_its_text_model_inside():
    document = {"model_type": "qwen3_5_moe", "text_config": SMALL, "vision_config": {"depth": 27}}
    assert config_of(document, "config.json").parameters == config_of(SMALL, "config.json").parameters


def test_keys_grow_with_the_sequence_and_states_do_not():
    config = config_of(SMALL, "config.json")
    assert config.kv_bytes_per_token(2.0) == 2 * (2 * 2 * 32) * 2  # layers x keys and values of two heads x 2 B
    assert config.kv_bytes(1000.0, 2.0) == 1000 * config.kv_bytes_per_token(2.0)
    state, inputs = 4 * 6 * 16 * 24, 2 * 3 * (2 * 32 + 144)
    assert config.state_bytes == 6 * (state + inputs)
    assert named_model("llama-3.1-8b").state_bytes == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_types": ["full_attention", "rwkv"] * 4}, "rwkv layers, which are not modelled"),
        ({"linear_num_value_heads": 5}, "heads of layers with a state (5) are not a multiple of their key heads (2)"),
        ({"linear_num_key_heads": 0}, "linear key heads = 0"),
        ({"layer_types": ["full_attention"] * 4}, "4 entries for 8 layers"),
    ],
)
def test_what_is_wrong_about_a_hybrid_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(SMALL | change, "config.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "dtype"),
    [
        ({"mamba_ssm_dtype": "float32"}, "fp32"),
        ({"mamba_ssm_dtype": "bfloat16"}, "bf16"),
        ({"mamba_ssm_dtype": None, "mamba_ssm_cache_dtype": "float16"}, "fp16"),
        ({"mamba_ssm_dtype": "auto", "model_type": "qwen3_next"}, ""),
        ({"mamba_ssm_dtype": None, "model_type": "qwen3_next"}, ""),
        ({"mamba_ssm_dtype": None}, "fp32"),
    ],
)
def test_a_configuration_may_ask_for_a_dtype_of_its_states(change, dtype):
    config = config_of(SMALL | change, "config.json")
    assert config.linear_state_dtype == dtype
    heads, convolved = 6 * 16 * 24, 2 * 3 * (2 * 2 * 16 + 6 * 24)
    assert config.state_bytes == 6 * ({"fp32": 4, "": 4}.get(dtype, 2) * heads + convolved)


@pytest.mark.parametrize("stated", ["fp8", "float8_e4m3fn", "int4", 4, ["float32"]])
def test_states_in_another_dtype_are_refused(stated):
    with pytest.raises(InputFileError, match="engines keep them in float32, bfloat16, float16"):
        config_of(SMALL | {"mamba_ssm_dtype": stated}, "config.json")


def test_a_shape_in_words():
    sizes = "layers=8 hidden=512 heads=8 vocab=32000 linear_layers=6"
    config = find_model(f"{sizes} linear_heads=8 linear_key_heads=4 output_gate=true")
    assert (config.linear_layers, config.linear_key_heads, config.linear_head_dim) == (6, 4, 128)
    assert find_model(f"{sizes} linear_heads=8").linear_key_heads == 8
    for words, said in (
        (sizes, "have no linear_heads"),
        (f"{sizes} linear_heads=8 linear_key_heads=3", "not a multiple of their key heads (3)"),
        (sizes.replace("linear_layers=6", "linear_layers=9 linear_heads=8"), "9 layers with a state of 8"),
        (f"{sizes} linear_heads=8 window=512 window_layers=8", "8 layers with a window of 2 that attend to keys."),
    ):
        with pytest.raises(UsageError) as error:
            find_model(words)
        assert said in str(error.value)


def test_their_eager_kernels_are_not_listed():
    with pytest.raises(UsageError, match="layers with a state"):
        forward_pass(named_model("qwen3.5-9b"), 1, 128)


#: what all configurations of the families below state
BASE = {
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
NEMOTRON = {
    **BASE,
    "model_type": "nemotron_h",
    "head_dim": 16,
    "intermediate_size": 96,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 24,
    "n_groups": 2,
    "conv_kernel": 4,
    "mlp_hidden_act": "relu2",
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 56,
}
GRANITE = {
    **BASE,
    "model_type": "granitemoehybrid",
    "num_hidden_layers": 6,
    "layer_types": ["mamba", "mamba", "attention", "mamba", "attention", "mamba"],
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "intermediate_size": 40,
    "shared_intermediate_size": 48,
    "mamba_n_heads": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 24,
    "mamba_d_head": "auto",
    "position_embedding_type": "nope",
}
KIMI = {
    **BASE,
    "model_type": "kimi_linear",
    "num_hidden_layers": 8,
    "intermediate_size": 96,
    "moe_intermediate_size": 40,
    "num_experts": 6,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "linear_attn_config": {
        "full_attn_layers": [4, 8],
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "head_dim": 16,
        "num_heads": 4,
        "short_conv_kernel_size": 4,
    },
}
MINIMAX = {
    **BASE,
    "model_type": "minimax",
    "num_hidden_layers": 4,
    "head_dim": 24,
    "intermediate_size": 48,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
LFM2 = {
    **BASE,
    "model_type": "lfm2",
    "num_hidden_layers": 6,
    "intermediate_size": 120,
    "full_attn_idxs": [2, 5],
}
LFM2_MOE = {
    **BASE,
    "model_type": "lfm2_moe",
    "num_hidden_layers": 6,
    "intermediate_size": 120,
    "moe_intermediate_size": 40,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_dense_layers": 2,
    "layer_types": ["conv", "conv", "full_attention"] * 2,
}
BAMBA = {
    **BASE,
    "model_type": "bamba",
    "num_hidden_layers": 6,
    "attn_layer_indices": [2, 5],
    "intermediate_size": 96,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
    "mamba_d_head": "auto",
}
FALCON = {
    **BASE,
    "model_type": "falcon_h1",
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "mamba_d_ssm": 80,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
}
OLMO = {**BASE, "model_type": "olmo_hybrid", "num_hidden_layers": 8, "intermediate_size": 96}
#: configurations and what the classes of transformers 5.24 hold, built without weights, with the corrections of routers
CLASSES = [
    (NEMOTRON | {"hybrid_override_pattern": "M-M-M*-M-", "num_hidden_layers": 9}, 320_096),
    (NEMOTRON | {"hybrid_override_pattern": "M-M*-M-M*MM-"}, 397_584),
    (NEMOTRON | {"hybrid_override_pattern": "MEMEM*EME"}, 424_056),
    (NEMOTRON | {"hybrid_override_pattern": "MEMEM*EME", "moe_latent_size": 32}, 379_000),
    (NEMOTRON | {"hybrid_override_pattern": "M*M-ME"}, 288_814),
    (NEMOTRON | {"hybrid_override_pattern": "M*M*"}, 217_904),
    (NEMOTRON, 223_678),
    (NEMOTRON | {"layers_block_type": ["mamba", "moe"] * 2 + ["mamba", "attention", "moe", "mamba", "moe"]}, 424_056),
    (GRANITE | {"num_local_experts": 0, "shared_intermediate_size": 80, "tie_word_embeddings": True}, 298_336),
    (GRANITE | {"tie_word_embeddings": False}, 604_256),
    (BAMBA, 394_016),
    (BAMBA | {"mamba_n_heads": 16, "mamba_n_groups": 1, "attn_layer_indices": [2], "mamba_d_head": 8,
              "attention_bias": True, "mlp_bias": True}, 402_080),
    (BAMBA | {"mamba_proj_bias": True}, 395_712),
    (BAMBA | {"mamba_conv_bias": False}, 393_120),
    (NEMOTRON | {"hybrid_override_pattern": "M-M-M*-M-", "use_bias": True}, 321_792),
    (NEMOTRON | {"hybrid_override_pattern": "M-M-M*-M-", "use_conv_bias": False}, 319_200),
    (MINIMAX, 375_552),
    (MINIMAX | {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 387_936),
    (KIMI, 689_954),
    (KIMI | {"num_shared_experts": 2, "q_lora_rank": 24, "first_k_dense_replace": 2, "linear_attn_config": {}},
     15_734_524),
    (LFM2, 450_688),
    (LFM2 | {"block_ff_dim": 1200, "full_attn_idxs": [1], "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 32,
             "tie_embedding": False}, 1_440_544),
    (KIMI | {"attention_bias": True, "mlp_bias": True}, 690_162),
    (KIMI | {"attention_bias": True, "q_lora_rank": 24}, 685_650),
    (LFM2 | {"conv_bias": True}, 451_968),
    (LFM2_MOE | {"conv_bias": True}, 389_016),
    (LFM2 | {"block_auto_adjust_ff_dim": False, "conv_L_cache": 5}, 294_528),
    (LFM2_MOE, 387_736),
    (LFM2_MOE | {"use_expert_bias": False}, 387_712),
    (FALCON, 289_368),
    (FALCON | {"mamba_rms_norm": True}, 289_608),
    (FALCON | {"mamba_proj_bias": True}, 290_160),
    (FALCON | {"projectors_bias": True}, 289_560),
    (FALCON | {"mamba_conv_bias": False}, 288_840),
    (FALCON | {"attention_bias": True, "mlp_bias": True}, 290_712),
    (FALCON | {"mamba_d_ssm": None}, 317_736),
    (FALCON | {"num_key_value_heads": None, "mamba_d_head": 10}, 301_656),
    (FALCON | {"head_dim": 24, "tie_word_embeddings": True, "mamba_n_groups": 1, "mamba_d_conv": 3}, 233_480),
    ({"model_type": "falcon_h1", "hidden_size": 64, "vocab_size": 1000, "num_attention_heads": 16,
      "num_hidden_layers": 3, "intermediate_size": 96, "max_position_embeddings": 4096}, 957_504),
    (OLMO, 456_640),
    (OLMO | {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
             "linear_value_head_dim": 24, "attention_bias": True}, 443_968),
]  # fmt: skip


@pytest.mark.parametrize(("document", "parameters"), CLASSES)
def test_parameters_of_each_rule_are_those_of_its_class(document, parameters):
    assert config_of(document, "config.json").parameters == parameters


def test_an_mlp_of_nemotron_h_belongs_to_the_layer_before_it():
    """M-M-M*-: four layers of which the third has no MLP, as many norms as letters, and one at the end."""
    config = config_of(NEMOTRON | {"hybrid_override_pattern": "M-M-M*-"}, "config.json")
    assert (config.layers, config.linear_layers, config.attending_layers) == (4, 3, 1)
    assert (config.mlp_layers, config.moe_layers, config.bare_layers) == (3, 0, 1)
    values, keys = 8 * 16, 2 * 24
    mamba = 64 * (2 * values + 2 * keys + 8) + 5 * (values + 2 * keys) + 3 * 8 + values + values * 64
    attention, mlp = 2 * 64 * 64 + 2 * 64 * 32, 2 * 64 * 96
    assert config.parameters == 2 * 1000 * 64 + 3 * mamba + attention + 3 * mlp + (7 + 1) * 64


def test_layers_of_nemotron_h_that_no_mlp_follows_have_none():
    config = config_of(NEMOTRON | {"hybrid_override_pattern": "M*M*"}, "config.json")
    assert (config.layers, config.bare_layers, config.mlp_layers, config.moe_layers) == (4, 4, 0, 0)
    usual = config_of(NEMOTRON, "config.json")  # a Mamba-2 layer with experts, and attention with an MLP
    assert (usual.layers, usual.linear_layers, usual.moe_layers, usual.mlp_layers) == (2, 1, 1, 1)


def test_experts_of_another_width_have_a_way_there_and_back():
    config = config_of(NEMOTRON | {"hybrid_override_pattern": "MEM*E", "moe_latent_size": 32}, "config.json")
    assert config.expert_parameters == 2 * 32 * 40
    shared = 6 * 64 + 6 + 2 * 32 * 64 + 2 * 64 * 56  # router with corrections, there and back, the shared expert
    assert config.moe_layer_parameters - 6 * config.expert_parameters == config.attention_parameters + shared + 2 * 64
    assert (config.moe_layers, config.bare_layers, config.mlp_layers) == (2, 1, 0)


@pytest.mark.parametrize(
    ("document", "kept"),
    [
        (GRANITE, 4 * (4 * 8 * 24 * 16 + 2 * 3 * (8 * 16 + 2 * 24))),
        (KIMI, 6 * (4 * 4 * 16 * 16 + 2 * 3 * (3 * 4 * 16))),
        (MINIMAX, 2 * (4 * 4 * 24 * 24)),  # no convolution
        (FALCON, 3 * (4 * 8 * 24 * 10 + 2 * 3 * (8 * 10 + 2 * 2 * 24))),
        (LFM2, 4 * (2 * 2 * 64)),  # two tokens of a convolution of three taps, and no state
    ],
)
def test_what_is_kept_of_a_sequence_by_hand(document, kept):
    assert config_of(document, "config.json").state_bytes == kept


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (NEMOTRON | {"hybrid_override_pattern": "M--*-"}, "1 MLPs more than layers"),
        (NEMOTRON | {"hybrid_override_pattern": "M-*-", "n_groups": 3}, "not a multiple of their key heads (3)"),
        (NEMOTRON | {"num_hidden_layers": 52}, "it does not list what its 52 layers are"),
        (
            NEMOTRON | {"hybrid_override_pattern": "M-*-", "num_hidden_layers": 50},
            "hybrid_override_pattern has 4 entries for 50 layers",
        ),
        (NEMOTRON | {"hybrid_override_pattern": "ME*E", "mlp_bias": True}, "experts without the biases"),
        (LFM2_MOE | {"layer_types": None}, "it does not list what its 6 layers are"),
        (MINIMAX | {"attn_type_list": [0, 1]}, "attn_type_list has 2 entries for 4 layers"),
        (LFM2 | {"conv_L_cache": "3"}, "linear conv = '3'"),
        (FALCON | {"layers_block_type": ["mamba", "hybrid", "hybrid"]}, "(falcon_h1) has mamba layers"),
        (GRANITE | {"layer_types": ["hybrid"] * 6}, "(granitemoehybrid) has hybrid layers"),
    ],
)
def test_impossible_hybrids_are_refused(document, said):
    with pytest.raises(InputFileError) as error:
        config_of(document, "config.json")
    assert said in str(error.value)


def test_shared_experts_may_be_listed_for_each_layer():
    none = config_of(MINIMAX | {"shared_intermediate_size": [0, 0]}, "config.json")
    assert (none.shared_ffn, none.parameters) == (0, config_of(MINIMAX, "config.json").parameters)
    assert config_of(MINIMAX | {"shared_intermediate_size": [40] * 4}, "config.json").shared_ffn == 40
    with pytest.raises(InputFileError, match=r"width of shared experts = \[40, 0\] is not a whole number"):
        config_of(MINIMAX | {"shared_intermediate_size": [40, 0]}, "config.json")


@pytest.mark.parametrize(
    ("words", "taps"),
    [("type=minimax", 0), ("type=lfm2", 3), ("linear_rule=mamba2", 4), ("type=minimax linear_conv=2", 2), ("", 4)],
)
def test_a_shape_has_the_convolution_of_its_rule(words, taps):
    config = find_model(f"layers=4 hidden=64 heads=4 vocab=1000 linear_layers=2 linear_heads=4 {words}")
    assert config.linear_conv == taps
    stated = {"type=minimax": MINIMAX, "type=lfm2": LFM2}.get(words)
    assert stated is None or config_of(stated, "config.json").linear_conv == taps


def test_rules_and_layers_without_an_mlp_in_words():
    words = "layers=6 hidden=64 heads=4 vocab=1000 gated=false rotary=false learned_positions=false positions=4096"
    words += " ffn=96 kv_heads=2 head_dim=16 linear_rule=mamba2 linear_heads=8 linear_key_heads=2 linear_head_dim=24"
    config = find_model(f"{words} linear_value_dim=16 linear_layers=5 bare_layers=1 norm=rms bias=false")
    listed = config_of(NEMOTRON | {"hybrid_override_pattern": "M-M-M-M-M*-"}, "config.json")
    assert config.parameters == listed.parameters
    for change, said in (("linear_rule=mamba", "mamba2"), ("bare_layers=7", "7 layers without an MLP")):
        with pytest.raises(UsageError) as error:
            find_model(f"layers=6 hidden=64 heads=4 vocab=1000 {change}")
        assert said in str(error.value)


def test_a_layer_of_falcon_h1_has_attention_and_a_state_and_one_norm_for_both():
    config = config_of(FALCON, "config.json")
    assert (config.layers, config.linear_layers, config.joint_layers, config.attending_layers) == (3, 3, 3, 3)
    values, keys = 8 * 10, 2 * 24
    mamba = 64 * (2 * values + 2 * keys + 8) + 5 * (values + 2 * keys) + 3 * 8 + values * 64  # no norm
    attention, mlp = 2 * 64 * 64 + 2 * 64 * 32, 3 * 64 * 96
    assert config.parameters == 2 * 1000 * 64 + 64 + 3 * (mamba + attention + mlp + 2 * 64)
    assert config.kv_bytes_per_token(2.0) == 3 * 2 * 2 * 16 * 2  # every layer keeps keys and values, and a state
    assert config.state_bytes == 3 * config.state_layer.state_bytes
    assert config_of(FALCON | {"layers_block_type": ["hybrid"] * 3}, "config.json") == config


def test_llama_cpp_keeps_as_much_of_falcon_h1():
    """It prints 96 MiB of keys and values for 4096 tokens, and 72 MiB of states (GeniePod/genie-claw, issue 410)."""
    config = named_model("falcon-h1-1.5b")
    assert config.kv_bytes(4096) == 96 * 2**20
    convolution = 24 * 2 * 3 * (3072 + 2 * 256)
    assert config.state_bytes - convolution == 72 * 2**20


def test_layers_with_both_in_words():
    words = "hidden=64 heads=4 vocab=1000 linear_heads=8 linear_head_dim=24 linear_value_dim=10"
    every = find_model(f"type=falcon_h1 layers=4 linear_layers=4 {words}")
    assert (every.linear_rule, every.joint_layers, every.attending_layers) == ("mamba2", 4, 4)
    some = find_model(f"layers=4 linear_layers=3 joint_layers=2 {words}")
    assert some.attending_layers == 3
    # a layer with both has the parameters of either mixer, however the others are
    apart = find_model(f"layers=4 linear_layers=3 {words}")
    assert some.parameters == apart.parameters + 2 * some.attention_parameters
    with pytest.raises(UsageError, match="3 layers with keys beside a state of 2 with one"):
        find_model(f"layers=4 linear_layers=2 joint_layers=3 {words}")


@pytest.mark.parametrize(
    ("document", "change"),
    [
        (SMALL, {"layer_types": ["linear_attention"] * 8}),
        (NEMOTRON, {"hybrid_override_pattern": "M-M-"}),
        (GRANITE, {"layer_types": None}),
        (BAMBA, {"attn_layer_indices": None}),
    ],
)
def test_a_hybrid_without_attention_keeps_states_alone(document, change):
    config = config_of(document | change, "config.json")
    assert (config.attending_layers, config.linear_layers) == (0, config.layers)
    assert config.kv_bytes(1000) == config.kv_bytes_per_token() == 0
    assert config.state_bytes == config.layers * config.state_layer.state_bytes > 0
    mlps = config.mlp_layers * sum(matrix.parameters for matrix in config.mlp_linears()) if not config.experts else None
    if mlps is not None:
        norms = (2 * config.layers - config.bare_layers) * config.norm_parameters
        outside = config.embedding_parameters + config.head_parameters + config.outer_norm_parameters
        assert config.parameters == config.layers * config.state_layer.parameters + mlps + norms + outside


def test_what_attention_of_a_hybrid_is_like():
    """Granite's has no positions where it says so, OLMo-Hybrid's none without a base; LFM2's MLP has SiLU's gate."""
    assert not config_of(GRANITE, "config.json").rotary
    assert config_of(GRANITE | {"position_embedding_type": "rope"}, "config.json").rotary
    assert not config_of(OLMO | {"rope_parameters": {"rope_theta": None}}, "config.json").rotary
    assert config_of(OLMO, "config.json").rotary
    assert config_of(LFM2, "config.json").activation == "silu"
