"""What an engine or a machine does not have."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import engine_names, find_engine
from perfmodel.serving.support import objections, remarks
from perfmodel.workloads.catalog import find_model


def deployment(machine: str, engine: str = "vllm", weights: str = "bf16", kv: str = "bf16") -> Deployment:
    return Deployment(find_model("llama-3.2-1b"), pm.hardware(machine), engine=engine, weights=weights, kv=kv)


@pytest.mark.parametrize(
    ("machine", "engine", "weights", "against"),
    [
        ("mi300x", "trtllm", "bf16", "runs on machines of NVIDIA, not on mi300x"),
        ("t4", "trtllm", "fp16", "needs compute capability 8.0 or later; t4 has 7.5"),
        ("p100-pcie-16gb", "vllm", "fp16", "needs compute capability 7.0 or later; p100-pcie-16gb has 6.0"),
        ("v100", "vllm", "fp8", "has no fp8, and kernels that widen weights in fp8"),
        ("mi300x", "vllm", "nvfp4", "has no fp4, and kernels that widen weights in nvfp4"),
    ],
)
def test_what_nobody_can_run_has_a_reason(machine: str, engine: str, weights: str, against: str) -> None:
    (found,) = objections(deployment(machine, engine, weights))
    assert against in found


@pytest.mark.parametrize(
    ("machine", "engine", "weights"),
    [("h100", "trtllm", "fp8"), ("mi300x", "vllm", "fp8"), ("a100", "vllm", "fp8"), ("v100", "vllm", "int4"),
     ("b200", "vllm", "nvfp4"), ("mi300x", "vllm", "mxfp4"), ("v100", "generic", "bf16")],
)  # fmt: skip
def test_what_runs_has_none(machine: str, engine: str, weights: str) -> None:
    assert objections(deployment(machine, engine, weights)) == ()


def test_dtypes_without_an_instruction_are_named() -> None:
    assert remarks(deployment("h100", weights="fp8", kv="fp8")) == ()
    assert remarks(deployment("t4"))[0].startswith("t4 has no bf16: computed in fp16")
    assert remarks(deployment("t4", weights="fp16")) == ()
    assert "kernels widen weights in fp8 to bf16" in remarks(deployment("a100", weights="fp8"))[0]
    assert "keys and values" in remarks(deployment("a100", kv="fp8"))[0]


@pytest.mark.parametrize(("model", "bands"), [("whisper-tiny", 80), ("whisper-large-v3", 128), ("llama-3.1-8b", 0)])
def test_the_spectrum_of_sound_is_said_not_to_be_counted(model: str, bands: int) -> None:
    said = [note for note in remarks(Deployment(find_model(model), pm.hardware("h100"))) if "spectrum" in note]
    assert len(said) == bool(bands)
    assert all(f"({bands} bands of each 30 s)" in note and "not counted" in note for note in said)


def test_limits_of_profiles_have_a_source() -> None:
    for name in engine_names():
        engine = find_engine(name)
        for key in ("vendors", "least_capability"):
            assert bool(getattr(engine, key)) == (key in engine.sources), name


def test_a_search_leaves_out_what_nobody_can_run(perfmodel) -> None:
    base = ("llama-3.1-8b", "--engine", "trtllm", "--tp", "1", "--batch", "64")
    both = perfmodel("search", "serve", *base, "--on", "a100,mi300x", "--format", "json")
    assert {row["hardware"] for row in both.json["rows"]} == {"a100-sxm4-80gb"}
    assert any(note.startswith("Impossible (4): TensorRT-LLM") for note in both.json["notes"])
    served = perfmodel("serve", "llama-3.1-8b", "--engine", "trtllm", "--on", "mi300x", "--concurrency", "1",
                       "--format", "json")  # fmt: skip
    assert any("not on mi300x" in note for note in served.json["notes"])
