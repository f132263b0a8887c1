"""One step of an engine and its memory: limiting cases by hand, monotonicity, messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.memory import weights_bytes
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.precision import FORMATS
from perfmodel.serving.shard import shard
from perfmodel.serving.speculation import Speculation
from perfmodel.workloads.catalog import find_model, model_names
from perfmodel.workloads.config import ModelConfig

LLAMA_8B = ModelConfig(
    model_type="llama", hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256,
    positions=131072, activation="silu", tied=False, embedding_dim=4096,
)  # fmt: skip


@pytest.fixture(scope="module")
def llama() -> Deployment:
    return Deployment(LLAMA_8B, pm.hardware("h100"))


def test_keys_and_values_of_llama_3_1_8b(llama: Deployment) -> None:
    # 2 (K and V) x 32 layers x 8 heads x 128 x 2 B
    assert llama.memory().kv_bytes_token == 131072
    assert Deployment(LLAMA_8B, pm.hardware("h100"), kv="fp8").memory().kv_bytes_token == 65536


def test_weights_of_llama_3_1_8b(llama: Deployment) -> None:
    assert llama.memory().weights_bytes == pytest.approx(2 * 8.03e9, rel=2e-3)


def test_the_weights_of_every_listed_model_are_its_parameters() -> None:
    """Two counts of their own: of the matrices that a GPU holds, and of the parameters, which have biases and norms."""
    one = Parallel()
    for config in map(find_model, model_names()):
        if config.encoder_layers or config.name.startswith("bart"):
            continue
        held = weights_bytes(config, shard(config, one), one, FORMATS["bf16"]) / (2 * config.parameters)
        places = config.positions * config.hidden * config.learned_positions  # a table of positions is no matrix
        least = 0.998 if config.rotary else 0.985 - places / config.parameters
        assert least < held < 1.0005, config.name


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("parallel", [Parallel(tp=8), Parallel(tp=8, ep=8), Parallel(tp=2, ep=2)])
def test_gpus_share_out_all_weights(name: str, parallel: Parallel) -> None:
    """Routers and the latent part of attention, which all ranks hold whole, are a hundredth of the whole."""
    config, one = find_model(name), Parallel()
    if not config.experts:
        parallel = replace(parallel, ep=1)
    alone = weights_bytes(config, shard(config, one), one, FORMATS["fp8"])
    each = weights_bytes(config, shard(config, parallel), parallel, FORMATS["fp8"])
    assert alone * (1 - 1e-9) < parallel.gpus * each < 1.02 * alone


def test_one_sequence_reads_the_weights_once(llama: Deployment) -> None:
    # all weights but the embedding, of which a token reads one row
    read = llama.memory().weights_bytes - 2 * 4096 * 128256
    bound = read / pm.hardware("h100").main_memory.bandwidth_bytes_per_s
    time = llama.step(decode=1, context=1).time_s
    assert bound < time < 2 * bound


def test_terms_add_up_to_the_time(llama: Deployment) -> None:
    step = llama.step(decode=64, context=2048, prefill=[(2, 512, 512)])
    assert sum(step.terms_s.values()) == pytest.approx(step.time_s)
    assert step.low_s < step.time_s < step.high_s


def test_arrays_equal_scalars(llama: Deployment) -> None:
    batch, context = np.array([1.0, 8.0, 300.0]), np.array([100.0, 4000.0, 900.0])
    together = llama.step(decode=batch, context=context, prefill=[(1, 200, 600)])
    for index in range(3):
        alone = llama.step(decode=batch[index], context=context[index], prefill=[(1, 200, 600)])
        assert alone.time_s == pytest.approx(np.asarray(together.time_s)[index])


def test_the_clock_agrees_with_the_step(llama: Deployment) -> None:
    clock = llama.clock()
    assert clock.decode_s(64, 2048) == pytest.approx(llama.step(decode=64, context=2048).time_s)
    mixed = llama.step(decode=64, context=2048, prefill=[(2, 1024, 2048)])
    assert clock.mixed_s(64, 2048, [(1024, 2048)] * 2) == pytest.approx(mixed.time_s)


def test_longer_contexts_and_larger_batches_take_longer(llama: Deployment) -> None:
    batch = np.array([1.0, 8.0, 64.0, 512.0])
    times = np.asarray(llama.step(decode=batch[:, None], context=np.array([128.0, 1024.0, 8192.0])).time_s)
    assert (np.diff(times, axis=0) > 0).all()
    assert (np.diff(times, axis=1) > 0).all()


def test_more_gpus_and_fewer_bits_are_faster_for_a_large_model() -> None:
    large = replace(LLAMA_8B, hidden=8192, layers=80, heads=64, ffn=28672)
    h100 = pm.hardware("h100")

    def time(**options: object) -> float:
        return float(Deployment(large, h100, **options).step(decode=64, context=1000).time_s)  # type: ignore[arg-type]

    assert time(tp=8) < time(tp=4) < time(tp=2)
    assert time(tp=4, weights="fp8", kv="fp8") < time(tp=4, weights="fp8") < time(tp=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 3}, "does not divide the model's 32 query heads"),
        ({"ep": 2}, "has no experts"),
        ({"engine": "vlm"}, "unknown engine 'vlm'"),
        ({"weights": "fp9"}, "unknown weight format"),
        ({"kv": "fp3"}, "unknown format of keys"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
    ],
)
def test_bad_deployments_say_why(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Deployment(LLAMA_8B, pm.hardware("h100"), **options)  # type: ignore[arg-type]


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would() -> None:
    large = replace(LLAMA_8B, hidden=8192, layers=80, heads=64, ffn=28672)
    with pytest.raises(UsageError, match=r"more than the engine's share.*tp x pp = 2"):
        Deployment(large, pm.hardware("h100")).memory()


def test_lengths_beyond_the_positions_are_refused(llama: Deployment) -> None:
    with pytest.raises(UsageError, match="longer than the model's 131072 positions"):
        llama.step(decode=1, context=200_000)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"prefill": 8192}, r"step: prefill=8192 is no list of prompts\. Write prefill=\[\(1, 512, 2048\)\]"),
        ({"prefill": [(8192, 0)]}, r"prefill=\[\(8192, 0\)\] is no list of prompts"),
        ({"prefill": (1, 512, 2048)}, "is no list of prompts"),
        ({"prefill": "abc"}, "is no list of prompts"),
        ({"prefill": [(1, "x", 2)]}, "is no list of prompts"),
        ({"decode": "x"}, "step: decode='x' is no number"),
        ({"context": {}}, "context={} is no number"),
        ({"decode": 1, "rows": "x"}, "rows='x' is no number"),
        ({"decode": -1}, "a size is negative or not finite"),
        ({"decode": []}, "decode has no element"),
        ({"decode": [1, 2], "context": [1, 2, 3]}, r"broadcast together: decode \(2,\), context \(3,\)"),
        ({"decode": [1, 2], "prefill": [(1, 2, [3, 4, 5])]}, r"decode \(2,\), prefill\[0\]\[2\] \(3,\)"),
    ],
)
def test_wrong_sizes_of_a_step_get_one_message(llama: Deployment, sizes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        llama.step(**sizes)  # type: ignore[arg-type]


def test_prompts_may_be_an_array(llama: Deployment) -> None:
    assert llama.step(prefill=np.array([[1, 512, 2048]])).time_s == llama.step(prefill=[(1, 512, 2048)]).time_s


def test_speculation_is_no_number() -> None:
    with pytest.raises(UsageError, match=r"deployment: 3 is no speculation. Give .*Speculation\(tokens=3"):
        Deployment(LLAMA_8B, pm.hardware("h100"), speculation=3)  # type: ignore[arg-type]


def test_layers_with_a_window_forget() -> None:
    h100 = pm.hardware("h100")
    windowed = Deployment(replace(LLAMA_8B, window=4096), h100).memory()
    assert windowed.max_batch(30_000, 10) == windowed.max_batch(5_000, 10) > windowed.max_batch(3_000, 10) // 2
    half = Deployment(replace(LLAMA_8B, window=128, window_layers=16), h100).memory()
    assert half.max_batch(8192, 2) > 1.9 * Deployment(LLAMA_8B, h100).memory().max_batch(8192, 2)


def test_a_checkpoint_with_narrow_experts_alone_keeps_the_rest_in_16_bits() -> None:
    kimi = Deployment(find_model("kimi-k2-thinking"), pm.hardware("h200"), tp=8)
    # 60 layers of 384 experts with three matrices of 7168 x 2048, in 4 bits with 16 for a scale of 32 weights
    experts = 60 * 384 * 3 * 7168 * 2048
    all_of_them = 8 * kimi.memory().weights_bytes
    assert all_of_them > experts * (0.5 + 2 / 32) + 11e9 * 2
    assert all_of_them == pytest.approx(594e9, rel=0.03)
    # the shared expert is no routed one: it takes what it does in 16 bits
    shared = 60 * 3 * 7168 * 2048
    none = replace(kimi, config=replace(kimi.config, shared_ffn=0)).memory().weights_bytes
    assert kimi.memory().weights_bytes - none == pytest.approx(2 * shared / 8)
    whole, narrow = (replace(kimi, weights=name).step(decode=64, context=1000) for name in ("bf16", "int4_experts"))
    assert narrow.terms_s["weights"] == pytest.approx(whole.terms_s["weights"], rel=0.01)
    assert narrow.terms_s["experts"] < 0.5 * whole.terms_s["experts"]


def test_a_simulated_cache_forgets_what_is_before_the_window_of_all_layers() -> None:
    windowed = Deployment(find_model("mistral-7b-v0.1"), pm.hardware("h100"))
    room, window_bytes = windowed.memory().kv_bytes, 4096 * 32 * 2 * 8 * 128 * 2
    users = 32
    assert users * window_bytes < 0.5 * room
    replay = pm.simulate(windowed, pm.closed_loop(users, 2 * users, 30_000, 200), interval=False)
    assert replay.preemptions == 0
    # all users have a place at once, and each takes its window
    assert replay.states.running.max() == users
    assert replay.kv_bytes == pytest.approx(replay.mean_running * window_bytes, rel=0.1)
    assert replay.kv_share == pytest.approx(replay.kv_bytes / room, rel=0.01)
    steady = pm.steady(windowed, 30_000, 200, concurrency=users)
    assert steady.kv_tokens == users * 4096


def test_layers_with_a_window_keep_no_more_than_the_sequence_has() -> None:
    gemma = Deployment(find_model("gemma-2-9b"), pm.hardware("h100"))
    memory, token_bytes = gemma.memory(), 2 * 8 * 256 * 2 * 42
    assert memory.kv_bytes_token == memory.kv_bytes_token_gpu == token_bytes
    assert memory.kv_tokens == memory.kv_bytes // token_bytes
    # no window of 4096 is full: whole sequences of 1024 + 256 tokens lie in the cache, in all layers
    assert memory.max_batch(1024, 256) == memory.kv_tokens // (1024 + 128)
    users = int(memory.kv_bytes // (1280 * token_bytes))
    replay = pm.simulate(gemma, pm.closed_loop(users, 2 * users, 1024, 256), interval=False)
    assert replay.preemptions == 0
    assert replay.states.running.max() == users
    assert replay.kv_bytes == pytest.approx(replay.kv_share * memory.kv_bytes, rel=0.01)
    # beyond it the half of the layers that has the window stops growing
    assert memory.kept(3000) == 3000
    assert memory.kept(6096) == 4096 + 0.5 * 2000
    replay = pm.simulate(gemma, pm.closed_loop(8, 16, 7000, 200), interval=False)
    kept_bytes = (4096 + 0.5 * (7100 - 4096)) * token_bytes
    assert replay.kv_bytes == pytest.approx(replay.mean_running * kept_bytes, rel=0.05)
    assert replay.kv_share == pytest.approx(replay.kv_bytes / memory.kv_bytes, rel=0.01)
    point = pm.steady(gemma, 7000, 200, concurrency=8)
    assert point.kv_tokens * token_bytes == pytest.approx(8 * kept_bytes)


def test_an_engine_that_nobody_measured_is_less_sure_than_those_whose_runs_set_the_constants() -> None:
    def width(engine: str) -> float:
        state = pm.steady(Deployment(LLAMA_8B, pm.hardware("h100"), engine=engine), 1024, 256, concurrency=1)
        return float(state.tpot_high_s) / float(state.tpot_low_s)

    generic = width("generic")
    assert all(width(engine) < generic for engine in ("vllm", "sglang", "trtllm", "trtllm-old", "lmdeploy"))
    # launches of the host differ by more than engines do, and releases that no run tells of by less
    assert all(width(engine) > generic for engine in ("hf-eager", "deepspeed-inference"))
    assert all(1.15 * width("vllm") < width(engine) < generic for engine in ("vllm-v0", "vllm-0.5"))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "generic"])
def test_mxfp4_that_nobody_timed_is_neither_faster_nor_surer_than_nvfp4(engine: str) -> None:
    def token(weights: str) -> Any:
        made = Deployment(LLAMA_8B, pm.hardware("b200"), engine=engine, weights=weights)
        return pm.steady(made, 512, 128, concurrency=1)

    narrow, measured, wide = token("mxfp4"), token("nvfp4"), token("bf16")
    # as many bytes of weights, of which products with activations of 8 bits read as fast at most
    assert measured.tpot_s <= narrow.tpot_s < wide.tpot_s
    assert narrow.tpot_high_s / narrow.tpot_low_s > measured.tpot_high_s / measured.tpot_low_s


def test_a_draft_keeps_its_own_window() -> None:
    h100 = pm.hardware("h100")
    windowed, whole = (Deployment(replace(LLAMA_8B, window=window), h100) for window in (512, 0))
    memory = replace(windowed, speculation=Speculation(4, 0.7, whole)).memory()
    assert memory.kept(2512) == 512 + 2000 / 2
    assert replace(whole, speculation=Speculation(4, 0.7, windowed)).memory().kept(2512) == 512 + 2000 / 2


def test_a_window_longer_than_its_sequences_changes_nothing() -> None:
    load = pm.closed_loop(64, 128, 2000, 200)
    wide, none = (
        pm.simulate(Deployment(replace(LLAMA_8B, window=window), pm.hardware("h100")), load, interval=False)
        for window in (4096, 0)
    )
    assert wide.duration_s == pytest.approx(none.duration_s, rel=0.02)
    assert wide.kv_bytes == pytest.approx(none.kv_bytes, rel=0.02)


def test_keys_are_repeated_where_there_are_fewer_heads_than_gpus() -> None:
    few = replace(LLAMA_8B, kv_heads=2)
    h100 = pm.hardware("h100")
    assert (
        Deployment(few, h100, tp=8).memory().kv_bytes_token == 4 * Deployment(few, h100, tp=2).memory().kv_bytes_token
    )


@pytest.mark.parametrize("engine", ["trtllm", "vllm", "sglang"])
def test_a_batch_between_those_of_graphs_is_no_slower_than_the_next(engine: str) -> None:
    """Graphs pad 5 sequences to 8: TensorRT-LLM's kernel on B200 copies the rows where they are no multiple of 4."""
    deployment = Deployment(find_model("qwen3-32b"), pm.hardware("b200"), tp=2, engine=engine, weights="fp8_block")
    times = np.asarray(deployment.step(decode=np.arange(3, 129), context=1000).time_s)
    assert (np.diff(times) > 0).all()
    eager = replace(deployment, graph=False)
    weights = np.asarray(eager.step(decode=np.array([7, 8]), context=1000).terms_s["weights"])
    assert weights[0] > weights[1]


