"""Model types of 2025 and 2026 whose layers are attention with an MLP or experts: parameters, windows, refusals."""

from __future__ import annotations

import dataclasses

import pytest

from perfmodel.errors import InputFileError
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.quantization import stored_format

#: sizes that tell every dimension from the others
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
}
MLA = {"kv_lora_rank": 24, "q_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 20}
MIXTURE = {"moe_intermediate_size": 40, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 8, "n_shared_experts": 1}
NUMBERED = {"num_experts": 8, "num_shared_experts": 1}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "full_attention"]
#: what the configurations of a type state beside these
OWN = {
    "afmoe": MIXTURE | NUMBERED | {"head_dim": 16},
    "cohere2_moe": {"num_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "cwm": {"head_dim": 16},
    "dots1": MIXTURE | ROUTED,
    "ernie4_5_moe": {"moe_intermediate_size": 40, "moe_k": 2, "moe_num_experts": 8, "moe_num_shared_experts": 2},
    "exaone_moe": MIXTURE | NUMBERED,
    "flex_olmo": {"num_experts": 8, "num_experts_per_tok": 2},
    "glm4_moe_lite": MLA | MIXTURE | ROUTED,
    "glm4v_moe_text": MIXTURE | ROUTED | {"head_dim": 16},
    "granitemoe_swa": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "hunyuan_v1_moe": {"num_experts": 8, "moe_topk": 2, "head_dim": 16},
    "hy_v3": MIXTURE | NUMBERED | {"head_dim": 16},
    "internlm3": {"head_dim": 8},
    "iquestcoder": {"head_dim": 8},
    "kolibri1": MIXTURE | {"num_experts": 8, "head_dim": 16, "shared_expert_intermediate_size": 24},
    "mellum": MIXTURE | {"num_experts": 8, "head_dim": 16},
    "minicpm3": MLA,
    "ministral3": {"head_dim": 16},
    "mistral4": MLA | MIXTURE | ROUTED,
    "muse_glimmer_text": {"head_dim": 16},
    "sarvam_mla": MLA | MIXTURE | ROUTED,
    "sarvam_moe": MIXTURE | ROUTED | {"head_dim": 16},
    "solar_open": MIXTURE | ROUTED | {"head_dim": 16},
    "vaultgemma": {"head_dim": 16},
    "youtu": MLA,
}
#: type, what one configuration states in another way, and the parameters of its class in transformers 5.24, built
#: without weights, with the corrections of its routers; no vision tower, no layer that predicts a second token
PARAMETERS = [
    ("afmoe", {}, 482_816),
    ("afmoe", {"num_dense_layers": 2}, 431_608),
    ("afmoe", {"num_dense_layers": 0}, 534_024),
    ("afmoe", {"num_shared_experts": 3}, 544_256),
    ("afmoe", {"num_shared_experts": 0}, 452_096),
    ("apertus", {}, 154_394),
    ("apertus", {"attention_bias": True}, 155_194),
    ("apertus", {"hidden_act": "relu2"}, 154_384),
    ("apertus", {"head_dim": 16}, 205_674),
    ("apertus", {"num_key_value_heads": 8}, 185_114),
    ("cohere2_moe", {}, 863_104),
    ("cohere2_moe", {"attention_bias": True}, 864_384),
    ("cohere2_moe", {"num_shared_experts": 2}, 1_047_424),
    ("cohere2_moe", {"first_k_dense_replace": 2}, 604_032),
    (
        "cohere2_moe",
        {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 56, "prefix_dense_sliding_window_pattern": 2},
        588_672,
    ),
    ("cohere2_moe", {"rms_norm_eps": 1e-05}, 863_104),
    ("cohere2_moe", {"mlp_layer_types": 1 * ["dense"] + 4 * ["sparse"]}, 733_568),
    ("cwm", {}, 236_224),
    ("cwm", {"mlp_bias": True}, 237_504),
    ("cwm", {"num_hidden_layers": 9}, 392_384),
    ("dots1", {}, 441_144),
    ("dots1", {"attention_bias": True}, 441_944),
    ("dots1", {"first_k_dense_replace": 2}, 338_728),
    ("dots1", {"head_dim": 16}, 492_424),
    ("dots1", {"n_shared_experts": 3}, 517_944),
    ("ernie4_5_moe", {}, 400_096),
    ("ernie4_5_moe", {"moe_num_shared_experts": 0}, 338_656),
    ("ernie4_5_moe", {"moe_layer_start_index": 2}, 341_208),
    ("ernie4_5_moe", {"moe_layer_end_index": 3}, 341_208),
    ("ernie4_5_moe", {"moe_layer_interval": 2}, 282_320),
    ("ernie4_5_moe", {"moe_layer_start_index": 0, "moe_layer_end_index": -1}, 458_984),
    ("exaone", {}, 185_024),
    ("exaone", {"attention_bias": True}, 185_824),
    ("exaone", {"mlp_bias": True}, 186_304),
    ("exaone", {"head_dim": 16}, 236_224),
    ("exaone_moe", {}, 389_936),
    ("exaone_moe", {"first_k_dense_replace": 2}, 338_728),
    ("exaone_moe", {"head_dim": 16}, 441_216),
    ("exaone_moe", {"num_shared_experts": 3}, 451_376),
    ("exaone_moe", {"mlp_layer_types": 3 * ["dense"] + 2 * ["sparse"]}, 287_520),
    ("flex_olmo", {}, 833_104),
    ("flex_olmo", {"attention_bias": True}, 833_904),
    ("flex_olmo", {"head_dim": 16}, 884_704),
    ("flex_olmo", {"num_key_value_heads": 8}, 864_064),
    ("glm4_moe_lite", {}, 453_436),
    ("glm4_moe_lite", {"attention_bias": True}, 454_016),
    ("glm4_moe_lite", {"q_lora_rank": None}, 482_136),
    ("glm4_moe_lite", {"n_shared_experts": 3}, 514_876),
    ("glm4_moe_lite", {"mlp_layer_types": 2 * ["dense"] + 3 * ["sparse"]}, 402_228),
    ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense", "sparse", "dense", "sparse"]}, 402_228),
    ("glm4_moe_lite", {"n_group": 4, "topk_group": 2}, 453_436),
    ("glm4v_moe_text", {}, 442_016),
    ("glm4v_moe_text", {"attention_bias": False}, 441_056),
    ("glm4v_moe_text", {"first_k_dense_replace": 3}, 339_600),
    ("glm4v_moe_text", {"n_shared_experts": 3}, 503_456),
    ("glm4v_text", {}, 186_144),
    ("glm4v_text", {"num_key_value_heads": 8}, 217_344),
    ("glm4v_text", {"intermediate_size": 112}, 201_504),
    ("glm_ocr_text", {}, 185_664),
    ("glm_ocr_text", {"num_key_value_heads": 8}, 216_384),
    ("glm_ocr_text", {"head_dim": 16}, 236_864),
    ("granite_swa", {}, 164_584),
    ("granite_swa", {"attention_bias": True}, 165_384),
    ("granite_swa", {"mlp_bias": True}, 165_864),
    ("granite_swa", {"num_hidden_layers": 7}, 222_200),
    ("granitemoe_swa", {}, 832_744),
    ("granitemoe_swa", {"attention_bias": True}, 833_544),
    ("granitemoe_swa", {"shared_intermediate_size": 56}, 886_504),
    ("granitemoe_swa", {"num_hidden_layers": 8}, 1_307_776),
    ("hunyuan_v1_moe", {}, 976_224),
    ("hunyuan_v1_moe", {"attention_bias": True}, 977_504),
    ("hunyuan_v1_moe", {"moe_topk": 5 * [2]}, 976_224),
    ("hunyuan_v1_moe", {"head_dim": 8}, 924_944),
    (
        "hunyuan_v1_moe",
        {"moe_intermediate_size": 5 * [96], "num_shared_expert": 5 * [1], "use_mixed_mlp_moe": True},
        976_224,
    ),
    ("hy_v3", {}, 441_216),
    ("hy_v3", {"attention_bias": True}, 442_496),
    ("hy_v3", {"num_shared_experts": 3}, 502_656),
    ("hy_v3", {"mlp_layer_types": 3 * ["dense"] + 2 * ["sparse"]}, 338_800),
    ("hy_v3", {"head_dim": 8}, 389_936),
    ("hyperclovax", {}, 185_664),
    ("hyperclovax", {"attention_bias": True}, 186_464),
    ("hyperclovax", {"mlp_bias": True}, 186_944),
    ("hyperclovax", {"head_dim": 16}, 236_864),
    ("hyperclovax", {"use_post_norm": False}, 185_024),
    ("internlm3", {}, 185_024),
    ("internlm3", {"bias": True, "qkv_bias": True}, 187_104),
    ("internlm3", {"attention_bias": True, "mlp_bias": True}, 187_104),
    ("internlm3", {"head_dim": 16}, 236_224),
    ("iquestcoder", {}, 185_024),
    ("iquestcoder", {"attention_bias": True}, 185_824),
    ("iquestcoder", {"mlp_bias": True}, 186_304),
    ("iquestcoder", {"head_dim": 16}, 236_224),
    ("jais2", {}, 156_608),
    ("jais2", {"attention_bias": False}, 155_808),
    ("jais2", {"mlp_bias": False}, 155_808),
    ("jais2", {"head_dim": 16}, 208_288),
    ("kolibri1", {}, 477_704),
    ("kolibri1", {"shared_expert_intermediate_size": 56}, 508_424),
    ("kolibri1", {"num_hidden_layers": 11}, 1_001_720),
    ("mellum", {}, 453_984),
    ("mellum", {"attention_bias": True}, 455_264),
    ("mellum", {"mlp_layer_types": 2 * ["dense"] + 3 * ["sparse"]}, 366_944),
    ("minicpm3", {}, 228_124),
    ("minicpm3", {"attention_bias": True}, 228_704),
    ("minicpm3", {"v_head_dim": None}, 185_884),
    ("minicpm3", {"q_lora_rank": 16}, 223_624),
    ("ministral3", {}, 236_224),
    ("ministral3", {"head_dim": 8}, 185_024),
    ("mistral4", {}, 504_604),
    ("mistral4", {"attention_bias": True}, 505_184),
    ("mistral4", {"q_lora_rank": None}, 533_304),
    ("mistral4", {"first_k_dense_replace": 2}, 402_204),
    ("mistral4", {"n_shared_experts": 2}, 543_004),
    ("muse_glimmer_text", {}, 277_824),
    ("muse_glimmer_text", {"head_dim": 8}, 206_144),
    ("muse_glimmer_text", {"num_hidden_layers": 6}, 325_184),
    ("muse_glimmer_text", {"num_key_value_heads": 8}, 339_264),
    ("nanochat", {}, 153_600),
    ("nanochat", {"attention_bias": True}, 154_400),
    ("nanochat", {"num_key_value_heads": 8}, 184_320),
    ("nanochat", {"head_dim": 16}, 204_800),
    ("phi4_multimodal", {}, 185_024),
    ("phi4_multimodal", {"num_key_value_heads": 8}, 215_744),
    ("sarvam_mla", {}, 453_436),
    ("sarvam_mla", {"attention_bias": True}, 454_016),
    ("sarvam_mla", {"q_lora_rank": None}, 482_136),
    ("sarvam_mla", {"first_k_dense_replace": 3}, 351_020),
    ("sarvam_moe", {}, 441_216),
    ("sarvam_moe", {"attention_bias": True}, 442_176),
    ("sarvam_moe", {"use_qk_norm": False}, 441_056),
    ("sarvam_moe", {"first_k_dense_replace": 3}, 338_800),
    ("sarvam_moe", {"n_shared_experts": 3}, 502_656),
    ("sarvam_moe", {"use_qkv_bias": True}, 442_176),
    ("solar_open", {}, 492_264),
    ("solar_open", {"attention_bias": True}, 493_224),
    ("solar_open", {"n_shared_experts": 3}, 569_064),
    ("solar_open", {"first_k_dense_replace": 2}, 492_264),
    ("solar_open", {"head_dim": 8}, 441_064),
    ("vaultgemma", {}, 215_744),
    ("vaultgemma", {"attention_bias": True}, 217_024),
    ("youtu", {}, 228_124),
    ("youtu", {"attention_bias": True}, 228_704),
    ("youtu", {"q_lora_rank": None}, 256_824),
]


#: parameters of named models as these classes hold them, and in billions as their names or pages round them
NAMED = {
    "glm-4.7-flash": (29_943_393_920, 30),
    "ministral-3-3b": (3_429_006_336, 3.4),
    "ministral-3-8b": (8_489_553_920, 8.4),
    "ministral-3-14b": (13_506_073_600, 13.5),
    "mistral-small-3.1-24b": (23_572_403_200, 23.6),
    "mistral-small-4-119b": (118_972_826_624, 119),
    "ernie-4.5-21b-a3b": (21_825_437_888, 21.8),
    "hunyuan-a13b": (80_393_183_232, 80),
    "dots.llm1": (142_774_381_696, 143),
    "solar-open-100b": (102_651_799_552, 102.6),
    "hy3-preview": (295_033_543_488, 295),
    "k-exaone-236b-a23b": (236_571_156_352, 236),
    "apertus-8b": (8_053_338_176, 8),
    "apertus-70b": (70_599_864_480, 70.6),
    "sarvam-30b": (32_152_650_368, 32),
    "internlm3-8b": (8_804_241_408, 8.8),
    "minicpm3-4b": (4_073_875_968, 4),
    "jais-2-8b": (8_090_401_280, 8),
    "youtu-llm-2b": (1_961_560_064, 2),
    "iquest-coder-v1-40b": (39_794_283_520, 40),
    "flexolmo-7x7b-1t": (33_270_665_216, 33),
    "cwm-32b": (32_581_097_472, 32.5),
    "ling-lite": (16_801_974_272, 16.8),
    "ling-mini-2.0": (16_255_643_392, 16.26),
    "muse-glimmer-30b": (27_854_780_928, 28),
    "kolibri-1": (78_103_074_560, 78),
    "trinity-nano": (6_120_003_328, 6),
    "trinity-mini": (26_123_974_400, 26),
    "trinity-large": (398_635_286_016, 398),
}


def model(kind, **changes):
    return config_of(SIZES | OWN.get(kind, {}) | {"model_type": kind} | changes, "config.json")


@pytest.mark.parametrize(("kind", "changes", "parameters"), PARAMETERS)
def test_parameters_are_those_of_the_class(kind, changes, parameters):
    config = model(kind, **changes)
    assert config.parameters == parameters
    layers = config.moe_layers * config.moe_layer_parameters
    layers += (config.layers - config.moe_layers) * config.dense_layer_parameters
    rest = config.embedding_parameters + config.head_parameters + config.outer_norm_parameters
    assert config.parameters == layers + rest


@pytest.mark.parametrize("name", NAMED)
def test_named_models(name):
    exact, billions = NAMED[name]
    assert named_model(name).parameters == exact == pytest.approx(1e9 * billions, rel=0.03)


def test_a_checkpoint_has_the_parameters_of_the_language_model_and_the_vision_tower():
    """GLM-4.5V's holds 107,710,933,120 numbers, of which those of its vision tower are these."""
    block = 1536**2 + 4608 * 1536 + 3 * 4096 * 1536 + 2 * 1536
    merger = 3 * 4096 * 10944 + 4096**2 + 2 * 4096
    patches = 1536 * 3 * 2 * 14 * 14 + 1536 + 576 * 1536 + 4 * 4096 * 1536 + 4096
    tower = 24 * block + merger + patches + 2 * 1536
    assert named_model("glm-4.5v").parameters + tower == 107_710_933_120


def test_a_name_is_the_model_of_its_configuration():
    """Hunyuan's lists have one number for each of its 32 layers; three of four layers of Trinity have a window."""
    hunyuan = {"hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
               "num_key_value_heads": 8, "head_dim": 128, "num_experts": 64, "moe_topk": 32 * [8],
               "moe_intermediate_size": 32 * [3072], "num_shared_expert": 32 * [1], "vocab_size": 128167,
               "tie_word_embeddings": True, "max_position_embeddings": 262144}  # fmt: skip
    trinity = {"hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 1024, "num_hidden_layers": 32,
               "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_dense_layers": 2,
               "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1, "sliding_window": 2048,
               "global_attn_every_n_layers": 4, "vocab_size": 200192, "max_position_embeddings": 131072}  # fmt: skip
    for name, kind, raw in (("hunyuan-a13b", "hunyuan_v1_moe", hunyuan), ("trinity-mini", "afmoe", trinity)):
        named, read = named_model(name), config_of(raw | {"model_type": kind, "hidden_act": "silu"}, "config.json")
        for field in dataclasses.fields(named):
            if field.name not in ("name", "facts"):
                assert getattr(named, field.name) == getattr(read, field.name), field.name
        assert (named.parameters, named.active_parameters) == (read.parameters, read.active_parameters)


def test_tokens_of_mixtures_visit_what_their_names_say():
    for name, billions in (("hunyuan-a13b", 13), ("dots.llm1", 14), ("k-exaone-236b-a23b", 23), ("hy3-preview", 21),
                           ("ling-lite", 2.75), ("ling-mini-2.0", 1.43)):  # fmt: skip
        assert named_model(name).active_parameters == pytest.approx(1e9 * billions, rel=0.04)


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in PARAMETERS}))
def test_a_tied_head_is_the_embedding(kind):
    untied, tied = (model(kind, tie_word_embeddings=switch) for switch in (False, True))
    assert untied.parameters - tied.parameters == 320 * 64


