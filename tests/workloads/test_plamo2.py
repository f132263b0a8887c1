"""PLaMo 2: Mamba-2's states with the small matrices of Mamba of the first kind, between layers with a window."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.states import state_flop
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import layer_kinds

H100 = pm.hardware("h100-sxm5-80gb")
#: config.json of pfnet/plamo-2-1b, as tests of public repositories quote it
STATED = {
    "model_type": "plamo2",
    "attention_window_size": 2048,
    "hidden_size": 2048,
    "hidden_size_per_head": 128,
    "intermediate_size": 8192,
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_state": 64,
    "mamba_enabled": True,
    "mamba_num_heads": 32,
    "mamba_step": 2,
    "max_position_embeddings": 10485760,
    "num_attention_heads": 16,
    "num_hidden_layers": 16,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
    "vocab_size": 100000,
}


def test_layers_by_hand():
    hidden, inner, heads, state, rank = 2048, 32 * 128, 32, 64, 128
    scan = inner * (rank + 2 * state) + rank * heads + 3 * heads + rank + 2 * state  # with norms of steps, B and C
    mamba = 2 * inner * hidden + 4 * inner + scan + inner * hidden
    attention = hidden * (16 + 2) * 128 + 16 * 128 * hidden + (16 + 1) * 128  # norms of each head of its own
    mlp, norms = 3 * 8192 * hidden, 4 * hidden
    config = config_of(STATED, "config.json")
    assert config.state_layer.parameters == mamba
    assert config.parameters == 8 * (mamba + attention) + 16 * (mlp + norms) + 100_000 * hidden + hidden
    assert config.state_bytes == 8 * (4 * heads * state * 128 + 2 * 3 * inner)
    assert config.kv_bytes(10_000) == 2 * 8 * 2048 * 2 * 128
    assert [kind.linear for kind in layer_kinds(config)] == [True, False] * 8


@pytest.mark.parametrize(("name", "gib"), [("pfnet/plamo-2-1b", 4.8), ("plamo-2-8b", 34.0)])
def test_checkpoints_in_32_bits_are_as_large(name, gib):
    config = named_model(name)
    assert 4 * config.parameters / 2**30 == pytest.approx(gib, rel=5e-3)
    held = Deployment(config, H100, engine="vllm").memory().weights_bytes
    assert held == pytest.approx(2 * config.parameters, rel=1e-3)


def test_the_catalog_has_what_a_configuration_states():
    listed = named_model("plamo-2-1b")
    assert dataclasses.replace(config_of(STATED, "config.json"), name=listed.name) == listed


def test_which_layers_attend_and_which_have_a_window():
    every = config_of(STATED | {"mamba_step": 4, "full_attention_idx": [2, 6]}, "config.json")
    assert (every.attending_layers, every.window_layers, every.linear_layers) == (4, 2, 12)
    last = config_of(STATED | {"mamba_step": 64}, "config.json")
    assert (last.attending_layers, last.window_layers) == (1, 1)
    without = config_of(STATED | {"mamba_enabled": False}, "config.json")
    assert (without.attending_layers, without.window_layers, without.state_bytes) == (16, 16, 0)
    with pytest.raises(InputFileError, match="mamba_step = 1 is not a whole number from 2"):
        config_of(STATED | {"mamba_step": 1}, "config.json")


def test_states_cost_what_those_of_mamba2_do():
    """Two products of the state a token, and of chunks of 256 tokens as attention without softmax; heads share keys."""
    config = config_of(STATED, "config.json")
    each = 32 * 4 * 64 * 128 + 2 * 256 * (64 + 32 * 128)
    assert state_flop(config, 1024) == 8 * 1024 * each
    near = Deployment(config, H100, engine="vllm").step(decode=64, context=2048)
    far = Deployment(config, H100, engine="vllm").step(decode=64, context=100_000)
    assert float(far.time_s) == pytest.approx(float(near.time_s))


def test_plamo2_in_words():
    words = "type=plamo2 layers=4 hidden=64 heads=4 vocab=100 linear_layers=2 linear_heads=4"
    with pytest.raises(UsageError, match="steps of PLaMo 2's states have a rank: give linear_rank"):
        find_model(words)
    assert find_model(f"{words} linear_key_heads=1 linear_rank=8").state_layer.summed_width == 8 + 2 * 128