def test_long_contexts_are_read_in_chunks_where_the_engine_says_so() -> None:
    """As vLLM V0 has it: above 32,768 tokens of context, on NVIDIA's machines, without windows or latent attention."""
    positions = {"short": 32768, "long": 32769}
    h100, mi300x = pm.hardware("h100"), pm.hardware("mi300x")
    v0 = {
        name: Deployment(replace(LLAMA_8B, positions=most), h100, engine="vllm-v0") for name, most in positions.items()
    }
    assert (v0["short"].profile.scheduler, v0["short"].token_budget) == ("prefill_first", 8192)
    assert (v0["long"].profile.scheduler, v0["long"].token_budget) == ("chunked_recompute", 2048)
    assert replace(v0["long"], max_batched_tokens=512).token_budget == 512
    assert replace(v0["long"], hardware=mi300x).profile.scheduler == "prefill_first"
    windowed = replace(v0["long"].config, window=4096)
    assert replace(v0["long"], config=windowed).profile.scheduler == "prefill_first"
    latent = Deployment(find_model("deepseek-v2-lite"), h100, engine="vllm-v0")
    assert latent.profile.scheduler == "prefill_first"


def test_prompts_in_chunks_hold_up_those_that_decode_less() -> None:
    """A small budget leaves decode its place: prompts first run as many sequences as fit before any goes on."""
    h100 = pm.hardware("h100")
    long = replace(LLAMA_8B, positions=131072)
    load = pm.Requests(np.arange(200) * 0.01, np.full(200, 1000), np.full(200, 100))
    chunks, first = (
        pm.simulate(Deployment(config, h100, engine="vllm-v0", max_batched_tokens=512), load, interval=False)
        for config in (long, replace(long, positions=8192))
    )
    assert chunks.statistics("tpot_s", (99,))["p99"] < first.statistics("tpot_s", (99,))["p99"]