def test_parameters_of_ernie_by_hand():
    """Four layers of five have eight experts and two shared ones; scores are corrected by one number an expert."""
    attention = 2 * 64 * 64 + 2 * 64 * (2 * 8) + 2 * 64  # queries and output, keys and values, two norms
    experts = (8 + 2) * 3 * 64 * 40 + 8 * 64 + 8
    config = model("ernie4_5_moe")
    assert config.parameters == 320 * 64 + 64 + 5 * attention + 4 * experts + 3 * 64 * 96
    assert config.parameters - config.active_parameters == 4 * (8 - 2) * 3 * 64 * 40


def test_parameters_of_apertus_by_hand():
    """An MLP of two matrices, a norm over each head, and xIELU with two parameters a layer."""
    attention = 2 * 64 * 64 + 2 * 64 * (2 * 8) + 2 * 8
    assert model("apertus").parameters == 2 * 320 * 64 + 64 + 5 * (attention + 2 * 64 * 96 + 2 + 2 * 64)


def test_parameters_of_trinity_by_hand():
    """Attention has a gate as wide as its queries, a layer four norms, the first layer of five a dense MLP."""
    attention = 3 * 64 * (8 * 16) + 2 * 64 * (2 * 16) + 2 * 16 + 4 * 64
    experts = (8 + 1) * 3 * 64 * 40 + 8 * 64 + 8
    config = model("afmoe")
    assert config.parameters == 2 * 320 * 64 + 64 + 5 * attention + 4 * experts + 3 * 64 * 96
    assert config.gate_width == 8 * 16


