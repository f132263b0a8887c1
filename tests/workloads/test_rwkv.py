"""RWKV-5, RWKV-6 and RWKV-7: every layer keeps a state and has an MLP, and small matrices compute what changes it."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.states import state_flop
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.state_layer import Rule, StateLayer

H100 = pm.hardware("h100-sxm5-80gb")
SEVEN = {
    "model_type": "rwkv7",
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "decay_low_rank_dim": 40,
    "a_low_rank_dim": 24,
    "v_low_rank_dim": 16,
    "gate_low_rank_dim": 56,
}
SIX = {"model_type": "rwkv6", "hidden_size": 1024, "num_hidden_layers": 2, "vocab_size": 1000, "head_size": 64}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # as converters of the checkpoints count them
        ("rwkv-7-1.5b", 1_527_404_544),
        # as llama.cpp (2.95 B) and the authors' pages round them
        ("rwkv-7-2.9b", 2.95e9),
        ("rwkv-7-0.1b", 191e6),
        ("rwkv-7-7.2b", 7.2e9),
        ("rwkv-7-13.3b", 13.3e9),
        ("rwkv-6-1.6b", 1.6e9),
        ("rwkv-6-3b", 3.1e9),
        ("rwkv-6-7b", 7.64e9),
        ("rwkv-6-14b", 14.1e9),
        ("rwkv-5-7b", 7.52e9),
    ],
)
def test_models_have_the_published_parameters(name, parameters):
    config = named_model(name)
    assert config.parameters == config.active_parameters
    assert config.parameters == (parameters if isinstance(parameters, int) else pytest.approx(parameters, rel=5e-3))
    assert (config.kv_bytes_per_token(), config.attending_layers, config.positions) == (0, 0, 0)


def test_flash_linear_attention_has_as_many_parameters():
    """Counted of its classes, built without weights, with their own ranks, heads and expansions of keys."""
    plain = {"hidden_size": 1024, "num_hidden_layers": 2, "vocab_size": 1000}
    assert config_of({"model_type": "rwkv7", **plain}, "config.json").parameters == 28_337_152
    assert config_of({"model_type": "rwkv6", **plain}, "config.json").parameters == 28_100_608


def test_a_layer_of_rwkv7_by_hand():
    """The first layer has no values of a layer before it to mix; a norm follows the embedding."""
    hidden = 1024
    small = 40 * 2 * hidden + hidden + 24 * 2 * hidden + hidden + 16 * 2 * hidden + hidden + 56 * 2 * hidden
    attention = 4 * hidden**2 + small + 6 * hidden + 3 * hidden + 2 * hidden
    mixing, norms = 2 * hidden * 4 * hidden + hidden, 2 * 2 * hidden
    layers = 2 * (attention + mixing + norms) - (16 * 2 * hidden + hidden)
    config = config_of(SEVEN, "config.json")
    assert config.parameters == layers + 2 * 1000 * hidden + 2 * 2 * hidden
    assert config.state_bytes == 2 * (16 * 64 * 64 * 4 + 2 * 2 * hidden)
    assert (config.linear_heads, config.linear_head_dim, config.ffn) == (16, 64, 4096)


def test_a_layer_of_rwkv6_and_5_by_hand():
    """A gate multiplies what the MLP gives; without ranks decays are fixed, and four weights mix the tokens."""
    hidden, ffn = 1024, 3584
    mixing = 2 * hidden * ffn + hidden**2 + 2 * hidden
    attention = 5 * hidden**2 + 2 * hidden * 5 * 32 + 6 * hidden + 64 * 2 * hidden + hidden + hidden + 2 * hidden
    around = 2 * 1000 * hidden + 2 * 2 * hidden
    six = config_of(SIX, "config.json")
    assert six.parameters == 2 * (attention + mixing + 4 * hidden) + around
    five = config_of(SIX | {"model_type": "rwkv5"}, "config.json")
    fixed = 5 * hidden**2 + 4 * hidden + 2 * hidden + 2 * hidden
    assert five.parameters == 2 * (fixed + mixing + 4 * hidden) + around
    assert five.state_bytes == six.state_bytes == 2 * (16 * 64 * 64 * 4 + 2 * 2 * hidden)


def test_products_count_two_flop_a_parameter_and_states_as_their_kernels_do():
    config = config_of(SEVEN, "config.json")
    d, chunk, tokens = 64, 64, 4096
    each = 8 * d * d + 2 * chunk * (5 * d + 4 * d)
    assert state_flop(config, tokens) == 2 * 16 * tokens * each
    six = config_of(SIX, "config.json")
    assert state_flop(six, tokens) == 2 * 16 * tokens * (4 * d * d + 2 * chunk * 2 * d)
    matrices = sum(one.n * one.k for one in config.mixer_matrices(True, False)) + 2 * 1024 * 4096
    assert 2 * matrices + 1000 * 1024 == pytest.approx(config.multiplied_parameters, rel=0.01)


def test_a_state_is_longer_with_larger_heads_and_steps_read_it():
    narrow, wide = (StateLayer(Rule.RWKV7, 1024, 1024 // d, 1024 // d, d, d, 0, rank=64) for d in (64, 128))
    assert wide.state_bytes > narrow.state_bytes
    assert narrow.slower() > narrow.slower(steps=True) == 1.0
    model = named_model("rwkv-7-2.9b")
    alone, many = (Deployment(model, H100, engine="vllm").step(decode=users, context=1) for users in (1, 256))
    rate = H100.main_memory.bandwidth_bytes_per_s
    assert float(alone.time_s) > 2 * (model.parameters - model.embedding_parameters) / rate
    assert float(many.time_s) > 256 * 2 * model.state_bytes / rate
    later = Deployment(model, H100, engine="vllm").step(decode=256, context=100_000)
    assert float(later.time_s) == pytest.approx(float(many.time_s))


def test_a_gpu_holds_the_weights_of_the_whole():
    for name in ("rwkv-7-7.2b", "rwkv-6-7b", "rwkv-5-7b"):
        config = named_model(name)
        held = Deployment(config, H100, engine="vllm").memory().weights_bytes
        assert held == pytest.approx(2 * config.parameters, rel=2e-3)


def test_training_takes_longer_with_more_tokens_and_no_tensor_parallelism():
    config, cluster = named_model("rwkv-7-1.5b"), Cluster.of(H100, 8)
    # From 8,192 tokens on kernels of a micro batch of one are so long that they do not wait for the host.
    short, long = (train(config, cluster, TrainingPlan(batch=8, seq=seq)) for seq in (8192, 16384))
    assert "host" not in short.terms_s
    assert 1.5 * short.time_s < long.time_s
    flop = 6 * config.multiplied_parameters * 8 * 16384
    assert long.time_s > flop / (8 * 989e12)
    with pytest.raises(UsageError, match=r"tp = 2 with RWKV, whose small matrices no framework shares out"):
        train(config, cluster, TrainingPlan(batch=8, seq=2048, tp=2))


def test_rwkv_in_words():
    assert find_model("type=rwkv7 layers=2 hidden=1024 vocab=1000").linear_rate_rank == 64
    words = (
        "type=rwkv7 layers=2 hidden=1024 vocab=1000 ffn=4096 linear_rank=40 linear_rate_rank=24 linear_value_rank=16"
    )
    read = config_of(SEVEN, "config.json")
    found = find_model(f"{words} linear_gate_rank=56")
    assert dataclasses.replace(found, activation=read.activation, name=read.name) == read
    six = find_model("type=rwkv6 layers=2 hidden=1024 ffn=3584 vocab=1000")
    assert six.parameters == config_of(SIX, "config.json").parameters


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attn": {"layers": [1]}}, "layers of attention between those of RWKV"),
        ({"value_dim": [2048, 2048]}, "values wider than the residual stream"),
        ({"hidden_size": 1000}, "heads of 64 do not divide hidden_size = 1000"),
        ({"v_low_rank_dim": 0}, "v_low_rank_dim = 0 is not a whole number from 1"),
        ({"model_type": "rwkv6", "num_heads": 3}, "num_heads = 3 does not divide keys and values of 512 and 1024"),
        ({"hidden_ratio": -1, "intermediate_size": None}, "hidden_ratio = -1 leaves no width"),
        ({"model_type": "rwkv6", "head_size": 64, "attention_hidden_size": 4096}, "heads that are not as wide"),
        ({"model_type": "rwkv"}, "recurrent layers of RWKV-4, which are not modelled"),
    ],
)
def test_what_cannot_be_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(SEVEN | change, "config.json")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("type=rwkv6 linear_gate_rank=8", "linear_gate_rank = 8 is of RWKV-7"),
        ("type=rwkv7 linear_mix_rank=8", "linear_mix_rank = 8 is of RWKV-6"),
        ("type=rwkv7 linear_value_rank=0", "states of RWKV-7 need linear_rank, linear_rate_rank, linear_value_rank"),
        ("type=rwkv7 linear_heads=8", "values of RWKV are as wide as the residual stream"),
    ],
)
def test_what_cannot_be_in_words(words, said):
    with pytest.raises(UsageError, match=said):
        find_model(f"layers=2 hidden=1024 vocab=1000 {words}")
