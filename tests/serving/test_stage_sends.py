"""Sends between the stages of a pipeline: bytes over the link, on each boundary, in each kind of prediction."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, send_time
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.workloads.catalog import find_model

TOKENS = 4096


def deployed(tp: int = 1, pp: int = 1, hardware: str = "h100", **options: Any) -> Deployment:
    return Deployment(find_model("llama-3.1-70b"), pm.hardware(hardware), tp=tp, pp=pp, weights="fp8", **options)


def sends_s(deployment: Deployment, tokens: int = TOKENS) -> float:
    return float(deployment.step(prefill=[(1, tokens, tokens)]).terms_s["sends"])


def test_each_boundary_passes_hidden_states_and_residual() -> None:
    """4096 tokens x 2 tensors x 8192 x 2 B over NVLink, for one boundary and for three, as training has it."""
    sent = TOKENS * 2 * 8192 * 2
    group = Group(Cluster.of(pm.hardware("h100"), 4), 4)
    assert sends_s(deployed(pp=2)) == pytest.approx(send_time(group, sent), rel=1e-3)
    assert sends_s(deployed(pp=4)) == pytest.approx(3 * send_time(group, sent), rel=1e-3)
    nvlink = next(link for link in pm.hardware("h100").links if link.name == "nvlink")
    assert sends_s(deployed(pp=2)) > sent / nvlink.bandwidth_bytes_per_s


def test_without_a_pipeline_nothing_is_sent_and_memory_is_as_it_was() -> None:
    assert "sends" not in deployed(tp=4).step(decode=8, context=100).terms_s
    near, far = (deployed(tp=2, pp=2, gpus_per_node=count, nic="25 Gb/s").memory() for count in (8, 2))
    assert near == far


def test_a_boundary_over_the_network_takes_longer_than_one_inside_a_host() -> None:
    near, far = (deployed(tp=2, pp=2, gpus_per_node=count, nic="25 Gb/s") for count in (8, 2))
    # each of two ranks sends half of 134 MB over 85 % of its 25 Gb/s
    assert sends_s(far) - sends_s(near) == pytest.approx(TOKENS * 2 * 8192 * 2 / 2 / (0.85 * 25e9 / 8), rel=0.02)
    # of three boundaries of four stages on two hosts, one crosses
    both = deployed(tp=2, pp=4, gpus_per_node=4, nic="25 Gb/s")
    assert sends_s(both) == pytest.approx(sends_s(far) + 2 * sends_s(near), rel=0.01)


def test_the_simulation_counts_them_as_the_steps_do() -> None:
    far = deployed(tp=2, pp=2, gpus_per_node=2, nic="25 Gb/s")
    step = far.step(decode=16, context=1000)
    assert far.clock().decode_s(16, 1000) == pytest.approx(float(step.time_s), rel=1e-3)
    assert sum(map(float, step.terms_s.values())) == pytest.approx(float(step.time_s))
    assert float(step.terms_s["sends"]) > 1e-4


def test_stages_on_other_hosts_need_a_network() -> None:
    with pytest.raises(UsageError, match="its network is unknown"):
        deployed(tp=8, pp=2, hardware="rtx-4090")
