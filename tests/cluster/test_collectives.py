"""Exchanges over nodes: bytes of a ring by hand, and which algorithm is faster when."""

import pytest

import perfmodel as pm
from perfmodel.cluster.collectives import (
    NVLINK_STEP_S,
    Algorithm,
    Group,
    best_exchange_time,
    exchange_time,
    send_time,
)

CLUSTER = pm.Cluster("h100", gpus=512, nic="400Gb/s", nic_efficiency=1.0, alpha_s=0.0)
GIB = 2.0**30


def test_a_ring_moves_its_bytes_over_the_networks_of_a_node() -> None:
    wide = Group(CLUSTER, 64)  # 8 GPUs of a node bring 8 networks
    thin = Group(CLUSTER, 64, stride=8)  # beside 8 tensor parallel ranks each node brings one
    assert (wide.inside, thin.inside) == (8, 1)
    ring = 2 * GIB * 63 / 64 / 50e9
    assert exchange_time(thin, "all_reduce", GIB) == pytest.approx(ring, rel=1e-3)
    assert exchange_time(thin, "all_gather", GIB) == pytest.approx(ring / 2, rel=1e-3)
    inside = float(pm.predict(pm.AllReduce(bytes=2**30, num_gpus=8), "h100").predicted_time_s)
    assert exchange_time(wide, "all_reduce", GIB) == pytest.approx(max(ring / 8 + 2 * 56 * NVLINK_STEP_S, inside))


def test_an_exchange_inside_a_node_is_the_predicted_one() -> None:
    alone = float(pm.predict(pm.AllGather(bytes=2**26, num_gpus=8), "h100").predicted_time_s)
    assert exchange_time(Group(CLUSTER, 8), "all_gather", 2.0**26) == pytest.approx(alone)
    assert exchange_time(Group(CLUSTER, 1), "all_reduce", GIB) == 0.0


def test_trees_win_for_small_messages_and_rings_for_large_ones() -> None:
    group = Group(pm.Cluster("h100", gpus=512), 512)
    for message, faster in ((1e3, Algorithm.TREE), (4e10, Algorithm.RING)):
        times = {name: exchange_time(group, "all_reduce", message, name) for name in (Algorithm.RING, Algorithm.TREE)}
        assert min(times, key=times.__getitem__) == faster
        assert best_exchange_time(group, "all_reduce", message) == times[faster]
    fewest = exchange_time(group, "all_reduce", 1e3, Algorithm.DOUBLING)
    assert fewest <= exchange_time(group, "all_reduce", 1e3, Algorithm.TREE)
    assert exchange_time(group, "all_reduce", 1e9, Algorithm.HIERARCHICAL) > 0


def test_bytes_of_each_algorithm_on_the_network_by_hand() -> None:
    """8 nodes with a network of 50 GB/s each, or 8 each for whole nodes that first reduce inside."""
    wide, one_a_node = Group(CLUSTER, 64), Group(CLUSTER, 8, stride=8)
    network_s = GIB / 50e9
    by_hand = {
        Algorithm.RING: 2 * 7 / 8 * network_s,
        Algorithm.TREE: 2 * network_s / 0.92,  # half of the message to each of two neighbours in either tree
        Algorithm.DOUBLING: 3 * network_s,  # all of it with one other node, 2 away, 4 away
    }
    found = {name: exchange_time(one_a_node, "all_reduce", GIB, name) for name in by_hand}
    assert found == {name: pytest.approx(time_s, rel=1e-6) for name, time_s in by_hand.items()}
    inside = exchange_time(Group(CLUSTER, 8), "all_reduce", GIB)
    both = inside + 2 * 7 / 8 * GIB / 8 / 50e9
    assert exchange_time(wide, "all_reduce", GIB, Algorithm.HIERARCHICAL) == pytest.approx(both)


def test_steps_of_each_exchange_on_the_network_by_hand() -> None:
    """A message of next to nothing waits for the steps that follow one another: 8 nodes, 1 ms each."""
    group = Group(pm.Cluster("h100", gpus=64, nic="400Gb/s", alpha_s=1e-3), 8, stride=8)
    steps = {Algorithm.RING: 14, Algorithm.TREE: 6, Algorithm.DOUBLING: 3, Algorithm.HIERARCHICAL: 14}
    for algorithm, count in steps.items():
        assert exchange_time(group, "all_reduce", 8, algorithm) == pytest.approx(count * 1e-3, rel=1e-5)
    for kind in ("all_gather", "reduce_scatter", "alltoall"):
        assert exchange_time(group, kind, 8) == pytest.approx(7e-3, rel=1e-5)
    assert send_time(group, 8) == pytest.approx(1e-3, rel=1e-5)


