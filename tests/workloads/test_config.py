"""Model configurations: the spellings of different models, parameters counted, and what is refused."""

from __future__ import annotations

import json

import pytest

from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import read_model_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
BART = {"model_type": "bart", "decoder_ffn_dim": 4096}
MIXTURE = {"model_type": "dots1", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}


@pytest.fixture
def read(tmp_path):
    def call(raw):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(raw))
        return read_model_config(path)

    return call


def test_parameters_of_llama_by_hand(read):
    config = read(LLAMA)
    # A layer: q and o 2 x 4096^2, k and v 2 x 4096 x 1024 (8 heads of 128), gate, up and down 3 x 4096 x 14336, two
    # norms of 4096. Around it the embedding and the head, 128256 x 4096 each, and one norm.
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert config.parameters == 32 * layer + 2 * 128256 * 4096 + 4096 == 8_030_261_248
    assert config.head_dim == 128


def test_a_tied_head_is_counted_once(read):
    assert read(LLAMA).parameters - read(LLAMA | {"tie_word_embeddings": True}).parameters == 128256 * 4096


def test_head_dim_need_not_be_hidden_over_heads(read):
    config = read(LLAMA | {"head_dim": 64})
    assert config.head_dim == 64
    assert config.output_linears()[0].k == 32 * 64


#: as Hugging Face's transformers 4.57 builds them, every parameter counted
PARAMETERS = {
    "neuronx__llama2-7b": 6_738_415_616,
    "meta-llama__Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama__Meta-Llama-3.1-70B": 70_553_706_496,
    "neuronx__llama2-70b": 68_976_648_192,
    "mistral-7b-instruct-v0.3": 7_248_023_552,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "Qwen__Qwen3-0.6B": 596_049_920,  # heads x head_dim is twice the hidden size; tied
    "Qwen__Qwen3-32B": 32_762_123_264,
    "Qwen__Qwen3-30B-A3B": 30_532_122_624,
    "mistralai__Mixtral-8x7B-v0.1": 46_702_792_704,
    "neuronx__dbrx-16x12b": 131_596_523_520,
    "openai__gpt-oss-20b": 20_914_757_184,
    # with the corrections of its routers, 58 x 256, which the checkpoint has and the class keeps as a buffer; without
    # the layer that predicts a second token
    "deepseek-ai__DeepSeek-V3": 671_026_404_352 + 58 * 256,
    "gemma-2-9b-it": 9_241_705_984,
    "phi-2": 2_779_683_840,
    "qiushengsong__gpt-neox-20b": 20_554_567_680,
    # the head is the embedding, as the class has it; pages that count the checkpoint's copy of it say 7,217,189,760
    "kimborgen__falcon-7b-refinedweb": 6_921_720_704,
    "neusight__bert-large": 335_174_458,
    "neusight__gpt2-large": 774_030_080,
    "neusight__opt-1.3b": 1_315_758_080,
    "neusight__gpt3-xl": 2_879_554_560,  # 24 layers of 3072: 12 x 24 x 3072^2 = 2.72e9, and 52305 rows of 3072
    "t5-small": 60_506_624,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_to_the_last_one(data_dir, name):
    config = read_model_config(data_dir / "hf_configs" / f"{name}.json")
    assert config.parameters == PARAMETERS[name]


def test_every_configuration_of_the_collection_is_read(data_dir):
    assert {path.stem for path in (data_dir / "hf_configs").glob("*.json")} == set(PARAMETERS)


def test_a_token_of_deepseek_v3_visits_37_billion_parameters(data_dir):
    config = read_model_config(data_dir / "hf_configs" / "deepseek-ai__DeepSeek-V3.json")
    assert config.active_parameters == pytest.approx(37e9, rel=0.02)
    # 248 of 256 experts of three matrices [2048, 7168] rest in each of 58 layers
    assert config.parameters - config.active_parameters == 58 * 248 * 3 * 2048 * 7168
    # the cache has the latent vector of 512 and the rotary part of 64, in 61 layers
    assert config.kv_bytes_per_token(2) == 61 * (512 + 64) * 2
    assert (config.head_dim, config.value_dim, config.dense_layers) == (192, 128, 3)


def test_the_experts_of_a_token_come_from_some_groups(data_dir, read):
    published = read_document(data_dir / "hf_configs" / "deepseek-ai__DeepSeek-V3.json")
    assert read(published).router == (256, 8, 8, 4) == named_model("deepseek-v3").router
    # as in DeepSeek-V2-Lite, which takes any experts, and in Kimi K2, which has one group
    assert read(published | {"topk_method": "greedy"}).router == (256, 8, 1, 1)
    assert read(published | {"n_group": 1, "topk_group": 1}).router == (256, 8, 1, 1)
    assert named_model("mixtral-8x7b").router == (8, 2, 1, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topk_group": 9}, "from 9 groups of 8"),
        ({"n_group": 7}, "7 groups do not divide 256 experts"),
        ({"n_group": 64, "topk_group": 1}, "1 of 64 groups have 4 experts, and a token visits 8"),
        ({"topk_group": None}, "no token groups"),
    ],
)
def test_groups_that_cannot_be_are_named(data_dir, read, change, said):
    published = read_document(data_dir / "hf_configs" / "deepseek-ai__DeepSeek-V3.json")
    with pytest.raises(InputFileError, match=said):
        read(published | change)


