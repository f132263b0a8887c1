"""Gemma 3n: residual streams that layers predict and correct, second residuals, MLPs that keep few values."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of

H100 = pm.hardware("h100-sxm5-80gb")
E2B, E4B = named_model("google/gemma-3n-E2B-it"), named_model("gemma-3n-e4b")
STATED = {"model_type": "gemma3n_text", "num_hidden_layers": 30, "intermediate_size": [8192] * 30}
STATED |= {"num_kv_shared_layers": 10}


@pytest.mark.parametrize(
    ("config", "counted", "printed"), [(E2B, 4_435_182_688, 4.46e9), (E4B, 6_835_235_568, 6.87e9)], ids=["E2B", "E4B"]
)
def test_transformers_and_llama_cpp_count_as_many_parameters(config, counted, printed):
    """The file of llama.cpp also has the keys' and values' matrices of the layers that use those of others."""
    assert config.parameters == counted
    unused = config.kv_shared_layers * (2 * 2048 * 512 + 256)
    assert config.parameters + unused == pytest.approx(printed, rel=2e-3)


def test_the_catalog_has_what_configurations_state():
    """E4B's is the default of the class."""
    for stated, listed in ((STATED, E2B), ({"model_type": "gemma3n_text"}, E4B)):
        read = config_of({"model_type": "gemma3n", "text_config": stated, "audio_config": {}}, "config.json")
        assert dataclasses.replace(read, name=listed.name) == listed


def test_a_layer_by_hand():
    width, rank, streams = 2048, 64, 4
    laurel = 2 * width * rank + width
    # a scale, weights of the correction and of the prediction, the router and its norm
    altup = width + streams**2 + streams**3 + streams * width + width
    attention, mlp, norms = width * (2048 + 2 * 512) + 2048 * width + 2 * 256, 3 * 8192 * width, 4 * width
    embedding = 2 * width * 256 + width
    layers = 30 * (laurel + altup + attention + mlp + norms + embedding) - 10 * (2 * 512 * width + 256)
    tables = 262_400 * width + 262_144 * 30 * 256
    around = 2 * (streams - 1) * width**2 + width + 30 * 256 * width + 256
    assert E2B.parameters == tables + layers + around
    assert E2B.multiplied_parameters == layers + around + 262_400 * width  # the head is the embedding
    assert E2B.kv_bytes(100_000) == 2 * (4 * 100_000 + 16 * 512) * 2 * 512


def test_a_layer_list_and_what_mlps_leave_out():
    read = config_of(STATED | {"activation_sparsity_pattern": [0.95] * 3 + [0.0] * 27}, "config.json")
    assert read.sparse_layers == 3
    small = {**STATED, "intermediate_size": 8192, "num_kv_shared_layers": 0}
    assert config_of(small | {"num_hidden_layers": 12}, "config.json").sparse_layers == 10
    assert config_of(small | {"num_hidden_layers": 10}, "config.json").sparse_layers == 0
    for wrong in ([0.95] * 3, [0.95] * 29 + [2.0], "all"):
        with pytest.raises(InputFileError, match=r"activation_sparsity_pattern = .* is not a list of 30 numbers"):
            config_of(STATED | {"activation_sparsity_pattern": wrong}, "config.json")
    with pytest.raises(InputFileError, match="num_kv_shared_layers = 28 leaves no layer of some kind"):
        config_of(STATED | {"num_kv_shared_layers": 28}, "config.json")


@pytest.mark.parametrize("config", [E2B, E4B], ids=["E2B", "E4B"])
def test_a_gpu_holds_the_weights_of_the_whole(config):
    held = Deployment(config, H100, engine="vllm").memory().weights_bytes
    assert held == pytest.approx(2 * config.parameters, rel=1e-3)


def _step_s(config, users):
    """Return the time of a step of decode at 512 tokens of each user [s]."""
    return float(Deployment(config, H100, engine="vllm").step(decode=users, context=512).time_s)


def test_what_layers_have_beside_costs_time_and_no_step_beats_its_weights():
    plain = dataclasses.replace(E4B, laurel_rank=0, sparse_layers=0, residual_streams=1, facts=dataclasses.replace(
        E4B.architecture, altup=False))  # fmt: skip
    for users in (1, 64, 4096):
        without_laurel = dataclasses.replace(E4B, laurel_rank=0)
        dense = dataclasses.replace(E4B, sparse_layers=0)
        whole = _step_s(E4B, users)
        assert whole > _step_s(without_laurel, users)
        assert whole > _step_s(dense, users)
        assert min(_step_s(without_laurel, users), _step_s(dense, users)) > _step_s(plain, users)
    read = 2 * (E4B.parameters - E4B.embedding_parameters)
    assert _step_s(E4B, 1) > read / H100.main_memory.bandwidth_bytes_per_s


def test_training_is_refused_in_one_message():
    plan = TrainingPlan(batch=8, seq=1024)
    only = config_of(STATED | {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}, "config.json")
    with pytest.raises(UsageError, match="residual streams, second residuals or sparse MLPs of Gemma 3n, whose train"):
        train(only, Cluster.of(H100, 8), plan)
