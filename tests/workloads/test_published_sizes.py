"""Parameters of configurations beside the bytes of their checkpoints: ``total_size`` of the index of safetensors."""

from __future__ import annotations

import pytest

from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of

QWEN = {
    "model_type": "qwen",
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "layer_norm_epsilon": 1e-06,
    "max_position_embeddings": 32768,
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "seq_length": 8192,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
PHI3 = {
    "model_type": "phi3",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "sliding_window": 2047,
    "tie_word_embeddings": False,
    "vocab_size": 32064,
}
GRANITE = {
    "model_type": "granitemoe",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 512,
    "max_position_embeddings": 131072,
    "num_attention_heads": 16,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "tie_word_embeddings": True,
    "vocab_size": 49155,
}
#: Qwen3.5-35B-A3B with half of its experts taken away
QWEN35 = {
    "model_type": "qwen3_5_moe_text",
    "attention_bias": False,
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "layer_types": 10 * [*(3 * ["linear_attention"]), "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "vocab_size": 248320,
}
#: MiMo-7B, whose checkpoint has one more layer, which predicts a second token: 210,790,400 parameters
MIMO = {
    "model_type": "mimo",
    "attention_bias": True,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "vocab_size": 151680,
}


@pytest.mark.parametrize(
    ("raw", "total_size", "width"),
    [
        pytest.param(QWEN, 15_442_649_088, 2, id="qwen-7b"),
        pytest.param(PHI3, 7_642_159_104, 2, id="phi-3-mini"),
        pytest.param(GRANITE, 5_338_513_408, 4, id="granite-3.1-1b-a400m"),
        pytest.param(QWEN35, 37_087_995_136, 2, id="qwen3.5-18b-reap"),
        pytest.param(MIMO, 15_666_819_072 - 2 * 210_790_400, 2, id="mimo-7b"),
    ],
)
def test_the_parameters_fill_the_published_checkpoint(raw, total_size, width):
    assert config_of(raw, "config.json").parameters * width == total_size


def test_the_catalog_has_the_published_bytes_of_qwen():
    assert 2 * named_model("qwen-7b").parameters == 15_442_649_088
    assert 2 * named_model("qwen-72b").parameters == 144_575_840_256


def test_qwen_states_twice_the_width_of_its_mlp_and_biases_by_their_absence():
    model = config_of(QWEN, "config.json")
    assert (model.ffn, model.activation, model.kv_heads) == (11008, "silu", 32)
    biased = config_of(QWEN | {"no_bias": False}, "config.json")
    assert biased.parameters - model.parameters == 32 * (4096 + 2 * 11008 + 4096)
