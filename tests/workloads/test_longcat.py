"""LongCat-Flash: two attentions and dense MLPs a layer, experts beside the first, and experts without weights."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.constants import constants
from perfmodel.training.framework import find_framework
from perfmodel.training.layer import layer_work
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import Kind, layer_kinds

H200 = pm.hardware("h200-sxm-141gb")
FLASH = named_model("longcat-flash-chat")
SMALL = {
    "model_type": "longcat_flash",
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_layers": 3,
    "num_hidden_layers": 6,  # as its class saves it
    "ffn_hidden_size": 96,
    "expert_ffn_hidden_size": 32,
    "moe_topk": 6,
    "n_routed_experts": 8,
    "zero_expert_num": 4,
    "zero_expert_type": "identity",
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}


def test_its_report_has_as_many_parameters():
    """560 billion, of which a token visits 18.6 to 31.3 without the embedding, by how many experts it takes of 12."""
    assert FLASH.parameters / 1e9 == pytest.approx(560, abs=1)
    least = FLASH.active_parameters - 28 * 8 * FLASH.expert_parameters - FLASH.embedding_parameters
    assert least / 1e9 == pytest.approx(18.6, abs=0.1)
    assert (least + 28 * 12 * FLASH.expert_parameters) / 1e9 == pytest.approx(31.3, abs=0.1)


def test_a_layer_by_hand():
    """Twice attention, a dense MLP and two norms; a router with rows for all, and experts."""
    hidden, heads = 64, 4
    queries = 24 * hidden + 24 + 24 * heads * 24
    keys = (16 + 8) * hidden + 16 + 16 * heads * (16 + 16)
    attention = queries + keys + heads * 16 * hidden
    half = attention + 3 * 96 * hidden + 2 * hidden
    experts = 12 * (hidden + 1) + 8 * 3 * 32 * hidden
    config = config_of(SMALL, "config.json")
    assert config.parameters == 3 * (2 * half + experts) + 2 * 1000 * hidden + hidden
    assert config.active_parameters == config.parameters - 3 * (8 - 4) * 3 * 32 * hidden
    assert config.kv_bytes_per_token() == 6 * (16 + 8) * 2
    assert [kind.moe for kind in layer_kinds(config)] == [True, False] * 3


def test_a_token_takes_its_share_of_experts_with_weights():
    assert config_of(SMALL, "config.json").top_k == 4  # 6 of 12, of which 8 have weights
    none = config_of(SMALL | {"zero_expert_num": 0}, "config.json")
    assert (none.top_k, none.scored_experts) == (6, 8)


def test_without_keys_it_is_the_published_one():
    keys = {key: SMALL[key] for key in ("model_type",)} | {"hidden_size": 6144, "vocab_size": 131072}
    config = config_of(keys | {"num_attention_heads": 64}, "config.json")
    assert config.parameters == FLASH.parameters


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zero_expert_type": "drop"}, "experts without weights of the type 'drop'"),
        ({"router_bias": True}, "routers with a bias beside their correction"),
        ({"zero_expert_num": -1}, "zero_expert_num = -1 is not a whole number from 0"),
        ({"model_type": "longcat_flash_ngram"}, "tables of n-grams"),
    ],
)
def test_what_is_not_modelled_is_named(change, said):
    with pytest.raises(InputFileError) as error:
        config_of(SMALL | change, "config.json")
    assert said in str(error.value)


def test_parts_hold_the_weights_of_the_whole():
    """Of bf16 on 16 GPUs that share the experts: routers and what makes the latent key are whole on each."""
    held = 16 * Deployment(FLASH, H200, engine="vllm", tp=16, ep=16).memory().weights_bytes
    latent = 56 * 6144 * (1536 + 512 + 64)
    routers = 28 * 768 * 6144
    assert held == pytest.approx(2 * (FLASH.parameters + 15 * (latent + routers)), rel=1e-3)


def test_experts_without_weights_take_no_time_but_that_of_their_scores():
    plan, cluster = TrainingPlan(batch=64, seq=4096, framework="megatron-bridge"), Cluster.of(H200, 64)
    shard = Setup(FLASH, cluster, plan, find_framework("megatron-bridge"), constants()).shard
    experts, dense = (layer_work(H200, FLASH, shard, Kind(moe=moe)) for moe in (True, False))
    assert experts.flop - dense.flop == 2 * 4096 * (768 * 6144 + 8 * 3 * 2048 * 6144)
    assert experts.parameters - dense.parameters == 768 * 6144
    step = train(FLASH, cluster, plan)
    assert step.flop > 6.0 * FLASH.multiplied_parameters * 64 * 4096
