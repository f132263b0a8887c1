"""Whisper: two convolutions and an encoder of 30 s of sound, and a decoder with cross attention to it."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import InputFileError, UsageError
from perfmodel.training.flops import step_flop
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.config import config_of

#: what config.json of openai/whisper-large-v3 states
LARGE = {
    "model_type": "whisper",
    "activation_function": "gelu",
    "d_model": 1280,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "encoder_layers": 32,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "num_hidden_layers": 32,
    "num_mel_bins": 128,
    "vocab_size": 51866,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # as transformers counts them, or the models' pages round its count
        ("openai/whisper-tiny", 37_760_640),
        ("whisper-base", 72.6e6),
        ("whisper-small", 242e6),
        ("whisper-medium", 764e6),
        ("openai/whisper-large-v3", 1_543_490_560),
        ("whisper-large-v3-turbo", 808_878_080),
        ("distil-whisper/distil-large-v3", 756e6),
    ],
)
def test_models_have_the_published_parameters(name, parameters):
    exact = isinstance(parameters, int)
    assert named_model(name).parameters == (parameters if exact else pytest.approx(parameters, rel=2e-3))


def test_the_catalog_has_what_a_configuration_states():
    listed = named_model("whisper-large-v3")
    assert dataclasses.replace(config_of(LARGE, "config.json"), name=listed.name) == listed


def test_layers_by_hand():
    """Keys have no bias; each stack has a table of positions and a last norm, and the head is the embedding."""
    width, ffn = 1280, 5120
    attention, mlp, norm = 4 * width**2 + 3 * width, 2 * width * ffn + ffn + width, 2 * width
    encoder, decoder = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
    stem = 3 * 128 * width + width + 3 * width**2 + width
    tables = (1500 + 448) * width + 51_866 * width
    config = config_of(LARGE, "config.json")
    assert config.parameters == 32 * (encoder + decoder) + stem + tables + 2 * norm
    assert config.encoder_parameters == 32 * encoder
    assert config.cross_key_parameters == 32 * (2 * width**2 + width)


def test_a_step_counts_what_each_token_is_multiplied_by():
    """The first convolution has 3000 results, the second 1500; the decoder's keys of the encoder are computed once."""
    config, width, ffn, seq = config_of(LARGE, "config.json"), 1280, 5120, 100
    frames = 1500
    stem = 2 * frames * 3 * 128 * width + frames * 3 * width**2
    encoder = frames * 32 * (4 * width**2 + 2 * width * ffn)
    decoder = seq * 32 * (4 * width**2 + 2 * width * ffn + 2 * width**2) + frames * 32 * 2 * width**2
    head = seq * 51_866 * width
    cores = 2 * width * 32 * (frames**2 + frames * seq + seq * (seq + 1) / 2)
    found, _, _ = step_flop(config, TrainingPlan(batch=3, seq=seq))
    assert found == pytest.approx(3 * 3 * 2 * (stem + encoder + decoder + head + cores), rel=2e-3)


def test_the_convolutions_take_time_and_memory():
    config, cluster = named_model("whisper-tiny"), Cluster.of(pm.hardware("a100"), 1)
    plan = TrainingPlan(batch=8, seq=64, micro_batch=8)
    wider = dataclasses.replace(config, audio_bands=8 * config.audio_bands)
    assert train(wider, cluster, plan).time_s > train(config, cluster, plan).time_s
    parts, more = (training_memory(one, cluster, plan).peak.parts for one in (config, wider))
    assert more["weights"] - parts["weights"] == 2 * 3 * 7 * 80 * 384
    assert more["activations"] > parts["activations"]


def test_an_encoder_of_sound_has_its_own_length():
    config, cluster = named_model("whisper-tiny"), Cluster.of(pm.hardware("a100"), 8)
    step = train(config, cluster, TrainingPlan(batch=8, seq=448))
    assert step.tokens == 8 * (448 + 1500)
    with pytest.raises(UsageError, match="encoder_seq = 100, and an encoder of sound always has 1500 tokens"):
        train(config, cluster, TrainingPlan(batch=8, seq=448, encoder_seq=100))
    with pytest.raises(UsageError, match="seq = 449 is beyond the model's 448 positions"):
        train(config, cluster, TrainingPlan(batch=8, seq=449))


def test_what_cannot_be_is_named():
    with pytest.raises(InputFileError, match="an encoder with other heads than its decoder, which are not modelled"):
        config_of(LARGE | {"encoder_attention_heads": 16}, "config.json")
    with pytest.raises(UsageError, match="audio_bands = 80, and the shape has no encoder_layers"):
        find_model("layers=2 hidden=64 heads=4 vocab=100 audio_bands=80")
    with pytest.raises(UsageError, match="encoder_positions = 1500, and the shape has no audio_bands"):
        find_model("layers=2 hidden=64 heads=4 vocab=100 encoder_layers=2 encoder_positions=1500")
