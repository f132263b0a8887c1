"""The format of a checkpoint's weights, from its configuration and from the catalog."""

from __future__ import annotations

import pytest

from perfmodel.serving.precision import FORMATS
from perfmodel.workloads import catalog
from perfmodel.workloads.catalog import find_model, model_names, named_model
from perfmodel.workloads.quantization import OTHER, stored_format


def group(bits: int, kind: str, inputs: object = None, **more: object) -> dict[str, object]:
    return {"weights": {"num_bits": bits, "type": kind, **more}, "input_activations": inputs}


def compressed(*groups: dict[str, object]) -> dict[str, object]:
    named = {f"group_{number}": one for number, one in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named}


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
    ({"quant_method": "quark"}, OTHER),
    ({"quant_method": "gptq", "bits": "four"}, OTHER),
    ({}, ""),
    (None, ""),
]


@pytest.mark.parametrize(("quantised", "format_"), CONFIGS)
def test_the_format_that_a_config_states(quantised, format_):
    assert stored_format({"quantization_config": quantised}) == format_
    assert stored_format({"text_config": {"quantization_config": quantised}}) == format_
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