def test_parameters_of_ling_by_hand():
    """Its class is not part of transformers: queries, keys and values are one matrix, and Ling 2.0 corrects scores."""
    own = MIXTURE | NUMBERED | {"head_dim": 16, "use_bias": False, "first_k_dense_replace": 1}
    attention = 2 * 64 * (8 * 16) + 2 * 64 * (2 * 16) + 2 * 64
    layers = 5 * attention + 4 * ((8 + 1) * 3 * 64 * 40 + 8 * 64) + 3 * 64 * 96
    first = model("bailing_moe", **own)
    assert first.parameters == 2 * 320 * 64 + 64 + layers
    second = model("bailing_moe", **own, architectures=["BailingMoeV2ForCausalLM"], use_qk_norm=True)
    assert second.parameters - first.parameters == 5 * 2 * 16 + 4 * 8
    assert model("bailing_moe_v2", **own, use_qk_norm=True).parameters == second.parameters
    assert model("bailing_moe", **own | {"use_bias": True}).parameters - first.parameters == 5 * 64
    assert model("bailing_moe", **own, use_qkv_bias=True).parameters - first.parameters == 5 * (8 + 2 * 2) * 16


def test_norms_of_nanochat_have_no_parameters():
    matrices = 2 * 64 * 64 + 2 * 64 * (2 * 8) + 2 * 64 * 96
    assert model("nanochat").parameters == 2 * 320 * 64 + 5 * matrices


