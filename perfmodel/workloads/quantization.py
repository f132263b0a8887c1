"""The format of a checkpoint's weights, from the ``quantization_config`` of its ``config.json``.

The names are those of `perfmodel.serving.precision.FORMATS`. The keys are those that transformers and vLLM read: fp8
(DeepSeek's with blocks, or with one scale a tensor), fbgemm_fp8, mxfp4, GPTQ and its relatives, bitsandbytes, HQQ,
torchao, modelopt (NVIDIA), quark (AMD) and compressed-tensors (llm-compressor).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from perfmodel.workloads.config_values import LANGUAGE_KEYS

#: a checkpoint that is quantised in a way that is not read here
OTHER = "other"
_KEYS = ("quantization_config", "compression_config")
#: methods whose weights have this format, whatever the other keys say
_METHODS = {"fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "modelopt_fp4": "nvfp4", "petit_nvfp4": "nvfp4_a16", "eetq": "w8a16"}
#: methods of integers of 4 or 8 bits whose activations stay in 16 bits
_WEIGHT_ONLY = ("gptq", "gptq_marlin", "awq", "awq_marlin", "auto-round", "auto_round", "intel/auto-round")
_BITS = {4: "int4", 8: "w8a16"}
#: algorithms of modelopt; with PB in blocks, with SQ smoothed
_MODELOPT = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block", "FP8_PB_REAL": "fp8_block",
    "NVFP4": "nvfp4", "FP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4_a16", "W4A16_AWQ": "int4",
    "INT4_AWQ": "int4", "W4A16": "int4", "W8A16": "w8a16", "W8A8_SQ_PER_CHANNEL": "int8", "INT8_SQ": "int8",
}  # fmt: skip
#: configurations of torchao, by their name without "Config", and by the names of its releases before 2025
_TORCHAO = {
    "int4weightonly": "int4", "int8weightonly": "w8a16", "float8weightonly": "fp8_a16",
    "int8dynamicactivationint8weight": "int8", "float8dynamicactivationfloat8weight": "fp8",
    "float8staticactivationfloat8weight": "fp8", "nvfp4inference": "nvfp4",
}  # fmt: skip
_BLOCK = [128, 128]
#: keys that list matrices which stay in 16 bits, and formats of experts where attention is among these
_LEFT_OUT = ("ignore", "exclude_modules")
_EXPERTS_ALONE = {"int4": "int4_experts", "nvfp4": "nvfp4_experts"}
#: (weights that share a scale, activations in 4 bits as well) -> format of 4-bit floating-point weights
_FP4 = {(16, True): "nvfp4", (16, False): "nvfp4_a16", (32, True): "mxfp4_a4", (32, False): "mxfp4_a16"}
#: key of the format of routed experts where the other matrices are in blocks of fp8 (DeepSeek-V4), and that of fp4
_EXPERTS, _FP4_EXPERTS = "expert_dtype", "fp4_experts"
#: keys that tell one quantisation from another of its method, for people
_TELLING = (
    "quant_algo", "bits", "w_bit", "nbits", "quant_type", "data_type", "act_bits", "format", "weight_block_size",
)  # fmt: skip


class Stored(NamedTuple):
    """How the weights of a checkpoint are stored.

    Attributes
    ----------
    format : as `perfmodel.serving.precision.FORMATS` names it; "" for 16 bits, `OTHER` for what is not read.
    words : what the configuration says of it, for people; "" where it says nothing.
    """

    format: str = ""
    words: str = ""


def stored_format(document: Mapping[str, Any]) -> Stored:
    """Return the format of the weights.

    Parameters
    ----------
    document : the keys of a ``config.json``; of a multimodal model, also those of its language model.
    """
    parts = (document, *(document.get(key) for key in LANGUAGE_KEYS))
    for part in parts:
        for key in _KEYS:
            if isinstance(part, Mapping) and isinstance(part.get(key), Mapping) and part[key]:
                found = _format(part[key]) or OTHER
                found = _FP4_EXPERTS if found == "fp8_block" and part.get(_EXPERTS) == "fp4" else found
                return Stored(found, _words(part[key]))
    return Stored()


def _words(quantised: Mapping[str, Any]) -> str:
    """Return the method, and the keys that tell which of its kinds it is: "gptq, bits = 3"."""
    nested = quantised.get("quantization")
    if isinstance(nested, Mapping):
        quantised = {"quant_method": "modelopt", **nested}
    told = [f"{key} = {quantised[key]!r}" for key in _TELLING if isinstance(quantised.get(key), str | int | list)]
    groups = quantised.get("config_groups")
    if isinstance(groups, Mapping):
        told += [text for text in dict.fromkeys(map(_group_words, groups.values())) if text]
    sparse = quantised.get("sparsity_config")
    if isinstance(sparse, Mapping) and sparse:
        told.append(f"sparsity {sparse.get('format')!r}")
    return ", ".join((str(quantised.get("quant_method") or "no quant_method"), *told))


def _group_words(group: Any) -> str:
    """Return the numbers of weights and activations of a group of matrices: "weights of int 4, inputs of float 8"."""
    texts = []
    for key, name in (("weights", "weights"), ("input_activations", "inputs")):
        part = group.get(key) if isinstance(group, Mapping) else None
        if isinstance(part, Mapping):
            texts.append(f"{name} of {part.get('type') or 'int'} {part.get('num_bits')}")
    return ", ".join(texts)


def _format(quantised: Mapping[str, Any]) -> str:
    """Return the format that a method and its keys name, "" for others."""
    nested = quantised.get("quantization")
    if isinstance(nested, Mapping):  # as modelopt writes hf_quant_config.json
        return _format({"quant_method": "modelopt", **nested})
    method = str(quantised.get("quant_method") or "").lower()
    if method in _METHODS:
        return _METHODS[method]
    if method in _WEIGHT_ONLY:
        return _of_integers(quantised)
    return _READERS[method](quantised) if method in _READERS else ""


def _fp8(quantised: Mapping[str, Any]) -> str:
    return "fp8_block" if quantised.get("weight_block_size") == _BLOCK else "fp8"


def _of_integers(quantised: Mapping[str, Any]) -> str:
    """Return the format of GPTQ, AWQ and AutoRound, which has floating-point numbers, too."""
    kind, acts = str(quantised.get("data_type") or "int"), quantised.get("act_bits")
    if kind.startswith("nv_fp"):
        return _FP4[16, acts == 4]
    if kind.startswith("mx_fp"):
        return _FP4[32, acts == 4] if quantised.get("bits") == 4 else ""
    bits = quantised.get("bits", quantised.get("w_bit"))
    narrow = isinstance(acts, int) and acts < 16
    return _BITS.get(bits, "") if isinstance(bits, int) and kind == "int" and not narrow else ""


def _bitsandbytes(quantised: Mapping[str, Any]) -> str:
    return "int4" if quantised.get("load_in_4bit") else "int8" if quantised.get("load_in_8bit") else ""


def _hqq(quantised: Mapping[str, Any]) -> str:
    nested = quantised.get("quant_config")
    params = nested.get("weight_quant_params") if isinstance(nested, Mapping) else None
    bits = params.get("nbits") if isinstance(params, Mapping) else None
    return _BITS.get(bits, "") if isinstance(bits, int) else ""


def _torchao(quantised: Mapping[str, Any]) -> str:
    """Return the format of a configuration, whose class names it; one of several kinds of matrices has none."""
    kind = quantised.get("quant_type")
    if isinstance(kind, Mapping):
        kind = kind["default"].get("_type") if isinstance(kind.get("default"), Mapping) and len(kind) == 1 else ""
    return _TORCHAO.get(str(kind).replace("_", "").lower().removesuffix("config"), "")


def _modelopt(quantised: Mapping[str, Any]) -> str:
    found = _MODELOPT.get(str(quantised.get("quant_algo")).upper(), "") or _of_groups(quantised)
    return _of_experts(found, quantised)


def _compressed(quantised: Mapping[str, Any]) -> str:
    sparse = quantised.get("sparsity_config")
    if isinstance(sparse, Mapping) and sparse.get("format") not in (None, "dense"):
        return ""
    return _of_experts(_of_groups(quantised), quantised)


def _quark(quantised: Mapping[str, Any]) -> str:
    """Return the format that all matrices have; "" where layers or kinds of layers have others."""
    if quantised.get("layer_quant_config") or quantised.get("layer_type_quant_config"):
        return ""
    whole = quantised.get("global_quant_config")
    weights, inputs = (whole.get(key) if isinstance(whole, Mapping) else None for key in ("weight", "input_tensors"))
    if not isinstance(weights, Mapping):  # a list has two levels of scales
        return ""
    kind, group = str(weights.get("dtype")), weights.get("group_size")
    given = str(inputs.get("dtype")) if isinstance(inputs, Mapping) else ""
    if kind == "fp4" and given in ("", "fp4") and isinstance(group, int):
        return _FP4.get((group, given == "fp4"), "")
    names = {
        ("fp8_e4m3", "fp8_e4m3"): "fp8", ("fp8_e4m3", ""): "fp8_a16", ("int8", "int8"): "int8", ("int8", ""): "w8a16",
        ("int4", ""): "int4", ("uint4", ""): "int4",
    }  # fmt: skip
    return names.get((kind, given), "")


#: methods whose keys say more -> what reads them
_READERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType(
    {
        "fp8": _fp8,
        "bitsandbytes": _bitsandbytes,
        "hqq": _hqq,
        "torchao": _torchao,
        "modelopt": _modelopt,
        "compressed-tensors": _compressed,
        "quark": _quark,
    }
)


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
    inputs = group.get("input_activations")
    given = (str(inputs.get("type") or kind), inputs.get("num_bits")) if isinstance(inputs, Mapping) else ()
    if kind == "float" and bits == 8 and given in ((), ("float", 8)):
        block = weights.get("block_structure") == _BLOCK
        return ("fp8_block" if block else "fp8") if given else "fp8_a16"
    if kind == "float" and bits == 4 and given in ((), ("float", 4)):
        group_size = weights.get("group_size")
        return _FP4.get((group_size, bool(given)), "") if isinstance(group_size, int) else ""
    if kind == "int" and bits == 8 and given == ("int", 8):
        return "int8"
    return _BITS.get(bits, "") if kind == "int" and isinstance(bits, int) and not given else ""
