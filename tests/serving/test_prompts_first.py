"""Engines whose prompts have steps of their own: the steady state is that of the simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import Engine, find_engine
from perfmodel.serving.replay import Replay
from perfmodel.serving.steady import steady
from perfmodel.workloads.catalog import find_model

ENGINES = ("sglang", "vllm-v0", "nano-vllm")


def served(engine: str | Engine) -> Deployment:
    """Return a deployment of a model with 8192 positions: vLLM V0 reads prompts of longer contexts in chunks."""
    return Deployment(find_model("llama-3-8b"), pm.hardware("h100"), engine=engine)


def middle(deployment: Deployment, users: int, isl: int, osl: int) -> tuple[Steady, Replay, slice]:
    """Return steady state and simulation of requests that are out of step, and those without the ends of the run."""
    mean = steady(deployment, isl, osl, concurrency=users)
    ramp_s = float(mean.ttft_s + osl * mean.tpot_s)
    load = pm.closed_loop(users, max(12 * users, 200), isl, osl, spread=0.3, ramp_s=ramp_s)
    ends = max(2 * users, 10)
    return mean, pm.simulate(deployment, load, interval=False), slice(ends, -ends)


@pytest.mark.waiting
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("users", [2, 16, 64])
@pytest.mark.parametrize(("isl", "osl"), [(1024, 128), (4096, 256), (128, 500), (256, 16)])
def test_the_steady_state_is_that_of_the_simulation(engine: str, users: int, isl: int, osl: int) -> None:
    """A step of prompts decodes nothing: counted as one that does, 16 users of 256 and 16 tokens were 30 % faster."""
    mean, replay, kept = middle(served(engine), users, isl, osl)
    assert float(mean.output_tokens_per_s) == pytest.approx(users * osl / replay.latency_s[kept].mean(), rel=0.07)
    assert float(mean.tpot_s) == pytest.approx(replay.tpot_s[kept].mean(), rel=0.12)
    assert float(mean.ttft_s) == pytest.approx(replay.ttft_s[kept].mean(), rel=0.3)


@pytest.mark.parametrize("users", [2, 64])
def test_short_answers_wait_for_prompts_as_long_as_they_wait_themselves(users: int) -> None:
    """With two tokens an answer, the second one waits for all prompts that came meanwhile.

    Two users are in step, or take turns, by chance; beside a step of decode they had been 2.5 times too long, and 64 of
    them fifteen times too short.
    """
    mean, replay, kept = middle(served("sglang"), users, 4096, 2)
    assert float(mean.tpot_s) == pytest.approx(np.mean(replay.tpot_s), rel=0.9)
    assert float(mean.ttft_s) == pytest.approx(np.mean(replay.ttft_s[kept]), rel=0.2)


@pytest.mark.parametrize("engine", ENGINES)
def test_littles_law_holds_with_and_without_a_queue(engine: str) -> None:
    """Requests a second times the time of one are the users, whatever the load; arrays are their elements."""
    isl, osl = np.array([256.0, 1024, 4096, 2000]), np.array([16.0, 1, 2, 8])
    for users in (1.0, 3.0, 40.0, 3000.0):
        mean = steady(served(engine), isl, osl, concurrency=users)
        request_s = np.asarray(mean.ttft_s) + (osl - 1) * np.nan_to_num(mean.tpot_s)
        assert np.asarray(mean.output_tokens_per_s) / osl * request_s == pytest.approx(users)
        one = steady(served(engine), isl[0], osl[0], concurrency=users)
        assert float(one.tpot_s) == pytest.approx(np.asarray(mean.tpot_s)[0])


def test_one_user_waits_for_nobody() -> None:
    deployment = served("sglang")
    mean = steady(deployment, 2000, 50, concurrency=1)
    prompt_s = float(deployment.step(prefill=[(1, 2000, 2000)]).time_s)
    assert float(mean.ttft_s) == pytest.approx(deployment.host.front_end_s + prompt_s, rel=1e-3)
    assert float(mean.tpot_s) == pytest.approx(float(deployment.step(decode=1, context=2025).time_s), rel=1e-3)


def test_the_engine_computes_no_more_than_its_time() -> None:
    """The mean step times the steps of a cycle is the cycle but for the time in which a place is empty."""
    mean = steady(served("nano-vllm"), 1024, 128, concurrency=64)
    step_s = sum(float(np.asarray(term)) for term in mean.terms_s.values())
    busy = step_s * float(mean.output_tokens_per_s) / float(mean.step_tokens)
    assert 0.97 < busy < 1.0 + 1e-9


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_request_misses_the_step_that_is_scheduled_ahead(engine: str) -> None:
    """One step more until the first token where another sequence decodes, in the simulation as in the steady state."""
    profile = find_engine(engine)
    load = pm.closed_loop(4, 200, 128, 300, spread=0.3, ramp_s=2.0)
    late, soon = (served(replace(profile, ahead=ahead)) for ahead in (True, False))
    step_s = float(late.step(decode=4, context=278).time_s)
    steady_s = [float(steady(made, 128, 300, concurrency=4).ttft_s) for made in (late, soon)]
    simulated_s = [float(np.mean(pm.simulate(made, load, interval=False).ttft_s)) for made in (late, soon)]
    assert steady_s[0] - steady_s[1] == pytest.approx(0.75 * step_s, rel=0.1)
    assert simulated_s[0] - simulated_s[1] == pytest.approx(step_s, rel=0.15)
    alone = pm.closed_loop(1, 10, 128, 300)  # nothing was scheduled when nobody else decodes
    one, other = (pm.simulate(made, alone, interval=False).ttft_s for made in (late, soon))
    assert one == pytest.approx(other)
