"""The steady state: Little's law, limits, monotonicity, and a finite run's ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import find_engine
from perfmodel.serving.load import Fleet
from perfmodel.serving.points import CONCURRENCY, Workload, point_of
from perfmodel.serving.speculation import Speculation
from perfmodel.serving.static_batch import static_batch
from perfmodel.serving.steady import capacity, steady
from perfmodel.serving.steady_points import steady_points
from perfmodel.serving.study import clients_that_fit
from perfmodel.workloads.catalog import find_model


@pytest.fixture(scope="module")
def llama() -> Deployment:
    return Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="vllm")


def test_littles_law(llama: Deployment) -> None:
    # sequences = answers a second x time of one: here all of it is decode, since a prompt of one token is nothing
    state = steady(llama, 1, 1000, batch=64)
    assert float(state.output_tokens_per_s) * float(state.tpot_s) == pytest.approx(64, rel=0.01)


def test_one_user_decodes_alone(llama: Deployment) -> None:
    state = steady(llama, 512, 2, concurrency=1)
    alone = llama.step(decode=1, context=513)
    assert state.tpot_s == pytest.approx(alone.time_s)


def test_more_users_give_more_tokens_and_slower_ones(llama: Deployment) -> None:
    state = steady(llama, 512, 256, concurrency=np.array([1.0, 4, 16, 64, 256]))
    assert (np.diff(state.output_tokens_per_s) > 0).all()
    assert (np.diff(state.tpot_s) > 0).all()
    assert (np.diff(state.ttft_s) > 0).all()
    assert (np.asarray(state.tpot_low_s) < state.tpot_s).all()


def test_users_beyond_the_memory_wait() -> None:
    reserving = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="trtllm")
    most = float(capacity(reserving, 8000, 1000))
    full, over = (steady(reserving, 8000, 1000, concurrency=users) for users in (most, 2 * most))
    assert over.batch == most
    # a queue keeps every place taken while a user's next request is in the server in front
    assert full.output_tokens_per_s < over.output_tokens_per_s < 1.003 * full.output_tokens_per_s
    # by Little's law the second half of the users waits as long as the first takes
    for state, users in ((full, most), (over, 2 * most)):
        request_s = float(state.ttft_s) + 999 * float(state.tpot_s)
        assert request_s == pytest.approx(users * 1000 / float(state.output_tokens_per_s))


@pytest.mark.parametrize("osl", [1, 2, 16, 256])
def test_one_user_waits_for_all_of_each_answer(llama: Deployment, osl: int) -> None:
    """By Little's law requests a second times the time of one is the number of users, the server in front included."""
    state = steady(llama, 128, osl, concurrency=1)
    request_s = float(state.ttft_s) + (osl - 1) * float(state.tpot_s)
    assert float(state.output_tokens_per_s) / osl * request_s == pytest.approx(1.0, rel=0.01)
    assert llama.host.front_end_s > 0


@pytest.mark.parametrize(
    ("isl", "osl", "options"),
    [(32000, 1, {}), (32000, 2, {}), (4000, 16, {"max_batched_tokens": 512}), (4000, 16, {"pp": 4})],
)
def test_one_user_waits_for_each_piece_of_its_prompt(isl: int, osl: int, options: dict[str, int]) -> None:
    """One request is the prompt's steps and those of decode, however many pieces and stages there are."""
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), **options)
    state = steady(deployment, isl, osl, concurrency=1)
    replay = pm.simulate(deployment, pm.closed_loop(1, 8, isl, osl), interval=False)
    assert state.batch == 1
    assert float(state.ttft_s) == pytest.approx(replay.ttft_s.mean(), rel=0.01)
    assert float(state.output_tokens_per_s) == pytest.approx(replay.output_tokens_per_s, rel=0.01)
    if osl > 1:
        assert float(state.tpot_s) == pytest.approx(replay.tpot_s.mean(), rel=0.01)


def test_the_prompt_that_is_read_is_no_queue(llama: Deployment) -> None:
    """A prompt of several steps is always under way where each step is full: the others wait for their turn."""
    prompt_s = float(steady(llama, 32000, 1, concurrency=1).ttft_s) - llama.host.front_end_s
    queued = steady(llama, 32000, 1, concurrency=8)
    assert queued.batch == 1
    # what the server in front takes, the queue hides
    assert float(queued.ttft_s) == pytest.approx(8 * prompt_s, rel=0.01)


