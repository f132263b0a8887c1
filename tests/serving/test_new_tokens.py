"""Requests that enter by an estimate of what others still generate, as in SGLang: cases that are computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.full_cache import _mean_ratio
from perfmodel.serving.new_tokens import ratio_ends
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import Requests, closed_loop
from perfmodel.serving.simulate import simulate_server
from perfmodel.workloads.catalog import find_model
from tests.serving.simulated import server

STEP_S = 0.01


def replayed(kv_tokens: float, prompts: list[int], answers: list[int], **rules: float) -> Replay:
    """Return what becomes of requests that come at once, or at ``late`` the last one, in steps of equal time."""
    arrival_s = np.zeros(len(prompts))
    arrival_s[-1] = rules.pop("late", 0.0)
    load = Requests(arrival_s, np.array(prompts), np.array(answers))
    return simulate_server(server("new-token-ratio", kv_tokens, block_tokens=1, **rules), load)


def steps_to_first(replay: Replay) -> list[int]:
    return [round(time_s / STEP_S) for time_s in replay.ttft_s]


@pytest.mark.parametrize(
    ("kv_tokens", "first"),
    [
        (303, 1),  # 151 < 303 - 151: prompt, answer and one of the second beside all of the first
        (302, 2),
        (286, 2),  # after the first one's prompt step: 151 < 286 - 100 - 0.7 x 49 = 151.7
        (285, 51),  # 150.7; a step later 151.4 would do, but none is tried before an end
        (150, 51),
    ],
)
def test_a_second_request_enters_by_what_the_first_is_taken_to_need(kv_tokens: int, first: int) -> None:
    replay = replayed(kv_tokens, [100, 100], [50, 50])
    assert steps_to_first(replay) == [1, first]
    assert replay.preemptions == (kv_tokens == 286)  # both need 298 in the end


@pytest.mark.parametrize(("conservativeness", "first"), [(1.0, 2), (1.1, 101)])
def test_conservativeness_scales_the_estimate(conservativeness: float, first: int) -> None:
    """161 < 331 - 100 - 0.7 x 99 c = 161.7."""
    assert steps_to_first(replayed(331, [100, 60], [100, 100], conservativeness=conservativeness))[1] == first


@pytest.mark.parametrize(("prompt", "waits"), [(170, False), (171, True)])
def test_the_estimate_falls_to_its_least_value(prompt: int, waits: bool) -> None:
    """After 700 steps the first has 799 tokens and 300 to come: prompt + 101 < 1100 - 799 - 0.098 x 300 = 271.6."""
    replay = replayed(1100, [100, prompt], [1000, 100], late=6.995)
    assert steps_to_first(replay)[1] == pytest.approx(302 if waits else 2, abs=1)


def test_no_more_than_4096_tokens_of_an_answer_are_counted() -> None:
    """10 + 4096 + 1 < 7000 - 10 - 0.7 x 4096 = 4122.8, though both answers have 6000."""
    assert steps_to_first(replayed(7000, [10, 10], [6000, 6000])) == [1, 2]


def test_the_longest_prompt_of_equal_answers_is_retracted_and_finds_it_again() -> None:
    """After 51 steps of two the 202 tokens are full. The first, of 60 + 52, waits for the end of the second.

    That takes 48 of the 51 tokens that the answer left, so that the prompt is found, and a step reads 52.
    """
    replay = replayed(202, [60, 40], [100, 100], conservativeness=0.0)
    assert replay.preemptions == 1
    end = 2 + 51 + 48
    assert replay.last_s / STEP_S == pytest.approx([end + 1 + 47, end])
    assert replay.computed_tokens == 60 + 40 + 99 + 99 + 52 - 1
    assert replay.generated_tokens == 200


def test_a_retracted_sequence_waits_behind_those_that_came_before() -> None:
    """A third request of 10 + 5 takes the place that was left two steps later, and that of the prompt, too."""
    replay = replayed(202, [60, 40, 10], [100, 100, 5], conservativeness=0.0, max_num_seqs=2, late=0.1)
    assert replay.preemptions == 1
    assert replay.last_s.argmax() == 0
    assert replay.ttft_s[2] == pytest.approx((2 + 51 + 1 + 1) * STEP_S - 0.1)
    assert replay.computed_tokens == 60 + 40 + 10 + 99 + 99 + 4 + 112 - 1


def test_an_ample_cache_gives_what_a_watermark_gives() -> None:
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="sglang", kv_tokens=1_000_000)
    load = pm.closed_loop(40, 200, 900, 300, spread=0.5)
    mine, other = (pm.simulate(deployment, load, policy=name, interval=False) for name in ("", "prefill-first"))
    for name in ("ttft_s", "latency_s", "last_s"):
        assert np.array_equal(getattr(mine, name), getattr(other, name)), name


def test_an_estimate_retracts_less_than_a_watermark_and_gives_every_token() -> None:
    load = closed_loop(40, 400, 100, 300, spread=0.5)
    mine, other = (
        simulate_server(server(policy, 6000, block_tokens=1), load) for policy in ("new-token-ratio", "prefill-first")
    )
    assert 0 < mine.preemptions < 0.2 * other.preemptions
    assert mine.mean_running < other.mean_running
    assert mine.generated_tokens == other.generated_tokens == load.output.sum()


def test_the_mean_estimate_is_the_least_one_without_retractions_and_the_raised_one_with_many() -> None:
    least = ratio_ends(1.0)[1]
    seldom, often = (float(_mean_ratio(1.0, *map(np.asarray, (98.0, each, 1000.0)))) for each in (0.0, 1e3))
    assert seldom == pytest.approx(least)
    assert often == pytest.approx(0.5 + 0.5 / 100 + 20 / 1000, rel=1e-3)


@pytest.mark.parametrize(
    ("policy", "rules", "message"),
    [
        ("prefill-first", {"conservativeness": 1.0}, "does not estimate answers"),
        ("", {"watermark": 0.1}, "has no watermark"),
        ("", {"conservativeness": -1.0}, "conservativeness is -1"),
    ],
)
def test_rules_of_other_policies_are_refused(policy: str, rules: dict[str, Any], message: str) -> None:
    deployment = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="sglang")
    with pytest.raises(UsageError, match=message):
        pm.simulate(deployment, pm.closed_loop(1, 2, 10, 10), policy=policy, **rules)
