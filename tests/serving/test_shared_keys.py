"""Gemma 4 E2B and E4B: last layers with the keys of layers before them, and embeddings that layers have."""

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
E2B, E4B = named_model("google/gemma-4-E2B-it"), named_model("gemma-4-e4b")
STATED = {
    "model_type": "gemma4_text",
    "hidden_size": 1536,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "intermediate_size": 6144,
    "vocab_size": 262144,
    "sliding_window": 512,
    "num_kv_shared_layers": 20,
    "use_double_wide_mlp": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}


@pytest.mark.parametrize(("config", "printed"), [(E2B, 4_647_450_147), (E4B, 7_518_069_290)], ids=["E2B", "E4B"])
def test_llama_cpp_counts_as_many_parameters(config, printed):
    """Its files also have what shared layers do not use, a factor of each layer, and 256 factors of rotations."""
    width, windowed = config.hidden, config.kv_shared_window_layers
    full = (config.kv_shared_layers - windowed) * (2 * config.kv_heads * 512 * width + 512)
    unused = full + windowed * (2 * config.kv_heads * 256 * width + 256)
    assert config.parameters + unused + config.layers + 256 == printed


def test_the_catalog_has_what_a_configuration_states():
    read = config_of({"model_type": "gemma4", "text_config": STATED, "vision_config": {}}, "config.json")
    positions = {"positions": E2B.positions}
    assert dataclasses.replace(read, name=E2B.name, activation=E2B.activation, **positions) == E2B


def test_embeddings_of_layers_and_wider_mlps_by_hand():
    plain = config_of(STATED | {"hidden_size_per_layer_input": 0}, "config.json")
    table, projection = 262_144 * 35 * 256, 1536 * 35 * 256 + 256
    each = 2 * 1536 * 256 + 1536
    assert E2B.parameters - plain.parameters == table + projection + 35 * each
    assert E2B.embedding_parameters - plain.embedding_parameters == table
    assert E2B.multiplied_parameters - plain.multiplied_parameters == projection + 35 * each
    narrow = config_of(STATED | {"use_double_wide_mlp": False}, "config.json")
    assert E2B.parameters - narrow.parameters == 20 * 3 * 6144 * 1536


def test_layers_with_keys_of_others_keep_none():
    """LightLLM's cache has 4 whole layers and 20 windows of E4B (test_cpu_page_layout_uses_physical_owners)."""
    assert E4B.kv_bytes_per_token() == 2 * (4 * 2 * 2 * 512 + 20 * 2 * 2 * 256)
    assert E4B.kv_bytes(100_000) == 2 * (100_000 * 4 * 2 * 2 * 512 + 512 * 20 * 2 * 2 * 256)
    memory = Deployment(E4B, H100, engine="vllm").memory()
    assert memory.kv_bytes_token == E4B.kv_bytes_per_token()
    assert memory.kept(100_000.0) * memory.kv_bytes_token == pytest.approx(E4B.kv_bytes(100_000))


@pytest.mark.parametrize(("config", "tp"), [(E2B, 1), (E4B, 1), (E2B, 2), (E4B, 2)])
def test_parts_hold_the_weights_of_the_whole(config, tp):
    """Heads of keys and the matrices of layers' embeddings are whole on each of two GPUs."""
    held = tp * Deployment(config, H100, engine="vllm", tp=tp).memory().weights_bytes
    repeated = (tp - 1) * 3 * config.layers * config.hidden * 256
    if config.kv_heads < tp:
        own = config.window_layers - config.kv_shared_window_layers
        repeated += (tp - 1) * 2 * config.hidden * (own * 256 + (config.layers - config.window_layers - 4) * 512)
    assert held == pytest.approx(2 * (config.parameters + repeated), rel=1e-3)


def test_a_step_is_longer_by_what_the_embeddings_and_wider_mlps_take():
    sizes = {"decode": 1, "context": 1}
    whole = Deployment(E2B, H100, engine="vllm")
    plain = Deployment(config_of(STATED | {"hidden_size_per_layer_input": 0}, "config.json"), H100, engine="vllm")
    more = float(whole.step(**sizes).time_s - plain.step(**sizes).time_s)
    assert more > 2 * 3 * 35 * 1536 * 256 / H100.main_memory.bandwidth_bytes_per_s
    alone = dataclasses.replace(E2B, kv_shared_layers=0, kv_shared_window_layers=0, kv_shared_ffn=0)
    own = Deployment(alone, H100, engine="vllm")
    assert float(own.step(decode=1, context=1).terms_s["weights"]) < float(whole.step(**sizes).terms_s["weights"])
    # attention reads the keys of shared layers as it reads others
    kept = [float(one.step(decode=64, context=2000).terms_s["kv"]) for one in (own, whole)]
    assert kept[0] == pytest.approx(kept[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_kv_shared_layers": 35}, "num_kv_shared_layers = 35 is not a whole number from 0 to 34"),
        ({"num_kv_shared_layers": 31}, "leaves no layer of some kind whose keys others share"),
        ({"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2}, "wider MLPs beside experts"),
        ({"hidden_size_per_layer_input": "x"}, "hidden_size_per_layer_input = 'x' is not a whole number"),
    ],
)
def test_what_cannot_be_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(STATED | change, "config.json")
    assert said in str(error.value)


def test_what_is_not_modelled_is_refused():
    with pytest.raises(UsageError, match="share keys and values of layers before them, which lie on other stages"):
        Deployment(E2B, H100, engine="vllm", pp=2)
    with pytest.raises(UsageError, match="share keys and values and embeddings of layers, whose training is not"):
        train(E2B, Cluster.of(H100, 8), TrainingPlan(batch=8, seq=1024))
    words = "layers=4 hidden=64 heads=4 vocab=100"
    for change, wrong in (
        ("kv_shared_layers=4", "4 layers with keys of others of 4 that attend to keys"),
        ("kv_shared_layers=2 kv_shared_window_layers=1", "1 layers with a window and keys of others, of 0"),
        ("kv_shared_ffn=64", "the shape has no kv_shared_layers"),
        ("layer_embedding=8", "the shape has no layer_embedding_vocab"),
    ):
        with pytest.raises(UsageError, match=wrong):
            find_model(f"{words} {change}")
