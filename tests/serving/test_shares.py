"""Sequences that copies and stages share: none is divided, and what each GPU keeps is counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.clock import busiest
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet, mean_step, simulate_fleet
from perfmodel.serving.points import Workload, point_of
from perfmodel.serving.speculation import Speculation
from perfmodel.serving.steady import steady
from perfmodel.workloads.catalog import find_model

H100 = pm.hardware("h100")
LLAMA_8B = find_model("llama-3.1-8b")
#: values of one GPU's part of 32 layers and a table of 128256 x 4096, 16 bits each [B]
LAYERS_BYTES, TABLE_BYTES = 2 * 6.98e9, 2 * 128256 * 4096


@pytest.fixture(scope="module")
def plain() -> Deployment:
    return Deployment(LLAMA_8B, H100)


@given(st.floats(0.0, 1e4), st.integers(1, 64))
def test_the_busiest_has_no_less_than_the_mean_and_no_more_than_all(number: float, share: int) -> None:
    most = busiest(number, share)
    assert number / share <= most <= number
    assert most >= 1.0 or most == number
    assert busiest(np.array([number]), share)[0] == most


@pytest.mark.parametrize("sharing", [{"dp": 4}, {"pp": 4}, {"dp": 2, "pp": 2}])
def test_no_copy_and_no_stage_divides_a_sequence(plain: Deployment, sharing: dict[str, int]) -> None:
    shared = Deployment(LLAMA_8B, H100, **sharing)  # type: ignore[arg-type]
    for what in ({"prefill": [(1, 8192, 8192)]}, {"decode": 1, "context": 100_000}):
        assert shared.step(**what).time_s >= 0.99 * plain.step(**what).time_s  # type: ignore[arg-type]
    clock, alone = shared.clock(), plain.clock()
    assert clock.decode_s(1, 100_000) >= 0.99 * alone.decode_s(1, 100_000)
    assert clock.mixed_s(0, 0, [(8192, 8192)]) >= 0.99 * alone.mixed_s(0, 0, [(8192, 8192)])


@pytest.mark.parametrize("sharing", [{"dp": 4}, {"pp": 4}])
def test_waiting_prompts_fill_all_copies_and_all_stages(plain: Deployment, sharing: dict[str, int]) -> None:
    shared = Deployment(LLAMA_8B, H100, **sharing)  # type: ignore[arg-type]
    load = Workload(8000, 2, count=128).requests("concurrency", 32)
    one, four = (simulate_fleet(each, load, Fleet()).output_tokens_per_s for each in (plain, shared))
    assert 3.5 * one < four < 4.05 * one
    formula = steady(shared, isl=8000, osl=2, concurrency=32).output_tokens_per_s
    assert four == pytest.approx(formula, rel=0.06)


def test_copies_that_share_nothing_are_replicas(plain: Deployment) -> None:
    """Four copies with 40 users are four deployments with ten, in the simulation as in the steady state."""
    four = Deployment(LLAMA_8B, H100, dp=4)
    load = Workload(4000, 32, count=160).requests("qps", 12.0)
    copies, replicas = (simulate_fleet(*of, interval=False) for of in (
        (four, load, Fleet()), (plain, load, Fleet(replicas=4))
    ))  # fmt: skip
    assert np.array_equal(copies.last_s, replicas.last_s)
    assert copies.gpus == 4
    together, alone = steady(four, 4000, 32, concurrency=[2, 40]), steady(plain, 4000, 32, concurrency=[1, 10])
    assert together.tpot_s == pytest.approx(alone.tpot_s)
    assert together.ttft_s == pytest.approx(alone.ttft_s)
    assert together.output_tokens_per_s == pytest.approx(np.multiply(alone.output_tokens_per_s, [2, 4]))
    assert together.tokens_per_s_per_gpu == pytest.approx(np.multiply(alone.tokens_per_s_per_gpu, [0.5, 1]))
    assert together.concurrency == pytest.approx([2, 40])


def test_a_point_of_replicas_has_the_step_of_one_and_the_gpus_of_all(plain: Deployment) -> None:
    four, load = Deployment(LLAMA_8B, H100, dp=4), Workload(1000, 32).requests("concurrency", 40)
    made = point_of(four, Fleet(), simulate_fleet(four, load, Fleet()), "concurrency", 40)
    own = Workload(1000, 32).requests("concurrency", 10)
    single = point_of(plain, Fleet(), simulate_fleet(plain, own, Fleet()), "concurrency", 10)
    assert made.facts["gpus"] == 4
    assert made.step_s[0] == pytest.approx(single.step_s[0], rel=0.01)
    assert made.terms_s["kv"] == pytest.approx(single.terms_s["kv"], rel=0.02)
    assert made.tokens_per_s_per_gpu == pytest.approx(single.tokens_per_s_per_gpu, rel=0.02)


def test_a_cache_whose_size_is_told_is_that_of_all_copies(plain: Deployment) -> None:
    four = Deployment(LLAMA_8B, H100, dp=4, kv_tokens=8000)
    assert four.replica.memory().kv_tokens == 2000
    with pytest.raises(UsageError, match="the KV cache of one engine holds 2000"):
        simulate_fleet(four, Workload(4000, 32).requests("concurrency", 1), Fleet())
    shared = Deployment(find_model("mixtral-8x7b"), H100, dp=8, ep=8)
    assert shared.replica is shared


def test_the_logits_are_those_of_one_stage(plain: Deployment) -> None:
    four = Deployment(LLAMA_8B, H100, pp=4)
    sent_s = float(four.step(decode=1, context=1000).terms_s["sends"])
    assert four.clock().decode_s(1, 1000) - sent_s == pytest.approx(plain.clock().decode_s(1, 1000), rel=1e-3)
    assert four.clock().decode_s(1, 1000) == pytest.approx(four.step(decode=1, context=1000).time_s, rel=1e-3)


def test_copies_with_a_prompt_each_take_as_long_as_one(plain: Deployment) -> None:
    four = Deployment(LLAMA_8B, H100, dp=4).clock()
    assert four.mixed_s(0, 0, [(2048, 2048)] * 4) == pytest.approx(
        plain.clock().mixed_s(0, 0, [(2048, 2048)]), rel=1e-3
    )


def test_shared_experts_see_the_tokens_of_all_copies() -> None:
    shared = Deployment(find_model("mixtral-8x7b"), H100, dp=8, ep=8)
    one, eight = (shared.step(prefill=[(count, 8192, 8192)]).terms_s for count in (1, 8))
    assert one["experts"] < 0.25 * eight["experts"]  # an eighth of the tokens, and the same GPUs
    assert one["weights"] == pytest.approx(eight["weights"])  # one copy has a whole prompt in either
    load = Workload(8192, 64)
    replay = simulate_fleet(shared, load.requests("concurrency", 1), Fleet())
    assert replay.statistics("ttft_s")["mean"] == pytest.approx(
        steady(shared, isl=8192, osl=64, concurrency=1).ttft_s, rel=0.1
    )


def test_stages_hold_their_layers_and_one_table(plain: Deployment) -> None:
    assert plain.memory().weights_bytes == pytest.approx(LAYERS_BYTES + 2 * TABLE_BYTES, rel=2e-3)
    two, three = (Deployment(LLAMA_8B, H100, pp=pp).memory() for pp in (2, 3))
    assert two.weights_bytes == pytest.approx(LAYERS_BYTES / 2 + TABLE_BYTES, rel=2e-3)
    # 32 layers over 3 stages: the fullest has 11
    assert three.weights_bytes == pytest.approx(LAYERS_BYTES * 11 / 32 + TABLE_BYTES, rel=2e-3)
    assert three.kv_bytes_token_gpu == pytest.approx(plain.memory().kv_bytes_token_gpu * 11 / 32)
    assert three.kv_bytes_token == pytest.approx(plain.memory().kv_bytes_token)


def test_a_draft_takes_memory() -> None:
    big, draft = find_model("llama-3.1-70b"), Deployment(LLAMA_8B, H100, tp=4)
    alone = Deployment(big, H100, tp=4, weights="fp8")
    both = replace(alone, speculation=Speculation(4, 0.7, draft)).memory()
    assert both.weights_bytes - alone.memory().weights_bytes == pytest.approx(2 * 8.03e9 / 4, rel=2e-3)
    # keys and values of a token on one of four GPUs: 80 layers of the model, 32 of the draft, 2 heads of 128 each
    assert both.kv_bytes_token_gpu == (80 + 32) * 2 * 2 * 128 * 2
    assert both.kv_tokens == pytest.approx(both.kv_bytes / (112 * 1024), rel=1e-3)
    assert both.kv_tokens < 0.7 * alone.memory().kv_tokens


def test_the_mean_step_of_a_draft_reads_all_weights() -> None:
    deployment = Deployment(LLAMA_8B, H100, speculation=Speculation(4, 0.7))
    replay = simulate_fleet(deployment, Workload(256, 64).requests("concurrency", 16), Fleet())
    step = mean_step(deployment, replay)
    assert step.terms_s["weights"] > LAYERS_BYTES / H100.main_memory.bandwidth_bytes_per_s
    assert sum(step.terms_s.values()) == pytest.approx(step.time_s)


def test_a_wait_that_only_slow_steps_have_is_no_ratio(plain: Deployment) -> None:
    load = Workload(1024, 256).requests("concurrency", 16)
    replay = simulate_fleet(plain, load, Fleet(prefill_replicas=1), interval=True)
    for name in ("queued_s", "ttft_s"):
        figures: dict[str, Any] = replay.statistics(name)
        assert all(np.isfinite(value) for value in figures.values())


@pytest.mark.parametrize(("sharing", "model"), [({"tp": 16}, "llama-3.1-70b"), ({"dp": 16, "ep": 16}, "deepseek-v3")])
def test_exchanges_between_hosts_need_a_network(sharing: dict[str, int], model: str) -> None:
    alone = replace(H100, fabric=None)
    with pytest.raises(UsageError, match=r"16 GPUs reach beyond one node of 8 .* network is unknown") as caught:
        Deployment(find_model(model), alone, weights="fp8", **sharing)  # type: ignore[arg-type]
    assert "nic='400 Gb/s'" in caught.value.remedy
    known = Deployment(find_model(model), alone, weights="fp8", nic="400 Gb/s", **sharing)  # type: ignore[arg-type]
    stated = Deployment(find_model(model), H100, weights="fp8", **sharing)  # type: ignore[arg-type]
    assert known.hosts == stated.hosts == 2
    assert _exchange(known) == pytest.approx(_exchange(stated))


def _exchange(deployment: Deployment) -> float:
    return float(deployment.step(prefill=[(4, 1024, 1024)]).terms_s["exchange"])


@pytest.mark.parametrize(("sharing", "model"), [({"tp": 16}, "llama-3.1-70b"), ({"dp": 16, "ep": 16}, "deepseek-v3")])
def test_a_faster_network_shortens_exchanges_down_to_those_of_a_host(sharing: dict[str, int], model: str) -> None:
    def over(**network: Any) -> float:
        return _exchange(Deployment(find_model(model), H100, weights="fp8", **sharing, **network))

    slow, usual, fast = (over(nic=rate) for rate in ("100 Gb/s", "400 Gb/s", "800 Gb/s"))
    assert slow > usual > fast > over(gpus_per_node=16)


def test_reductions_between_hosts_take_what_the_network_takes_and_are_less_sure() -> None:
    """Two GB10 of 200 Gb/s: each of two reductions a layer sends the message out of its host once, S / 25 GB/s."""
    gb10, model = pm.hardware("gb10"), find_model("qwen3-32b")
    pair = Deployment(model, gb10, tp=2, weights="fp8")
    tokens = 2048
    message = 2.0 * tokens * model.hidden
    step = pair.step(prefill=[(1, tokens, tokens)])
    least = 2.0 * model.layers * message / 25e9
    assert least < step.terms_s["exchange"] < 2.0 * least
    reduction = pm.predict(pm.AllReduce(bytes=message, num_gpus=2, dtype="bf16"), gb10, library="nccl")
    assert step.terms_s["exchange"] == pytest.approx(2 * model.layers * reduction.predicted_time_s, rel=0.01)
    single = Deployment(model, gb10, weights="fp8").step(prefill=[(1, tokens, tokens)])
    assert step.high_s / step.low_s > single.high_s / single.low_s


def test_fewer_gpus_in_a_host_make_the_same_gpus_exchange_over_the_network() -> None:
    near, far = (Deployment(find_model("llama-3.1-70b"), H100, tp=8, gpus_per_node=each) for each in (8, 4))
    assert (near.hosts, far.hosts) == (1, 2)
    assert _exchange(far) > 2.0 * _exchange(near)
