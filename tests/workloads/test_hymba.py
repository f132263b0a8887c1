"""Hymba: attention and Mamba of the first kind side by side, shared keys and values, and learned tokens."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of

H100 = pm.hardware("h100-sxm5-80gb")
#: what config.json of nvidia/Hymba-1.5B states
STATED = {
    "model_type": "hymba",
    "global_attn_idx": [0, 15, 31],
    "hidden_act": "silu",
    "hidden_size": 1600,
    "intermediate_size": 5504,
    "kq_norm": "none",
    "kv_reuse_every_i_layer": -1,
    "kv_reuse_group": [[i, i + 1] for i in range(1, 15, 2)] + [[16, 17, 18]] + [[i, i + 1] for i in range(19, 31, 2)],
    "kv_weight_reuse": False,
    "layer_type": ["h"] * 32,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_dt_rank": 100,
    "mamba_expand": 2,
    "mamba_inner_layernorms": True,
    "mamba_proj_bias": False,
    "max_position_embeddings": 8192,
    "mlp_hidden_act": "silu",
    "num_attention_heads": 25,
    "num_experts": 1,
    "num_hidden_layers": 32,
    "num_key_value_heads": 5,
    "num_memory_tokens": 128,
    "sliding_window": 1024,
    "tie_word_embeddings": True,
    "v_head_dim": 128,
    "vocab_size": 32001,
}


def test_a_model_by_hand():
    """Queries, a state and its gate go in together, of 17 layers keys and values too; one matrix follows both."""
    hidden, inner = 1600, 3200
    scan = inner * (100 + 2 * 16) + 100 * inner + inner + inner * 16 + inner + 100 + 2 * 16
    layer = hidden * (hidden + 2 * inner) + 5 * inner + scan + 2 * inner + inner * hidden
    mlp, norms = 3 * hidden * 5504, 2 * hidden
    keys = 17 * hidden * 5 * (64 + 128)
    config = named_model("nvidia/Hymba-1.5B-Base")
    assert config.parameters == 32 * (layer + mlp + norms) + keys + (32_001 + 128) * hidden + hidden
    assert config.parameters == pytest.approx(1.52e9, rel=5e-3)


def test_the_cache_is_as_small_as_published():
    """79 MB, as its paper has it of 8192 tokens (arXiv 2411.13676): 3 whole layers and 14 windows."""
    config = named_model("hymba-1.5b")
    each = 2 * 5 * (64 + 128)
    assert config.kv_bytes(8192) == each * (3 * 8192 + 14 * (1024 + 128))
    assert config.kv_bytes(8192) / 1e6 == pytest.approx(79, rel=0.015)
    assert config.state_bytes == 32 * (4 * 3200 * 16 + 2 * 3 * 3200)


def test_the_catalog_has_what_a_configuration_states():
    listed = named_model("hymba-1.5b")
    read = config_of(STATED, "config.json")
    assert dataclasses.replace(read, name=listed.name) == listed
    assert read.remarks == listed.remarks
    assert "128 learned tokens stand before each prompt" in read.remarks[0]


def test_a_gpu_holds_the_weights_and_each_part_takes_time():
    config = named_model("hymba-1.5b")
    deployment = Deployment(config, H100, engine="vllm")
    assert deployment.memory().weights_bytes == pytest.approx(2 * config.parameters, rel=2e-3)
    own = dataclasses.replace(config, kv_shared_layers=0, kv_shared_window_layers=0)
    steps = [Deployment(one, H100, engine="vllm").step(decode=64, context=4000) for one in (config, own)]
    assert float(steps[0].terms_s["weights"]) < float(steps[1].terms_s["weights"])
    read = 64 * config.kv_bytes(4000) + 2 * 64 * config.state_bytes
    assert float(steps[0].time_s) > read / H100.main_memory.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_type": ["h"] * 31 + ["m"]}, "layers of attention or of a state alone beside those of both"),
        ({"kq_norm": "rms"}, "norms of queries and keys"),
        ({"num_experts": 4}, "has experts, which are not modelled"),
        ({"kv_reuse_group": [[1, 2], [40, 41]]}, "is not a list of groups of layers, counted from 0"),
        ({"kv_reuse_every_i_layer": 2}, "kv_reuse_every_i_layer = 2 shares keys beside kv_reuse_group"),
    ],
)
def test_what_is_not_modelled_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(STATED | change, "config.json")
    assert said in str(error.value)


def test_training_is_refused():
    alone = config_of(STATED | {"kv_reuse_group": None}, "config.json")
    with pytest.raises(UsageError, match="one output matrix behind attention and a state, whose training is not"):
        train(alone, Cluster.of(H100, 8), TrainingPlan(batch=8, seq=1024))


def test_hymba_in_words():
    words = "type=hymba layers=2 hidden=64 heads=4 vocab=100 linear_layers=2 value_head_dim=32"
    config = find_model(words)
    assert (config.joint_layers, config.linear_heads, config.linear_rank) == (2, 128, 4)
    assert config.output_linears() == ()
