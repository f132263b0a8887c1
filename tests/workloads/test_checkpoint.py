"""A config.json beside the other files of its checkpoint: the bytes of the index, and how it is quantised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.workloads.catalog import find_model, named_model

#: 2 layers: 4 x 64 x 64 + 3 x 64 x 256 and two norms each, a last norm, and 1000 x 64 twice
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 1000,
    "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PARAMETERS = 2 * (4 * 64 * 64 + 3 * 64 * 256 + 2 * 64) + 64 + 2 * 1000 * 64


def folder(path: Path, total: object, **keys: Any) -> Path:
    (path / "config.json").write_text(json.dumps(CONFIG | keys))
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}}))
    return path


def test_an_index_of_the_same_bytes_says_nothing(tmp_path: Path) -> None:
    model = find_model(folder(tmp_path, 2 * PARAMETERS))
    assert (model.parameters, model.remarks) == (PARAMETERS, ())
    assert find_model(folder(tmp_path, 4 * PARAMETERS, torch_dtype="float32")).remarks == ()
    # buffers and padding
    assert find_model(folder(tmp_path, int(2.02 * PARAMETERS))).remarks == ()


@pytest.mark.parametrize(("share", "words"), [(0.5, "50% less"), (0.96, "4% less"), (1.25, "25% more")])
def test_an_index_of_other_bytes_is_named(tmp_path: Path, share: float, words: str) -> None:
    (remark,) = find_model(folder(tmp_path, int(share * 2 * PARAMETERS))).remarks
    assert remark.startswith("model.safetensors.index.json states ")
    assert f"{words} than the 259.4 k parameters of the config take" in remark


def test_what_explains_more_bytes(tmp_path: Path) -> None:
    tied = PARAMETERS - 1000 * 64
    assert find_model(folder(tmp_path, 2 * PARAMETERS, tie_word_embeddings=True)).remarks == (), "stored twice"
    assert find_model(folder(tmp_path, 2 * tied, tie_word_embeddings=True)).remarks == ()
    assert find_model(folder(tmp_path, int(2.1 * PARAMETERS), num_nextn_predict_layers=1)).remarks == ()
    seen = {"vision_config": {"hidden_size": 32}}
    (alone,) = find_model(folder(tmp_path, 3 * PARAMETERS, **seen)).remarks
    assert "language model alone" in alone
    assert len(find_model(folder(tmp_path, PARAMETERS, **seen)).remarks) == 2, "less than the language model has"


def test_of_a_quantised_checkpoint_some_matrices_stay_wide(tmp_path: Path) -> None:
    quantised = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    assert find_model(folder(tmp_path, PARAMETERS, **quantised)).remarks == ()
    (remark,) = find_model(folder(tmp_path, PARAMETERS // 4, **quantised)).remarks
    assert "less" in remark


def test_an_index_that_says_nothing_is_passed_over(tmp_path: Path) -> None:
    for total in ("many", -1, None, True):
        assert find_model(folder(tmp_path, total)).remarks == ()
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert find_model(tmp_path).remarks == ()


def test_a_file_beside_the_config_says_how_it_is_quantised(tmp_path: Path) -> None:
    place = folder(tmp_path, PARAMETERS)
    (place / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    model = find_model(place)
    assert (model.stored, model.remarks) == ("fp8", ())
    assert model.stored_words == "modelopt, quant_algo = 'FP8' (hf_quant_config.json)"


@pytest.mark.parametrize(
    ("name", "has_encoders"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", True),
        ("Qwen/Qwen2.5-7B-Instruct", False),
        ("google/gemma-3-27b-it", True),
        ("google/gemma-3-1b-it", False),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", True),
        ("mistralai/Pixtral-12B-2409", True),
        ("mistralai/Mistral-Nemo-Instruct-2407", False),
        ("moonshotai/Kimi-K2.5", True),
        ("moonshotai/Kimi-K2-Thinking", False),
    ],
)
def test_a_name_of_a_model_that_sees_says_what_is_counted(name: str, has_encoders: bool) -> None:
    remarks = named_model(name).remarks
    assert len(remarks) == has_encoders
    assert all("tokens of the prompt" in remark for remark in remarks)
