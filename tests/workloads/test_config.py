"""Model configurations: the spellings of different models, parameters counted, and what is refused."""

from __future__ import annotations

import json

import pytest

from perfmodel.errors import InputFileError
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
    assert config.output_linear().k == 32 * 64


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As the models' pages state them.
        ("neuronx__llama2-7b", 6.738e9),
        ("meta-llama__Meta-Llama-3.1-8B", 8.030e9),
        ("meta-llama__Meta-Llama-3.1-70B", 70.554e9),
        ("neuronx__llama2-70b", 68.977e9),
        ("mistral-7b-instruct-v0.3", 7.248e9),
        ("qwen2.5-7b-instruct", 7.616e9),
        ("Qwen__Qwen3-0.6B", 0.596e9),  # heads x head_dim is twice the hidden size; tied
        ("Qwen__Qwen3-32B", 32.76e9),
        ("neusight__bert-large", 0.335e9),
        ("neusight__gpt2-large", 0.774e9),
        ("neusight__opt-1.3b", 1.316e9),
        ("neusight__gpt3-xl", 2.88e9),  # 24 layers of 3072: 12 x 24 x 3072^2 = 2.72e9, and 52305 rows of 3072
    ],
)
def test_published_sizes(data_dir, name, parameters):
    config = read_model_config(data_dir / "hf_configs" / f"{name}.json")
    assert config.parameters == pytest.approx(parameters, rel=0.001)


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
    ("name", "said"),
    [
        ("mistralai__Mixtral-8x7B-v0.1", "mixture of experts (num_local_experts)"),
        ("Qwen__Qwen3-30B-A3B", "mixture of experts (num_experts)"),
        ("neuronx__dbrx-16x12b", "mixture of experts (moe_num_experts)"),
        ("openai__gpt-oss-20b", "mixture of experts"),
        ("deepseek-ai__DeepSeek-V3", "latent attention (MLA) (kv_lora_rank)"),
        ("t5-small", "encoder with a decoder"),
        ("gemma-2-9b-it", "unknown model type 'gemma2'"),
        ("kimborgen__falcon-7b-refinedweb", "unknown model type 'RefinedWebModel'"),
    ],
)
def test_what_is_not_modelled_is_refused_with_its_name(data_dir, name, said):
    path = data_dir / "hf_configs" / f"{name}.json"
    with pytest.raises(InputFileError) as error:
        read_model_config(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "no hidden (hidden_size, n_embd, d_model)"),
        ({"num_hidden_layers": 0}, "layers = 0 is not a whole number above 0"),
        ({"vocab_size": 3.5}, "vocab = 3.5"),
        ({"num_attention_heads": True}, "heads = True"),
        ({"num_key_value_heads": 5}, "not a multiple of key and value heads (5)"),
        ({"num_attention_heads": 24}, "hidden size (4096) is not a multiple of the heads (24)"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096}, "some of its layers"),
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
