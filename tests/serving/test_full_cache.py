"""The steady state of a cache that cannot hold all users: limits by hand, and the simulation.

Of 264 drawn loads with preemptions which set no constant (six engines, 2 to 180 users, prompts to 5800 and answers to
1450 tokens, lengths that vary by 0, 30 and 80 %, caches of 2 sequences to more than all), throughput is 2 % off in the
mean and 8 % in 19 of 20, times per token 3 and 13 %; without preemption in the formula they were 9 and 24, and 15 and
48 %. Of lengths that vary times per token are 2 and 7 % off, of equal ones 10 and 29 %: their ages depend on how the
users start. Times to the first token are 5 % off in the median, but wrong where almost all users have begun: of the
little that is left, little is known. SGLang's entered by a watermark then. By its estimate, 120 drawn loads that set no
constant are 3 and 9 % off in throughput and 7 and 25 % in times per token, of lengths that vary 3 and 8, 5 and 15 %; a
watermark in the formula was 8 and 28 % off.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.full_cache import places
from perfmodel.serving.load import Fleet
from perfmodel.serving.points import CONCURRENCY, Workload, point_of, spread_start
from perfmodel.serving.steady import capacity, steady
from perfmodel.serving.steady_points import steady_points
from perfmodel.workloads.catalog import find_model

LLAMA, H100 = find_model("llama-3.1-8b"), pm.hardware("h100")
ON_DEMAND, RESERVING = ("vllm", "sglang", "vllm-v0", "lmdeploy"), ("trtllm", "trtllm-offline")
#: those of them that preempt what grows beyond the cache often
PREEMPTING = tuple(engine for engine in ON_DEMAND if engine != "sglang")


def served(engine: str, kv_tokens: int | None = None, **options: int) -> Deployment:
    """Return a deployment; vLLM V0 reads whole prompts first up to 32,768 tokens of context, and chunks beyond."""
    short = replace(LLAMA, positions=32_768) if engine == "vllm-v0" else LLAMA
    return Deployment(short, H100, engine=engine.removesuffix("-in-chunks"), kv_tokens=kv_tokens, **options)


def numbers(state: Steady) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in vars(state).items() if name not in ("terms_s", "concurrency")}


@pytest.mark.parametrize("engine", [*ON_DEMAND, *RESERVING])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_an_ample_cache_is_no_limit(engine: str, spread: float) -> None:
    """Where all users fit at their full length the state is that of a batch of all, to the last digit."""
    users, block = 6, served(engine).profile.block_tokens
    longest = math.ceil((300 + 200) * (1 + spread) / block) * block
    enough = served(engine, math.ceil(users * longest / 0.98 / block) * block)
    free, held = (steady(deployment, 300, 200, concurrency=users, spread=spread) for deployment in (
        served(engine), enough))  # fmt: skip
    batch = steady(served(engine), 300, 200, batch=users)
    assert held.preemptions == 0
    for name, value in numbers(held).items():
        assert value == numbers(free)[name] == numbers(batch)[name], name


@pytest.mark.parametrize("engine", [*ON_DEMAND, *RESERVING])
def test_a_cache_for_one_sequence_computes_one_after_another(engine: str) -> None:
    """The state is that of an engine which runs one at most; nothing is preempted, since no second one enters."""
    tight = steady(served(engine, 1024), 700, 60, concurrency=9)
    alone = steady(served(engine, max_num_seqs=1), 700, 60, concurrency=9)
    assert tight.batch == 1
    assert tight.preemptions == 0
    for name, value in numbers(tight).items():
        assert value == pytest.approx(numbers(alone)[name]), name


@pytest.mark.parametrize("engine", [*ON_DEMAND, *RESERVING])
@pytest.mark.parametrize(("isl", "osl", "users"), [(1000, 200, 40), (100, 1000, 30), (500, 500, 3)])
def test_a_larger_cache_runs_more_and_gives_more(engine: str, isl: int, osl: int, users: int) -> None:
    sizes = np.geomspace(1.4 * (isl + osl), 1.5 * users * (isl + osl), 25).astype(int)
    states = [steady(served(engine, int(size)), isl, osl, concurrency=users, spread=0.2) for size in sizes]
    batch = np.array([float(state.batch) for state in states])
    rate = np.array([float(state.output_tokens_per_s) for state in states])
    assert (np.diff(batch) >= -1e-9).all()
    assert batch[0] < batch[-1] == users
    # a place more may cost what a queue hides: the time of a request in the server in front
    assert (rate[1:] > 0.99 * np.maximum.accumulate(rate)[:-1]).all()
    assert states[-1].preemptions == 0


def test_sequences_that_always_fit_and_one_more_that_never_does_are_not_preempted() -> None:
    """Three of 960 to 1024 tokens have room in 3500, and the prompt of a fourth has none: 3 run, and none is lost."""
    state = steady(served("vllm", 3500), 960, 64, concurrency=10)
    assert state.batch == 3
    assert state.preemptions == 0


def test_reserving_engines_preempt_nothing_and_run_whole_numbers_of_equal_sequences() -> None:
    for kv_tokens, running in ((4095, 3), (4096, 4), (5119, 4)):
        state = steady(served("trtllm", kv_tokens), 768, 256, concurrency=10)
        assert (state.batch, state.preemptions) == (running, 0)
        assert capacity(served("trtllm", kv_tokens), 768, 256) == running


def test_unequal_lengths_keep_a_reserving_engine_from_running_as_many() -> None:
    """Two fit if they are no longer than the mean together, half of the time: 1 / (0.5 + 0.5 / 2) = 1.33 run."""
    deployment = served("trtllm", 2064)
    equal, varied = (float(steady(deployment, 768, 256, concurrency=9, spread=s).batch) for s in (0.0, 0.3))
    load = pm.closed_loop(9, 2000, 768, 256, spread=0.3)
    assert equal == 2
    assert varied == pytest.approx(4 / 3, rel=0.05)
    assert varied == pytest.approx(pm.simulate(deployment, load, interval=False).mean_running, rel=0.05)


def test_growth_of_a_full_cache_is_what_preemption_gives_back() -> None:
    """While one answer of 100 tokens ends the others grow by 100, which one sequence in ten of 1000 tokens gives."""
    found = places(served("vllm", 64 * 1024), *map(np.asarray, (1000.0, 100.0, 0.0, 1000.0)), spread=0.3)
    assert 0.04 < float(found.preempted) < 0.1  # some answers end in the step in which the cache is full
    long = places(served("vllm", 64 * 1024), *map(np.asarray, (1000.0, 1000.0, 0.0, 1000.0)), spread=0.3)
    assert 0.75 < float(long.preempted) < 1.0


def test_a_watermark_keeps_sequences_from_being_preempted() -> None:
    """Of 1 % of a cache of 64k tokens 655 grow before one is lost, which 100 of an answer seldom do."""
    lost = [
        float(steady(served(engine, 64 * 1024), 1000, 100, concurrency=200, spread=0.3).preemptions)
        for engine in ("vllm", "vllm-v0", "vllm-v0-in-chunks")
    ]
    assert max(lost[1:]) < 0.02 < lost[0]


def test_kept_blocks_are_not_computed_anew() -> None:
    load = tuple(map(np.asarray, (4000.0, 400.0, 0.0, 50.0)))
    engines = ("vllm", "vllm-v0", "vllm-v0-in-chunks")
    kept, lost, in_chunks = (float(places(served(engine, 40_000), *load).recomputed) for engine in engines)
    assert kept < 400 < 4000 < lost < 4400
    assert in_chunks == pytest.approx(lost)


@pytest.mark.parametrize("engine", [*ON_DEMAND, "trtllm"])
def test_littles_law_holds_with_preemption(engine: str) -> None:
    isl, osl = np.array([64.0, 100, 1000]), np.array([500.0, 1500, 300])
    users = np.array([5.0, 40, 200])
    state = steady(served(engine, 8000), isl, osl, concurrency=users, spread=0.2)
    request_s = np.asarray(state.ttft_s) + (osl - 1) * np.asarray(state.tpot_s)
    assert np.asarray(state.output_tokens_per_s) / osl * request_s == pytest.approx(users)
    for index in range(3):
        one = steady(served(engine, 8000), isl[index], osl[index], concurrency=users[index], spread=0.2)
        for name in ("batch", "preemptions", "tpot_s", "ttft_s", "output_tokens_per_s"):
            assert getattr(one, name) == pytest.approx(np.asarray(getattr(state, name))[index]), name


@dataclass(frozen=True)
class Compared:
    """ln(steady / simulated) of a load, its simulated preemptions of a request, and those expected."""

    rate: float
    tpot: float
    preempted: float
    expected: float


def compared(deployment: Deployment, users: int, isl: int, osl: int, spread: float = 0.3) -> Compared:
    """Return a load of users who start one after the other, without the ends of its run."""
    mean = steady(deployment, isl, osl, concurrency=users, spread=spread)
    ramp_s, count = float(mean.ttft_s) + osl * float(mean.tpot_s), max(12 * users, 200)
    replay = pm.simulate(
        deployment, pm.closed_loop(users, count, isl, osl, spread=spread, ramp_s=ramp_s), interval=False
    )
    kept = slice(max(2 * users, 10), -max(2 * users, 10))
    rate = users * osl / replay.latency_s[kept].mean()
    return Compared(
        math.log(float(mean.output_tokens_per_s) / rate),
        math.log(float(mean.tpot_s) / replay.tpot_s[kept].mean()),
        replay.preemptions / count,
        float(mean.preemptions),
    )


@pytest.mark.parametrize(
    ("engine", "kv_tokens", "users", "isl", "osl"),
    [
        ("vllm", 20_000, 64, 256, 1024),  # without preemption 7 % too fast, TPOT by a quarter too short
        ("vllm", 2000, 7, 35, 635),
        ("vllm-v0", 4797, 115, 64, 217),
        ("vllm-v0", 6000, 20, 600, 600),
        ("vllm-v0", 9000, 60, 100, 400),
        ("vllm-v0-in-chunks", 6000, 20, 600, 600),
        ("vllm-v0-in-chunks", 9000, 60, 100, 400),
        ("lmdeploy", 8000, 40, 117, 520),
    ],
)
def test_what_a_full_cache_costs_is_that_of_the_simulation(
    engine: str, kv_tokens: int, users: int, isl: int, osl: int
) -> None:
    load = compared(served(engine, kv_tokens), users, isl, osl)
    assert load.preempted > 0.5
    assert load.expected == pytest.approx(load.preempted, rel=0.35)
    assert abs(load.rate) < 0.08
    assert abs(load.tpot) < 0.15


@pytest.mark.parametrize(
    ("kv_tokens", "users", "isl", "osl"),
    [
        (20_000, 64, 256, 1024),  # by a watermark twice as many preemptions as requests, and a tenth more tokens
        (6000, 20, 600, 600),
        (65_536, 200, 1000, 1000),
        (24_000, 32, 2238, 65),
    ],
)
def test_an_estimate_of_what_others_generate_is_that_of_the_simulation(
    kv_tokens: int, users: int, isl: int, osl: int
) -> None:
    load = compared(served("sglang", kv_tokens), users, isl, osl)
    assert load.preempted < 0.3
    assert load.expected < 0.3
    assert abs(load.rate) < 0.07
    assert abs(load.tpot) < 0.12


@pytest.mark.waiting
def test_drawn_loads_that_enter_by_an_estimate_are_those_of_the_simulation() -> None:
    chance, found = random.Random(99), []
    while len(found) < 60:
        users, isl = int(2 ** chance.uniform(1, 8)), int(2 ** chance.uniform(5, 12))
        osl, spread = int(2 ** chance.uniform(4, 10.5)), chance.choice([0.2, 0.3, 0.8])
        kv_tokens = int(max(1024, (1 + spread) * (isl + osl) + 64, 2 * (isl + osl) * (users / 2) ** chance.random()))
        if users * (isl + osl) * (1 + spread) > kv_tokens:
            found.append(compared(served("sglang", kv_tokens), users, isl, osl, spread))
    rate, tpot = (np.abs([getattr(load, name) for load in found]) for name in ("rate", "tpot"))
    assert rate.mean() < 0.04
    assert tpot.mean() < 0.06
    assert np.quantile(rate, 0.95) < 0.12
    assert np.quantile(tpot, 0.95) < 0.25
    lost = [np.mean([getattr(load, name) for load in found]) for name in ("expected", "preempted")]
    assert abs(math.log(lost[0] / lost[1])) < 0.3


@pytest.mark.parametrize(
    ("model", "options", "isl", "osl", "prefix"),
    [
        ("llama-3.1-8b", {"kv_tokens": 12_000}, 2500, 400, 2000),  # all share the blocks of a prefix
        ("llama-3.1-8b", {"kv_tokens": 16_000, "dp": 2}, 300, 600, 0),
        ("llama-3.1-8b", {"kv_tokens": 20_000, "max_batched_tokens": 512}, 1000, 400, 0),  # prompts in chunks
        ("gpt-oss-20b", {"kv_tokens": 12_000}, 700, 700, 0),  # windows
        ("qwen3-next-80b-a3b", {"kv_tokens": 30_000, "tp": 2}, 700, 700, 0),  # states
    ],
)
def test_it_is_that_of_the_simulation_for_other_plans_and_models(
    model: str, options: dict[str, int], isl: int, osl: int, prefix: int
) -> None:
    deployment = Deployment(find_model(model), pm.hardware("h200"), **options)
    load = Workload(isl, osl, spread=0.2, cached=prefix, count=400)
    requests = spread_start(deployment, load, 40).requests(CONCURRENCY, 40)
    replay = pm.simulate(deployment, requests, interval=False)
    mean = steady(deployment, isl, osl, concurrency=40, prefix=prefix, spread=0.2)
    kept = slice(80, -80)
    assert replay.preemptions > 0.2 * len(requests)
    assert float(mean.output_tokens_per_s) == pytest.approx(40 * osl / replay.latency_s[kept].mean(), rel=0.05)
    assert float(mean.tpot_s) == pytest.approx(replay.tpot_s[kept].mean(), rel=0.08)


@pytest.mark.waiting
def test_drawn_loads_are_those_of_the_simulation() -> None:
    chance, found = random.Random(5), []
    while len(found) < 100:
        engine, users = chance.choice(PREEMPTING), int(2 ** chance.uniform(1, 7))
        isl, osl = int(2 ** chance.uniform(5, 12)), int(2 ** chance.uniform(4, 10))
        spread = chance.choice([0.2, 0.3, 0.8])
        least = max(1024, (1 + spread) * (isl + osl) + 64)
        kv_tokens = int(max(least, 2 * (isl + osl) * (users / 2) ** chance.random()))
        load = compared(served(engine, kv_tokens), users, isl, osl, spread)
        if load.preempted > 0.02:
            found.append(load)
    rate, tpot = (np.abs([getattr(load, name) for load in found]) for name in ("rate", "tpot"))
    for errors in (rate, tpot):
        assert errors.mean() < 0.04
        assert np.quantile(errors, 0.95) < 0.12
    often = [math.log(load.expected / load.preempted) for load in found if load.preempted > 0.1]
    assert abs(np.mean(often)) < 0.15


def test_tight_deployments_rank_as_in_the_simulation() -> None:
    """As `search serve` ranks them; without preemption TensorRT-LLM was first."""
    options = [("vllm", 2640), ("vllm", 6600), ("trtllm", 3000), ("trtllm", 7320), ("vllm-v0", 3120), ("sglang", 4320)]
    load, rates = Workload(600, 600, spread=0.2, count=300), []
    for engine, kv_tokens in options:
        deployment = Deployment(LLAMA, H100, engine=engine, weights="fp8", kv_tokens=kv_tokens)
        (point,) = steady_points(deployment, load, [6])
        requests = spread_start(deployment, load, 6).requests(CONCURRENCY, 6)
        simulated = pm.simulate(deployment, requests, interval=False)
        rates.append((point.rates["output_tokens_per_s"], simulated.output_tokens_per_s))
    for one, other in itertools.combinations(rates, 2):
        if abs(math.log(one[1] / other[1])) > 0.05:
            assert (one[0] > other[0]) == (one[1] > other[1])


def test_the_search_says_how_often_a_request_is_preempted() -> None:
    deployment = served("vllm", 20_000)
    few, many = steady_points(deployment, Workload(256, 1024, spread=0.2), [4, 64])
    assert few.state["preemptions_per_request"] == 0
    assert many.state["preemptions_per_request"] > 1
    notes = " ".join(report([few, many]).notes)
    assert f"a request is preempted {many.state['preemptions_per_request']:.2g} times in the mean at 64 users" in notes
    assert "at 4 users" not in notes
    replay = pm.simulate(deployment, pm.closed_loop(64, 300, 256, 1024), interval=False)
    point = point_of(deployment, Fleet(), replay, CONCURRENCY, 64)
    assert point.state["preemptions_per_request"] == replay.preemptions / 300