def test_a_last_wave_that_is_not_full_costs_throughput(llama: Deployment) -> None:
    endless = float(steady(llama, 128, 512, batch=100).output_tokens_per_s)
    whole = float(steady(llama, 128, 512, batch=100, requests=300).output_tokens_per_s)
    broken = float(steady(llama, 128, 512, batch=100, requests=301).output_tokens_per_s)
    assert whole == pytest.approx(endless)
    assert broken < 0.9 * whole


def test_a_run_of_one_wave_begins_with_all_prompts_at_once(llama: Deployment) -> None:
    """A request waits for half of the other prompts on average; in an endless run for those few that come with it."""
    endless, wave = (float(steady(llama, 1024, 64, batch=64, requests=n).ttft_s) for n in (None, 64))
    simulated = np.mean(pm.simulate(llama, pm.closed_loop(64, 64, 1024, 64), interval=False).ttft_s)
    assert wave == pytest.approx(simulated, rel=0.2)
    assert endless < 0.2 * wave


def test_a_cached_prefix_saves_time(llama: Deployment) -> None:
    cold, warm = steady(llama, 2048, 64, batch=32), steady(llama, 2048, 64, batch=32, prefix=1900)
    assert float(warm.output_tokens_per_s) > 1.5 * float(cold.output_tokens_per_s)
    assert warm.ttft_s < cold.ttft_s


@pytest.mark.parametrize(
    ("workload", "users"),
    [(Workload(1000, 200), 256), (Workload(100_000, 4), 2), (Workload(8000, 200, cached=7900), 32)],
)
def test_the_mean_step_and_not_one_of_decode_says_what_limits(
    llama: Deployment, workload: Workload, users: int
) -> None:
    """Steps with prompts compute, though their decode alone reads memory; as the simulation has it."""
    (mean,) = steady_points(llama, workload, [users])
    replay = pm.simulate(llama, workload.requests(CONCURRENCY, users), interval=False)
    assert mean.limiter == point_of(llama, Fleet(), replay, CONCURRENCY, users).limiter
    assert mean.step_s[0] == pytest.approx(sum(mean.terms_s.values()))
    assert mean.step_s[1] < mean.step_s[0] < mean.step_s[2]


def test_all_sequences_share_the_blocks_of_a_prefix(llama: Deployment) -> None:
    """256 prompts that differ in 192 tokens behind 8000 equal ones take 8000 + 256 x 392 tokens, not 256 x 8392."""
    warm = steady(llama, 8192, 200, concurrency=256, prefix=8000)
    assert steady(llama, 8192, 200, concurrency=256).batch < 100
    assert warm.batch == 256
    assert warm.kv_tokens == pytest.approx(8000 + 256 * (192 + 100))
    assert capacity(llama, 8192, 200, 8000) == llama.sequence_limit
    assert max(clients_that_fit(llama, Workload(8192, 200, cached=8000))) == 256
    simulated = pm.simulate(llama, Workload(8192, 200, cached=8000, count=512).requests("concurrency", 256))
    assert simulated.output_tokens_per_s == pytest.approx(float(warm.output_tokens_per_s), rel=0.25)


def test_the_cache_holds_a_shared_prefix_all_the_time(llama: Deployment) -> None:
    """Sequences of 192 to 392 tokens in blocks of 16, and once the 8000 that all of them share."""
    load, memory = Workload(8192, 200, cached=8000, count=64).requests("concurrency", 8), llama.memory()
    simulated = pm.simulate(llama, load)
    tokens = simulated.kv_bytes / memory.kv_bytes_token
    # in the mean a sequence has half of its answer, and half of its last block is empty
    assert (tokens - 8000) / simulated.mean_running == pytest.approx(192 + 100 + 8, rel=0.03)
    assert simulated.kv_share == pytest.approx(tokens / memory.kv_tokens, rel=1e-3)
    assert simulated.states.kv_share.min() >= 8000 / memory.kv_tokens
    several = pm.simulate(llama, load, replicas=2)
    assert several.kv_bytes > 16000 * memory.kv_bytes_token