@pytest.mark.parametrize(
    ("kind", "changes", "window", "layers"),
    [
        ("afmoe", {}, 1024, 4),
        ("afmoe", {"global_attn_every_n_layers": 2}, 1024, 3),
        ("afmoe", {"layer_types": WINDOWS, "sliding_window": 2048}, 2048, 2),
        ("cohere2_moe", {}, 4096, 4),
        ("cohere2_moe", {"first_k_dense_replace": 2}, 4096, 3),  # the dense ones attend to all keys
        ("cohere2_moe", {"first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 2}, 4096, 4),
        ("cwm", {}, 8192, 3),
        ("cwm", {"num_hidden_layers": 9}, 8192, 6),  # the first of every four attends to all keys
        ("dots1", {}, 0, 0),
        ("dots1", {"sliding_window": 64, "max_window_layers": 2}, 64, 3),
        ("exaone_moe", {}, 4096, 4),
        ("exaone_moe", {"sliding_window_pattern": 2}, 4096, 3),
        ("exaone_moe", {"sliding_window_pattern": "LG"}, 4096, 2),
        ("exaone_moe", {"sliding_window_pattern": "LLLL"}, 4096, 4),  # the last attends to all keys in any pattern
        ("granite_swa", {"num_hidden_layers": 7}, 128, 5),
        ("granitemoe_swa", {"layer_types": WINDOWS}, 128, 2),
        ("kolibri1", {"num_hidden_layers": 11}, 513, 9),
        ("mellum", {}, 0, 0),
        ("mellum", {"layer_types": WINDOWS}, 1024, 2),
        ("ministral3", {"sliding_window": None}, 0, 0),
        ("ministral3", {"sliding_window": 64}, 64, 5),
        ("muse_glimmer_text", {"num_hidden_layers": 6}, 2048, 4),  # the last and every fourth before it attend to all
        ("phi4_multimodal", {"sliding_window": 64}, 64, 5),
        ("vaultgemma", {}, 4096, 3),
    ],
)
def test_windows(kind, changes, window, layers):
    config = model(kind, **changes)
    assert (config.window, config.window_layers) == (window, layers)


def test_the_experts_of_glm_flash_may_come_from_some_groups():
    assert model("glm4_moe_lite", n_group=4, topk_group=2).router == (8, 2, 4, 2)
    assert model("glm4_moe_lite", n_group=1, topk_group=1).router == (8, 2, 1, 1)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("laguna", {}, "heads of attention differ"),
        ("ernie4_5_vl_moe_text", {}, "experts for images beside those for text"),
        ("deepseek_v41", {}, "layers that share compressed keys"),
        ("mistral_large4_text", {}, "layers that share keys and values"),
        ("bailing_hybrid", {}, "latent attention with a gate for each head"),
        ("muse_glimmer_text", {"attention_bias": True}, "gates without the biases"),
        ("afmoe", {"attention_bias": True}, "gates without the biases of its other matrices"),
        ("ernie4_5_moe", {"use_bias": True}, "experts without the biases of its other matrices"),
        ("hunyuan_v1_moe", {"use_cla": True}, "layers that share keys and values"),
        ("hunyuan_v1_moe", {"num_shared_expert": [1, 1, 1, 1, 2]}, "shared experts of another width"),
        ("hunyuan_v1_moe", {"moe_intermediate_size": 40}, "shared experts of another width"),
        ("hunyuan_v1_moe", {"num_experts": 1}, "layers of one expert"),
        ("hunyuan_v1_moe", {"moe_topk": [2, 2, 2, 2, 1]}, "top k = [2, 2, 2, 2, 1] is not a whole number"),
        ("glm4_moe_lite", {"mlp_layer_types": ["sparse"]}, "mlp_layer_types has 1 entries for 5 layers"),
    ],
)
def test_what_is_not_modelled_is_named(kind, changes, said):
    with pytest.raises(InputFileError) as error:
        model(kind, **changes)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("deepseek_vl", "llama"),
        ("deepseek_vl_v2", "deepseek_v2"),
        ("glm46v", "glm4v_moe_text"),
        ("glm4v", "glm4v_text"),
        ("glm4v_moe", "glm4v_moe_text"),
        ("glm_ocr", "glm_ocr_text"),
        ("muse_glimmer", "muse_glimmer_text"),
        ("kimi_k25", "kimi_k2"),
        ("mistral3", "ministral3"),
        ("mistral3", "mistral4"),
        ("qwen3_vl", "qwen3_vl_text"),
        ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    ],
)
def test_models_of_text_and_images_have_the_parameters_of_their_language_model(whole, part):
    own = OWN.get(part) or (MLA | MIXTURE | ROUTED if "deepseek" in whole or "kimi" in whole else {})
    own = MIXTURE | {"num_experts": 8} if "qwen3_vl_moe" in part else own
    text = SIZES | own | {"model_type": part}
    for key in ("text_config", "llm_config", "language_config"):
        document = {"model_type": whole, key: text, "vision_config": {"hidden_size": 32}}
        assert config_of(document, "config.json") == config_of(text, "config.json")


