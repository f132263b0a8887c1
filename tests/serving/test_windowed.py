"""Serving of models whose layers with a window have other heads than those that attend to all keys."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import find_engine
from perfmodel.workloads.catalog import find_model

H100 = pm.hardware("h100-sxm5-80gb")
WORDS = "layers=12 hidden=2048 heads=16 kv_heads=2 head_dim=256 ffn=8192 vocab=32000 window=512 window_layers=10"
OTHER = find_model(f"{WORDS} window_kv_heads=8 window_head_dim=128")
#: the same heads everywhere
ALIKE = find_model(WORDS)


def deployed(config, **options):
    return Deployment(config, H100, **{"engine": "vllm", **options})


def test_memory_holds_the_matrices_of_both_kinds():
    memory = deployed(OTHER).memory()
    norms = 12 * 2 * 2048 + 2048
    assert memory.weights_bytes == pytest.approx(2 * (OTHER.parameters - norms), rel=1e-6)
    shared = deployed(dataclasses.replace(OTHER, keys_are_values=True)).memory()
    assert memory.weights_bytes - shared.weights_bytes == 2 * 2 * 2048 * 2 * 256  # two layers without values


def test_a_token_takes_what_both_kinds_keep_and_a_window_its_own():
    memory = deployed(OTHER).memory()
    full, narrow = 2 * 2 * 2 * 256 * 2, 10 * 2 * 8 * 128 * 2
    assert memory.kv_bytes_token_gpu == full + narrow
    assert memory.windows == ((512, narrow / (full + narrow)),)
    assert memory.moved_bytes(4096.0) == pytest.approx(4096 * full + 512 * narrow)


def test_gpus_share_out_the_heads_of_both_kinds():
    halves = deployed(OTHER, tp=2).part
    assert (halves.kv_heads, halves.windowed.kv_heads, halves.windowed.head_dim) == (1, 4, 128)
    assert deployed(ALIKE, tp=2).part.windowed is None
    said = "tp=16 does not divide the model's 8 query heads of layers with a window. Possible: 1, 2, 4, 8."
    with pytest.raises(UsageError, match=said):
        deployed(dataclasses.replace(OTHER, window_heads=8), tp=16).part  # noqa: B018


def test_heads_that_are_stated_as_those_of_the_others_change_nothing():
    stated = dataclasses.replace(ALIKE, window_heads=16, window_kv_heads=2, window_head_dim=256)
    steps = [deployed(config).step(decode=32, context=4096) for config in (ALIKE, stated)]
    assert steps[1].time_s == pytest.approx(steps[0].time_s, rel=1e-12)


def test_smaller_heads_of_windows_take_less():
    """Their products and their keys are smaller, at the same number of kernels."""
    smaller = dataclasses.replace(ALIKE, window_head_dim=64)
    for sizes in ({"decode": 64, "context": 8192}, {"prefill": [(1, 4096, 4096)]}):
        whole, less = (float(deployed(config).step(**sizes).time_s) for config in (ALIKE, smaller))
        assert less < whole


def test_narrower_values_take_less_of_what_a_step_reads():
    """A decode of long contexts reads 192 + 128 numbers of a token in place of 192 + 192."""
    mimo = find_model("mimo-v2-flash")
    narrow, wide = (
        Deployment(dataclasses.replace(mimo, value_head_dim=size, window_value_dim=size), pm.hardware("h200"), tp=8)
        .step(decode=256, context=16384)
        .terms_s["kv"]
        for size in (128, 192)
    )
    assert narrow == pytest.approx(wide * 320 / 384, rel=0.01)


def test_windows_of_latent_attention_keep_their_share_of_the_latent_keys():
    words = (
        "layers=8 hidden=1024 heads=8 vocab=32000 window=512 window_layers=6 kv_lora=256 rope_head_dim=64 "
        "nope_head_dim=128 value_head_dim=128 positions=131072"
    )
    memory = deployed(find_model(words)).memory()
    assert memory.windows == ((512, 0.75),)
    assert memory.kv_bytes_token_gpu == 8 * (256 + 64) * 2
    assert memory.kept(8000.0) == pytest.approx(8000 - 0.75 * 7488)


def chunks(**sizes) -> tuple[float, float]:
    """Return the time of attention in a step where windows of 512 tokens slide, and where they are pieces [s]."""
    both = (ALIKE, dataclasses.replace(ALIKE, facts=dataclasses.replace(ALIKE.architecture, chunked=True)))
    times = [deployed(dataclasses.replace(config, window_layers=12)).step(**sizes).terms_s for config in both]
    return tuple(sum(float(terms.get(name, 0.0)) for name in ("kv", "prefill")) for terms in times)


def test_a_query_reads_half_of_a_chunk_in_the_mean_and_all_of_a_window():
    sliding, pieces = chunks(decode=4096, context=16384)
    assert pieces == pytest.approx(0.5 * sliding, rel=0.1)
    assert len(set(chunks(decode=64, context=300))) == 1  # all within the first chunk


def test_prompts_have_half_of_the_pairs_in_chunks():
    sliding, pieces = chunks(prefill=[(64, 16384, 16384)])
    assert pieces == pytest.approx(0.5 * sliding, rel=0.05)
    assert len(set(chunks(prefill=[(64, 512, 512)]))) == 1


def test_windows_in_a_pool_of_their_own_leave_no_room_to_others():
    """SGLang's pool of windows has 0.8 tokens for each of the others', and so each sequence takes all of its tokens."""
    engine = find_engine("sglang")
    assert engine.window_pool == 0.8
    memory = deployed(OTHER, engine=engine).memory()
    full, narrow = 2 * 2 * 2 * 256 * 2, 10 * 2 * 8 * 128 * 2
    assert memory.kv_tokens == memory.kv_bytes // (full + 0.8 * narrow)
    assert memory.most(8192, 1024) == memory.kv_tokens // (8192 + 512)
    together = deployed(OTHER, engine=dataclasses.replace(engine, window_pool=0.0)).memory()
    assert together.most(8192, 1024) > 2 * memory.most(8192, 1024)
    assert memory.moved_bytes(4096.0) == together.moved_bytes(4096.0)
    load = pm.closed_loop(4, 8, 4096, 8)
    replay = pm.simulate(deployed(OTHER, engine=engine, kv_tokens=8300), load, interval=False)
    assert replay.states.running.max() == 2  # two prompts of 4096 tokens fill the pool
    shared = dataclasses.replace(engine, window_pool=0.0)
    replay = pm.simulate(deployed(OTHER, engine=shared, kv_tokens=8300), load, interval=False)
    assert replay.states.running.max() == 4


def test_pools_have_room_for_layers_with_the_keys_of_others():
    e4b = find_model("gemma-4-e4b")
    memory = deployed(e4b, engine="sglang").memory()
    full, narrow = 7 * 2 * 2 * 512 * 2, 35 * 2 * 2 * 256 * 2
    assert memory.kv_tokens == memory.kv_bytes // (full + 0.8 * narrow)
    assert memory.kv_bytes_token == e4b.kv_bytes_per_token()