def test_each_copy_of_the_model_keeps_a_prefix() -> None:
    memory = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), dp=2).memory()
    assert memory.max_batch(8192, 200) > 2
    assert memory.shared(8000) == 2 * 8000
    assert memory.shared(10 * memory.kv_tokens) == memory.kv_tokens


@given(
    isl=st.integers(1, 8000), osl=st.integers(1, 4000), users=st.integers(1, 300), chunk=st.sampled_from([512, 8192])
)
@pytest.mark.waiting
def test_no_load_beats_the_step_or_breaks(isl: int, osl: int, users: int, chunk: int) -> None:
    deployment = _CHUNKED[chunk]
    state = steady(deployment, isl, osl, concurrency=users)
    least = deployment.step(decode=1, context=1).time_s
    assert state.tpot_s >= least
    assert 0 < state.ttft_s < np.inf
    assert state.output_tokens_per_s <= users / least


_CHUNKED = {
    chunk: Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), max_batched_tokens=chunk)
    for chunk in (512, 8192)
}


def test_arrays_equal_scalars(llama: Deployment) -> None:
    isl, osl, users = np.array([100.0, 3000, 20000]), np.array([900.0, 100, 500]), np.array([3.0, 50, 9])
    together = steady(llama, isl, osl, concurrency=users)
    for index in range(3):
        alone = steady(llama, isl[index], osl[index], concurrency=users[index])
        for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
            assert getattr(alone, name) == pytest.approx(np.asarray(getattr(together, name))[index])


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"isl": 0, "osl": 10}, "isl is below 1"),
        ({"isl": 10, "osl": 10, "concurrency": 0}, "the load is below 1"),
        ({"isl": 10, "osl": 10, "concurrency": 15e-324}, "the load is below 1"),  # found by fuzzing
        ({"isl": 10, "osl": 10, "batch": np.nan}, "the load is below 1"),
        ({"isl": 10, "osl": 10, "prefix": 10}, "not shorter than the prompt"),
        ({"isl": 200_000, "osl": 10}, "longer than the model's 131072 positions"),
        ({"isl": "long", "osl": 10}, "steady: isl='long' is no number"),
        ({"isl": 10, "osl": 10, "batch": "x"}, "batch='x' is no number"),
        ({"isl": [10, 20], "osl": [1, 2, 3]}, r"broadcast together: isl \(2,\), osl \(3,\)"),
    ],
)
def test_bad_loads_say_why(llama: Deployment, load: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        steady(llama, **load)  # type: ignore[arg-type]


def test_a_sequence_that_does_not_fit_says_what_would() -> None:
    small = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), kv_tokens=1000)
    with pytest.raises(UsageError, match="holds 1000 tokens"):
        steady(small, 2000, 100)


def test_a_static_batch_is_its_prompts_and_its_steps(llama: Deployment) -> None:
    batch = static_batch(llama, 4, 256, 101)
    token = llama.step(decode=4, context=256 + 101 / 2)
    prompts = llama.step(prefill=[(4, 256, 256)])
    assert batch.tpot_s == pytest.approx(token.time_s)
    time = 4 * 101 / float(batch.output_tokens_per_s)
    assert time == pytest.approx(float(prompts.time_s) + 100 * float(token.time_s))


@pytest.mark.parametrize("users", [1, 16, 32, 96, 320])
def test_static_batches_come_in_turn(users: int) -> None:
    eager = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="hf-eager")
    state = steady(eager, 1024, 64, concurrency=users)
    # the simulation has its batches of 32, its whole queue from the start on, and as many requests as make 40 batches
    replay = pm.simulate(eager, pm.closed_loop(users, 40 * min(users, 32), 1024, 64), interval=False)
    assert state.batch == min(users, 32)
    assert state.output_tokens_per_s == pytest.approx(replay.output_tokens_per_s, rel=0.02)
    assert state.tpot_s == pytest.approx(np.mean(replay.tpot_s), rel=0.02)
    assert state.ttft_s == pytest.approx(np.mean(replay.ttft_s), rel=0.15)
    # Little's law, the queue and the server in front included
    request_s = float(state.ttft_s) + 63 * float(state.tpot_s)
    assert float(state.output_tokens_per_s) / 64 * request_s == pytest.approx(users)
    assert state.output_tokens_per_s_low < state.output_tokens_per_s < state.output_tokens_per_s_high
    assert state.ttft_low_s < state.ttft_s < state.ttft_high_s
    step_s = float(state.batch) / float(state.output_tokens_per_s)
    assert sum(map(float, state.terms_s.values())) == pytest.approx(step_s, rel=0.05)


