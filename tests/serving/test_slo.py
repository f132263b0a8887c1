"""Objectives: how they are written, which requests keep them, and the largest load that does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.serving import study
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.largest import largest_concurrency, largest_rate
from perfmodel.serving.load import Fleet, simulate_fleet
from perfmodel.serving.points import CONCURRENCY, QPS, Workload
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import Requests, closed_loop, open_loop
from perfmodel.serving.simulate import simulate_server
from perfmodel.serving.slo import parse_slo
from perfmodel.serving.study import Loads, Study, largest_load
from perfmodel.workloads.catalog import named_model
from tests.serving.simulated import HandClock, server

CLOCK = HandClock(0.01, 1e-3)  # a step of B sequences takes 10 + B ms


def clients(count: int) -> Replay:
    return simulate_server(server(clock=CLOCK), closed_loop(count, 20 * count, 1, 50))


def rate(per_s: float) -> Replay:
    return simulate_server(server(max_num_seqs=1, clock=HandClock(0.01)), open_loop(per_s, 800, 1, 1, seed=1))


def test_objectives_have_a_statistic_of_their_own_or_that_of_all() -> None:
    slo = parse_slo("ttft:p99=500ms, TPOT=0.03s, mean")
    assert [(item.name, item.limit_s, item.statistic) for item in slo.objectives] == [
        ("ttft", 0.5, "p99"),
        ("tpot", 0.03, "mean"),
    ]
    assert parse_slo("e2e=2s").objectives[0].statistic == "p95"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no objective"),
        ("p99", "has no objective"),
        ("ttft", "'ttft' is no objective"),
        ("tftt=5ms", "Did you mean 'ttft'"),
        ("ttft=5 miles", "is not in s"),
        ("ttft=500", r"^--slo: '500' has no unit\. Write ttft=500ms or ttft=500s\.$"),
        ("tpot:p99= 0.5 ", r"'0\.5' has no unit\. Write tpot:p99=0\.5ms or tpot:p99=0\.5s"),
        ("ttft=5ms,", r"'ttft=5ms,' has an empty item\. Write ttft=5ms, or"),
        ("ttft=0ms", "limit of ttft is 0 s"),
        ("ttft:q99=5ms", "'q99' is no statistic"),
        ("ttft=5ms,ttft=6ms", "twice"),
        ("ttft=5ms,p95,p99", "p95 and p99 are two"),
    ],
)
def test_what_is_no_objective_gets_one_message(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_slo(text)


def test_the_most_clients_are_where_the_step_time_reaches_the_limit() -> None:
    best = largest_concurrency(clients, parse_slo("tpot=35ms,mean"), 512)
    assert best is not None
    assert best.load == 25  # 10 ms + 25 ms
    assert [item.name for item in best.missed] == ["tpot"]


def test_the_largest_load_that_was_allowed_misses_nothing() -> None:
    best = largest_concurrency(clients, parse_slo("tpot=35ms,mean"), 10)
    assert best is not None
    assert (best.load, best.missed) == (10, ())


def test_no_load_meets_what_one_client_misses() -> None:
    assert largest_concurrency(clients, parse_slo("tpot=5ms"), 512) is None
    assert largest_rate(rate, parse_slo("ttft=5ms"), 1.0) is None


@pytest.mark.parametrize("start", [1.0, 1000.0])
def test_the_largest_rate_is_within_two_per_cent_from_either_side(start: float) -> None:
    slo = parse_slo("ttft=50ms,p95")
    best = largest_rate(rate, slo, start)
    assert best is not None
    assert slo.met(best.replay)
    assert not slo.met(rate(best.load * 1.021))
    assert best.load < 100  # one request takes 10 ms


def test_goodput_counts_the_requests_within_all_limits() -> None:
    replay = rate(70.0)
    slo = parse_slo("ttft=20ms,tpot=1ms")
    share = float(np.mean(replay.ttft_s <= 0.02))
    assert slo.attainment(replay) == pytest.approx(share)  # one-token answers have no further tokens
    assert slo.goodput_per_s(replay) == pytest.approx(share * replay.requests.rate_per_s)


def test_goodput_is_that_of_a_load_that_lasts() -> None:
    """All requests are good: as many a second as arrive, though the last ones end after the last arrival."""
    slo = parse_slo("latency=1000s")
    long = simulate_server(server(clock=HandClock(0.1)), open_loop(10.0, 100, 1, 100, seed=1))
    assert long.requests_per_s < 0.6 * long.requests.rate_per_s
    assert slo.goodput_per_s(long) == pytest.approx(long.requests.rate_per_s)
    above = rate(150.0)
    assert slo.goodput_per_s(above) == pytest.approx(100, rel=0.05)  # one request takes 10 ms
    users = clients(4)
    assert slo.goodput_per_s(users) == pytest.approx(users.requests_per_s)


def test_a_largest_rate_whose_objectives_are_never_missed_ends_at_the_capacity() -> None:
    best = largest_rate(rate, parse_slo("latency=1000s"), 1.0)
    assert best is not None
    assert (best.missed, best.grows) == ((), True)
    assert best.replay.requests.rate_per_s == pytest.approx(100, rel=0.03)
    by_latency = largest_rate(rate, parse_slo("ttft=50ms,p95"), 1.0)
    assert by_latency is not None
    assert not by_latency.grows


def test_a_growing_queue_meets_no_objective() -> None:
    assert not parse_slo("latency=1000s").met(rate(150.0))


def test_users_of_a_fleet_start_over_the_time_of_a_request_on_one_of_its_replicas() -> None:
    deployment = Deployment(named_model("llama-3.1-8b"), hardware("h100-sxm5-80gb"))
    workload = Workload(512, 64)
    one, four = (Study(workload, Fleet(replicas=n), CONCURRENCY, spread_start=True) for n in (1, 4))
    alone, shared = one.requests(deployment, 64), four.requests(deployment, 256)
    assert alone.arrival_s.max() == pytest.approx(shared.arrival_s.max(), rel=0.02)
    assert four.requests(deployment, 1).arrival_s.max() == 0.0


@pytest.mark.waiting
@pytest.mark.parametrize("text", ["ttft=500ms,tpot=30ms", "latency=6s,p99", "tpot=12ms,mean"])
def test_the_largest_rate_is_found_with_few_simulations(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling and halving took 24 simulations for 12 rates; the answer holds: met there, and missed 2 % above."""
    deployment = Deployment(named_model("llama-3.1-8b"), hardware("h100-sxm5-80gb"), weights="fp8")
    slo = parse_slo(text)
    looked_for = Study(Workload(1024, 256), Fleet(), QPS, slo=slo, only_largest=True)
    simulated: list[int] = []

    def counted(one: Deployment, load: Requests, fleet: Fleet, **options: Any) -> Replay:
        simulated.append(len(load))
        return simulate_fleet(one, load, fleet, **options)

    monkeypatch.setattr(study, "simulate_fleet", counted)
    loads = Loads(deployment, looked_for)
    best = largest_load(deployment, looked_for, loads)
    assert best is not None
    assert len(simulated) <= 14
    assert sum(simulated) <= 60_000
    assert slo.met(simulate_fleet(deployment, loads.at(best.load), Fleet(), interval=False))
    above = simulate_fleet(deployment, loads.at(1.0201 * best.load), Fleet(), interval=False)
    assert not slo.met(above)
