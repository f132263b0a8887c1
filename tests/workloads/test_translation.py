"""Encoders with a decoder whose positions are computed or kept in tables: NLLB, mBART, Pegasus, Marian."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.training.flops import step_flop
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.config import config_of

H100 = pm.hardware("h100-sxm5-80gb")
SMALL = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 80,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("kind", "parameters"), [("m2m_100", 240_384), ("mbart", 257_280), ("pegasus", 256_768), ("marian", 256_512)]
)
def test_transformers_counts_as_many_parameters(kind, parameters):
    """Of its classes, built without weights; the tables of Pegasus and Marian are not trained, and count."""
    assert config_of(SMALL | {"model_type": kind}, "config.json").parameters == parameters


def test_umt5_has_a_table_of_distances_in_each_layer():
    """Counted of transformers' class; T5 has one for each stack, with 32 rows of a number a head."""
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
    config = config_of(sizes | {"model_type": "umt5", "vocab_size": 1000}, "config.json")
    assert config.parameters == 272_384
    gated = {"model_type": "t5", "vocab_size": 1000, "feed_forward_proj": "gated-gelu"}
    assert config.parameters - config_of(sizes | gated, "config.json").parameters == (5 - 2) * 32 * 4


def test_a_small_model_by_hand():
    width, norm = 64, 128
    attention = 4 * (width**2 + width)
    encoder = attention + 2 * width * 96 + 96 + width + 2 * norm
    decoder = 2 * attention + 2 * width * 80 + 80 + width + 3 * norm
    config = config_of(SMALL | {"model_type": "m2m_100"}, "config.json")
    assert config.parameters == 3 * encoder + 2 * decoder + 2 * norm + 1000 * width


def test_checkpoints_are_as_large():
    """NLLB-200 3.3B has 17.6 GB in 32 bits: its embedding three times, of both stacks and of the head."""
    config = named_model("facebook/nllb-200-3.3B")
    assert 4 * (config.parameters + 2 * config.vocab * config.hidden) / 1e9 == pytest.approx(17.6, rel=2e-3)
    assert named_model("facebook/nllb-200-distilled-600M").parameters == pytest.approx(615e6, rel=5e-3)
    assert named_model("facebook/m2m100_418M").parameters == pytest.approx(484e6, rel=5e-3)


def test_it_trains_with_a_sequence_for_each_stack():
    config, plan = named_model("nllb-200-1.3b"), TrainingPlan(batch=64, seq=128, encoder_seq=256)
    found, _, _ = step_flop(config, plan)
    encoder = 24 * (4 * 1024**2 + 2 * 1024 * 8192)
    across = 24 * 2 * 1024**2
    decoder = 24 * (6 * 1024**2 + 2 * 1024 * 8192) + 1024 * 256_206
    cores = 2 * 1024 * 24 * (256**2 + 256 * 128 + 128 * 129 / 2)
    assert found == pytest.approx(64 * 6 * (256 * (encoder + across) + 128 * decoder + cores), rel=3e-3)
    assert train(config, Cluster.of(H100, 8), plan).time_s > found / (8 * 989.4e12)


def test_it_is_not_served_and_stacks_have_the_same_heads():
    with pytest.raises(UsageError, match=r"nllb-200-1.3b has an encoder of text"):
        Deployment(named_model("nllb-200-1.3b"), H100, engine="vllm")
    with pytest.raises(InputFileError, match="an encoder with other heads than its decoder"):
        config_of(SMALL | {"model_type": "m2m_100", "encoder_attention_heads": 8}, "config.json")
