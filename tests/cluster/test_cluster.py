"""A cluster takes what is not given from the machine's specification, and refuses what cannot be."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError


def test_the_network_may_be_given_in_bits_or_bytes():
    for nic in ("400Gb/s", "400 Gbit/s", "400 Gbps", "50 GB/s", 50e9, np.int64(50 * 10**9)):
        assert pm.Cluster("h100-sxm5-80gb", gpus=512, gpus_per_node=8, nic=nic).nic_bytes_per_s == 50e9


def test_defaults_are_those_of_the_specification():
    dgx = pm.Cluster("a100-sxm4-80gb", gpus=64)
    assert (dgx.gpus_per_node, dgx.nvlink_domain, dgx.nic_bytes_per_s) == (8, 8, 25e9)
    rack = pm.Cluster("gb200-nvl72", gpus=256)
    assert (rack.gpus_per_node, rack.nvlink_domain, rack.nic_bytes_per_s) == (4, 72, 50e9)


def test_a_given_network_or_domain_replaces_that_of_the_specification():
    """A network of half of 200 Gb/s has steps that are longer by 2^1.2, and its figures have no source."""
    usual, slow = pm.Cluster("h100", gpus=64), pm.Cluster("h100", gpus=64, nic="100Gb/s")
    assert slow.alpha_s == pytest.approx(2**1.2 * usual.alpha_s)
    assert pm.Cluster("h100", gpus=64, nic="100Gb/s", alpha_s=5e-6).alpha_s == 5e-6
    assert usual.source
    assert not slow.source
    assert pm.Cluster("gb200-nvl72", gpus=256, nvlink_domain=36).nvlink_domain == 36
    assert pm.Cluster("h100", gpus=64, gpus_per_node=4).nvlink_domain == 4


def test_a_machine_without_a_network_is_refused_beyond_a_node():
    assert pm.Cluster("l4", gpus=8).gpus == 8
    with pytest.raises(UsageError, match=r"network is unknown.*--nic"):
        pm.Cluster("l4", gpus=16)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gpus": 0}, "gpus = 0"),
        ({"gpus": 8.0}, "gpus = 8.0"),
        ({"gpus": 8, "nic": "fast"}, "not a rate of a network"),
        ({"gpus": 8, "nic": "400"}, "not a rate of a network"),
        ({"gpus": 8, "nic": "0 Gb/s"}, "not above 0"),
        ({"gpus": 8, "nic": -1.0}, "not above 0"),
        ({"gpus": 8, "nic": 2e15}, "no rate"),
        ({"gpus": 8, "nic": 10**400}, "no rate"),
        ({"gpus": 8, "oversubscription": 0.5}, "below 1"),
        ({"gpus": 8, "nic_efficiency": 1.5}, "nic_efficiency"),
        ({"gpus": 8, "gpus_per_node": 0}, "gpus_per_node"),
    ],
)
def test_bad_values_get_one_message(given, message):
    with pytest.raises(UsageError, match=message):
        pm.Cluster("h100", **given)


def test_a_board_or_bridge_joins_no_more_than_a_host_has():
    """Two H100 NVL in two hosts have no bridge, a rack of NVL72 joins hosts of one, and two of four share a board."""
    domains = {
        (name, node): [link.domain for link in pm.Cluster(name, gpus=2, gpus_per_node=node, nic="400Gb/s").machine.links
                       if link.name in ("nvlink", "xgmi")]
        for name, node in (("h100-nvl", 1), ("h100-nvl", 2), ("gh200", 1), ("gh200", 2), ("gh200", 4), ("gb200", 1),
                           ("mi300a", 1), ("h100", 1))
    }  # fmt: skip
    assert domains == {
        ("h100-nvl", 1): [], ("h100-nvl", 2): [2], ("gh200", 1): [], ("gh200", 2): [2], ("gh200", 4): [4],
        ("gb200", 1): [72], ("mi300a", 1): [], ("h100", 1): [None],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "kept"), [("rtx-3090", []), ("h100-nvl", []), ("mi210", []), ("h100", ["nvlink"]),
                                            ("gh200", ["nvlink"]), ("mi300x", ["xgmi"])])  # fmt: skip
def test_cards_may_have_no_bridge(name, kept):
    """What a board or a switch joins stays."""
    cluster = pm.Cluster(name, gpus=2, bridge=False)
    assert [link.name for link in cluster.machine.links if link.name in ("nvlink", "xgmi")] == kept
    assert pm.Cluster(name, gpus=2).machine.links == pm.Cluster(name, gpus=2, bridge=True).machine.links


def test_superchips_of_hopper_share_a_host_by_four_or_two():
    """Beyond a board of four GH200, or the two of a GH200 NVL2, the network counts; no switch reduces."""
    for name, node in (("gh200-96gb", 4), ("gh200-144gb", 2)):
        cluster = pm.Cluster(name, gpus=16)
        assert (cluster.gpus_per_node, cluster.nvlink_domain) == (node, node)
        inside, beyond = (
            pm.predict(pm.AllReduce(bytes=2**28, num_gpus=gpus), name).bound_time_s for gpus in (node, 2 * node)
        )
        assert beyond > 2 * inside
        assert not any(link.reduces_in_switch for link in cluster.hardware.links)