def test_a_part_without_a_type_is_of_the_type_of_the_whole():
    for whole, part in (("mistral3", "mistral"), ("glm4v_moe", "glm4v_moe_text"), ("kimi_k25", "deepseek_v3")):
        text = SIZES | OWN.get(part, MLA | MIXTURE | ROUTED)
        read = config_of({"model_type": whole, "text_config": text}, "config.json")
        assert read == config_of(text | {"model_type": part}, "config.json")


def test_the_whole_says_whether_the_head_is_the_embedding_unless_its_part_does():
    text = SIZES | {"model_type": "ministral3"}
    whole = {"model_type": "mistral3", "tie_word_embeddings": True}
    assert config_of(whole | {"text_config": text}, "config.json").tied
    assert not config_of(whole | {"text_config": text | {"tie_word_embeddings": False}}, "config.json").tied
    assert not config_of({"model_type": "mistral3", "text_config": text}, "config.json").tied


def test_a_model_that_thinks_and_speaks_is_read_as_the_one_that_thinks():
    text = SIZES | MIXTURE | {"num_experts": 8, "model_type": "qwen3_omni_moe_text"}
    document = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": text}, "talker_config": {}}
    assert config_of(document, "config.json") == config_of(text, "config.json")


def test_the_format_of_the_weights_may_stand_with_the_language_model():
    quantised = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert stored_format({"language_config": quantised}).format == "fp8_block"
