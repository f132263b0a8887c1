"""The first deployments of a search: those of all of them, with the largest loads of few."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from perfmodel.hardware_catalog import hardware
from perfmodel.serving import study as studies
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.evaluations import evaluate_all
from perfmodel.serving.foremost import evaluate_foremost
from perfmodel.serving.largest import Likely, largest_concurrency
from perfmodel.serving.load import Fleet, simulate_fleet
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.points import CONCURRENCY, Point, Workload
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import closed_loop
from perfmodel.serving.simulate import EnoughError, simulate_server
from perfmodel.serving.slo import Misses, parse_slo
from perfmodel.serving.study import BEYOND_STEADY, Loads, Study, means_of
from perfmodel.workloads.catalog import named_model
from tests.serving.simulated import HandClock, server

CLOCK = HandClock(0.01, 1e-3)  # a step of B sequences takes 10 + B ms


@dataclass(frozen=True)
class Spec:
    """A deployment of a small model."""

    machine: str
    weights: str
    kv: str
    tp: int = 1
    model: str = "llama-3.1-8b"

    @property
    def name(self) -> str:
        return f"{self.machine} tp{self.tp} {self.weights} {self.kv}"

    @property
    def parallel(self) -> Parallel:
        return Parallel(self.tp, 1, 1, 1)

    def deployment(self) -> Deployment:
        return Deployment(named_model(self.model), hardware(self.machine), tp=self.tp, weights=self.weights, kv=self.kv)


SPECS = [
    Spec(*names) for names in itertools.product(("l40s", "h100", "a100"), ("bf16", "fp8"), ("bf16", "fp8"), (1, 2))
]


@dataclass(frozen=True)
class MostTokens:
    """The deployments with most tokens a second and GPU."""

    count: int

    def rank(self, place: int, point: Point) -> tuple[float, ...]:
        return self.best_rank(place, point.rates["output_tokens_per_s"])

    def best_rank(self, place: int, output_tokens_per_s: float) -> tuple[float, ...]:
        return (-output_tokens_per_s / SPECS[place].tp,)


def study_of(text: str, isl: int, osl: int, users: float) -> Study:
    return Study(
        Workload(isl, osl, 0.2), Fleet(), CONCURRENCY, (1.0, users), parse_slo(text), only_largest=True,
        spread_start=True, runnable=True,
    )  # fmt: skip


@pytest.mark.waiting
@pytest.mark.parametrize(
    ("text", "isl", "osl", "users"),
    [("tpot=15ms", 256, 32, 64.0), ("ttft=150ms", 1024, 16, 64.0), ("latency=1s,mean", 512, 32, 96.0)],
)
def test_the_first_deployments_are_those_of_all(text: str, isl: int, osl: int, users: float) -> None:
    study, goal = study_of(text, isl, osl, users), MostTokens(3)
    every = evaluate_all(SPECS, study)
    few = evaluate_foremost(SPECS, study, goal)
    both = [
        sorted((goal.rank(place, outcome.largest), place) for place, outcome in enumerate(found) if outcome.largest)
        for found in (every, few)
    ]
    assert both[1][:3] == both[0][:3]
    for _, place in both[0][:3]:
        all_of, first = every[place].largest, few[place].largest
        assert all_of is not None
        assert first is not None
        assert first.figures == all_of.figures  # with the interval, and as a simulation of the load alone has it
        assert (first.value, first.rates, few[place].beyond) == (all_of.value, all_of.rates, every[place].beyond)
    assert any(outcome.aside for outcome in few)


@pytest.mark.parametrize("users", [1, 4, 24])
def test_a_simulation_has_no_more_tokens_than_the_steady_state_with_its_margin(users: int) -> None:
    study = study_of("tpot=1s", 1024, 64, 32.0)
    deployment = SPECS[8].deployment()
    means = means_of(deployment, study, 32.0)
    found = simulate_fleet(deployment, Loads(deployment, study).at(users), study.fleet, interval=False)
    most = np.interp(users, means.likely.users, means.output_tokens_per_s)
    assert found.output_tokens_per_s < (1.0 + BEYOND_STEADY) * most
    assert means.users_for(found.output_tokens_per_s) <= users


def test_the_users_for_a_rate_are_one_for_none_and_too_many_for_one_out_of_reach() -> None:
    means = studies.Means(Likely(np.array([1.0, 2.0, 4.0]), np.array([-1.0, 0.0, 1.0])), np.array([10.0, 20.0, 30.0]))
    assert [means.users_for(rate) for rate in (0.0, 10.0, 1e9)] == [1, 1, 5]
    assert means.users_for(26.0 * (1.0 + BEYOND_STEADY)) == 3
    assert (means.best_per_s, means.most) == (20.0, 4)


def clients(count: int) -> Replay:
    return simulate_server(server(clock=CLOCK), closed_loop(count, 20 * count, 1, 50))


@pytest.mark.parametrize("shift", [0.2, 1.0, 5.0])
def test_the_edge_is_the_same_wherever_it_is_likely(shift: float) -> None:
    """Means that are off by a factor cost simulations, and no accuracy."""
    slo, tried = parse_slo("tpot=35ms,mean"), []

    def counted(count: int) -> Replay:
        tried.append(count)
        return clients(count)

    users = np.arange(1.0, 513.0)
    best = largest_concurrency(counted, slo, 512, Likely(users, np.log(shift * (0.01 + 1e-3 * users) / 0.035)))
    assert best is not None
    assert (best.load, [item.name for item in best.missed]) == (25, ["tpot"])
    assert len(tried) == len(set(tried))
    assert shift != 1.0 or len(tried) <= 4
    none = largest_concurrency(clients, parse_slo("tpot=5ms"), 512, Likely(users, np.zeros(512)))
    assert none is None


@pytest.mark.parametrize("text", ["tpot=20ms", "ttft=12ms,p99", "e2e=900ms"])
def test_a_load_that_cannot_meet_the_objectives_any_more_is_given_up(text: str) -> None:
    slo, given_up = parse_slo(text), []
    for count in (2, 8, 9, 12, 60):
        load = closed_loop(count, 20 * count, 1, 50, spread=0.5)
        try:
            simulate_server(server(clock=CLOCK), load, enough=Misses(slo, load).certain)
        except EnoughError:
            given_up.append(count)
            assert not slo.met(simulate_server(server(clock=CLOCK), load))
    assert given_up[-1:] == [60]
