"""A load on a deployment: what the public functions and reports say about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.errors import UsageError
from perfmodel.render.plots import plot
from perfmodel.serving.load import Fleet
from perfmodel.serving.points import Workload
from perfmodel.workloads.catalog import find_model

MODEL = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"


@pytest.fixture(scope="module")
def deployment():
    return pm.Deployment(find_model(MODEL), "h100")


def test_one_user_sees_the_steps_of_the_deployment(deployment) -> None:
    replay = pm.simulate(deployment, pm.closed_loop(1, 4, 256, 33))
    first = deployment.step(prefill=[(1, 256, 256)]).time_s
    token = deployment.step(decode=1, context=256 + 17).time_s
    assert replay.ttft_s == pytest.approx(first + deployment.host.front_end_s, rel=0.02)
    assert replay.tpot_s == pytest.approx(token, rel=0.02)


@pytest.mark.parametrize(("users", "osl", "replicas"), [(1, 1, 1), (8, 2, 1), (8, 64, 2), (64, 16, 1)])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_requests_a_second_times_their_time_are_the_users(users: int, osl: int, replicas: int, engine: str) -> None:
    """Little's law, with all users there from the first request to the last one."""
    deployment = pm.Deployment(find_model(MODEL), "h100", engine=engine)
    load = pm.closed_loop(users, 20 * users, 128, osl)
    replay = pm.simulate(deployment, load, replicas=replicas, interval=False)
    product = replay.requests_per_s * replay.latency_s.mean()
    assert product == pytest.approx(users, rel=0.03)
    assert replay.duration_s == pytest.approx(20 * replay.latency_s.mean(), rel=0.03)


@pytest.mark.parametrize(("load", "value"), [("concurrency", 8.0), ("qps", 4.0)])
def test_only_what_comes_behind_a_prefix_has_a_spread(load: str, value: float) -> None:
    requests = Workload(1024, 64, spread=0.2, cached=1000, count=400).requests(load, value)
    behind = requests.prompt - requests.cached
    assert (behind.min(), behind.max()) == (round(0.8 * 24), round(1.2 * 24))
    assert requests.prompt.mean() == pytest.approx(1024, rel=0.01)


def test_the_simulation_of_a_busy_deployment_is_its_steady_state(deployment) -> None:
    users = 32
    replay = pm.simulate(deployment, pm.closed_loop(users, 1500, 256, 64, spread=0.5, ramp_s=0.3), interval=False)
    state = pm.steady(deployment, 256, 64, concurrency=users)
    assert replay.output_tokens_per_s == pytest.approx(state.output_tokens_per_s, rel=0.06)
    assert replay.tpot_s.mean() == pytest.approx(state.tpot_s, rel=0.08)


def test_each_engine_has_its_own_policy(deployment) -> None:
    model = find_model(MODEL)
    policies = {
        engine: Fleet().policy_for(pm.Deployment(model, "h100", engine=engine)).name
        for engine in ("vllm", "trtllm", "nano-vllm", "sglang", "hf-eager")
    }
    assert policies == {
        "vllm": "chunked-prefill", "trtllm": "no-evict", "nano-vllm": "prefill-first", "sglang": "new-token-ratio",
        "hf-eager": "static",
    }  # fmt: skip


def test_replays_report_percentiles_and_growth(deployment) -> None:
    replay = pm.simulate(deployment, pm.open_loop(50_000.0, 200, 64, 16, seed=1), max_num_seqs=4)
    table = report(replay)
    assert [row["quantity"] for row in table.rows] == ["ttft_s", "tpot_s", "latency_s", "queued_s", "itl_s"]
    assert all(row["mean_low"] <= row["mean"] <= row["mean_high"] for row in table.rows)
    assert any("above the capacity" in note for note in table.notes)


def test_lengths_beyond_the_positions_are_refused(deployment) -> None:
    with pytest.raises(UsageError, match="positions"):
        pm.simulate(deployment, pm.closed_loop(1, 2, 4000, 200))


def test_prefill_on_other_engines_takes_their_gpus(deployment) -> None:
    load = pm.open_loop(20.0, 100, 3000, 32, seed=2)
    deployment = replace(deployment, engine=replace(deployment.profile, ahead=False))
    together = pm.simulate(deployment, load, replicas=2, interval=False)
    apart = pm.simulate(deployment, load, replicas=1, prefill_replicas=1, kv_link_bytes_per_s=1e15, interval=False)
    assert together.gpus == apart.gpus == 2
    # no prompt delays a token: the first one that a sequence decodes waits for a step that runs, and not for prompts
    step_s = apart.gaps.quantile(0.5)
    assert apart.gaps.quantile(1.0) < 2.1 * step_s < together.gaps.quantile(1.0)
    assert np.isfinite(apart.last_s).all()


def test_a_replay_shows_the_share_of_the_cache_over_time(deployment) -> None:
    replay = pm.simulate(deployment, pm.open_loop(200.0, 300, 512, 32, seed=3), interval=False)
    cache, counts = plot(replay).axes
    times, share = cache.lines[0].get_data()
    assert times[-1] == pytest.approx(replay.last_s.max())
    assert share.max() <= 1
    assert {line.get_label() for line in counts.lines} == {"running", "waiting in the queue"}
    assert replay.states.queued[-1] == 0


def test_a_request_waits_for_half_of_the_steps_between_two_looks(deployment) -> None:
    polled = replace(deployment, engine=replace(deployment.profile, receive_steps=21.0))
    users = 8.0
    first, second = (pm.steady(made, 512, 128, concurrency=users) for made in (deployment, polled))
    step = float(deployment.step(decode=users, context=512 + 64).time_s)
    assert second.ttft_s - first.ttft_s == pytest.approx(10 * step * (1 - 1 / users), rel=0.02)
    assert second.tpot_s == pytest.approx(first.tpot_s, rel=1e-3)
    load = pm.closed_loop(8, 80, 512, 128)
    plain, late = (np.mean(pm.simulate(made, load).ttft_s) for made in (deployment, polled))
    assert late - plain == pytest.approx(second.ttft_s - first.ttft_s, rel=0.1)


def test_a_batch_of_no_request_is_refused() -> None:
    deployment = pm.Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"))
    with pytest.raises(UsageError, match="a batch of 0 requests computes nothing"):
        pm.simulate(deployment, pm.closed_loop(2, 4, 100, 10), "static", batch=0)
