"""Collectives that reach beyond a node: bytes by hand, limiting cases, and what nobody measured."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.hardware import Fabric, Hardware, Link
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.errors import UsageError
from perfmodel.operators import load_operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.ceilings import link_traffic
from perfmodel.prediction.latency.between_nodes import (
    FLAGGED_RATE,
    FLAGGED_RATE_OF_MORE,
    POSTING_S,
    RING_STEPS,
    TREE_SHARES,
    tree_share,
)
from perfmodel.prediction.latency.protocols import FLAGGED
from perfmodel.prediction.network import TREE_SHARE, Algorithm, Network, crossing
from perfmodel.prediction.topology import spread_of
from perfmodel.records.measurements import read_measurements

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")
H100 = pm.hardware("h100-sxm5-80gb")
#: 25 GB/s a GPU, all of which large messages reach, and steps that take no time
IDEAL = dataclasses.replace(H100, fabric=Fabric(8, 25e9, nic_efficiency=1.0, alpha_s=0.0))
GIB = 2**30


def made(kind: str, **sizes: object) -> Collective:
    op = load_operator(kind)(**sizes)
    assert isinstance(op, Collective)
    return op


@pytest.mark.parametrize(
    ("kind", "leaving", "inside"),
    [
        # 2 nodes of 8: the sum of a node leaves it over 8 networks, and the switch of the node adds: (8 + 1) / 8
        ("all_reduce", 1 / 8, 9 / 8),
        ("all_gather", 8 / 16 / 8, 7 / 8),  # a node receives the 8 parts of the other one
        ("reduce_scatter", 8 / 16 / 8, 7 / 8),
        ("alltoall", 8 / 16, 7 / 16),  # 8 GPUs are in the other node, 7 others in the own one
        ("broadcast", 1 / 8, 1.0),
        ("send_recv", 1 / 8, 1.0),  # one GPU of a node sends to the next node
    ],
)
def test_bytes_that_leave_a_node_and_those_inside_by_hand(kind: str, leaving: float, inside: float) -> None:
    op = made(kind, bytes=GIB, num_gpus=16, dtype="bf16")
    assert link_traffic(op, H100) == {"nvlink": pytest.approx(inside * GIB), "nic": pytest.approx(leaving * GIB)}
    found = pm.predict(op, H100)
    # what a GPU has for its node it might send over the network, too
    assert found.bound_time_s == pytest.approx(max(leaving * GIB / 50e9, inside * GIB / (450e9 + 50e9)))
    assert found.limiter == "link"


def test_steps_take_longer_on_a_slow_network_unless_its_own_were_measured() -> None:
    fabric = Fabric(8, 50e9)
    assert [round(fabric.at(rate * 1e9).alpha_s * 1e6, 1) for rate in (100, 50, 25, 12.5, 6.25, 1)] == [
        14, 14, 14, 32.2, 73.9, 73.9,
    ]  # fmt: skip
    measured = Fabric(8, 50e9, deviation=0.1)
    assert measured.at(6.25e9).alpha_s == measured.alpha_s
    own = Fabric(8, 6.25e9, alpha_s=9e-6)
    assert own.at(6.25e9) == own
    # AWS's p4d: 8 B among 16 A100 in 182, 177 and 179 us by three sources
    found = pm.predict(
        made("all_reduce", bytes=64, num_gpus=16, nodes=2, nic="50Gb/s"), "a100-sxm4-40gb", library="nccl"
    )
    assert found.predicted_time_low_s < 178e-6 < found.predicted_time_high_s
    assert pm.Cluster("a100-sxm4-40gb", gpus=16, nic="50Gb/s").alpha_s == pytest.approx(73.9e-6, rel=1e-3)


def test_large_messages_take_what_the_network_lets_through() -> None:
    big = 64 * GIB
    for kind, nodes, sent in (
        ("all_reduce", 4, 2 * 31 / 32 / 8), ("all_gather", 2, 15 / 16 / 8), ("alltoall", 2, 8 / 16),
    ):  # fmt: skip
        op = made(kind, bytes=big, num_gpus=8 * nodes, dtype="bf16")
        found = pm.predict(op, IDEAL, library="nccl")
        own = found.predicted_terms_s["hbm"]
        assert found.predicted_time_s - own == pytest.approx(sent * big / 25e9, rel=2e-3)
    alone = pm.predict(pm.SendRecv(bytes=big, num_gpus=2, nodes=2), IDEAL)
    assert alone.predicted_time_s == pytest.approx(big / 25e9, rel=1e-3)


def test_a_small_message_waits_for_the_node_and_for_the_network() -> None:
    """An all-reduce passes a ring of few nodes, 2 (N - 1) steps, or a tree of many, 2 log2 N; an all-gather N - 1."""
    slow = dataclasses.replace(H100, fabric=Fabric(8, 50e9, alpha_s=1e-2))
    for nodes, steps in ((2, 2 * RING_STEPS[FLAGGED]), (4, 6 * RING_STEPS[FLAGGED]), (64, 12)):
        found = pm.predict(pm.AllReduce(bytes=8, num_gpus=8 * nodes), slow, library="nccl")
        assert found.predicted_time_s == pytest.approx(steps * 1e-2, rel=0.01)
    gathered = pm.predict(pm.AllGather(bytes=8, num_gpus=32), slow, library="nccl")
    assert gathered.predicted_terms_s["synchronisation"] == pytest.approx(3 * RING_STEPS[FLAGGED] * 1e-2, rel=0.01)


def test_each_turn_of_a_ring_posts_what_the_network_sends() -> None:
    """With networks of no latency an all-gather among 8 nodes of 8 GPUs has 56 turns inside them."""
    instant = dataclasses.replace(H100, fabric=Fabric(8, 50e9, alpha_s=1e-12))
    gathered = pm.predict(pm.AllGather(bytes=8, num_gpus=64), instant, library="nccl")
    assert gathered.predicted_terms_s["synchronisation"] == pytest.approx(56 * POSTING_S, rel=1e-3)
    assert pm.predict(pm.AllGather(bytes=8, num_gpus=8), instant).predicted_time_s < 20e-6


def test_flags_leave_a_node_few_bytes_a_second() -> None:
    """256 KiB with flags cannot leave faster than 32 GB/s, which a protocol without flags may, and starts later."""
    fast = dataclasses.replace(H100, fabric=Fabric(8, 1e15, nic_efficiency=1.0, alpha_s=1.0))
    for nodes, rate in ((2, FLAGGED_RATE), (4, FLAGGED_RATE_OF_MORE)):
        small, larger = (
            pm.predict(pm.AllGather(bytes=size, num_gpus=8 * nodes), fast, library="nccl").predicted_terms_s["nic"]
            for size in (2**18, 2**19)
        )
        assert larger - small == pytest.approx(2**18 / rate)


@given(st.sampled_from(list(TREE_SHARES)), st.floats(1.0, 2.0**40), st.floats(1.0, 1.5))
def test_more_bytes_never_pass_a_tree_sooner(wire: float, size: float, factor: float) -> None:
    assert size / tree_share(wire, size) <= factor * size / tree_share(wire, factor * size) * (1 + 1e-12)
    assert 0.4 <= tree_share(wire, size) <= 1.0
    many = tree_share(wire, np.array([size, factor * size]))
    assert many.tolist() == [tree_share(wire, size), tree_share(wire, factor * size)]  # type: ignore[union-attr]


def test_trees_are_slowest_for_medium_messages() -> None:
    for wire in TREE_SHARES:
        assert tree_share(wire, 2.0**18) < min(tree_share(wire, 64.0), tree_share(wire, 2.0**32))


def test_one_gpu_a_node_crosses_no_link_inside() -> None:
    for machine in (H100, dataclasses.replace(H100, links=())):
        found = pm.predict(pm.AllReduce(bytes=GIB, num_gpus=4, nodes=4), machine)
        ring = 2 * GIB * 3 / 4 / (0.85 * 50e9)
        assert found.predicted_terms_s["nic"] == pytest.approx(ring, rel=1e-6)
        assert not found.predicted_terms_s.get("nvlink")
        assert found.bound_time_s == pytest.approx(GIB / 50e9)


def test_the_machine_says_how_many_nodes_there_are() -> None:
    for machine, gpus, nodes, fewest, most in (
        ("h100-sxm5-80gb", 8, 1, 8, 8),
        ("h100-sxm5-80gb", 9, 2, 4, 5),
        ("h100-sxm5-80gb", 13, 2, 6, 7),
        ("h100-sxm5-80gb", 64, 8, 8, 8),
        ("gb200-nvl72", 72, 1, 72, 72),
        ("gb200-nvl72", 144, 2, 72, 72),
    ):
        found = spread_of(pm.AllReduce(bytes=8, num_gpus=gpus), pm.hardware(machine))
        assert (found.nodes, found.fewest, found.most, bool(found.crosses)) == (nodes, fewest, most, nodes > 1)
    stated = spread_of(pm.AllReduce(bytes=8, num_gpus=8, nodes=2), H100)
    assert (stated.nodes, stated.fewest) == (2, 4)


def test_a_host_whose_gpus_nobody_states_has_as_many_in_an_exchange_as_in_a_cluster() -> None:
    l40s, op = pm.hardware("l40s"), pm.AllReduce(bytes=GIB, num_gpus=16)
    assert l40s.fabric is None
    for gpus in (8, 9, 16, 17):
        found = spread_of(op.changed(num_gpus=gpus), l40s)
        assert bool(found.crosses) == (gpus > pm.Cluster("l40s", gpus=8).nvlink_domain) == (found.nodes > 1)
    assert (
        pm.predict(op.changed(nic="100Gb/s"), l40s).bound_time_s
        == pm.predict(op.changed(nic="100Gb/s", nodes=2), l40s).bound_time_s
    )
    with pytest.raises(UsageError, match=r"more than one node of 8.*nic=400Gb/s.*one host has them all: nodes=1"):
        pm.predict(op, l40s)
    assert "nic" not in pm.predict(op.changed(nodes=1), l40s).predicted_terms_s  # a host with switches of PCIe
    with pytest.raises(UsageError, match=r"more than the 16 that links inside a node"):
        pm.predict(op.changed(num_gpus=17, nodes=1), l40s)


def test_the_operator_states_the_network() -> None:
    op = pm.AllGather(bytes=GIB, num_gpus=16)
    named = pm.predict(op.changed(nic="400Gb/s"), H100)
    assert named.predicted_time_s == pm.predict(op, H100).predicted_time_s
    for nic in ("100Gb/s", "12.5 GB/s", 12.5e9, np.float64(12.5e9)):
        slow = op.changed(nic=nic)
        assert (slow.nic, slow.params()["nic"]) == ("100Gb/s", "100Gb/s")
        found = pm.predict(slow, H100)
        assert found.bound_time_s == pytest.approx(GIB / 16 / 12.5e9)
        assert found.predicted_terms_s["nic"] == pytest.approx(4 * named.predicted_terms_s["nic"], rel=1e-3)
    assert "nic" not in op.params()
    table = Link("nic", 12.5e9)  # [link.nic] of a specification without [cluster]
    linked = dataclasses.replace(H100, fabric=None, links=(*H100.links, table))
    assert pm.predict(op.changed(nodes=2), linked).bound_time_s == pytest.approx(GIB / 16 / 12.5e9)
    with pytest.raises(UsageError, match=r"l4 has no network.*nic=400Gb/s"):
        pm.predict(op.changed(nodes=2), "l4")
    assert pm.predict(op.changed(nodes=2, nic="100Gb/s"), "l4").bound_time_s > 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"nodes": 0}, "nodes=0 is below 1"),
        ({"nodes": 1.5}, "not a whole number"),
        ({"nodes": 17}, "nodes=17 is more than num_gpus=16"),
        ({"nodes": [2, 32]}, "nodes=32 is more than num_gpus=16"),
        ({"nodes": 1}, r"nodes=1 of 16 GPUs.*16 each, more than the 8.*nodes=2"),
        ({"nodes": np.array([2, 1, 4])}, r"nodes=1 of 16 GPUs.*16 each, more than the 8.*nodes=2"),
        ({"nic": "400"}, "not a rate of a network"),
        ({"nic": 400}, "no rate of a GPU's network"),
        ({"nic": "0 Gb/s"}, "not above 0"),
        ({"nic": True}, "not a rate of a network"),
        ({"nic": math.nan}, "not a rate of a network"),
        ({"nic": -1.0}, "not a rate of a network"),
    ],
)
def test_bad_values_get_one_message(sizes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pm.predict(made("all_reduce", bytes=8, num_gpus=16, **sizes), H100)


def test_nobody_measured_the_network_and_the_prediction_says_so() -> None:
    sweep = pm.predict(pm.AllReduce(bytes=1024, num_gpus=np.array([8, 16])), H100, library="nccl-2.27")
    inside, beyond = sweep.rows()
    assert (inside["calibration"], beyond["calibration"]) == ("calibrated", "never seen")
    assert ErrorSource.NETWORK in beyond["not_seen"]
    assert ErrorSource.NETWORK not in inside["not_seen"]
    assert "85% of 400Gb/s a GPU and 14 us a step, which no row was fitted to" in sweep.prediction_basis
    width = [row["predicted_time_high_s"] / row["predicted_time_low_s"] for row in (inside, beyond)]
    assert width[1] > 1.5 * width[0]


def test_a_network_that_was_measured_is_known() -> None:
    fabric = dataclasses.replace(H100.fabric or Fabric(), deviation=0.05, source="nccl, 16 ranks")
    found = pm.predict(pm.AllReduce(bytes=GIB, num_gpus=16), dataclasses.replace(H100, fabric=fabric), library="nccl")
    assert found.calibration == "calibrated"
    assert "14 us a step, nccl, 16 ranks" in found.prediction_basis
    usual = pm.predict(pm.AllReduce(bytes=GIB, num_gpus=16), H100, library="nccl")
    assert found.predicted_time_high_s < usual.predicted_time_high_s


def test_what_a_network_was_measured_to_differ_by_holds_for_no_other() -> None:
    own = Fabric(8, 50e9, deviation=0.05, source="nccl, 16 ranks")
    machine = dataclasses.replace(H100, fabric=own)
    same, other = (pm.predict(pm.AllReduce(bytes=GIB, num_gpus=16, nic=nic), machine, library="nccl")
                   for nic in ("400Gb/s", "200Gb/s"))  # fmt: skip
    assert (same.calibration, other.calibration) == ("calibrated", "never seen")
    assert "which no row was fitted to" in other.prediction_basis
    width = [found.predicted_time_high_s / found.predicted_time_low_s for found in (same, other)]
    assert width[1] > 1.5 * width[0]
    # a training plan names its network in the same way
    networks = [pm.Cluster(machine, gpus=16, nic=nic).machine.fabric for nic in (None, "400Gb/s", "200Gb/s")]
    assert [network.deviation for network in networks if network] == [0.05, 0.05, None]


MACHINES = tuple(map(pm.hardware, ("h100-sxm5-80gb", "a100-sxm4-80gb", "gb200-nvl72"))) + tuple(
    dataclasses.replace(pm.hardware(name), fabric=Fabric(8, 12.5e9)) for name in ("l40s", "mi300x", "a40")
)
kinds, machines = st.sampled_from(KINDS), st.sampled_from(MACHINES)
libraries = st.sampled_from(("", "nccl", "vllm", "trtllm"))
shapes = st.tuples(st.integers(1, 2**36), st.integers(1, 300), st.integers(1, 300))


def fits(machine: Hardware, gpus: int, nodes: int) -> bool:
    joined = max([8, *(link.domain or 0 for link in machine.links)])
    return nodes <= gpus and math.ceil(gpus / nodes) <= joined


@given(kinds, machines, libraries, st.lists(shapes, min_size=1, max_size=6))
def test_scalar_equals_array(kind: str, machine: Hardware, library: str, rows: list[tuple[int, int, int]]) -> None:
    rows = [row for row in rows if fits(machine, *row[1:])]
    assume(rows)
    sizes, gpus, nodes = (np.array(axis) for axis in zip(*rows, strict=True))
    together = pm.predict(made(kind, bytes=sizes, num_gpus=gpus, nodes=nodes, dtype="bf16"), machine, library=library)
    for place, (size, n, count) in enumerate(rows):
        op = made(kind, bytes=size, num_gpus=n, nodes=count, dtype="bf16")
        alone = pm.predict(op, machine, library=library)
        for key in ("bound_time_s", "predicted_time_s", "predicted_time_low_s", "predicted_time_high_s"):
            many = np.asarray(getattr(together, key))[place]
            assert many == pytest.approx(getattr(alone, key), rel=1e-12), (key, op)
        assert together.rows()[place]["calibration"] == alone.calibration


@given(kinds, machines, libraries, shapes)
def test_never_faster_than_the_bound_and_a_larger_message_never_sooner(
    kind: str, machine: Hardware, library: str, shape: tuple[int, int, int]
) -> None:
    size, gpus, nodes = shape
    assume(fits(machine, gpus, nodes))
    op = made(kind, bytes=np.array([size, size + 1, 2 * size]), num_gpus=gpus, nodes=nodes, dtype="bf16")
    found = pm.predict(op, machine, library=library)
    assert np.all(np.asarray(found.predicted_time_low_s) >= np.asarray(found.bound_time_s))
    assert np.all(np.diff(found.predicted_time_s) >= 0)
    assert np.all(np.diff(found.bound_time_s) >= 0)
    assert np.asarray(found.predicted_time_s)[2] <= 3 * np.asarray(found.predicted_time_s)[0]
    assert sum(np.ravel(term)[0] for term in found.predicted_terms_s.values()) == pytest.approx(
        np.asarray(found.predicted_time_s)[0]
    )


@given(kinds, st.sampled_from(MACHINES[:3]), st.integers(1, 2**36), st.integers(2, 8), st.integers(2, 8))
def test_over_several_nodes_it_is_never_faster_than_in_one(
    kind: str, machine: Hardware, size: int, gpus: int, nodes: int
) -> None:
    """NVLink is faster than the network, and to wait inside a node takes less than between nodes."""
    assume(nodes <= gpus)
    alone, apart = (
        pm.predict(made(kind, bytes=size, num_gpus=gpus, nodes=count, dtype="bf16"), machine, library="nccl")
        for count in (1, nodes)
    )
    assert apart.predicted_time_s >= alone.predicted_time_s
    assert apart.predicted_time_high_s >= alone.predicted_time_high_s


def test_a_tree_of_two_nodes_sends_half_of_a_ring_and_beats_it() -> None:
    """1 GB among 16 V100 of two nodes with 100 Gb/s took 134 ms by a tree and 268 ms by a ring."""
    two, three, four = (
        crossing(Network(8.0 * nodes, 8.0, nodes, 1e9, 0.0), "all_reduce", 8e9, Algorithm.TREE).link_s
        for nodes in (2.0, 3.0, 4.0)
    )
    assert two * TREE_SHARE == pytest.approx(1.0)  # each node sends half of the message in either tree
    assert three * TREE_SHARE == pytest.approx(1.5)  # one neighbour in one tree, two in the other
    assert four * TREE_SHARE == pytest.approx(2.0)
    ring = crossing(Network(16.0, 8.0, 2.0, 1e9, 0.0), "all_reduce", 8e9)
    assert ring.link_s == pytest.approx(2 * 15 / 16)
    bus = 2 * 15 / 16 * 2**33 / pm.predict(pm.AllReduce(bytes=2**33, num_gpus=16), "b200").predicted_time_s
    assert bus > 8 * 50e9  # what nccl-tests prints exceeds the network, as its authors explain


@given(kinds, st.integers(1, 2**36), st.sampled_from((16, 64, 512)))
def test_a_faster_network_is_never_slower(kind: str, size: int, gpus: int) -> None:
    times = [
        pm.predict(made(kind, bytes=size, num_gpus=gpus, nic=nic), H100)
        for nic in ("100Gb/s", "200Gb/s", "400Gb/s", "1600Gb/s")
    ]
    for key in ("bound_time_s", "predicted_time_s"):
        found = [getattr(one, key) for one in times]
        assert found == sorted(found, reverse=True)


def test_published_rows_between_nodes_lie_above_the_bound() -> None:
    folder = Path(__file__).parents[3] / "examples" / "published"
    rows = 0
    for table in sorted(folder.glob("*.csv")):
        if table.stem not in ("kernels", "second", "third", "fourth", "fifth", "between_nodes"):
            continue
        for call in read_measurements(table).calls:
            if not isinstance(call.op, Collective):
                continue
            crosses = np.broadcast_to(spread_of(call.op, pm.hardware(call.hardware)).crosses, call.time_s.shape)
            bound = np.broadcast_to(pm.predict(call.op, call.hardware).bound_time_s, call.time_s.shape)
            assert (bound[crosses] <= call.time_s[crosses]).all()
            rows += int(crosses.sum())
    assert rows == 57


def test_a_machine_whose_only_link_is_its_network_sums_up_what_crosses_it() -> None:
    bare = dataclasses.replace(H100, fabric=None, links=(Link("nic", 12.5e9),))
    found = pm.predict(pm.AllGather(bytes=GIB, num_gpus=4, nodes=2), bare)
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert found.predicted_time_low_s >= found.bound_time_s
