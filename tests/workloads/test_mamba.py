"""Mamba of both kinds: models of states alone, and Jamba, which has attention and experts as well."""

from __future__ import annotations

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.listing import list_models

MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 1000, "state_size": 8}
MAMBA2 = {
    "model_type": "mamba2",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
    "state_size": 24,
    "num_heads": 8,
    "head_dim": 16,
    "n_groups": 2,
}
JAMBA = {
    "model_type": "jamba",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "mamba_d_state": 8,
}
NATIVE = {"d_model": 768, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {}}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # those that transformers counts of the checkpoints
        ("state-spaces/mamba-130m-hf", 129_135_360),
        ("mamba-370m", 371_516_416),
        ("mamba-790m", 793_204_224),
        ("mamba-1.4b", 1_372_178_432),
        ("mamba-2.8b", 2_768_345_600),
    ],
)
def test_models_have_the_published_parameters(name, parameters):
    config = named_model(name)
    assert config.parameters == config.active_parameters == parameters


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("jamba-1.5-mini", 52, 12),
        ("jamba-1.5-large", 398, 94),
        ("falcon-mamba-7b", 7.3, 7.3),
        ("mamba-codestral-7b", 7.3, 7.3),
    ],
)
def test_models_have_the_parameters_of_their_cards(name, total, active):
    config = named_model(name)
    assert config.parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert config.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


def test_a_layer_of_mamba_by_hand():
    hidden, inner, state, rank = 64, 128, 8, 4
    scan = inner * (rank + 2 * state) + (rank * inner + inner) + inner * state + inner  # x_proj, dt_proj, A, D
    biased = 2 * inner * hidden + 2 * inner + 5 * inner + scan + inner * hidden + hidden + hidden
    config = config_of(MAMBA, "config.json")
    assert config.parameters == 3 * biased + 1000 * hidden + hidden  # the head is the embedding
    plain = config_of(MAMBA | {"use_bias": False, "use_conv_bias": False}, "config.json")
    assert config.parameters - plain.parameters == 3 * (2 * inner + hidden + inner)
    assert config.state_bytes == 3 * (4 * inner * state + 2 * 3 * inner)
    assert (config.kv_bytes_per_token(), config.attending_layers, config.positions) == (0, 0, 0)


def test_a_layer_of_mamba2_by_hand():
    hidden, inner, heads, states = 64, 128, 8, 2 * 2 * 24
    into, out = hidden * (2 * inner + states + heads), inner * hidden
    layer = into + 5 * (inner + states) + 3 * heads + inner + out + hidden
    config = config_of(MAMBA2, "config.json")
    assert config.parameters == 3 * layer + 2 * 1000 * hidden + hidden
    assert config.state_bytes == 3 * (4 * heads * 24 * 16 + 2 * 3 * (inner + states))
    assert config.kv_bytes(10_000) == 0


def test_jamba_by_hand():
    """The class has a norm each of steps, keys and queries; layer 4 attends, and every second layer has experts."""
    hidden, inner, state, rank = 64, 128, 8, 4
    scan = inner * (rank + 2 * state) + (rank * inner + inner) + inner * state + inner + rank + 2 * state
    mamba = 2 * inner * hidden + 5 * inner + scan + inner * hidden
    attention, mlp = hidden * (64 + 2 * 32) + 64 * hidden, 3 * 96 * hidden
    config = config_of(JAMBA, "config.json")
    mlps = 4 * mlp + 4 * (4 * mlp + 4 * hidden)
    assert config.parameters == 7 * mamba + attention + mlps + 17 * hidden + 2 * 1000 * hidden
    assert config.active_parameters == config.parameters - 4 * 2 * mlp
    assert config.kv_bytes_per_token() == 2 * 2 * 16 * 2  # of one layer
    assert (config.dense_at, config.positions) == ((0, 2, 4, 6), 262144)


def test_jamba_with_one_expert_is_dense():
    config = config_of(JAMBA | {"num_experts": 1}, "config.json")
    assert (config.experts, config.moe_layers, config.mlp_layers) == (0, 0, 8)
    with pytest.raises(InputFileError, match="attn_layer_offset = 8 is not a whole number from 0 to 7"):
        config_of(JAMBA | {"attn_layer_offset": 8}, "config.json")


def test_configurations_of_mamba_ssm():
    """Its vocabulary is padded, and Mamba2 has one group; the tiny one is as transformers has it."""
    first = config_of(NATIVE, "config.json")
    assert first.parameters == 129_135_360
    second = config_of(NATIVE | {"ssm_cfg": {"layer": "Mamba2"}, "pad_vocab_size_multiple": 16}, "config.json")
    assert (second.vocab, second.linear_heads, second.linear_key_heads, second.linear_rule) == (50288, 24, 1, "mamba2")
    assert second.parameters == named_model("mamba2-130m").parameters
    shifted = config_of(NATIVE | {"rms_norm": False}, "config.json")
    assert shifted.parameters - first.parameters == 25 * 768


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attn_layer_idx": [9, 18], "attn_cfg": {"num_heads": 30}}, "attn_layer_idx = [9, 18] puts attention or MLPs"),
        ({"d_intermediate": 4096}, "d_intermediate = 4096 puts attention or MLPs"),
        ({"ssm_cfg": {"layer": "Mamba3"}}, "the layer 'Mamba3'; Mamba1 and Mamba2 are modelled"),
        ({"ssm_cfg": [1]}, "ssm_cfg = [1] is not a table"),
        ({"n_layer": "24"}, "layers = '24' is not a whole number"),
    ],
)
def test_what_mamba_ssm_states_and_is_not_modelled_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(NATIVE | change, "config.json")
    assert said in str(error.value)


def test_mamba_in_words():
    config = find_model("type=mamba layers=3 hidden=64 vocab=1000 linear_head_dim=8")
    assert config.parameters == config_of(MAMBA, "config.json").parameters
    other = find_model("linear_rule=mamba1 layers=4 linear_layers=3 hidden=64 heads=4 vocab=1000")
    assert (other.linear_heads, other.linear_value_dim, other.linear_rank, other.attending_layers) == (128, 1, 4, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("heads=4 linear_layers=3 linear_rule=mamba1 linear_value_dim=2", "one value each and one head of keys"),
        ("heads=4 linear_layers=3 linear_heads=8 linear_rank=4", "linear_rank = 4 is of Mamba of the first kind"),
        ("linear_layers=3 linear_rule=mamba1", "the shape has no heads"),
        ("linear_layers=4 joint_layers=1 linear_rule=mamba1", "the shape has no heads"),
    ],
)
def test_what_words_of_mamba_cannot_be_is_named(change, said):
    with pytest.raises(UsageError) as error:
        find_model(f"layers=4 hidden=64 vocab=1000 {change}")
    assert said in str(error.value)


def test_they_are_in_the_list():
    assert {"mamba-2.8b", "mamba2-2.7b"} <= {model.name for model in list_models(["mamba"]).models}