def test_oversubscription_divides_the_network() -> None:
    half = pm.Cluster("h100", gpus=512, nic="400Gb/s", nic_efficiency=1.0, alpha_s=0.0, oversubscription=2)
    group, halved = Group(CLUSTER, 64, 8), Group(half, 64, 8)
    for kind in ("all_reduce", "alltoall"):
        assert exchange_time(halved, kind, GIB) == pytest.approx(2 * exchange_time(group, kind, GIB), rel=1e-2)
    assert send_time(halved, GIB) == pytest.approx(2 * GIB / 50e9)


def test_a_rack_is_used_in_powers_of_two() -> None:
    assert Group(pm.Cluster("gb200", gpus=256), 256).inside == 64
    assert Group(pm.Cluster("gb200", gpus=72), 72).inside == 72
    assert not Group(pm.Cluster("gb200", gpus=256), 64).crosses
    assert Group(CLUSTER, CLUSTER.gpus).inside == 8


def test_nodes_are_filled_equally_and_the_one_with_the_fewest_networks_bounds_a_ring() -> None:
    """13 GPUs are 7 and 6 of two nodes of 8: the ring has 6 networks, and one step in 13 crosses each way."""
    cluster = pm.Cluster("h100", gpus=13, nic="400Gb/s", nic_efficiency=1.0, alpha_s=0.0)
    group = Group(cluster, 13)
    assert (group.inside, group.domains) == (6, 2)
    ring = GIB * 12 / 13 / (6 * 50e9) + 11 * NVLINK_STEP_S
    assert exchange_time(group, "all_gather", GIB) == pytest.approx(ring)
    pairs = Group(pm.Cluster("h100", gpus=26), 13, 2)  # tensor parallel pairs stay in a node: 4, 3, 3, 3
    assert (pairs.inside, pairs.domains) == (3, 4)
    threes = Group(pm.Cluster("h100", gpus=48), 16, 3)  # a node of 8 has room for two groups of 3
    assert (threes.inside, threes.domains) == (2, 8)


def test_a_message_to_the_next_gpu_crosses_one_link_in_a_node_and_one_network_beyond() -> None:
    near, far = Group(CLUSTER, 4), Group(CLUSTER, 4, stride=8)
    assert send_time(near, GIB) == pytest.approx(NVLINK_STEP_S + GIB / (0.8 * 450e9))
    assert send_time(far, GIB) == pytest.approx(GIB / 50e9)
    assert send_time(Group(CLUSTER, 1), GIB) == send_time(near, 0.0) == 0.0
    # of eight MI300X each two have one of seven links, of 64 GB/s
    assert send_time(Group(pm.Cluster("mi300x", gpus=8), 8), GIB) == pytest.approx(NVLINK_STEP_S + GIB / (0.8 * 64e9))


def test_one_gpu_more_costs_no_more_than_its_node() -> None:
    """With an awkward number of GPUs, as a prime, the exchange does not fall back to one network a node."""
    for gpus in range(9, 66):
        group = Group(pm.Cluster("h100", gpus=gpus), gpus)
        nodes = -(-gpus // 8)
        assert group.domains == nodes
        assert group.inside == gpus // nodes >= 4


def test_ranks_that_fit_in_a_domain_stay_in_one() -> None:
    for gpus in range(1, 200):
        for stride in (1, 2, 3, 4, 8):
            for ranks in range(1, 72 // stride + 1):
                if gpus % (stride * ranks) == 0:
                    assert not Group(pm.Cluster("gb200", gpus=gpus), ranks, stride).crosses


def test_a_larger_domain_than_the_specification_has_crosses_no_network() -> None:
    """Thirty-two GH200 behind switches (NVL32), whose specification joins four of a board."""
    rack = pm.Cluster("gh200", gpus=32, nvlink_domain=32)
    boards = pm.Cluster("gh200", gpus=32)
    inside, beyond = (exchange_time(Group(cluster, 32), "all_reduce", GIB) for cluster in (rack, boards))
    # over 450 GB/s of each GPU inside, over the four networks of a board otherwise
    assert 2 * GIB * 3 / 4 / 450e9 < inside < 0.3 * beyond