def test_a_token_of_gpt_oss_visits_3_6_billion_parameters_beside_the_embedding(data_dir):
    config = read_model_config(data_dir / "hf_configs" / "openai__gpt-oss-20b.json")
    assert config.active_parameters - config.embedding_parameters == pytest.approx(3.6e9, rel=0.01)
    assert (config.window, config.window_layers, config.layers) == (128, 12, 24)
    # 1000 tokens: 12 layers keep them all, 12 keep 128; keys and values of 8 heads of 64 in 2 bytes
    assert config.kv_bytes(1000, 2) == 12 * (1000 + 128) * 2 * 8 * 64 * 2


def test_parameters_are_the_sum_of_their_parts(data_dir):
    for path in (data_dir / "hf_configs").glob("*.json"):
        config = read_model_config(path)
        layers = config.moe_layers * config.moe_layer_parameters + config.encoder_parameters
        layers += (config.layers - config.moe_layers) * config.dense_layer_parameters
        rest = config.embedding_parameters + config.head_parameters + config.outer_norm_parameters
        assert config.parameters == layers + rest
        assert config.multiplied_parameters <= config.active_parameters <= config.parameters


def test_t5_has_cross_attention_and_one_table_of_relative_positions_a_stack(data_dir):
    config = read_model_config(data_dir / "hf_configs" / "t5-small.json")
    attention, mlp = 4 * 512 * 512, 2 * 512 * 2048
    encoder, decoder = 6 * (attention + mlp + 2 * 512), 6 * (2 * attention + mlp + 3 * 512)
    assert config.parameters == encoder + decoder + 2 * 512 + 32128 * 512 + 2 * 32 * 8
    assert (config.encoder_layers, config.layers) == (6, 6)


@pytest.mark.parametrize(
    ("change", "window", "layers"),
    [
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28}, 4096, 4),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 16),
        ({"model_type": "cohere2", "sliding_window": 4096, "sliding_window_pattern": 4}, 4096, 24),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] + 31 * ["full_attention"],
          "sliding_window": 100}, 100, 1),
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 32),
    ],
)  # fmt: skip
def test_windows_on_some_layers(read, change, window, layers):
    config = read(LLAMA | change)
    assert (config.window, config.window_layers) == (window, layers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "xlstm"}, "(xlstm) has recurrent layers, which are not modelled"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*X"}, "(nemotron_h) has X layers"),
        ({"model_type": "llama", "mamba_d_state": 16}, "Mamba"),
        ({"model_type": "new", "layer_types": ["linear_attention", "full_attention"]}, "linear_attention layers"),
    ],
)
def test_layers_that_are_not_attention_are_refused_by_name(read, change, said):
    with pytest.raises(InputFileError) as error:
        read(LLAMA | change)
    assert said in str(error.value)


@pytest.mark.parametrize("size", [10**10, 10**400])
def test_a_dimension_beyond_all_models_is_refused(read, size):
    with pytest.raises(InputFileError, match=r"hidden = (10000000000|a number of 401 digits) is above 1e\+09"):
        read(LLAMA | {"hidden_size": size})


def test_an_mlp_of_mpt_may_be_a_fraction_wider(read):
    """llm-foundry takes int(d_model expansion_ratio)."""
    sizes = LLAMA | {"model_type": "mpt"}
    assert [read(sizes | own).ffn for own in ({}, {"expansion_ratio": 2.5})] == [4 * 4096, 10240]


def test_an_endless_window_is_refused(read):
    with pytest.raises(InputFileError, match="sliding_window = inf is not a whole number from 0 to"):
        read(LLAMA | {"model_type": "mistral", "sliding_window": float("inf")})


