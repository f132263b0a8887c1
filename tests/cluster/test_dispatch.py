"""Tokens on their way to experts of other nodes beside what DeepEP's authors measured, and compute beside exchanges."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group
from perfmodel.cluster.dispatch import exposed, sent
from perfmodel.operators.routing import Dispatcher, Router

#: a token of 7,168 numbers: in 8 bits with a scale of 4 B for 128 of them, and in 16
THERE, BACK = 7168 * (1.0 + 4.0 / 128.0), 7168 * 2.0
#: any 8 of 256 experts, and 8 of those of 4 of 8 groups
ANY, GROUPED = Router(256, 8), Router(256, 8, 8, 4)


def ranks(count: int) -> Group:
    return Group(Cluster.of(pm.hardware("h800-sxm5-80gb"), count, nic="400Gb/s"), count)


@pytest.mark.parametrize(
    ("count", "one", "measured_us"),
    [
        (16, THERE, 118), (32, THERE, 155), (64, THERE, 173), (128, THERE, 192), (256, THERE, 194),
        (16, BACK, 195), (32, BACK, 273), (64, BACK, 314), (128, BACK, 369), (256, BACK, 360),
    ],
)  # fmt: skip
def test_kernels_that_send_each_copy_by_itself_take_what_their_authors_measured(count, one, measured_us):
    """128 tokens on H800 with 400 Gb/s each (deepseek-ai/DeepEP @ 0297fc80, docs/legacy.md, low-latency kernels)."""
    found = sent(ranks(count), ANY, Dispatcher.ALLTOALL, 128 * one)
    assert found.time_s == pytest.approx(measured_us * 1e-6, rel=0.14)
    assert found.least_s < found.time_s


@pytest.mark.parametrize(
    ("count", "one", "measured"), [(32, THERE, 58e9), (32, BACK, 57e9), (64, THERE, 51e9), (64, BACK, 50e9)]
)
def test_kernels_that_send_one_copy_to_a_node_reach_the_rate_that_their_authors_measured(count, one, measured):
    """4,096 tokens (same page, normal kernels): bytes to all nodes of a token, its own among them, over the time.

    On two nodes the first release reached 43 GB/s, the second 90: 61 are predicted.
    """
    group = ranks(count)
    found = sent(group, GROUPED, Dispatcher.DEEPEP, 4096 * one)
    assert 4096 * one * GROUPED.visits(group.domains) / found.time_s == pytest.approx(measured, rel=0.07)


def test_one_copy_to_a_node_takes_less_of_the_network_than_one_to_each_expert():
    group = ranks(64)
    whole, shared = (sent(group, ANY, how, 1e9).time_s for how in (Dispatcher.ALLTOALL, Dispatcher.DEEPEP))
    assert whole / shared == pytest.approx(8.0 / ANY.visits(8), rel=0.01)


def test_inside_a_domain_nothing_crosses_the_network():
    assert sent(ranks(8), ANY, Dispatcher.DEEPEP, 1e8).least_s == 0.0


def test_an_exchange_shows_as_what_compute_does_not_hide_and_what_it_takes_from_it():
    exchange, compute = np.array([1.0, 3.0, 0.0]), np.array([2.0, 2.0, 5.0])
    assert exposed(exchange, compute, 0.25).tolist() == [0.25, 1.5, 0.0]
    assert exposed(3.0, 0.0, 0.25) == 3.0


def test_tokens_go_to_all_ranks_that_cut_an_expert():
    """An all-to-all sends four times the copies where experts are cut by fours; DeepEP still one to each node."""
    group = ranks(16)
    whole, cut = (sent(group, ANY, Dispatcher.ALLTOALL, 1e8, parts).time_s for parts in (1, 4))
    assert cut / whole == pytest.approx(4.0, rel=0.01)
    spread, few = (sent(group, ANY, Dispatcher.DEEPEP, 1e8, parts).least_s for parts in (1, 8))
    assert spread == pytest.approx(few), "both visit the nodes that have an expert of the token"
    assert sent(group, ANY, Dispatcher.DEEPEP, 1e8, 16).least_s >= spread, "an expert that all cut is on both nodes"


def test_fewer_ranks_with_whole_experts_never_exchange_less_between_hosts():
    for dispatcher in ("alltoall", "deepep"):
        served = (pm.Deployment("qwen3-30b-a3b", "h100", dp=16, ep=ep, dispatcher=dispatcher) for ep in (16, 8, 4, 2))
        times = [one.step(decode=16384, context=100).terms_s["exchange"] for one in served]
        assert times == sorted(times)
        assert times[-1] > 1.5 * times[0]
