"""Muon by hand: FLOP of Newton and Schulz's iterations, and who shares them."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.hardware_catalog import hardware
from perfmodel.training.newton_schulz import ITERATIONS, orthogonal_products, orthogonal_s
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import setup_of
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

H100 = hardware("h100-sxm5-80gb")


def test_the_flop_of_a_square_matrix_are_5_m_over_b_of_the_step():
    """Jordan et al. 2024: T m / B, with T iterations, width m and B tokens of a step."""
    m, tokens = 4096.0, 2.0**19
    own = ITERATIONS * sum(2.0 * one.m * one.n * one.k for one in orthogonal_products(m, m))
    assert own / (6.0 * m * m * tokens) == pytest.approx(ITERATIONS * m / tokens)
    assert orthogonal_products(64.0, 512.0) == orthogonal_products(512.0, 64.0)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "t5-large", "deepseek-v2"])
def test_ranks_that_share_the_optimizer_share_its_products(name):
    config, cluster = named_model(name), Cluster.of(H100, 16)
    plans = {zero: TrainingPlan(batch=16, seq=512, zero=zero, optimizer="muon") for zero in (0, 1)}
    whole, shared = (
        train(config, cluster, plan).terms_s["optimizer"]
        - train(config, cluster, plan.changed(optimizer="sgd")).terms_s["optimizer"]
        for plan in plans.values()
    )
    assert whole > 0
    assert shared == pytest.approx(whole / 16)


def test_ranks_with_other_layers_parts_of_a_matrix_or_experts_share_its_products():
    """Stages and tensor parallel ranks halve all products, expert parallel ranks those of the experts alone."""

    def alone(name, **sizes):
        plan = TrainingPlan(batch=16, seq=512, zero=0, optimizer="muon", **sizes)
        return orthogonal_s(setup_of(named_model(name), Cluster.of(H100, 16), plan))

    dense = {names: alone("llama-3.1-8b", **dict.fromkeys(names, 2)) for names in ((), ("pp",), ("tp",))}
    assert dense["pp",] == dense["tp",] == pytest.approx(dense[()] / 2)
    one, two, four = (alone("mixtral-8x7b", ep=ep) for ep in (1, 2, 4))
    assert one > two > four
    assert one - two == pytest.approx(2 * (two - four))


@pytest.mark.parametrize(("name", "ep"), [("llama-3.1-8b", 1), ("mixtral-8x7b", 1), ("mixtral-8x7b", 2)])
def test_domains_of_hsdp_repeat_its_products(name, ep):
    """More nodes that each hold all weights share nothing more out."""
    plan = TrainingPlan(batch=32, seq=512, framework="fsdp2-compile", zero=3, hsdp=True, optimizer="muon", ep=ep)
    one, four = (orthogonal_s(setup_of(named_model(name), Cluster.of(H100, gpus), plan)) for gpus in (8, 32))
    assert four == one
    everywhere = orthogonal_s(setup_of(named_model(name), Cluster.of(H100, 32), plan.changed(hsdp=False)))
    assert everywhere == pytest.approx(one / 4)
