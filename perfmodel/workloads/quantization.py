"""The format of a checkpoint's weights, from the ``quantization_config`` of its ``config.json``.

The names are those of `perfmodel.serving.precision.FORMATS`. The keys are those that transformers and vLLM read: fp8
(DeepSeek's with blocks, or with one scale a tensor), fbgemm_fp8, mxfp4, GPTQ and its relatives, bitsandbytes, modelopt
(NVIDIA), and compressed-tensors (llm-compressor).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.workloads.config_values import LANGUAGE_KEYS

#: a checkpoint that is quantised in a way that is not read here
OTHER = "other"
_KEYS = ("quantization_config", "compression_config")
#: methods whose weights have this format, whatever the other keys say
_METHODS = {"fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "modelopt_fp4": "nvfp4"}
#: methods of integers of 4 or 8 bits whose activations stay in 16 bits
_WEIGHT_ONLY = ("gptq", "gptq_marlin", "awq", "awq_marlin", "auto-round", "auto_round", "intel/auto-round")
_BITS = {4: "int4", 8: "w8a16"}
_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4", "FP4": "nvfp4", "W4A16_AWQ": "int4"}
_BLOCK = [128, 128]
#: keys that list matrices which stay in 16 bits, and formats of experts where attention is among these
_LEFT_OUT = ("ignore", "exclude_modules")
_EXPERTS_ALONE = {"int4": "int4_experts", "nvfp4": "nvfp4_experts"}
#: weights that share a scale -> format of 4-bit floating-point weights
_FP4_GROUPS = {16: "nvfp4", 32: "mxfp4"}
#: key of the format of routed experts where the other matrices are in blocks of fp8 (DeepSeek-V4), and that of fp4
_EXPERTS, _FP4_EXPERTS = "expert_dtype", "fp4_experts"


def stored_format(document: Mapping[str, Any]) -> str:
    """Return the format of the weights: "" for 16 bits, `OTHER` for what is not read.

    Parameters
    ----------
    document : the keys of a ``config.json``; of a multimodal model, also those of its language model.
    """
    parts = (document, *(document.get(key) for key in LANGUAGE_KEYS))
    for part in parts:
        for key in _KEYS:
            if isinstance(part, Mapping) and isinstance(part.get(key), Mapping) and part[key]:
                found = _format(part[key]) or OTHER
                return _FP4_EXPERTS if found == "fp8_block" and part.get(_EXPERTS) == "fp4" else found
    return ""


def _format(quantised: Mapping[str, Any]) -> str:
    """Return the format that a method and its keys name, "" for others."""
    nested = quantised.get("quantization")
    if isinstance(nested, Mapping):  # as modelopt writes hf_quant_config.json
        return _format({"quant_method": "modelopt", **nested})
    method = str(quantised.get("quant_method") or "").lower()
    if method in _METHODS:
        return _METHODS[method]
    if method == "fp8":
        return "fp8_block" if quantised.get("weight_block_size") == _BLOCK else "fp8"
    if method in _WEIGHT_ONLY:
        bits = quantised.get("bits", quantised.get("w_bit"))
        return _BITS.get(bits, "") if isinstance(bits, int) else ""
    if method == "bitsandbytes":
        return "int4" if quantised.get("load_in_4bit") else "int8" if quantised.get("load_in_8bit") else ""
    if method == "modelopt":
        found = _MODELOPT.get(str(quantised.get("quant_algo")).upper(), "") or _of_groups(quantised)
        return _of_experts(found, quantised)
    return _of_experts(_of_groups(quantised), quantised) if method == "compressed-tensors" else ""


def _of_groups(quantised: Mapping[str, Any]) -> str:
    """Return the format that all groups of compressed-tensors share; "" where they differ."""
    groups = quantised.get("config_groups")
    if not isinstance(groups, Mapping):
        return ""
    formats = {_of_group(group) for group in groups.values()}
    return formats.pop() if len(formats) == 1 else ""


def _of_experts(found: str, quantised: Mapping[str, Any]) -> str:
    """Return a format, or that of experts alone where attention is left out.

    So it is in checkpoints of mixtures, as Kimi-K2-Thinking (compressed-tensors) and NVIDIA's DeepSeek-R1 (modelopt).
    """
    listed = [names for key in _LEFT_OUT if isinstance(names := quantised.get(key), list)]
    beside = any("self_attn" in str(name) for names in listed for name in names)
    return _EXPERTS_ALONE.get(found, found) if beside else found


def _of_group(group: Any) -> str:
    """Return the format of one group of matrices, "" for others."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        return ""
    kind, bits = str(weights.get("type") or "int"), weights.get("num_bits")
    if kind == "float" and bits == 8:
        return "fp8_block" if weights.get("block_structure") == _BLOCK else "fp8"
    if kind == "float" and bits == 4:
        return _FP4_GROUPS.get(weights.get("group_size") or 0, "")
    if kind == "int" and bits == 8 and group.get("input_activations"):
        return "int8"
    return _BITS.get(bits, "") if kind == "int" and isinstance(bits, int) else ""