def test_a_static_batch_reads_its_prompts_in_one_step_whatever_the_budget() -> None:
    """``generate()`` calls the model once for them: no budget of tokens splits the batch, in no kind of prediction."""
    eager = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="hf-eager", max_batched_tokens=2048)
    state = steady(eager, 1024, 16, concurrency=16)
    replay = pm.simulate(eager, pm.closed_loop(16, 320, 1024, 16), interval=False)
    assert float(state.ttft_s) == pytest.approx(replay.ttft_s.mean(), rel=1e-3)
    assert float(state.output_tokens_per_s) == pytest.approx(replay.output_tokens_per_s, rel=1e-3)


def test_a_static_batch_that_is_asked_for_may_be_larger_and_has_to_fit_at_its_end() -> None:
    eager = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="hf-eager", kv_tokens=64 * 1500)
    assert steady(eager, 1000, 500, batch=64).batch == 64
    assert steady(eager, 1000, 501, batch=64).batch == 63
    assert capacity(eager, 1000, 500) == 32
    both = steady(eager, np.array([1000, 500]), 500, concurrency=np.array([64.0, 8]), prefix=100)
    alone = steady(eager, 500, 500, concurrency=8, prefix=100)
    assert np.asarray(both.ttft_s)[1] == pytest.approx(alone.ttft_s)
    assert float(alone.ttft_s) < float(steady(eager, 500, 500, concurrency=8).ttft_s)


def test_a_draft_that_is_never_accepted_costs_and_one_that_always_is_gains() -> None:
    config, h100 = find_model("llama-3.1-8b"), pm.hardware("h100")
    plain = Deployment(config, h100).step(decode=1, context=1000).time_s
    draft = Deployment(find_model("llama-3.2-1b"), h100)

    def token(acceptance: float) -> float:
        made = Deployment(config, h100, speculation=Speculation(3, acceptance, draft))
        assert made.clock().decode_s(1, 1000) == pytest.approx(made.step(decode=1, context=1000).time_s / made.gained)
        return float(steady(made, 990, 20, batch=1).tpot_s)

    assert token(0.0) > plain
    assert token(1.0) < 0.6 * float(plain)
    assert token(0.9) < token(0.6) < token(0.3)


def test_a_draft_model_reads_each_prompt_too() -> None:
    h100, tokens = pm.hardware("h100"), 16384
    draft = Deployment(find_model("llama-3.1-8b"), h100, tp=4)
    alone = Deployment(find_model("llama-3.1-70b"), h100, tp=4, weights="fp8")
    both = replace(alone, speculation=Speculation(4, 0.7, draft))
    # 2 FLOP for each weight of the layers and token, on 4 GPUs
    least_s = 2 * 7.0e9 * tokens / 4 / h100.best_peak("bf16").flop_per_s
    steady_s, before_s = (float(steady(made, tokens, 64, batch=1).ttft_s) for made in (both, alone))
    assert least_s < steady_s - before_s < 4 * least_s
    prompt = [(float(tokens), float(tokens))]
    quick_s = both.clock().mixed_s(0, 0, prompt) - alone.clock().mixed_s(0, 0, prompt)
    assert least_s < quick_s < 4 * least_s
    # no sequence decodes, so that the draft proposes nothing in this step
    assert quick_s == pytest.approx(draft.clock().mixed_s(0, 0, prompt) - draft.profile.host_s, rel=0.01)


def test_speculation_touches_more_experts() -> None:
    config, h200 = find_model("mixtral-8x7b"), pm.hardware("h200")
    plain = Deployment(config, h200).step(decode=2, context=500)
    spec = Deployment(config, h200, speculation=Speculation(4, 0.8)).step(decode=2, context=500)
    assert spec.terms_s["experts"] > 1.5 * plain.terms_s["experts"]


