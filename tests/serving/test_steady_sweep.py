"""The steady state against the simulation, over loads that are drawn: engines, prompts, answers, users and caches.

What remains, of 167 loads without preemption: throughput is 1 to 2 % off in the median and 8 % in nine of ten, times
per token 1 to 3 and 18 to 28 %, times to the first token 4 and 21 %. Answers of two to four tokens, whose users fall
into step by chance, are the least certain: their times per token may be three times as long, or as short. What full
caches cost is in `test_full_cache`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.steady import capacity, steady
from perfmodel.workloads.catalog import find_model

ENGINES = ("vllm", "sglang", "trtllm", "trtllm-offline", "vllm-v0", "lmdeploy")
LLAMA, H100 = find_model("llama-3.1-8b"), pm.hardware("h100")


@dataclass(frozen=True)
class Compared:
    """|ln(steady / simulated)| of a load, and the preemptions of a request."""

    osl: int
    preempted: float
    rate: float
    tpot: float
    ttft: float


def off(one: float, other: float) -> float:
    return abs(math.log(one / other))


def compared(deployment: Deployment, users: int, isl: int, osl: int) -> Compared:
    """Return a load of requests that start out of step, without the ends of its run."""
    spread = 0.3 if osl > 2 else 0.0
    mean = steady(deployment, isl, osl, concurrency=users, spread=spread)
    ramp_s, count = float(mean.ttft_s) + osl * float(mean.tpot_s), max(12 * users, 200)
    load = pm.closed_loop(users, count, isl, osl, spread=spread, ramp_s=ramp_s)
    replay = pm.simulate(deployment, load, interval=False)
    kept = slice(max(2 * users, 10), -max(2 * users, 10))
    rate = users * osl / replay.latency_s[kept].mean()
    tpot = off(float(mean.tpot_s), replay.tpot_s[kept].mean()) if osl > 1 else 0.0
    first = off(float(mean.ttft_s), replay.ttft_s[kept].mean())
    return Compared(osl, replay.preemptions / count, off(float(mean.output_tokens_per_s), rate), tpot, first)


def drawn(count: int, *, tight: bool) -> list[Compared]:
    """Return drawn loads; tight ones fill the cache with as many sequences as users, or fewer."""
    chance, found = random.Random(5), []
    while len(found) < count:
        engine, users = chance.choice(ENGINES), int(2 ** chance.uniform(0, 7))
        isl, osl = int(2 ** chance.uniform(5, 13)), chance.choice([1, 2, 4, *(int(2 ** chance.uniform(2, 9)),) * 3])
        kv_tokens = int(2 * (isl + osl) + users * (isl + osl) * chance.uniform(0.3, 0.9)) if tight else None
        model = replace(LLAMA, positions=32_768) if engine == "vllm-v0" else LLAMA  # beyond, it reads chunks beside
        deployment = Deployment(model, H100, engine=engine, kv_tokens=kv_tokens)
        if not tight or capacity(deployment, isl, osl) < users:
            found.append(compared(deployment, users, isl, osl))
    return found


def most(values: list[float], share: float) -> float:
    return float(np.quantile(values, share))


@pytest.mark.waiting
@pytest.mark.parametrize("tight", [False, True], ids=["free", "full"])
def test_the_steady_state_is_that_of_the_simulation(tight: bool) -> None:
    loads = [load for load in drawn(90, tight=tight) if load.preempted < 0.02]
    assert len(loads) > 45
    for name, median, nine in (("rate", 0.02, 0.12), ("tpot", 0.04, 0.3), ("ttft", 0.05, 0.25)):
        values = [getattr(load, name) for load in loads if load.osl > 1 or name != "tpot"]
        assert most(values, 0.5) < median
        assert most(values, 0.9) < nine
    alone = [load.rate for load in loads if load.osl == 1]
    assert most(alone, 0.9) < 0.2  # answers of one token


@pytest.mark.parametrize("engine", ["vllm", "vllm-v0", "sglang", "trtllm"])
@pytest.mark.parametrize("users", [2, 8, 19])
def test_prompts_alone_come_in_two_groups(engine: str, users: int) -> None:
    """While one group of answers of one token is read the other is away; in one group they were up to a half slower."""
    assert compared(Deployment(LLAMA, H100, engine=engine), users, 118, 1).rate < 0.2


@pytest.mark.parametrize(("isl", "osl", "users"), [(1685, 162, 88), (1298, 50, 74), (1140, 34, 148)])
def test_prompts_that_come_for_one_step_are_read_in_it(isl: int, osl: int, users: int) -> None:
    """Read one a step, they left 88 users of 1685 tokens with a first token in two thirds of the time."""
    assert compared(Deployment(LLAMA, H100), users, isl, osl).ttft < 0.4


@pytest.mark.parametrize(("engine", "users"), [("vllm", 2), ("vllm", 16), ("sglang", 2), ("trtllm", 19)])
def test_answers_of_two_tokens_come_and_go_together(engine: str, users: int) -> None:
    """The second token of all comes in the step after all prompts; it had waited for others, ten times too long."""
    load = compared(Deployment(LLAMA, H100, engine=engine), users, 700, 2)
    assert load.tpot < 0.3
    assert load.rate < 0.2


def test_no_place_stays_empty_longer_than_its_users_are_away() -> None:
    """17 users share 5 places, for as long as each is in the server in front: they were counted as late twice."""
    deployment = Deployment(LLAMA, H100, engine="trtllm", kv_tokens=368)
    assert capacity(deployment, 33, 1) == 5
    assert compared(deployment, 17, 33, 1).rate < 0.3
