"""Values of keys that configurations of single model types need not state, as their classes have them.

They follow the classes of Hugging Face's transformers 4.57, or 5.24 for types that came later.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads import compressed

#: keys that these classes need not state, because their default is a model's value
CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gemma3_text": {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
        },
        "gemma3n_text": {
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "hidden_size": 2048,
            "intermediate_size": 16384,
            "num_hidden_layers": 35,
            "vocab_size": 262400,
            "max_position_embeddings": 32768,
            "sliding_window": 512,
            "hidden_activation": "gelu_pytorch_tanh",
        },
        "gemma2": {"head_dim": 256},
        "gemma": {"head_dim": 256},
        "llama4_text": {"head_dim": 128, "intermediate_size_mlp": 16384},
        "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
        **{kind: {"head_dim": 128} for kind in ("hy_v3", "internlm3", "ministral3", "solar_open")},
        "afmoe": {"head_dim": 128, "sliding_window": 1024},
        "cohere2_moe": {"head_dim": 128, "sliding_window": 4096},
        "kolibri1": {"head_dim": 128, "shared_expert_intermediate_size": 512, "sliding_window": 513},
        "muse_glimmer_text": {"head_dim": 128, "sliding_window": 2048},
        "cwm": {"head_dim": 128, "sliding_window": 8192},
        "gemma4_text": {"sliding_window": 512},
        "gemma4_unified_text": {"sliding_window": 1024},
        "mimo_v2_flash": {"head_dim": 192, "sliding_window": 129},
        "step3p5": {"head_dim": 128, "moe_num_experts": 288, "moe_intermediate_size": 1280, "share_expert_dim": 1280},
        "dots1": {"sliding_window": 4096},
        "exaone_moe": {"sliding_window": 4096},
        **{kind: {"sliding_window": 128} for kind in ("granite_swa", "granitemoe_swa")},
        "mellum": {"head_dim": 128, "sliding_window": 1024},
        "minicpm3": {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32},
        "sarvam_moe": {"head_dim": 64},
        "vaultgemma": {"head_dim": 256, "sliding_window": 4096},
        **{kind: {"head_dim": 256} for kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")},
        "lfm2_moe": {"num_dense_layers": 2},
        "kimi_linear": {"first_k_dense_replace": 1},
        **dict.fromkeys(compressed.COMPRESSED, compressed.DEFAULTS),
        "jamba": {
            "num_key_value_heads": 8,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "max_position_embeddings": 262144,
        },
        "longcat_flash": {
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "moe_topk": 12,
            "n_routed_experts": 512,
            "zero_expert_num": 256,
            "expert_ffn_hidden_size": 2048,
            "ffn_hidden_size": 12288,
            "num_layers": 28,
            "max_position_embeddings": 131072,
            "hidden_act": "silu",
        },
        "plamo2": {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "intermediate_size": 13312,
            "vocab_size": 32000,
            "max_position_embeddings": 2048,
            "hidden_act": "silu",
        },
        "falcon_h1": {"num_key_value_heads": 8, "hidden_act": "silu"},
    }
)
