"""The format of a checkpoint's weights, from its configuration and from the catalog."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.serving.precision import FORMATS, weight_format
from perfmodel.workloads import catalog
from perfmodel.workloads.catalog import find_model, model_names, named_model
from perfmodel.workloads.quantization import OTHER, stored_format


def group(bits: int, kind: str, inputs: object = None, **more: object) -> dict[str, object]:
    return {"weights": {"num_bits": bits, "type": kind, **more}, "input_activations": inputs}


def compressed(*groups: dict[str, object]) -> dict[str, object]:
    named = {f"group_{number}": one for number, one in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named}


def quark(weights: object, inputs: object) -> dict[str, object]:
    return {"quant_method": "quark", "global_quant_config": {"weight": weights, "input_tensors": inputs}}


CONFIGS = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
    ({"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}, "fp8"),
    ({"quant_method": "fbgemm_fp8"}, "fp8"),
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
    ({"quant_method": "gptq", "bits": 8}, "w8a16"),
    ({"quant_method": "gptq", "bits": 3}, OTHER),
    ({"quant_method": "awq", "w_bit": 4}, "int4"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8"),
    ({"quantization": {"quant_algo": "MIXED_PRECISION"}}, "other"),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.self_attn*"]},
        "nvfp4_experts",
    ),
    ({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["model.layers.0.self_attn*"]}}, "nvfp4_experts"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4"),
    (compressed(group(8, "float", {"num_bits": 8}, strategy="channel")), "fp8"),
    (compressed(group(8, "float", {"num_bits": 8}, block_structure=[128, 128])), "fp8_block"),
    (compressed(group(8, "int", {"num_bits": 8})), "int8"),
    (compressed(group(8, "int")), "w8a16"),
    (compressed(group(4, "int", group_size=32)), "int4"),
    (compressed(group(4, "int", group_size=32)) | {"ignore": ["lm_head"]}, "int4"),
    (compressed(group(4, "int", group_size=32)) | {"ignore": ["lm_head", "re:.*self_attn.*"]}, "int4_experts"),
    (compressed(group(4, "float", {"num_bits": 4}, group_size=16)), "nvfp4"),
    (compressed(group(4, "int"), group(8, "int")), OTHER),
    ({"quant_method": "compressed-tensors"}, OTHER),
    # weights alone: activations stay in 16 bits
    (compressed(group(8, "float", strategy="channel")), "fp8_a16"),
    (compressed(group(4, "float", group_size=16)), "nvfp4_a16"),
    (compressed(group(4, "float", group_size=32)), "mxfp4_a16"),
    (compressed(group(4, "float", {"num_bits": 4, "type": "float"}, group_size=32)), "mxfp4_a4"),
    (compressed(group(4, "float", group_size=[16])), OTHER),
    # int4 times fp8 or int8, and two of four weights left out: no format here
    (compressed(group(4, "int", {"num_bits": 8, "type": "float"}, group_size=128)), OTHER),
    (compressed(group(4, "int", {"num_bits": 8, "type": "int"}, group_size=128)), OTHER),
    (compressed(group(8, "float", {"num_bits": 8})) | {"sparsity_config": {"format": "sparse-24-bitmask"}}, OTHER),
    (compressed(group(8, "float", {"num_bits": 8})) | {"sparsity_config": {"format": "dense"}}, "fp8"),
    ({"quant_method": "quark"}, OTHER),
    (quark({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "fp8_e4m3"}), "fp8"),
    (quark({"dtype": "fp8_e4m3", "qscheme": "per_channel"}, None), "fp8_a16"),
    (quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, {"dtype": "fp4"}), "mxfp4_a4"),
    (quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, None), "mxfp4_a16"),
    (quark({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, {"dtype": "fp8_e4m3"}), OTHER),
    (quark({"dtype": "int8"}, {"dtype": "int8"}), "int8"),
    (quark({"dtype": "uint4", "qscheme": "per_group", "group_size": 128}, None), "int4"),
    (quark({"dtype": "int8"}, {"dtype": "int8"}) | {"layer_quant_config": {"*lm_head": {}}}, OTHER),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4"),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig"}}}, "fp8_a16"),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "w8a16"),
    (
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {}}},
        },
        "fp8",
    ),
    ({"quant_method": "torchao", "quant_type": {"default": {"_type": "FqnToConfig"}, "other": {}}}, OTHER),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "int4"),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2}}}, OTHER),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "int", "act_bits": 16}, "int4"),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "nv_fp4", "act_bits": 4}, "nvfp4"),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "act_bits": 16}, "mxfp4_a16"),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "int", "act_bits": 8}, OTHER),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "nvfp4_a16"),
    ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8_block"),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, OTHER),
    ({"quant_method": "eetq"}, "w8a16"),
    ({"quant_method": "aqlm", "num_codebooks": 1}, OTHER),
    ({"quant_method": "gptq", "bits": "four"}, OTHER),
    ({}, ""),
    (None, ""),
]


@pytest.mark.parametrize(("quantised", "format_"), CONFIGS)
def test_the_format_that_a_config_states(quantised, format_):
    assert stored_format({"quantization_config": quantised}).format == format_
    assert stored_format({"text_config": {"quantization_config": quantised}}).format == format_
    assert format_ in ("", OTHER) or format_ in FORMATS


def test_formats_of_real_configs(data_dir):
    files = {"deepseek-ai__DeepSeek-V3": "fp8_block", "openai__gpt-oss-20b": "mxfp4", "Qwen__Qwen3-30B-A3B": ""}
    for file, format_ in files.items():
        config = find_model(data_dir / "hf_configs" / f"{file}.json")
        assert config.stored == format_
        assert config.usual_weights == (format_ or "bf16")


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8_block"),
        ("deepseek-v3-fp8", "fp8_block"),
        ("deepseek-v3-bf16", "bf16"),
        ("nvidia/DeepSeek-R1-NVFP4", "nvfp4"),
        ("moonshotai/Kimi-K2-Thinking", "int4_experts"),
        ("openai/gpt-oss-120b", "mxfp4"),
        ("llama-3.1-8b", ""),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "int4"),
    ],
)
def test_names_of_the_catalog_state_the_format_too(name, format_):
    assert named_model(name).stored == format_


def test_every_format_of_the_catalog_is_known_and_has_a_source():
    entries = catalog._entries()
    for name in model_names():
        entry = entries[name]
        assert ("stored" in entry) == ("stored_source" in entry)
        assert entry.get("stored", "bf16") in FORMATS


@pytest.mark.parametrize(
    ("quantised", "words"),
    [
        ({"quant_method": "gptq", "bits": 3}, "gptq, bits = 3"),
        ({"quant_method": "aqlm"}, "aqlm"),
        ({"quantization": {"quant_algo": "W4A8_AWQ"}}, "modelopt, quant_algo = 'W4A8_AWQ'"),
        (
            compressed(group(4, "int", {"num_bits": 8, "type": "float"})) | {"sparsity_config": {"format": "dense"}},
            "compressed-tensors, weights of int 4, inputs of float 8, sparsity 'dense'",
        ),
    ],
)
def test_what_a_config_says_in_words(quantised, words):
    assert stored_format({"quantization_config": quantised}).words == words


@pytest.mark.parametrize("name", ["fp8_a16", "nvfp4_a16", "mxfp4_a16"])
def test_weights_alone_save_bytes_and_no_products(name):
    h200 = pm.hardware("h200")
    alone, sixteen = weight_format(name, h200), weight_format("bf16", h200)
    gemms = [pm.Gemm(m=16, n=4096, k=4096, **form.options(4096)) for form in (alone, sixteen)]
    assert gemms[0].flop() == gemms[1].flop()
    assert h200.best_peak(gemms[0].dtype).flop_per_s == h200.best_peak("bf16").flop_per_s
    weights = [next(tensor for tensor in one.tensors() if tensor.name == "b").size_bytes for one in gemms]
    assert weights[0] / weights[1] == {"fp8_a16": 0.5}.get(name, 0.25)
    assert 0.9 < (alone.bytes / sixteen.bytes) / (weights[0] / weights[1]) < 1.15, "scales come beside the weights"
