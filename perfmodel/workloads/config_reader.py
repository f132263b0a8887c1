"""The shapes of a model in the values of its configuration."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from perfmodel.workloads import compressed, families, hybrid_sizes, hybrids, mixtures, rwkv
from perfmodel.workloads.architectures import ARCHITECTURES, Architecture
from perfmodel.workloads.config_values import LARGEST, LISTS, SPELLINGS, Values, alike, stated_number
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.model_shape import group_problem
from perfmodel.workloads.streams import PREDICTING, predicted_streams
from perfmodel.workloads.windowed import HEADS, OWN, SHARING, heads_problem, shared_keys, window_keys, window_layers

_ENCODER_DECODER = ("t5", "mt5", "umt5", "bart", "m2m_100", "marian", "mbart", "pegasus", "whisper")
#: those of them without a table of relative positions
_WITHOUT_RELATIVE = ("bart", "m2m_100", "marian", "mbart", "pegasus", "whisper")
_WITH_TYPES = ("bert", "roberta", "camembert", "xlm-roberta")
#: keys that state the width of the experts that every token visits, together
_SHARED_WIDTHS = (
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "share_expert_dims",
)
#: families whose experts have the width that others state for a dense MLP
_ONE_WIDTH = ("cohere2_moe", "flex_olmo", "hunyuan_v1_moe", "llama4_text")
#: families with keys of their own for the width of a dense layer's MLP -> these, and its default
_OWN_WIDTHS: dict[str, tuple[tuple[str, ...], int | None]] = {
    **dict.fromkeys(_WITHOUT_RELATIVE, (("decoder_ffn_dim",), None)),
    "cohere2_moe": (("prefix_dense_intermediate_size", "intermediate_size"), None),
    "llama4_text": (("intermediate_size_mlp",), None),
    "minimax_m3_vl_text": (("dense_intermediate_size",), 12288),
}
#: families whose activation is SiLU where a configuration states none
_SILU = ("chatglm", "jamba", "lfm2", "lfm2_moe", "qwen", *hybrids.STATES_ALONE)


class ConfigReader(Values):
    """The shapes of a model in the values of its configuration."""

    def config(self) -> ModelConfig:
        """Return the shapes, with the architecture's facts as defaults."""
        shape = self.facts()
        hidden, hybrid, alone = self.size("hidden"), self.hybrid(), self.kind in hybrids.WITHOUT_KEYS
        layers = hybrid.total if hybrid else self.layers()
        sizes = dict.fromkeys(("heads", "kv_heads", "head_dim"), 0) if alone else self.heads(hidden)
        compression = self.compression(layers)
        between = hybrids.windows_between(self.kind, self.raw, layers)
        windowed = between if hybrid else window_layers(self.kind, self.raw, layers)
        window = window_keys(self.kind, self.raw) if windowed or compression else 0
        windowed = windowed if window else 0
        sizes = {name: size for name, size in sizes.items() if windowed or name not in OWN}
        config = ModelConfig(
            model_type=self.kind,
            hidden=hidden,
            layers=layers,
            ffn=0 if self.kind in hybrids.STATES_ALONE else self.ffn(hidden),
            vocab=self.size("vocab"),
            positions=self.positions(),
            activation=self.activation(),
            tied=self.flag("tie_word_embeddings", self.flag("tie_embedding", shape.tied)),
            embedding_dim=self.size("embedding_dim", hidden) if self.kind == "opt" else hidden,
            token_types=self.size("token_types", 2) if self.kind in _WITH_TYPES else 0,
            window=window,
            window_layers=windowed,
            norm_after=not self.flag("do_layer_norm_before", not shape.norm_after),
            parallel_block=shape.parallel_block,
            head_bias=shape.head_bias,
            facts=None if shape == ARCHITECTURES[self.kind] else shape,
            **sizes,
            **self.biases(shape),
            **self.indexer(layers),
            **compression,
            **(shared_keys(self, layers) if self.kind in SHARING else {}),
            **(predicted_streams(self, layers) if self.kind in PREDICTING else {}),
            **(self.states(hybrid) if hybrid else {}),
            **(hybrids.reused_keys(self.raw, layers) if self.kind == "hymba" else {}),
            **(self.blocks() if self.kind in hybrids.BLOCKS else {}),
            **self.experts(layers, shape, hybrid),
            **self.encoder(),
        )
        if problem := heads_problem(config):
            raise self.wrong(problem)
        return config

    def heads(self, hidden: int) -> dict[str, Any]:
        """Return the heads of attention and their sizes."""
        heads, latent, own = self.size("heads"), self.latent(), HEADS.get(self.kind)
        sizes = {"heads": heads, "kv_heads": self.kv_heads(heads), **latent}
        head_dim = latent.get("head_dim") or self.head_dim(hidden, heads)
        return {**sizes, "head_dim": head_dim, **(own(self) if own else {})}

    def facts(self) -> Architecture:
        """Return the architecture's facts, with those that this configuration changes."""
        changes = families.FACTS.get(self.kind)
        shape = ARCHITECTURES[self.kind]
        return dataclasses.replace(shape, **changes(self.raw)) if changes else shape

    def layers(self) -> int:
        """Return the layers of a single stack, or of the decoder."""
        keys = ("num_decoder_layers", "decoder_layers")
        if self.kind in _ENCODER_DECODER and self.first(keys) is not None:
            return self.of(keys, "layers", None)
        if self.kind in mixtures.PAIRED:
            return 2 * self.of(("num_layers",), "layers", None)
        key, types = hybrids.listing(self.raw)
        unlisted = hybrids.UNLISTED.get(self.kind) if not types else None
        layers = self.size("layers", len(types or unlisted or ()) or None)
        if unlisted is not None and len(unlisted) != layers:
            raise self.wrong(f"it does not list what its {layers} layers are, as others of its class do")
        lists = {key: types, **{name: self.raw.get(name) for name in LISTS[1:]}}
        for name, found in lists.items():
            if isinstance(found, list) and len(found) not in (0, layers):
                raise self.wrong(f"{name} has {len(found)} entries for {layers} layers")
        return layers

    def hybrid(self) -> hybrids.Layers | None:
        """Return the layers of a model some of which keep a state."""
        if self.kind not in hybrids.RULES:
            return None
        found = hybrids.layers_of(self.kind, self.raw, self.layers())
        if found.bare < 0:
            raise self.wrong(f"it has {-found.bare} MLPs more than layers of attention and states")
        return found

    def encoder(self) -> dict[str, Any]:
        """Return what a model with an encoder and a decoder has."""
        if self.kind not in _ENCODER_DECODER:
            return {}
        own = self.raw.get("encoder_ffn_dim") is not None
        relative = ("relative_attention_num_buckets",)
        buckets = 0 if self.kind in _WITHOUT_RELATIVE else self.of(relative, "position buckets", 32)
        sound = {
            "encoder_positions": self.of(("max_source_positions",), "positions of the encoder", 1500),
            "audio_bands": self.of(("num_mel_bins",), "bands of the spectrum", 80),
        }
        return {
            **(sound if self.kind == "whisper" else {}),
            "encoder_layers": self.of(("encoder_layers", *SPELLINGS["layers"]), "encoder layers", None),
            "encoder_ffn": self.of(("encoder_ffn_dim",), "encoder ffn", None) if own else 0,
            "position_buckets": buckets,
        }

    def kv_heads(self, heads: int) -> int:
        """Return the key and value heads: one with multi-query attention, else as many as heads unless stated."""
        if self.kind == "falcon" and not self.raw.get("new_decoder_architecture") and self.raw.get("multi_query", True):
            return 1 if self.raw.get("model_type") != "RefinedWeb" else self.size("kv_heads", heads)
        if self.kind == "gpt_bigcode" and self.raw.get("multi_query", True):
            return 1
        return self.size("kv_heads", heads)

    def head_dim(self, hidden: int, heads: int) -> int:
        """Return the size of a head."""
        given = self.first(SPELLINGS["head_dim"])
        if given is None and hidden % heads:
            raise self.wrong(f"hidden size ({hidden}) is not a multiple of the heads ({heads})")
        return self.size("head_dim", (1 + (self.kind in hybrids.BLOCKS)) * hidden // heads)

    def ffn(self, hidden: int) -> int:
        """Return the width of a dense layer's MLP."""
        if self.kind in _OWN_WIDTHS:
            keys, usual = _OWN_WIDTHS[self.kind]
            return self.of(keys, "ffn", usual)
        if self.kind == "mpt":
            return self.expanded(hidden)
        if self.kind == "qwen":  # what it states is the gate and the other half together
            return self.size("ffn") // 2
        if self.kind == "granitemoehybrid" and not self.first(SPELLINGS["experts"]):
            return self.of(("shared_intermediate_size",), "ffn", 1024)
        if self.kind == "lfm2":
            return self.adjusted_ffn()
        if self.kind in rwkv.SIZES:
            return rwkv.channel_width(self.kind, self.raw)
        if self.kind in mixtures.MIXTURES and self.first(SPELLINGS["ffn"]) is None:
            return self.size("expert_ffn", 4 * hidden)
        return self.size("ffn", 4 * hidden)

    def expanded(self, hidden: int) -> int:
        """Return the width of MPT's MLP, which may be a fraction of a multiple of the hidden size."""
        ratio = self.raw.get("expansion_ratio")
        ratio = 4 if ratio is None else ratio
        most = LARGEST // hidden
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 1 <= ratio * hidden <= most * hidden:
            raise self.wrong(f"expansion_ratio = {ratio!r} is not a number from {1 / hidden:.2g} to {most:,}")
        return int(ratio * hidden)

    def adjusted_ffn(self) -> int:
        """Return the width of LFM2's MLP: two thirds of what is stated, in whole multiples of a step."""
        stated = self.of(("block_ff_dim", *SPELLINGS["ffn"]), "ffn", 12288)
        if not self.flag("block_auto_adjust_ff_dim", True):
            return stated
        width, factor = int(2 * stated / 3), self.raw.get("block_ffn_dim_multiplier", 1.0)
        if factor is None:
            return width
        step = self.of(("block_multiple_of",), "step of the MLP's width", 256)
        return step * math.ceil(int(float(factor) * width) / step)

    def positions(self) -> int:
        """Return the longest sequence; 0 where nothing limits it: relative positions."""
        if self.kind == "whisper":
            return self.of(("max_target_positions",), "positions", 448)
        unlimited = self.kind in ("t5", "mt5", "umt5", "bloom", "falcon", *hybrids.WITHOUT_KEYS)
        if unlimited and self.first(SPELLINGS["positions"]) is None:
            return 0
        return self.size("positions")

    def activation(self) -> str:
        """Return the activation of the MLP."""
        nested = self.raw.get("ffn_act_fn")
        given = nested.get("name") if isinstance(nested, dict) else None
        t5 = str(self.raw.get("feed_forward_proj") or "").removeprefix("gated-")
        keys = ("hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function", "activation")
        return str(given or t5 or self.first(keys) or ("silu" if self.kind in _SILU else "gelu"))

    def biases(self, shape: Architecture) -> dict[str, Any]:
        """Return which matrices of a layer have a bias."""
        names = ("qkv_bias", "output_bias", "mlp_bias")
        keys = families.bias_keys(self.kind)
        return {name: self.flag(key, getattr(shape, name)) for name, key in zip(names, keys, strict=True)}

    def latent(self) -> dict[str, Any]:
        """Return the ranks and head sizes of latent attention (MLA), or of one vector for keys and values."""
        if self.kind in compressed.COMPRESSED:
            rotated = int(self.size("head_dim") * float(self.raw.get("partial_rotary_factor") or 0.125))
            return {"q_lora": self.size("q_lora"), "rope_head_dim": self.size("rope_head_dim", rotated)}
        if not self.raw.get("kv_lora_rank"):
            self.check_no_latent()
            return {}
        sizes = {name: self.size(name) for name in ("kv_lora", "rope_head_dim", "nope_head_dim")}
        share = self.size("hidden") // self.size("heads") if self.kind == "minicpm3" else None
        sizes["value_head_dim"] = self.size("value_head_dim", share)
        queries = self.size("q_lora") if self.raw.get("q_lora_rank") else 0
        return sizes | {"q_lora": queries, "head_dim": sizes["rope_head_dim"] + sizes["nope_head_dim"]}

    def check_no_latent(self) -> None:
        """Raise for sizes of latent attention where no rank makes it one: they would change nothing."""
        keys = ("q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")
        if stated := [f"{key} = {self.raw[key]!r}" for key in keys if self.raw.get(key)]:
            raise self.wrong(f"{' and '.join(stated)} is of latent attention, and it has no kv_lora_rank")

    def compression(self, layers: int) -> dict[str, Any]:
        """Return the layers that attend to compressed keys, and what such models have beside them."""
        if self.kind not in compressed.COMPRESSED:
            return {}
        found = compressed.compressed_layers(self.raw, layers)
        names = ("index_heads", "index_head_dim", "index_keys") if found["index_layers"] else ()
        return {
            **found,
            **{name: self.size(name) for name in names},
            "output_groups": self.of(("o_groups",), "groups of the output", None),
            "output_lora": self.of(("o_lora_rank",), "rank of the output", None),
            "residual_streams": self.of(("hc_mult",), "residual streams", None),
            "hash_layers": compressed.hash_layers(self.raw, layers),
        }

    def indexer(self, layers: int) -> dict[str, Any]:
        """Return the indexer of sparse attention."""
        if self.kind in families.BLOCK_INDEXED:
            return families.block_indexer(self.raw, layers)
        if self.kind not in families.INDEXED:
            return {}
        sizes = {name: self.size(name) for name in ("index_heads", "index_head_dim", "index_keys")}
        return {**sizes, "index_layers": families.index_layers(self.raw, layers)}

    def states(self, layers: hybrids.Layers) -> dict[str, Any]:
        """Return the layers with a state, those of them that attend to keys, their sizes, and those without an MLP."""
        if not layers.states:
            return {"bare_layers": layers.bare}
        own = Values(hybrid_sizes.SIZES[self.kind](self.raw), self.place, self.kind)
        names = ("linear_heads", "linear_key_heads", "linear_head_dim", "linear_value_dim")
        names = (*names, *(("linear_rank",) if hybrids.RULES[self.kind].scans_values else ()))
        sizes = {name: own.size(name) for name in names}
        sizes |= {name: own.raw[name] for name in rwkv.RANKS if self.kind in rwkv.SIZES and name in own.raw}
        conv = own.size("linear_conv") if own.first(SPELLINGS["linear_conv"]) is not None else 0
        if sizes["linear_heads"] % sizes["linear_key_heads"]:
            heads, keys = sizes["linear_heads"], sizes["linear_key_heads"]
            raise self.wrong(f"heads of layers with a state ({heads}) are not a multiple of their key heads ({keys})")
        return {
            "linear_layers": layers.states,
            "joint_layers": layers.joint,
            "linear_rule": hybrids.RULES[self.kind].value,
            "linear_conv": conv,
            "linear_state_dtype": self.state_dtype(),
            "bare_layers": layers.bare,
            **sizes,
        }

    def blocks(self) -> dict[str, Any]:
        """Return the blocks that layers share, and the adapters of these layers."""
        if self.kind == "zamba":  # one block, which its layers do not adapt
            return {"shared_blocks": 1}
        keys = ("use_shared_attention_adapter", "use_shared_attention_lora")
        return {
            "shared_blocks": self.of(("num_mem_blocks",), "blocks that layers share", 1),
            "block_rank": self.of(("adapter_rank", "lora_rank"), "rank of adapters", 128),
            "block_adapters": any(self.flag(key, False) for key in keys),
        }

    def state_dtype(self) -> str:
        """Return the dtype in which the model asks engines to keep its states; "" for none."""
        stated = self.first(hybrids.STATE_DTYPE_KEYS)
        if stated in (None, "auto"):
            return hybrids.STATE_DTYPES.get(self.kind, "")
        if str(stated) not in hybrids.TORCH_DTYPES:
            raise self.wrong(f"states in {stated!r}; engines keep them in {', '.join(hybrids.TORCH_DTYPES)}")
        return hybrids.TORCH_DTYPES[str(stated)]

    def experts(self, layers: int, shape: Architecture, hybrid: hybrids.Layers | None) -> dict[str, Any]:
        """Return the experts of a mixture of experts."""
        sparse = hybrid.sparse if hybrid else None
        none = self.kind == "gemma4_text" and not self.raw.get("enable_moe_block")
        if none or self.kind not in mixtures.MIXTURES or self.first(SPELLINGS["experts"]) in (0, 1) or sparse == 0:
            return {}
        places = mixtures.dense_places(self.kind, self.raw, layers) if sparse is None else ()
        dense = layers - hybrid.bare - sparse if hybrid and sparse is not None else len(places)
        experts, top_k = self.size("experts"), self.size("top_k")
        if top_k > experts:
            raise self.wrong(f"a token visits {top_k} experts of {experts}")
        stated = self.kind not in _ONE_WIDTH and self.first(SPELLINGS["expert_ffn"]) is not None
        width = self.size("expert_ffn" if stated else "ffn")
        zeros = stated_number(self.raw, "zero_expert_num", 0) if self.kind in mixtures.PAIRED else 0
        return {
            "experts": experts,
            "top_k": max(1, round(top_k * experts / (experts + zeros))),
            "zero_experts": zeros,
            "expert_ffn": width,
            "shared_ffn": self.shared_ffn(width),
            "shared_gate": self.kind in mixtures.GATED_SHARED,
            "dense_layers": dense,
            "dense_at": places,
            "router_bias": shape.router_bias,
            "expert_hidden": self.size("expert_hidden") if self.first(SPELLINGS["expert_hidden"]) else 0,
            **self.groups(experts, top_k),
        }

    def groups(self, experts: int, top_k: int) -> dict[str, Any]:
        """Return the groups of experts and how many of them a token's come from, where the router limits these.

        DeepSeek's small models state one group, or with ``topk_method`` that a token takes any experts.
        """
        keys = ("n_group", "num_expert_group")
        if self.raw.get("topk_method") == "greedy" or self.first(keys) in (None, 0, 1):
            return {}
        groups, chosen = self.of(keys, "groups", None), self.of(("topk_group",), "token_groups", None)
        if problem := group_problem(experts, top_k, groups, chosen):
            raise self.wrong(problem)
        return {"expert_groups": groups, "token_groups": chosen}

    def shared_ffn(self, width: int) -> int:
        """Return the width of the experts that every token visits."""
        if self.kind == "llama4_text":
            return width
        if (
            self.kind in mixtures.PAIRED or self.kind == "gemma4_text"
        ):  # the dense MLP of a layer stands beside its experts
            return self.size("ffn")
        stated = alike(self.first(_SHARED_WIDTHS))
        given = self.of(_SHARED_WIDTHS, "width of shared experts", None) if stated else 0
        return given or mixtures.shared_experts(self.kind, self.raw) * width
