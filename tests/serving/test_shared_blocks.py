"""Zamba2: Mamba-2 layers, some of them behind a block of attention and an MLP whose weights they share."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import layer_kinds

H100 = pm.hardware("h100-sxm5-80gb")
BANDWIDTH = H100.main_memory.bandwidth_bytes_per_s
SMALL = {
    "model_type": "zamba2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 7,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "layers_block_type": ["mamba", "mamba", "hybrid"] * 2 + ["mamba"],
    "n_mamba_heads": 8,
    "mamba_d_state": 24,
    "mamba_ngroups": 2,
    "num_mem_blocks": 2,
    "adapter_rank": 6,
}
#: a layer of Mamba-2 with its norm; attention of twice the width with its norm; an MLP with its norm
MAMBA = 64 * (2 * 128 + 2 * 48 + 8) + 5 * (128 + 96) + 3 * 8 + 128 + 128 * 64 + 64
BLOCK = 128 * 3 * 128 + 128 * 64 + 128 + 3 * 96 * 64 + 64


def test_layers_by_hand():
    """Each layer with a block has an adapter of gate and up, and one matrix behind the block."""
    own = 64 * 6 + 6 * 2 * 96 + 64 * 64
    config = config_of(SMALL, "config.json")
    assert config.parameters == 7 * MAMBA + 2 * BLOCK + 2 * own + 1000 * 64 + 64
    one = config_of(SMALL | {"num_mem_blocks": 1}, "config.json")
    assert config.parameters - one.parameters == BLOCK
    # what multiplies a token is as much
    assert one.multiplied_parameters == config.multiplied_parameters == config.parameters
    adapted = config_of(SMALL | {"use_shared_attention_adapter": True}, "config.json")
    assert adapted.parameters - config.parameters == 2 * 3 * (128 * 6 + 6 * 128)
    assert config.kv_bytes_per_token() == 2 * 2 * 2 * 128
    assert config.state_bytes == 7 * (4 * 8 * 24 * 16 + 2 * 3 * (128 + 96))
    assert [(kind.linear, kind.joint, kind.bare) for kind in layer_kinds(config)].count((True, True, False)) == 2
    assert [(kind.linear, kind.joint, kind.bare) for kind in layer_kinds(config)].count((True, False, True)) == 5


def test_published_models_have_their_parameters():
    """1,215,064,704 as a public record of runs of 1.2B counts them, and 96 KiB of keys and values a token."""
    assert named_model("Zyphra/Zamba2-1.2B").parameters == 1_215_064_704
    assert named_model("zamba2-1.2b").kv_bytes_per_token() == 96 * 1024


def test_first_configurations_have_other_names():
    names = {
        "ffn_hidden_size": "intermediate_size",
        "lora_rank": "adapter_rank",
        "state_size": "mamba_d_state",
        "use_shared_attention_lora": "",
    }
    older = {key: value for key, value in SMALL.items() if key not in (*names.values(), "n_mamba_heads")}
    older |= {key: SMALL[name] for key, name in names.items() if name} | {"mamba_headdim": 16, "conv_dimension": 4}
    assert config_of(older, "config.json") == config_of(SMALL, "config.json")


def test_without_a_list_layers_are_those_of_the_class():
    keys = {key: value for key, value in SMALL.items() if key not in ("layers_block_type", "num_hidden_layers")}
    config = config_of(keys, "config.json")
    assert (config.layers, config.joint_layers, config.bare_layers) == (54, 9, 45)


@pytest.mark.parametrize(("name", "tp"), [("zamba2-1.2b", 1), ("zamba2-7b", 1), ("zamba2-7b", 2)])
def test_parts_hold_the_weights_of_the_whole(name, tp):
    """What leads to the rank of adapters, and the matrix behind a block, is whole on each of two GPUs."""
    config = named_model(name)
    own = sum(one.n * one.k for one in config.block_linears() if one.name != "adapter_up")
    held = tp * Deployment(config, H100, engine="vllm", tp=tp).memory().weights_bytes
    assert held == pytest.approx(2 * (config.parameters + (tp - 1) * config.joint_layers * own), rel=2e-3)


def test_a_step_reads_a_shared_block_once_for_each_of_its_layers():
    config = named_model("zamba2-7b")
    step = Deployment(config, H100, engine="vllm").step(decode=1, context=1)
    read = 2 * (config.multiplied_parameters - config.vocab * config.hidden)
    assert read > 2 * 1.4 * config.parameters
    assert read / BANDWIDTH < float(step.terms_s["weights"]) < 2 * read / BANDWIDTH


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers_block_type": ["mamba", "attention"] * 3 + ["mamba"]}, "(zamba2) has attention layers"),
        ({"layers_block_type": ["mamba"] * 5}, "layers_block_type has 5 entries for 7 layers"),
        ({"num_mem_blocks": 0}, "blocks that layers share = 0"),
        ({"layers_block_type": None}, "it does not list what its 7 layers are"),
    ],
)
def test_what_cannot_be_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(SMALL | change, "config.json")
    assert said in str(error.value)


def test_what_is_not_modelled_is_refused():
    config = named_model("zamba2-2.7b")
    with pytest.raises(UsageError, match="9 layers share 2 blocks of attention and an MLP, which lie on other stages"):
        Deployment(config, H100, engine="vllm", pp=2)
    with pytest.raises(UsageError, match="blocks that layers share, whose training is not modelled"):
        train(config, Cluster.of(H100, 8), TrainingPlan(batch=8, seq=1024))
    words = "layers=4 hidden=64 heads=4 vocab=100 linear_rule=mamba2 linear_layers=4 linear_heads=4 joint_layers=1"
    for change, said in (
        ("shared_blocks=2 bare_layers=3", "2 blocks shared by 1 layers with keys beside a state"),
        ("shared_blocks=1", "0 layers without an MLP of 4, and 1 with a block that has one"),
        ("block_rank=8", "the shape has no shared_blocks"),
    ):
        with pytest.raises(UsageError, match=said):
            find_model(f"{words} {change}")
