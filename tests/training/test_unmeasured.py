"""Intervals of steps know machines and links that nobody has measured."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.prediction.stretch import Stretch
from perfmodel.training.constants import Interval, constants
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.published import judge
from perfmodel.training.search import search
from perfmodel.training.setup import setup_of
from perfmodel.training.space import AXES, Space
from perfmodel.training.step import pipeline_gpus, train
from perfmodel.training.unmeasured import stretches
from perfmodel.training.update import exchanged_time

OTHERS = Path(__file__).resolve().parents[2] / "examples" / "published" / "training.csv"
MODEL = pm.find_model("layers=8 hidden=2048 heads=16 vocab=32000")


def _step(machine: str, gpus: int = 8, laboratory: str = "pytorch/torchtitan", **sizes: int):
    cluster = Cluster.of(pm.hardware(machine), gpus)
    # long sequences, so that no step waits for its host
    return train(MODEL, cluster, TrainingPlan(batch=8, seq=16384, **sizes), laboratory=laboratory)


def _ends(step) -> tuple[float, float]:
    return step.low_s / step.time_s, step.high_s / step.time_s


@pytest.mark.parametrize(("machine", "gpus", "said"), [("rtx-3090", 2, True), ("rtx-3090", 1, False),
                                                       ("rtx-4090", 2, False), ("h100", 2, False)])  # fmt: skip
def test_an_exchange_over_a_bridge_is_said_and_can_be_left_out(machine: str, gpus: int, said: bool) -> None:
    with_bridge, without = (
        train(MODEL, Cluster.of(pm.hardware(machine), gpus, bridge=bridge), TrainingPlan(batch=8, seq=2048, zero=0))
        for bridge in (True, False)
    )
    assert any("is an accessory: --no-bridge" in note for note in with_bridge.notes) is said
    assert not any("accessory" in note for note in without.notes)
    assert (without.time_s > with_bridge.time_s) is said
    assert said or without.time_s == with_bridge.time_s


def test_errors_of_independent_sources_add_up_as_squares():
    assert Stretch(math.log(4 / 3), math.log(4 / 3)).around(6.0) == pytest.approx((4.5, 8.0))
    both = Stretch(0.3, 0.4).beside(Stretch.of(Interval(math.exp(-0.4), math.exp(0.3))))
    assert both.around(1.0) == pytest.approx((math.exp(-0.5), math.exp(0.5)))
    assert Stretch(0.0, 0.0).beside(Stretch.of(Interval(0.9, 1.2))).around(2.0) == pytest.approx((1.8, 2.4))


def test_a_machine_of_published_runs_has_their_interval_and_others_a_wider_one():
    seen, sibling, other_vendor = (_ends(_step(name, gpus=2, tp=2)) for name in ("h100", "a100-pcie-80gb", "mi300x"))
    assert seen == pytest.approx(_ends(_step("a100-sxm4-80gb", tp=8)))
    assert other_vendor[0] < sibling[0] < seen[0]
    assert seen[1] < sibling[1]
    assert seen[1] < other_vendor[1]


@pytest.mark.parametrize("machine", ["h100", "mi300x"])
def test_other_laboratories_are_less_sure_than_those_whose_runs_were_fitted(machine):
    """Both errors are independent, so that their logarithms add up as squares."""
    known, other = _step(machine), _step(machine, laboratory="somebody/else")
    assert other.time_s == known.time_s
    elsewhere = constants().intervals["elsewhere"]
    for end, mine, theirs in zip((elsewhere.low, elsewhere.high), _ends(known), _ends(other), strict=True):
        assert math.log(theirs) ** 2 == pytest.approx(math.log(mine) ** 2 + math.log(end) ** 2)
    assert _ends(other) == pytest.approx(_ends(_step(machine, laboratory="")))
    plan, cluster = TrainingPlan(batch=8, seq=16384), pm.Cluster(machine, gpus=8)
    assert _ends(pm.train(MODEL, cluster, plan, laboratory="pytorch/torchtitan")) == pytest.approx(_ends(known))
    # a comparison in one laboratory does not ask which it is
    assert other.own_interval_s == known.own_interval_s
    assert other.laboratory_interval_s == known.laboratory_interval_s == pytest.approx((known.low_s, known.high_s))


def test_a_framework_for_which_the_nearest_stands_is_less_sure_elsewhere_than_one_that_is_described():
    """Published runs of frameworks that nobody described took longer than those of the others."""
    ends = {}
    for name in ("deepspeed", "atorch (deepspeed 3d)"):
        plan, cluster = TrainingPlan(batch=64, seq=2048, framework=name), Cluster.of(pm.hardware("h100"), 8)
        known, other = (train(MODEL, cluster, plan, laboratory=whose) for whose in ("pytorch/torchtitan", ""))
        assert known.time_s == other.time_s
        ends[name] = [math.log(one.high_s / one.time_s) for one in (known, other)]
    spans = constants().intervals
    for name, kind in (("deepspeed", "elsewhere"), ("atorch (deepspeed 3d)", "undescribed")):
        inside, whole = ends[name]
        assert whole**2 == pytest.approx(inside**2 + math.log(spans[kind].high) ** 2)
    assert spans["undescribed"].high > spans["elsewhere"].high
    assert any("frameworks that nobody described" in note for note in other.notes)


@pytest.mark.waiting
def test_published_runs_of_other_laboratories_are_in_their_intervals():
    """A third of these runs lay inside before the interval counted laboratories.

    Every third of the table; docs/accuracy.md judges all.
    """
    table = read_run_table(OTHERS)
    rows = judge(replace(table, runs=table.runs[::3]), pm.hardware).rows
    for quantity, fewest, least in (("step_time_s", 400, 0.75), ("memory_bytes", 150, 0.65)):
        inside = [row.low <= row.measured <= row.high for row in rows if row.quantity == quantity]
        assert len(inside) > fewest
        assert least < sum(inside) / len(inside) < 0.9


def test_an_exchange_through_a_host_that_compute_hides_is_unsure_all_the_same():
    """Two cards without NVLink: by e^(z s) longer, it comes out of the backward pass that hides most of it."""
    plan, cluster = TrainingPlan(batch=6, micro_batch=3, seq=2048, zero=0), Cluster.of(pm.hardware("rtx-4090"), 2)
    step = train(MODEL, cluster, plan, laboratory="pytorch/torchtitan")
    setup = setup_of(MODEL, cluster, plan)
    exposed = functools.partial(exchanged_time, setup, pipeline_gpus(setup)[0])
    data = step.terms_s["data"]
    assert exposed(1.0) == pytest.approx(data)
    (_, whole), (_, scaled) = (stretches(setup, step.terms_s, one)[1] for one in (exposed, None))
    longest = math.exp(scaled) - 1.0
    assert math.expm1(whole) * step.time_s == pytest.approx(exposed(1.0 + longest * step.time_s / data) - data)
    assert whole > 1.5 * scaled
    inside, _ = stretches(setup, step.terms_s, exposed)
    assert math.log(_ends(step)[1]) > inside.up


def test_exchanges_through_a_host_widen_the_interval_but_not_by_more_than_they_take():
    """Hosts differ tenfold; the rest of a step is as certain as without the exchange."""
    alone, through_host = _step("l40s", pp=8), _step("l40s", tp=8)
    exchanged = through_host.terms_s["tensor"] / through_host.time_s
    low, high = _ends(through_host)
    assert exchanged > 0.5
    assert any("through their host (tensor)" in note for note in through_host.notes)
    assert not any("through their host" in note for note in alone.notes)
    assert high > 2.0 > 1.5 > _ends(alone)[1]
    assert (1.0 - exchanged) * 0.8 < low < _ends(alone)[0]


def test_ranks_of_a_host_that_bridges_join_by_two_exchange_through_it():
    cluster = Cluster.of(pm.hardware("a100-pcie-80gb"), 8)
    pair, all_of_host = (exchange_time(Group(cluster, ranks), "all_reduce", 1e8) for ranks in (2, 8))
    assert all_of_host > 5 * pair
    whole = pm.predict(pm.AllReduce(bytes=10**8, num_gpus=8), "a100-pcie-80gb")
    assert all_of_host == pytest.approx(float(whole.predicted_time_s))


def test_set_ups_on_one_machine_are_told_apart_by_what_they_do_not_share():
    """All steps on an MI300X share what that machine differs by; beside another machine it counts."""
    step = _step("mi300x", tp=2)
    low, high = step.own_interval_s
    assert step.low_s < low < step.time_s < high < step.high_s
    fixed = {**dict.fromkeys(AXES, (1,)), "batch": (8,), "recompute": ("none",), "offload": ("none",)}
    space, plan = Space(**{**fixed, "tp": (1, 2, 4, 8)}), TrainingPlan(batch=8, seq=2048)
    machines = [Cluster.of(pm.hardware(name), 8) for name in ("mi300x", "mi210")]
    ranks = [
        [each.rank for each in search(MODEL, clusters, plan, space, top=8).best]
        for clusters in (machines[:1], machines)
    ]
    assert max(ranks[0]) > 1
    assert sum(rank == 1 for rank in ranks[1]) > sum(rank == 1 for rank in ranks[0])
