"""Whisper behind an engine: each request encodes 30 s of sound once, and its decoder attends to what that gave."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import simulate
from perfmodel.serving.requests import closed_loop
from perfmodel.serving.speculation import Speculation
from perfmodel.serving.steady import steady
from perfmodel.workloads.catalog import named_model

H100 = pm.hardware("h100-sxm5-80gb")
LARGE, TURBO = named_model("whisper-large-v3"), named_model("whisper-large-v3-turbo")


@pytest.mark.parametrize(("config", "tp"), [(LARGE, 1), (LARGE, 4), (TURBO, 1)])
def test_parts_hold_the_weights_of_the_whole(config, tp):
    """Convolutions and tables of positions are whole on each of several GPUs."""
    held = tp * Deployment(config, H100, engine="vllm", tp=tp).memory().weights_bytes
    whole = config.stem_parameters + (1500 + 448) * config.hidden
    assert held == pytest.approx(2 * (config.parameters + (tp - 1) * whole), rel=2e-3)


def test_keys_of_the_sound_are_kept_once():
    """Two vectors of 1280 numbers in 16 bits, of 1500 tokens in 32 layers: 245.76 MB a request."""
    memory = Deployment(LARGE, H100, engine="vllm").memory()
    assert memory.sequence_bytes == 1500 * 32 * 2 * 1280 * 2
    assert memory.kv_bytes_token == 32 * 2 * 1280 * 2
    assert memory.state_tokens == 1500
    assert memory.moved_bytes(100) == 1600 * memory.kv_bytes_token
    assert memory.max_batch(4, 100) == pytest.approx(memory.kv_tokens / (1500 + 64), rel=0.02)


def test_a_step_encodes_what_begins_in_it():
    deployment = Deployment(LARGE, H100, engine="vllm")
    one, four = (deployment.step(prefill=[(count, 4, 4)]) for count in (1, 4))
    first, fourth = float(one.terms_s["encoder"]), float(four.terms_s["encoder"])
    assert 3 * first < fourth < 4 * first  # weights are read once
    flop = 1500 * (2 * (LARGE.encoder_parameters + LARGE.cross_key_parameters) + LARGE.stem_flop)
    flop += 32 * 4 * 1500**2 * 1280  # each token attends to all
    assert first > flop / H100.best_peak("bf16").flop_per_s
    assert float(deployment.step(decode=64, context=100).terms_s["encoder"]) == 0
    continued = deployment.step(prefill=[(1, 4, 8)])  # the second part of a prompt
    assert float(continued.terms_s["encoder"]) == 0


def test_single_steps_and_arrays_of_steps_are_the_same():
    deployment = Deployment(TURBO, H100, engine="vllm")
    clock = deployment.clock()
    for sequences, prompts in ((0, 1), (32, 3), (100, 5)):
        whole = deployment.step(decode=sequences, context=50.0, prefill=[(prompts, 4, 4)] if prompts else [])
        assert clock.mixed_s(sequences, 50.0, [(4, 4)] * prompts) == pytest.approx(float(whole.time_s), rel=0.02)


def test_decoders_read_the_keys_of_the_sound():
    """Attention of one token of each sequence reads no less than the keys of all, at the memory's rate."""
    deployment = Deployment(LARGE, H100, engine="vllm")
    rate = H100.main_memory.bandwidth_bytes_per_s
    step = deployment.step(decode=np.array([1.0, 64.0, 256.0]), context=10.0)
    read = np.array([1.0, 64.0, 256.0]) * 1500 * 32 * 2 * 1280 * 2
    assert np.all(np.asarray(step.terms_s["kv"]) > read / rate)
    assert np.all(np.diff(np.asarray(step.time_s)) > 0)
    short = dataclasses.replace(LARGE, encoder_positions=750)
    assert float(Deployment(short, H100, engine="vllm").step(decode=64, context=10).time_s) < float(step.time_s[1])


def test_a_simulated_load_is_near_its_steady_state():
    deployment = Deployment(LARGE, H100, engine="vllm")
    simulated = simulate(deployment, closed_loop(16, 200, 4, 100))
    held = steady(deployment, 4, 100, concurrency=16)
    assert simulated.output_tokens_per_s == pytest.approx(float(held.output_tokens_per_s), rel=0.15)
    encoder_s = float(deployment.step(prefill=[(1, 4, 4)]).terms_s["encoder"])
    assert simulated.output_tokens_per_s < 100 / encoder_s  # each answer has one


def test_no_more_sound_than_the_budget_of_a_step_begins_in_it():
    few = Deployment(LARGE, H100, engine="vllm", max_batched_tokens=2048)
    many = Deployment(LARGE, H100, engine="vllm", max_batched_tokens=16384)
    assert (few.encoded_limit, many.encoded_limit) == (1, 10)
    first = [simulate(one, closed_loop(32, 32, 4, 50)).ttft_s.min() for one in (few, many)]
    assert first[0] < first[1]  # the first of ten at once waits for the others


def test_what_is_not_served_is_refused():
    with pytest.raises(UsageError, match="not served with pp=2"):
        Deployment(LARGE, H100, engine="vllm", pp=2)
    with pytest.raises(UsageError, match=r"not served with the engine llama.cpp"):
        Deployment(LARGE, H100, engine="llama.cpp")
    with pytest.raises(UsageError, match="not served with speculative decoding"):
        Deployment(LARGE, H100, engine="vllm", speculation=Speculation(tokens=3, acceptance=0.7))
    with pytest.raises(UsageError, match="keys of its prompts depend on the sound"):
        steady(Deployment(LARGE, H100, engine="vllm"), 100, 100, concurrency=4, prefix=50)
    with pytest.raises(UsageError, match="longer than the model's 448 positions"):
        steady(Deployment(LARGE, H100, engine="vllm"), 100, 400, concurrency=4)
    with pytest.raises(UsageError, match=r"t5-small has an encoder of text; .* alone or after an encoder of sound"):
        Deployment(named_model("t5-small"), H100, engine="vllm")
