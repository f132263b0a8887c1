"""What the layers of a model are, in the order of its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import UsageError
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of
from perfmodel.workloads.layer_kinds import layer_kinds

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "intermediate_size": 96,
    "intermediate_size_mlp": 128,
    "moe_intermediate_size": 40,
    "num_hidden_layers": 6,
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
}


@pytest.mark.parametrize(
    ("own", "experts"),
    [
        ({"model_type": "qwen3_moe"}, "xxxxxx"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, ".x.x.x"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [2, 5]}, "xx.xx."),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 2}, ".x.x.x"),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 1}, "xxxxxx"),
        ({"model_type": "llama4_text", "moe_layers": [0, 4]}, "x...x."),
        ({"model_type": "dots1", "n_routed_experts": 4, "first_k_dense_replace": 1, "moe_layer_freq": 2}, "..x.x."),
        ({"model_type": "glm4_moe", "n_routed_experts": 4, "mlp_layer_types": ["dense", "sparse"] * 3}, ".x.x.x"),
        ({"model_type": "mimo_v2_flash", "moe_layer_freq": [0, 0, 1, 1, 0, 1]}, "..xx.x"),
        ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 1, "moe_layer_end_index": 4}, ".xxxx."),
        ({"model_type": "step3p5", "moe_top_k": 2, "moe_layers_enum": "1,3,9"}, ".x.x.."),
    ],
)
def test_layers_have_experts_where_the_configuration_says_so(own: dict[str, Any], experts: str) -> None:
    config = config_of(BASE | own, "config.json")
    assert "".join("x" if kind.moe else "." for kind in layer_kinds(config)) == experts
    assert config.moe_layers == experts.count("x")


def test_a_shape_may_have_experts_in_every_second_layer() -> None:
    words = "layers=6 hidden=64 heads=4 vocab=1000 experts=4 top_k=1"
    config = find_model(f"{words} moe_every=2")
    assert [kind.moe for kind in layer_kinds(config)] == [False, True] * 3
    assert config.parameters == find_model(f"{words} dense_layers=3").parameters
    assert find_model(f"{words} moe_every=1") == find_model(words)
    for wrong in ("moe_every=2 dense_layers=3", "moe_every=0"):
        with pytest.raises(UsageError, match="moe_every"):
            find_model(f"{words} {wrong}")


def test_dense_layers_that_lead_are_told_by_their_number() -> None:
    assert named_model("deepseek-v3").dense_at == ()
    assert named_model("llama-4-maverick").dense_at == tuple(range(0, 48, 2))