def test_opt_350m_projects_its_embedding_and_norms_after(read):
    config = read(
        {
            "model_type": "opt",
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "activation_function": "relu",
        }
    )
    # A layer: 12 x 1024^2 weights, 9 x 1024 biases, two norms of 2 x 1024. Around it 50272 x 512 embeddings,
    # 2050 x 1024 positions, two projections of 1024 x 512; no norm at the end.
    layer = 12 * 1024**2 + 9 * 1024 + 4 * 1024
    assert config.parameters == 24 * layer + 50272 * 512 + 2050 * 1024 + 2 * 1024 * 512 == 331_196_416


def test_gpt2_spellings_and_defaults(read):
    raw = {"model_type": "gpt2", "n_embd": 1280, "n_head": 20, "n_layer": 36, "n_positions": 1024, "vocab_size": 50257}
    config = read(raw | {"n_inner": None})
    assert (config.hidden, config.heads, config.layers, config.ffn) == (1280, 20, 36, 5120)
    assert read(raw | {"n_inner": 100}).ffn == 100


def test_a_language_model_inside_another_is_found(read):
    assert read({"model_type": "llava", "text_config": LLAMA}) == read(LLAMA)


def test_a_window_that_is_not_used_is_none(read):
    assert read(LLAMA | {"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False}).window == 0
    assert read(LLAMA | {"model_type": "mistral", "sliding_window": 4096}).window == 4096


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "no hidden (hidden_size, n_embd, d_model"),
        ({"num_hidden_layers": 0}, "layers = 0 is not a whole number above 0"),
        ({"vocab_size": 3.5}, "vocab = 3.5"),
        ({"num_attention_heads": True}, "heads = True"),
        ({"num_key_value_heads": 5}, "not a multiple of key and value heads (5)"),
        ({"num_attention_heads": 24}, "hidden size (4096) is not a multiple of the heads (24)"),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}, "visits 9 experts of 8"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "no rope head dim (qk_rope_head_dim)"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"model_type": "mistral", "sliding_window": "wide"}, "sliding_window = 'wide' is not a whole number from 0"),
        ({"model_type": "mistral", "sliding_window": -64}, "sliding_window = -64 is not a whole number from 0"),
        ({"model_type": "gpt_neo", "attention_types": [3]}, "attention_types = [3] does not say"),
        ({"model_type": "gpt_neo", "attention_types": [[["global"], 31]]}, "of each of 32 layers, as [[["),
        ({"model_type": "gpt_neo", "attention_types": [[["wide"], 32]]}, "[[['wide'], 32]] does not say"),
        ({"model_type": "gpt_neo", "attention_types": [[["local"], 10**12]]}, "of each of 32 layers, as [[["),
        ({"model_type": "mpt", "attn_config": "flash"}, "attn_config = 'flash' is not a table of keys"),
        ({"model_type": "mpt", "expansion_ratio": -4}, "expansion_ratio = -4 is not a number from 0.00024 to 244,140"),
        ({"model_type": "mpt", "expansion_ratio": "4x"}, "expansion_ratio = '4x' is not a number from"),
        (BART | {"encoder_layers": -2}, "encoder layers = -2 is not a whole number above 0 (encoder_"),
        (BART | {"encoder_layers": 10**6}, "encoder layers = 1000000 is above 1e+05 (encoder_layers)"),
        (BART | {"encoder_ffn_dim": 0}, "encoder ffn = 0 is not a whole number above 0 (encoder_ffn"),
        (MIXTURE | {"n_shared_experts": -1}, "n_shared_experts = -1 is not a whole number from 0 to 100,000"),
        (MIXTURE | {"first_k_dense_replace": 33}, "first_k_dense_replace = 33 is not a whole number from 0 to 32"),
        (MIXTURE | {"first_k_dense_replace": -1}, "first_k_dense_replace = -1 is not a whole number from 0 to 32"),
        (MIXTURE | {"moe_layer_freq": 0}, "moe_layer_freq = 0 is not a whole number from 1"),
        (MIXTURE | {"mlp_only_layers": 3}, "mlp_only_layers = 3 is not a list of layers, counted from 0"),
        ({"model_type": "gemma4_text", "hidden_size_per_layer_input": "x"}, "hidden_size_per_layer_input = 'x' is not"),
        ({"q_lora_rank": 512}, "q_lora_rank = 512 is of latent attention, and it has no kv_lora_rank"),
        ({"model_type": "lama"}, "unknown model type 'lama'. Did you mean 'llama'?"),
    ],
)
def test_bad_dimensions_are_named(read, change, said):
    with pytest.raises(InputFileError) as error:
        read(LLAMA | change)
    assert said in str(error.value)


def test_a_list_is_no_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("[]")
    with pytest.raises(InputFileError, match="not a model configuration"):
        read_model_config(path)