@pytest.mark.parametrize("sampling", ["gumbel", "gumbel_fused", "multinomial", "top_k", "top_p"])
def test_drawing_tokens_takes_longer_than_the_largest_logit(sampling: str) -> None:
    config, h100 = find_model("llama-3.1-8b"), pm.hardware("h100")
    greedy = Deployment(config, h100).step(decode=512, context=100).terms_s["head"]
    drawn = Deployment(config, h100, sampling=sampling).step(decode=512, context=100).terms_s["head"]
    assert drawn > greedy if sampling != "gumbel_fused" else drawn == pytest.approx(greedy, rel=0.3)


def test_launching_each_kernel_costs_a_small_model_more() -> None:
    config, h100 = find_model("qwen3-0.6b"), pm.hardware("h100")
    graph, eager = (Deployment(config, h100, graph=graph).step(decode=1, context=10).time_s for graph in (True, False))
    assert eager > 1.2 * float(graph)
    naive = Deployment(config, h100, engine="hf-eager").step(decode=1, context=10).time_s
    assert naive > 1.5 * float(eager)


def test_a_host_launches_the_kernels_that_quantise_and_widen() -> None:
    """LLM.int8() takes twice as long as 16 bits where the host is waited for; formats of one kernel as long."""
    config, h100 = find_model("llama-3.1-8b"), pm.hardware("h100")

    def step_s(weights: str, engine: str = "hf-eager") -> float:
        return float(Deployment(config, h100, weights=weights, engine=engine).step(decode=1, context=64).time_s)

    assert 1.7 < step_s("int8") / step_s("bf16") < 2.5
    assert step_s("int4") == pytest.approx(step_s("bf16"))
    assert step_s("int8", "vllm") < step_s("bf16", "vllm")


def test_weights_that_a_kernel_of_its_own_widens_are_read_written_and_read_again() -> None:
    """8-bit weights of DeepSpeed-Inference move 1 + 2 + 2 bytes, those of vLLM 1, those in 16 bits 2."""
    config, a100 = find_model("llama-3.1-8b"), pm.hardware("a100")

    def weights_s(weights: str, engine: str) -> float:
        made = Deployment(config, a100, weights=weights, engine=engine)
        return float(made.step(decode=1, context=64).terms_s["weights"])

    sixteen = weights_s("fp16", "deepspeed-inference")
    assert 2.0 * sixteen < weights_s("w8a16", "deepspeed-inference") < 3.2 * sixteen
    assert weights_s("w8a16", "vllm") < sixteen


def test_deepspeed_inference_waits_for_its_launches() -> None:
    small = find_model("layers=24 hidden=2048 heads=16 ffn=8192 vocab=50257 positions=2048")
    made = Deployment(small, pm.hardware("a100"), engine="deepspeed-inference", weights="fp16")
    one, many = (float(made.step(decode=batch, context=64).time_s) for batch in (1, 64))
    assert one > made.host.launches_s(1.0) > 3e-3
    assert many == pytest.approx(one, rel=0.05)


def test_older_releases_of_vllm_take_longer_for_each_sequence() -> None:
    """Their host is what one sequence of a small model waits for in 0.6, and a full batch before that."""
    h100 = pm.hardware("h100")

    def host_s(version: str, batch: int) -> float:
        made = Deployment(find_model("llama-3.1-8b"), h100, engine="vllm", engine_version=version)
        return float(made.step(decode=batch, context=500).terms_s["host"])

    assert host_s("0.8", 1) < host_s("0.6.3", 1) < host_s("0.5.3", 1) < 4e-3
    assert host_s("0.8", 256) < host_s("0.6.3", 256) < 0.5 * host_s("0.5.3", 256)


