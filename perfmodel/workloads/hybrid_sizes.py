"""What configurations of hybrids state as the sizes of their layers with a state: heads, widths and taps, by family.

Every function takes the keys of one configuration. They follow the classes of Hugging Face's transformers 5.24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.workloads import rwkv
from perfmodel.workloads.hybrids import Raw, kimi_layers


def _mamba2(raw: Raw) -> dict[str, Any]:
    return _mamba2_heads(raw, _expanded(raw))


def _falcon_h1(raw: Raw) -> dict[str, Any]:
    """Falcon-H1 states the width itself; its class takes the expanded one only where that is null."""
    width = raw.get("mamba_d_ssm", 1024)
    return _mamba2_heads(raw, _expanded(raw) if width is None else int(width))


def _expanded(raw: Raw) -> int:
    return int(float(raw.get("mamba_expand") or 2) * int(raw.get("hidden_size") or 0))


def _mamba2_heads(raw: Raw, width: int) -> dict[str, Any]:
    """Mamba-2's heads may be left to follow from its width."""
    heads = raw.get("mamba_n_heads") or 128
    given = raw.get("mamba_d_head")
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": raw.get("mamba_n_groups") or 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or 256,
        "linear_value_head_dim": given if isinstance(given, int) else width // max(1, int(heads)),
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or 4,
    }


def _zamba2(raw: Raw) -> dict[str, Any]:
    """Zamba2's first configurations have other names for its sizes."""
    expanded = raw.get("mamba_expand") or raw.get("expansion_factor") or 2
    width = int(float(expanded) * int(raw.get("hidden_size") or 2560))
    heads = raw.get("n_mamba_heads") or width // int(raw.get("mamba_headdim") or width // 8)
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": raw.get("mamba_ngroups") or 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or raw.get("state_size") or 64,
        "linear_value_head_dim": width // max(1, int(heads)),
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or raw.get("conv_dimension") or 4,
    }


def _mamba2_alone(raw: Raw) -> dict[str, Any]:
    return {
        "linear_num_value_heads": raw.get("num_heads") or 128,
        "linear_num_key_heads": raw.get("n_groups") or 8,
        "linear_key_head_dim": raw.get("state_size") or 128,
        "linear_value_head_dim": raw.get("head_dim") or 64,
        "linear_conv_kernel_dim": raw.get("conv_kernel") or 4,
    }


def _mamba1(raw: Raw) -> dict[str, Any]:
    """Mamba of the first kind has a head for each channel: ``intermediate_size`` where stated, else the expanded."""
    channels = raw.get("intermediate_size") or int(float(raw.get("expand") or 2) * int(raw.get("hidden_size") or 768))
    return _channels(raw, channels, raw.get("state_size"), raw.get("conv_kernel"), raw.get("time_step_rank"))


def _jamba(raw: Raw) -> dict[str, Any]:
    return _channels(raw, _expanded(raw), raw.get("mamba_d_state"), raw.get("mamba_d_conv"), raw.get("mamba_dt_rank"))


def _channels(raw: Raw, channels: Any, state: Any, taps: Any, rank: Any) -> dict[str, Any]:
    return {
        "linear_num_value_heads": channels,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": state or 16,
        "linear_value_head_dim": 1,
        "linear_conv_kernel_dim": taps or 4,
        "linear_rank": math.ceil(int(raw.get("hidden_size") or 768) / 16) if rank in (None, "auto") else rank,
    }


def _plamo2(raw: Raw) -> dict[str, Any]:
    """PLaMo 2's steps have a rank of a sixteenth of the width, 64 at least."""
    return {
        "linear_num_value_heads": raw.get("mamba_num_heads") or 64,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": raw.get("mamba_d_state") or 64,
        "linear_value_head_dim": raw.get("hidden_size_per_head") or 128,
        "linear_conv_kernel_dim": raw.get("mamba_d_conv") or 4,
        "linear_rank": max(64, int(raw.get("hidden_size") or 4096) // 16),
    }


def _nemotron_h(raw: Raw) -> dict[str, Any]:
    return {
        "linear_num_value_heads": raw.get("mamba_num_heads") or 128,
        "linear_num_key_heads": raw.get("n_groups") or raw.get("mamba_n_groups") or 8,
        "linear_key_head_dim": raw.get("ssm_state_size") or 128,
        "linear_value_head_dim": raw.get("mamba_head_dim") or 64,
        "linear_conv_kernel_dim": raw.get("conv_kernel") or raw.get("mamba_d_conv") or 4,
    }


def _kimi_linear(raw: Raw) -> dict[str, Any]:
    own = kimi_layers(raw)
    heads = own.get("num_heads") or raw.get("linear_num_heads") or 32
    size = own.get("head_dim") or raw.get("linear_head_dim") or 128
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": own.get("short_conv_kernel_size") or raw.get("linear_conv_kernel_dim") or 4,
    }


def _minimax(raw: Raw) -> dict[str, Any]:
    heads, hidden = int(raw.get("num_attention_heads") or 32), int(raw.get("hidden_size") or 4096)
    size = raw.get("head_dim") or hidden // heads
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
    }


def _lfm2(raw: Raw) -> dict[str, Any]:
    """LFM2's convolution passes over the residual stream, whose columns GPUs share out as the heads of attention."""
    heads = int(raw.get("num_attention_heads") or 32)
    size = int(raw.get("hidden_size") or 2560) // heads
    return {
        "linear_num_value_heads": heads,
        "linear_num_key_heads": heads,
        "linear_key_head_dim": size,
        "linear_value_head_dim": size,
        "linear_conv_kernel_dim": raw.get("conv_L_cache") or 3,
    }


def _olmo_hybrid(raw: Raw) -> dict[str, Any]:
    heads, hidden = int(raw.get("num_attention_heads") or 30), int(raw.get("hidden_size") or 3840)
    keys = raw.get("linear_num_key_heads") or heads
    size = raw.get("linear_key_head_dim") or int(0.75 * hidden / int(keys))
    return {
        "linear_num_value_heads": raw.get("linear_num_value_heads") or heads,
        "linear_num_key_heads": keys,
        "linear_key_head_dim": size,
        "linear_value_head_dim": raw.get("linear_value_head_dim") or 2 * int(size),
        "linear_conv_kernel_dim": raw.get("linear_conv_kernel_dim") or 4,
    }


def _qwen(raw: Raw) -> dict[str, Any]:
    usual = {
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    return {key: value if raw.get(key) is None else raw[key] for key, value in usual.items()}


#: family -> the sizes of its layers with a state, under the keys that Qwen3-Next has for them
SIZES: Mapping[str, Callable[[Raw], dict[str, Any]]] = MappingProxyType(
    {
        "bamba": _mamba2,
        "falcon_h1": _falcon_h1,
        "falcon_mamba": _mamba1,
        "granitemoehybrid": _mamba2,
        "hymba": _jamba,
        "jamba": _jamba,
        "kimi_linear": _kimi_linear,
        "lfm2": _lfm2,
        "lfm2_moe": _lfm2,
        "mamba": _mamba1,
        "mamba2": _mamba2_alone,
        "minimax": _minimax,
        "nemotron_h": _nemotron_h,
        "olmo_hybrid": _olmo_hybrid,
        "qwen3_5_moe_text": _qwen,
        "qwen3_5_text": _qwen,
        "plamo2": _plamo2,
        "qwen3_next": _qwen,
        **rwkv.SIZES,
        "zamba": _jamba,
        "zamba2": _zamba2,
    }
)
