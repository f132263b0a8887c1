"""Exchanges beside products: of what a product hides only contention is left, of what stands alone everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import send_time
from perfmodel.hardware_catalog import hardware
from perfmodel.training.exchange import SCATTER_PIECES, beside_pieces, beside_ring, context_exchange, exposed
from perfmodel.training.framework import constants, find_framework
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import Setup
from perfmodel.workloads.catalog import named_model

TIMES = st.floats(1e-6, 1.0)


def test_a_ring_is_hidden_by_the_pieces_that_are_multiplied_meanwhile() -> None:
    # t = 4: three pieces come in beside three quarters of the product
    assert beside_ring(0.75, 1.0, 4, 0.0) == 0.0
    assert beside_ring(1.0, 1.0, 4, 0.0) == pytest.approx(0.25)
    assert beside_ring(0.5, 1.0, 4, 0.2) == pytest.approx(0.1)


def test_the_last_piece_of_a_sum_has_nothing_to_hide_behind() -> None:
    assert beside_pieces(0.4, 1.0, 0.0) == pytest.approx(0.4 / SCATTER_PIECES)
    assert beside_pieces(2.0, 1.0, 0.0) == pytest.approx(2.0 - (1.0 - 1.0 / SCATTER_PIECES))


@given(exchange=TIMES, product=TIMES, ranks=st.integers(2, 16))
def test_overlap_never_costs_more_than_the_exchange_alone(exchange: float, product: float, ranks: int) -> None:
    for cost in (
        beside_ring(exchange, product, ranks, 0.15),
        beside_pieces(exchange, product, 0.15),
        exposed(exchange, product, 0.15),
    ):
        assert 0.0 <= cost <= exchange * 1.15 + 1e-12


def test_a_ring_over_the_network_takes_few_sms():
    """A send has two channels; beside attention that hides it, the ring costs their share of the SMs, not more."""
    llama, plan = named_model("llama-3.1-8b"), TrainingPlan(batch=16, seq=131072, tp=8, cp=4)
    cluster = Cluster.of(hardware("h100-sxm5-80gb"), 32, nic="400Gb/s")
    setup = Setup(llama, cluster, plan, find_framework("megatron-te"), constants())
    ring = 3 * send_time(setup.groups.context, 131072 / 4 * 2 * 128 * 2.0)
    forward, backward = context_exchange(setup.groups, setup.shard, llama, 10 * ring, 10 * ring, 0.15)
    assert forward == pytest.approx(ring * 2 / 132)
    assert backward == pytest.approx(2 * ring * 2 / 132)