def test_no_eager_step_is_shorter_than_its_launches() -> None:
    config, h100 = find_model("llama-3.2-1b"), pm.hardware("h100")
    engine = find_engine("vllm")
    eager = Deployment(config, h100, graph=False)
    # 16 layers of 9 kernels; nobody measured the launches of eager steps: they are those of a prompt's kernels
    assert eager.host.launches_s(1.0) == pytest.approx(16 * 9 * engine.prompt_launch_s)
    steps = {batch: eager.step(decode=batch, context=100) for batch in (1, 512)}
    assert float(steps[1].time_s) == pytest.approx(eager.host.launches_s(1.0) + engine.host_s + engine.host_sequence_s)
    assert eager.clock().decode_s(1, 100) == pytest.approx(steps[1].time_s, rel=0.01)
    graph = Deployment(config, h100)
    assert graph.host.launches_s(1.0) == 0.0
    # kernels that take longer than their launches hide these
    assert steps[512].time_s == pytest.approx(graph.step(decode=512, context=100).time_s)


def test_launches_that_nobody_measured_widen_the_interval_of_eager_steps_alone() -> None:
    config, h100 = find_model("llama-3.2-1b"), pm.hardware("h100")

    def width(**options: Any) -> float:
        step = Deployment(config, h100, **options).step(decode=1, context=100)
        return float(step.high_s / step.low_s)

    assert width(graph=False) > 1.5 * width()
    measured = replace(find_engine("vllm"), launch_s=20e-6, graph=False)
    assert width(engine=measured) < 0.8 * width(graph=False)


def test_a_draft_without_graphs_launches_its_kernels_for_each_token() -> None:
    h100 = pm.hardware("h100")
    draft = Deployment(find_model("llama-3.2-1b"), h100)
    made = Deployment(find_model("llama-3.1-8b"), h100, graph=False, speculation=Speculation(3, 0.5, draft))
    assert made.host.launches_s(1.0) == pytest.approx((32 + 3 * 16) * 9 * 20e-6)
    assert made.clock().decode_s(1, 100) == pytest.approx(made.step(decode=1, context=100).time_s / made.gained)


@pytest.mark.parametrize(
    ("tokens", "acceptance", "message"), [(0, 0.5, "speculates on none"), (2, 1.5, "not within 0 to 1")]
)
def test_bad_speculation_says_why(tokens: int, acceptance: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Speculation(tokens, acceptance)


def test_a_first_token_waits_for_launches_and_for_copies_that_share_experts() -> None:
    def ttft(**facts: float) -> float:
        engine = replace(find_engine("vllm"), front_end_s=20e-3, prompt_launch_s=0.0)
        deployment = pm.Deployment(
            find_model("qwen3-30b-a3b"), pm.hardware("h100"), dp=2, ep=2, engine=replace(engine, **facts)
        )
        return float(pm.steady(deployment, 512, 128, concurrency=8).ttft_s)

    layers = find_model("qwen3-30b-a3b").layers
    assert ttft(prompt_launch_s=1e-5) - ttft() == pytest.approx(layers * 1e-5 * 16, rel=0.2)
    assert ttft(balance_steps=10.0) > ttft(balance_steps=1.0) > ttft()


@pytest.mark.parametrize(("budget", "isl", "osl"), [(512, 4000, 100), (2048, 8000, 20), (512, 1000, 1)])
def test_where_prompts_fill_every_step_the_budget_is_the_limit(budget: int, isl: int, osl: int) -> None:
    """A step has at most ``budget`` tokens, of answers and of prompts; the simulation finds the same."""
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), max_batched_tokens=budget)
    mean = steady(deployment, isl, osl, concurrency=64)
    rate = float(mean.output_tokens_per_s)
    step = float(deployment.step(decode=0, prefill=[(1, budget, budget)]).time_s)
    assert rate * (isl + osl) / osl < budget / step * 1.1  # a chunk behind few keys is about the shortest full step
    ramp = float(mean.ttft_s + osl * mean.tpot_s)
    replay = pm.simulate(deployment, pm.closed_loop(64, 640, isl, osl, spread=0.3, ramp_s=ramp), interval=False)
    middle = slice(128, -128)
    assert rate == pytest.approx(64 * osl / replay.latency_s[middle].mean(), rel=0.06)
    assert float(mean.ttft_s) == pytest.approx(replay.ttft_s[middle].mean(), rel=0.1)
    if osl > 1:
        assert float(mean.tpot_s) == pytest.approx(replay.tpot_s[middle].mean(), rel=0.1)


