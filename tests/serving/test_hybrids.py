"""Serving of hybrids: some layers keep a state of each sequence instead of keys."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.workloads.catalog import named_model

H100 = pm.hardware("h100-sxm5-80gb")
NEXT = named_model("qwen3-next-80b-a3b")


def deployed(config=NEXT, **options):
    return Deployment(config, H100, **{"engine": "vllm", "tp": 4, **options})


def test_memory_holds_the_weights_of_both_kinds_of_layers():
    memory, small = deployed().memory(), deployed(named_model("qwen3.5-9b"), tp=1).memory()
    # all but norms, convolutions and decays; each of four GPUs has the routers, and two of them each head of keys
    routers, keys = 3 * 48 * 512 * 2048, 12 * 2 * 2 * 256 * 2048
    assert 4 * memory.weights_bytes == pytest.approx(2 * (NEXT.parameters + routers + keys), rel=1e-4)
    assert small.weights_bytes == pytest.approx(2 * named_model("qwen3.5-9b").parameters, rel=2e-4)


def test_a_sequence_takes_its_keys_and_a_state():
    memory = deployed().memory()
    assert memory.kv_bytes_token_gpu == 12 * 2 * 1 * 256 * 2  # a head of keys on each of four GPUs that share two
    assert memory.state_bytes == pytest.approx(NEXT.state_bytes / 4)
    worth = memory.state_bytes / memory.kv_bytes_token_gpu
    assert memory.of_sequence(1000.0) == pytest.approx(1000 + worth)
    assert memory.max_batch(1000, 200) == int(memory.kv_tokens / (np.ceil(1100 + worth)))
    assert memory.moved_bytes(1000.0) == 1000 * memory.kv_bytes_token_gpu + 2 * memory.state_bytes


def test_sglang_has_a_pool_for_states():
    """--mamba-full-memory-ratio 0.9 gives it 0.9 / 1.9 of the room, and a running request takes three of its states."""
    memory, shared = (deployed(engine=engine).memory() for engine in ("sglang", "vllm"))
    room = memory.kv_bytes + memory.state_pool_bytes
    assert memory.state_pool_bytes == pytest.approx(0.9 / 1.9 * room, rel=1e-4)
    assert memory.most_states == memory.state_pool_bytes // (3 * memory.state_bytes)
    assert memory.of_sequence(1000.0) == 1000.0
    assert memory.max_batch(10, 10) == memory.most_states
    assert deployed(engine="sglang", max_num_seqs=4096).sequence_limit == memory.most_states
    assert (shared.state_pool_bytes, shared.most_states) == (0.0, np.inf)
    attending = deployed(dataclasses.replace(NEXT, linear_layers=0), engine="sglang").memory()
    assert (attending.state_pool_bytes, attending.most_states) == (0.0, np.inf)


def test_a_simulated_cache_holds_states_too():
    deployment = deployed()
    memory = deployment.memory()
    replay = pm.simulate(deployment, pm.closed_loop(8, 16, 1000, 100), interval=False)
    each = float(memory.of_sequence(1050.0)) * memory.kv_bytes_token
    assert replay.kv_bytes == pytest.approx(replay.mean_running * each, rel=0.05)
    point = pm.steady(deployment, 1000, 100, concurrency=8)
    assert point.kv_tokens == pytest.approx(8 * float(memory.of_sequence(1050.0)), rel=0.01)


def test_decode_grows_with_the_context_of_the_attending_layers_alone():
    """Three of four layers read a state: a model all of whose layers attend takes longer the longer the context is."""
    every = dataclasses.replace(NEXT, linear_layers=0)
    hybrid, attending = (deployed(config).step(decode=32, context=[1e3, 1e5]) for config in (NEXT, every))
    growth, usual = (np.diff(step.terms_s["kv"])[0] for step in (hybrid, attending))
    assert growth == pytest.approx(usual / 4, rel=0.02)
    assert hybrid.time_s[1] < attending.time_s[1]


def test_a_decode_step_reads_and_writes_each_state():
    sequences = 512
    time = deployed().step(decode=sequences, context=1).terms_s["kv"]
    states = sequences * 36 * 8 * 128 * 128 * 4  # layers, heads of a GPU, [128, 128] in fp32
    assert time > 2 * states / H100.main_memory.bandwidth_bytes_per_s


def test_prompts_take_time_in_proportion_where_they_are_long():
    """Linear attention is linear: four times the prompt is four times its time, and never less than half of it."""
    linear = dataclasses.replace(NEXT, linear_layers=47)
    short, long = (
        float(deployed(linear).step(prefill=[(1, tokens, tokens)]).terms_s["prefill"]) for tokens in (8192, 32768)
    )
    assert 2.0 < long / short < 8.0


@pytest.mark.parametrize(("tp", "said"), [(3, "query heads"), (32, "query heads")])
def test_gpus_share_out_whole_heads(tp, said):
    with pytest.raises(UsageError, match=said):
        deployed(tp=tp).part  # noqa: B018


def test_gpus_share_out_whole_heads_of_linear_attention():
    odd = dataclasses.replace(NEXT, linear_heads=12, linear_key_heads=6)
    with pytest.raises(UsageError, match="tp=8 does not divide the model's 12 heads of layers with a state"):
        deployed(odd, tp=8).part  # noqa: B018
    assert deployed(tp=16).part.state.key_heads == 1


def test_the_report_says_what_a_state_takes():
    notes = " ".join(pm.report(deployed().memory()).notes)
    assert "Layers with a state keep 18.42 MiB of each sequence" in notes
    assert "as much as 1572 tokens" in notes
    rows = {row["part"]: row["bytes"] for row in pm.report(deployed(engine="sglang").memory()).rows}
    assert rows["states"] == pytest.approx(0.9 * rows["keys and values"], rel=1e-4)
    notes = " ".join(pm.report(deployed(engine="sglang").memory()).notes)
    assert "a pool of their own holds those of" in notes
