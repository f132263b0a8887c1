"""Hybrids: models some of whose layers have linear attention instead of keys."""

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
    assert config.linear_attention_parameters == linear
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
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_the_classes(name):
    assert named_model(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize(("name", "active"), [("qwen3-next-80b-a3b", 3e9), ("qwen3.5-397b-a17b", 17e9)])
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
        ({"layer_types": ["linear_attention"] * 8}, "none of its 8 layers attends to keys"),
        ({"layer_types": ["linear_attention", "mamba"] * 4}, "mamba layers, which are not modelled"),
        ({"linear_num_value_heads": 5}, "heads of linear attention (5) are not a multiple of their key heads (2)"),
        ({"linear_num_key_heads": 0}, "linear key heads = 0"),
        ({"layer_types": ["full_attention"] * 4}, "4 entries for 8 layers"),
    ],
)
def test_what_is_wrong_about_a_hybrid_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(SMALL | change, "config.json")
    assert said in str(error.value)


def test_a_shape_in_words():
    sizes = "layers=8 hidden=512 heads=8 vocab=32000 linear_layers=6"
    config = find_model(f"{sizes} linear_heads=8 linear_key_heads=4 output_gate=true")
    assert (config.linear_layers, config.linear_key_heads, config.linear_head_dim) == (6, 4, 128)
    assert find_model(f"{sizes} linear_heads=8").linear_key_heads == 8
    for words, said in (
        (sizes, "have no linear_heads"),
        (f"{sizes} linear_heads=8 linear_key_heads=3", "not a multiple of their key heads (3)"),
        (sizes.replace("linear_layers=6", "linear_layers=8 linear_heads=8"), "at least one has to attend"),
    ):
        with pytest.raises(UsageError) as error:
            find_model(words)
        assert said in str(error.value)


def test_their_eager_kernels_are_not_listed():
    with pytest.raises(UsageError, match="linear attention"):
        forward_pass(named_model("qwen3.5-9b"), 1, 128)