@pytest.mark.parametrize("osl", [1, 4, 16])
def test_a_prompt_s_step_gives_one_token_with_a_draft_too(osl: int) -> None:
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), speculation=Speculation(4, 0.8))
    mean = steady(deployment, 16, osl, concurrency=1)
    spent = float(mean.ttft_s) + (osl - 1) * float(mean.tpot_s)
    assert float(mean.output_tokens_per_s) == pytest.approx(osl / spent, rel=0.05)


def test_a_draft_model_decodes_where_sequences_decode() -> None:
    draft = Deployment(find_model("llama-3.2-1b"), pm.hardware("h100"))
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), speculation=Speculation(4, 0.7, draft))
    alone = deployment.step(prefill=[(1, 512, 512)]).time_s
    assert deployment.clock().mixed_s(0, 0.0, [(512, 512)]) == pytest.approx(float(alone), rel=1e-6)


@pytest.mark.parametrize("requests", [0, -5, np.nan, 0.5])
def test_a_run_has_at_least_one_request(llama: Deployment, requests: float) -> None:
    with pytest.raises(UsageError, match="requests are below 1"):
        steady(llama, 1000, 100, concurrency=8, requests=requests)


def test_users_without_a_request_do_not_wait(llama: Deployment) -> None:
    few, many = (steady(llama, 1000, 100, concurrency=users, requests=7) for users in (7, 64))
    assert many.ttft_s == few.ttft_s


@pytest.mark.parametrize("users", [128, 160, 192, 224])
def test_a_step_reads_the_beginning_of_a_prompt_that_it_has_no_room_for(users: int) -> None:
    """2048 tokens less 191 that decode are 1.8 prompts of 1024: with one alone 192 users had been slower than 128."""
    a100 = Deployment(find_model("llama-3.1-8b"), pm.hardware("a100"), max_batched_tokens=2048)
    mean, fewer = (steady(a100, 1024, 128, concurrency=count) for count in (users, users - 32))
    ramp = float(mean.ttft_s + 128 * mean.tpot_s)
    load = pm.closed_loop(users, 8 * users, 1024, 128, spread=0.3, ramp_s=ramp)
    replay = pm.simulate(a100, load, interval=False)
    kept = slice(2 * users, -2 * users)
    rate = users * 128 / replay.latency_s[kept].mean()
    assert float(mean.output_tokens_per_s) == pytest.approx(rate, rel=0.06)
    # tokens just beyond a tile of products cost 3 %
    assert float(mean.output_tokens_per_s) > 0.96 * float(fewer.output_tokens_per_s)


def test_micro_batches_of_a_pipeline_read_prompts_in_different_steps() -> None:
    """Four of them that each read a prompt now and then make more steps with prompts than one that reads four."""
    deployment = Deployment(find_model("llama-3.1-70b"), pm.hardware("h100"), tp=2, pp=4)
    mean = steady(deployment, 4000, 200, concurrency=32)
    ramp = float(mean.ttft_s + 200 * mean.tpot_s)
    replay = pm.simulate(deployment, pm.closed_loop(32, 320, 4000, 200, spread=0.3, ramp_s=ramp), interval=False)
    assert float(mean.output_tokens_per_s) == pytest.approx(32 * 200 / replay.latency_s[64:-64].mean(), rel=0.08)


@pytest.mark.parametrize("batch", [4, [4, 8]])
def test_states_and_steps_are_equal_where_all_of_their_numbers_are(llama: Deployment, batch: int | list[int]) -> None:
    for call in (lambda users: steady(llama, 128, 16, batch=users), lambda users: llama.step(decode=users, context=99)):
        assert call(batch) == call(batch)
        assert call(batch) != call(np.add(batch, 1))
        assert call(batch) != 4


def test_an_interactive_session_shows_loads_and_memory_in_a_line(llama: Deployment) -> None:
    state = steady(llama, 1000, 100, batch=8)
    assert repr(state).startswith("<Steady: batch 8, TTFT ")
    assert f"{float(state.output_tokens_per_s):.4g} tokens/s>" in repr(state)
    assert repr(steady(llama, 1000, 100, batch=np.array([1, 8]))) == "<Steady: 2 loads>"
    # 8.03 x 10^9 parameters of 2 B are 14.96 GiB
    assert repr(llama.memory()).startswith("<Memory: 14.96 GiB of weights and ")
