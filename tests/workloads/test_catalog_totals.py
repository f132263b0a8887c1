"""Parameters of the catalog beside what the pages of the models state: to the last one, or as they round them."""

from __future__ import annotations

import pytest

from perfmodel.errors import UsageError
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of

#: the metadata of their safetensors
EXACT = {
    "zamba-7b": 7_232_490_496,
    "qwen3-embedding-0.6b": 595_776_512,
    "qwen3-embedding-4b": 4_021_774_336,
    "qwen3-embedding-8b": 7_567_295_488,
    "e5-mistral-7b": 7_110_660_096,
    "redpajama-incite-7b": 6_857_302_016,
    "falcon-rw-1b": 1_311_625_216,
    "qwen-1.8b": 1_836_828_672,
    "qwen-14b": 14_167_290_880,
    "qwen1.5-0.5b": 463_987_712,
    "qwen1.5-1.8b": 1_836_828_672,
    "qwen1.5-4b": 3_950_369_280,
    "qwen1.5-7b": 7_721_324_544,
    "qwen1.5-14b": 14_167_290_880,
    "qwen1.5-32b": 32_512_218_112,
    "qwen1.5-72b": 72_287_920_128,
    "qwen1.5-110b": 111_209_914_368,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "phi-1.5": 1_418_270_720,
    "phi-3.5-mini": 3_821_079_552,
    "phi-4-mini": 3_836_021_760,
    "phi-3.5-moe": 41_873_153_344,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-small-22b": 22_247_282_688,
    "ministral-8b": 8_019_808_256,
    "gemma-3-270m": 268_098_176,
    "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-8b": 8_170_848_256,
    "olmo-1b": 1_176_764_416,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-32b": 32_234_279_936,
    "olmo-3-7b": 7_298_011_136,
    "olmo-3-32b": 32_233_522_176,
    "olmoe-1b-7b": 6_919_161_856,
    "smollm3-3b": 3_075_098_624,
    "seed-oss-36b": 36_151_104_512,
    "solar-10.7b": 10_731_524_096,
    "minicpm-2b": 2_724_880_896,
    "open-llama-3b": 3_426_473_600,
    "stablelm-2-1.6b": 1_644_515_328,
    "stablelm-3b": 2_795_443_200,
    "ernie-4.5-0.3b": 360_748_032,
    "glm-4-9b": 9_399_951_360,
    "glm-4-9b-0414": 9_400_279_040,
    "glm-4-32b-0414": 32_566_081_536,
    "chatglm3-6b": 6_243_584_000,
    "exaone-3.5-2.4b": 2_405_327_360,
    "exaone-3.5-7.8b": 7_818_448_896,
    "exaone-3.5-32b": 32_003_200_000,
    "exaone-4.0-1.2b": 1_279_391_488,
    "exaone-4.0-32b": 32_003_216_384,
    "command-r-08-2024": 32_296_476_672,
    "command-r7b": 8_028_033_024,
    "command-a-111b": 111_057_580_032,
    "aya-expanse-8b": 8_028_033_024,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-coder-1.3b": 1_346_471_936,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-coder-33b": 33_342_991_360,
    "deepseek-moe-16b": 16_375_728_128,
    "starcoder-15b": 15_517_456_384,
    "starcoderbase-1b": 1_137_207_296,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "codegen-350m": 356_712_448,
    "yi-6b": 6_061_035_520,
    "yi-9b": 8_829_407_232,
    "internlm2-1.8b": 1_889_110_016,
    "internlm2-7b": 7_737_708_544,
    "internlm2-20b": 19_861_149_696,
    "baichuan-7b": 7_000_559_616,
    "baichuan-13b": 13_264_901_120,
    "baichuan2-7b": 7_505_973_248,
    "baichuan2-13b": 13_896_668_160,
    "falcon3-1b": 1_669_408_768,
    "falcon3-3b": 3_227_655_168,
    "falcon3-7b": 7_455_550_464,
    "falcon3-10b": 10_305_653_760,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-neo-125m": 125_198_592,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neo-2.7b": 2_651_307_520,
    "distilgpt2": 81_912_576,
    "opt-350m": 331_196_416,
    "flan-t5-small": 76_961_152,
    "flan-t5-base": 247_577_856,
    "flan-t5-large": 783_150_080,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280,
    "codellama-13b": 13_016_028_160,
}
#: in billions
ROUNDED = {
    "mimo-7b": 7.62,
    "grok-1": 314,
    "orion-14b": 14.5,
    "croissantllm-1.3b": 1.345,
    "glm-4.5-air-reap-82b-a12b": 82,
    "internlm-7b": 7.32,
    "stablelm-2-12b": 12.14,
    "cerebras-gpt-13b": 12.85,
    "codegen2.5-7b": 6.9,
    "granite-3b-code": 3.48,
    "devstral-2-123b": 125,
    "qwen2-57b-a14b": 57.41,
    "mistral-large-3-675b": 673,
    "granite-3.3-2b": 2.534,
    "granite-3.3-8b": 8.171,
    "granite-3.1-1b-a400m": 1.335,
    "granite-3.1-3b-a800m": 3.3,
    "granite-20b-code": 20.1,
    "granite-34b-code": 33.7,
    "granite-8b-code": 8.05,
    "seed-coder-8b": 8.25,
    "moonlight-16b-a3b": 15.96,
    "minicpm4-8b": 8.19,
    "afm-4.5b": 4.62,
    "eurollm-1.7b": 1.657,
    "eurollm-9b": 9.154,
    "bielik-11b-v2": 11.17,
    "ling-flash-2.0": 103,
    "ling-1t": 1000,
    "hunyuan-7b": 7.5,
    "ernie-4.5-300b-a47b": 300,
    "deepseek-llm-67b": 67.4,
    "starcoderbase-3b": 3.04,
    "starcoderbase-7b": 7.33,
    "codegen-2b": 2.78,
    "codegen-6b": 7.07,
    "codegen-16b": 16.03,
    "falcon-11b": 11.1,
    "bert-base-cased": 0.1083,
    "roberta-base": 0.1247,
    "roberta-large": 0.3554,
    "xlm-roberta-base": 0.2783,
    "xlm-roberta-large": 0.5601,
    "bge-m3": 0.568,
    "distilbert-base": 0.067,
    "all-minilm-l6-v2": 0.0227,
    "bge-small-en-v1.5": 0.0334,
    "codellama-70b": 68.98,
    "salamandra-7b": 7.77,
    "minitron-4b": 4.19,
}


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    assert named_model(name).parameters == EXACT[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_in_billions(name: str) -> None:
    assert named_model(name).parameters / 1e9 == pytest.approx(ROUNDED[name], rel=0.012)


@pytest.mark.parametrize(
    ("name", "active"),
    [("qwen1.5-moe-a2.7b", 2.7), ("qwen2-57b-a14b", 14), ("phi-3.5-moe", 6.6), ("olmoe-1b-7b", 1.3),
     ("deepseek-moe-16b", 2.8), ("mistral-large-3-675b", 39), ("ling-flash-2.0", 6.1), ("ling-1t", 50),
     ("ernie-4.5-300b-a47b", 47)],
)  # fmt: skip
def test_parameters_that_a_token_visits_in_billions(name: str, active: float) -> None:
    assert named_model(name).active_parameters / 1e9 == pytest.approx(active, rel=0.07)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mistralai/Codestral-22B-v0.1", "mistral-small-22b"),
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2-7b"),
        ("CohereLabs/c4ai-command-a-03-2025", "command-a-111b"),
        ("allenai/Olmo-3.1-32B-Think", "olmo-3-32b"),
        ("HuggingFaceH4/zephyr-7b-beta", "mistral-7b-v0.1"),
        ("lmsys/vicuna-13b-v1.5", "llama-2-13b"),
        ("zai-org/GLM-Z1-32B-0414", "glm-4-32b-0414"),
        ("google/t5-v1_1-xxl", "flan-t5-xxl"),
        ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
        ("bigscience/bloomz-560m", "bloom-560m"),
        ("LGAI-EXAONE/EXAONE-Deep-32B", "exaone-3.5-32b"),
        ("nvidia/AceReason-Nemotron-14B", "qwen2.5-14b"),
        ("zai-org/GLM-5.1-FP8", "glm-5"),
        ("moonshotai/Kimi-K2.6", "kimi-k2-thinking"),
        ("RWKV/v6-Finch-7B-HF", "rwkv-6-7b"),
        ("fla-hub/rwkv7-1.5B-world", "rwkv-7-1.5b"),
        ("openai/whisper-large-v3-turbo", "whisper-large-v3-turbo"),
    ],
)
def test_names_of_pages(text: str, name: str) -> None:
    assert named_model(text).name == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("RWKV/rwkv-4-169m-pile", "recurrent layers of RWKV-4"),
        ("google/recurrentgemma-2b", "recurrent layers"),
    ],
)
def test_a_name_of_a_family_that_is_not_modelled_says_why(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        named_model(name)


#: keys of configurations whose classes came with the checkpoint, without those that change nothing
OLDER: dict[str, dict[str, object]] = {
    "chatglm3-6b": {
        "model_type": "chatglm", "add_qkv_bias": True, "ffn_hidden_size": 13696, "hidden_size": 4096,
        "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32,
        "num_layers": 28,
        "padded_vocab_size": 65024, "rmsnorm": True, "seq_length": 8192, "tie_word_embeddings": False,
    },
    "internlm2-7b": {
        "model_type": "internlm2", "bias": False, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "vocab_size": 92544,
    },
    "internlm-7b": {
        "model_type": "internlm", "bias": True, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
        "tie_word_embeddings": False, "vocab_size": 103168,
    },
    "baichuan2-7b": {
        "model_type": "baichuan", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "tie_word_embeddings": False, "vocab_size": 125696,
    },
    "baichuan2-13b": {
        "model_type": "baichuan", "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 13696,
        "model_max_length": 4096, "num_attention_heads": 40, "num_hidden_layers": 40, "tie_word_embeddings": False,
        "vocab_size": 125696,
    },
    "minicpm-2b": {
        "model_type": "minicpm", "hidden_act": "silu", "hidden_size": 2304, "intermediate_size": 5760,
        "max_position_embeddings": 4096, "num_attention_heads": 36, "num_hidden_layers": 40, "num_key_value_heads": 36,
        "vocab_size": 122753,
    },
    "yi-6b": {
        "model_type": "Yi", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 4,
        "tie_word_embeddings": False, "vocab_size": 64000,
    },
    "deepseek-moe-16b": {
        "model_type": "deepseek", "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 10944, "max_position_embeddings": 4096, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
        "num_hidden_layers": 28, "num_key_value_heads": 16, "tie_word_embeddings": False, "vocab_size": 102400,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER)
def test_configurations_of_classes_that_came_with_the_checkpoint(name: str) -> None:
    read, named = config_of(OLDER[name], "config.json"), named_model(name)
    for figure in ("parameters", "active_parameters", "kv_heads", "head_dim", "qkv_bias", "output_bias", "mlp_bias",
                   "activation", "positions", "gated", "tied"):  # fmt: skip
        assert getattr(read, figure) == getattr(named, figure), figure


#: of Zamba-7B, whose class lists its layers by a period where the configuration does not
ZAMBA: dict[str, object] = {
    "model_type": "zamba", "vocab_size": 32000, "hidden_size": 3712, "intermediate_size": 14848, "hidden_act": "gelu",
    "num_hidden_layers": 76, "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 4096,
    "attn_layer_period": 6, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_dt_rank": "auto",
    "n_mamba_heads": 2,
}  # fmt: skip


def test_zamba_shares_one_block_by_hand() -> None:
    hidden, inner, ffn = 3712, 7424, 14848
    # in and gate, four taps and their bias, steps with two states of 16, the steps' rank and bias, decays, D, out, norm
    state = 2 * hidden * inner + 5 * inner + (232 + 32) * inner + 233 * inner + 17 * inner + inner * hidden + hidden
    # queries, keys and values of the stream beside the embedding, the output, a gated MLP, norms of both inputs
    block = 3 * (2 * hidden) ** 2 + 2 * hidden**2 + 3 * hidden * ffn + 3 * hidden
    total = 76 * state + block + 13 * hidden**2 + 32000 * hidden + hidden
    kinds = ["mamba", "mamba", "hybrid", *("hybrid" if index % 6 == 4 else "mamba" for index in range(73))]
    for keys in ({}, {"layers_block_type": kinds}):
        read = config_of(ZAMBA | keys, "config.json")
        assert (read.parameters, read.joint_layers, read.bare_layers, read.head_dim) == (total, 13, 63, 464)
        assert read.kv_bytes(1000) == named_model("zamba-7b").kv_bytes(1000)
    assert total == EXACT["zamba-7b"]
