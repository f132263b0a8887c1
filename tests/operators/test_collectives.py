"""Collectives: counts by hand, the links that they cross, and rows that no bound may be beaten by."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.operators import load_operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.ceilings import link_traffic
from perfmodel.prediction.topology import peer_links
from perfmodel.records.measurements import read_measurements

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")


def made(name: str, **sizes: object) -> Collective:
    op = load_operator(name)(**sizes)
    assert isinstance(op, Collective)
    return op


@pytest.mark.parametrize(
    ("name", "flop", "read", "written", "sent"),
    [
        # 800 B in fp16 are 400 elements; 4 ranks: 3 / 4 of an addition for each; 2 * 800 * 3 / 4 cross the link
        ("all_reduce", 300, 800, 800, 1200),
        # a rank brings 200 B and ends with 800 B: 600 B come from the others
        ("all_gather", 0, 200, 800, 600),
        # a rank brings 800 B, keeps the sum of 200 B: 600 B go to the others
        ("reduce_scatter", 300, 800, 200, 600),
        # 200 B for each of 4 ranks, one of which is itself
        ("alltoall", 0, 800, 800, 600),
        # one copy of the message leaves a GPU
        ("broadcast", 0, 0, 800, 800),
        ("send_recv", 0, 800, 800, 800),
    ],
)
def test_counts_by_hand(name: str, flop: float, read: float, written: float, sent: float) -> None:
    op = made(name, bytes=800, num_gpus=4, dtype="fp16")
    work = op.work()
    assert (work.flop, work.bytes_read, work.bytes_written) == (flop, read, written)
    assert op.link_traffic() == {"nvlink": sent}


def test_case_17_bytes_per_gpu() -> None:
    # ring all-reduce 2 S (n - 1) / n, the others S (n - 1) / n: not S n / 2, S (2 (sqrt n - 1)) and S (n - 1)
    size, n = 1_000_000, 8
    sent = {name: made(name, bytes=size, num_gpus=n).link_traffic()["nvlink"] for name in COLLECTIVES[:4]}
    assert sent == {"all_reduce": 1_750_000, "all_gather": 875_000, "reduce_scatter": 875_000, "alltoall": 875_000}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_gpu_alone_sends_nothing(name: str) -> None:
    op = made(name, bytes=4096, num_gpus=1)
    assert (op.peer_bytes(), op.peer_bytes(in_switch=True), op.flop()) == (0, 0, 0)


@pytest.mark.parametrize(
    ("num_gpus", "sent"),
    # S (n + 1) / n against 2 S (n - 1) / n: 3/2 against 1, 4/3 against 4/3, 5/4 against 3/2, 9/8 against 7/4
    [(2, 1.0), (3, 4 / 3), (4, 1.25), (8, 1.125)],
)
def test_a_switch_that_reduces_saves_bytes_from_four_gpus_on(num_gpus: int, sent: float) -> None:
    op = pm.AllReduce(bytes=2**20, num_gpus=num_gpus, dtype="bf16")
    assert op.peer_bytes(in_switch=True) == pytest.approx(sent * 2**20)


def test_a_switch_adds_no_8_bit_numbers_and_only_sums() -> None:
    narrow = pm.AllReduce(bytes=800, num_gpus=8, dtype="int8")
    assert narrow.peer_bytes(in_switch=True) == narrow.peer_bytes() == 1400
    for name in COLLECTIVES[1:4]:
        op = made(name, bytes=800, num_gpus=8, dtype="bf16")
        assert op.peer_bytes(in_switch=True) == op.peer_bytes() == 700


@given(st.sampled_from(COLLECTIVES), st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 64)), min_size=1))
def test_scalar_equals_array(name: str, rows: list[tuple[int, int]]) -> None:
    sizes, gpus = (np.array(axis) for axis in zip(*rows, strict=True))
    together = made(name, bytes=sizes, num_gpus=gpus, dtype="bf16")
    for index, (size, n) in enumerate(rows):
        alone = made(name, bytes=size, num_gpus=n, dtype="bf16")
        for in_switch in (False, True):
            assert np.asarray(together.peer_bytes(in_switch=in_switch))[index] == alone.peer_bytes(in_switch=in_switch)
        assert np.asarray(together.work().bytes)[index] == alone.work().bytes


@pytest.mark.parametrize(
    ("machine", "sent"),
    [
        ("a100-sxm4-80gb", {"nvlink": 1.75}),  # an NVSwitch of the second generation does not reduce
        ("h100-sxm5-80gb", {"nvlink": 1.125}),
        # 4 pairs with a bridge each reduce first: 2 x 1/2; then 2 x 3/4 of the sum of a pair, over two links
        ("h100-pcie-80gb", {"nvlink": 1.0, "pcie": 0.75}),
        ("mi210", {"xgmi": 1.5, "pcie": 0.25}),  # two hives of 4: 2 x 3/4, and 2 x 1/2 over four links
        ("l40s", {"pcie": 1.75}),
        ("mi300x", {"xgmi": 1.75}),
    ],
)
def test_an_all_reduce_crosses_the_best_links_that_there_are(machine: str, sent: dict[str, float]) -> None:
    op = pm.AllReduce(bytes=8_000_000, num_gpus=8, dtype="bf16")
    assert dict(link_traffic(op, pm.hardware(machine))) == {
        link: pytest.approx(share * 8e6) for link, share in sent.items()
    }


@pytest.mark.parametrize("name", COLLECTIVES[:4])
def test_gpus_of_one_hive_send_nothing_over_the_host(name: str) -> None:
    traffic = link_traffic(made(name, bytes=8e6, num_gpus=np.array([2, 3, 4]), dtype="bf16"), pm.hardware("mi210"))
    assert np.all(np.asarray(traffic["xgmi"]) > 0)
    assert not np.any(traffic.get("pcie", 0.0))


@pytest.mark.parametrize("kind", [pm.AllReduce, pm.AllGather, pm.ReduceScatter, pm.Alltoall])
@pytest.mark.parametrize("machine", ["rtx-3090", "a40", "h200-nvl", "h100-sxm5-80gb", "l40s"])
def test_more_gpus_beyond_a_bridge_never_exchange_in_less_time(kind: type, machine: str) -> None:
    """A switch that reduces moves S (n + 1) / n bytes: the only exchange that more GPUs shorten."""
    times = [pm.predict(kind(bytes=2**30, num_gpus=gpus, dtype="int32"), machine).bound_time_s for gpus in (2, 4, 8)]
    assert times == sorted(times)


def test_an_all_to_all_beyond_a_bridge_sends_all_bytes_of_other_pairs_over_the_host() -> None:
    op = pm.Alltoall(bytes=8e6, num_gpus=8, dtype="bf16")
    assert dict(link_traffic(op, pm.hardware("rtx-3090"))) == {"nvlink": 1e6, "pcie": 6e6}


def test_gpus_of_a_mesh_reach_each_other_over_links_of_their_own() -> None:
    """Of seven links of 64 GB/s two MI300X share one, and four of them three; a neighbour is one of seven."""
    for gpus, links in ((2, 1), (4, 3), (8, 7)):
        found = pm.predict(pm.AllGather(bytes=2**30, num_gpus=gpus, dtype="bf16"), "mi300x")
        assert found.bound_time_s == pytest.approx(2**30 * (gpus - 1) / gpus / (links * 64e9))
        assert found.link_bytes == pytest.approx(2**30 * (gpus - 1) / gpus)
        sent = pm.predict(pm.SendRecv(bytes=2**30, num_gpus=gpus, dtype="bf16"), "mi300x")
        assert sent.bound_time_s == pytest.approx(2**30 / 64e9)
        assert found.predicted_time_low_s >= found.bound_time_s


def test_other_operators_cross_the_links_that_they_name() -> None:
    copy = pm.Memcpy(bytes=100, direction="h2d")
    assert link_traffic(copy, pm.hardware("h100-sxm5-80gb")) == {"pcie": 100}
    assert link_traffic(pm.Gemm(m=1, n=1, k=1), pm.hardware("l40s")) == {}


def test_the_usual_link_of_a_machine_without_any_is_named_for_the_error() -> None:
    assert peer_links((), 2) == []
    assert set(link_traffic(pm.AllGather(bytes=8, num_gpus=2), dataclasses.replace(pm.hardware("l40s"), links=()))) == {
        "nvlink"
    }


def test_two_bridged_cards_exchange_over_the_bridge_and_more_over_pcie() -> None:
    op = pm.AllGather(bytes=1e6, num_gpus=np.array([1, 2, 3, 4]), dtype="bf16")
    traffic = link_traffic(op, pm.hardware("a100-pcie-80gb"))
    assert traffic["nvlink"].tolist() == [0, 5e5, 5e5, 5e5]
    assert traffic["pcie"].tolist() == [0, 0, pytest.approx(1e6 / 6), pytest.approx(1e6 / 4)]


def test_no_measured_row_beats_its_link_but_rings_alone_would_be_beaten(data_dir: Path) -> None:
    """At least the bytes of the bound cross in the time measured, at no more than the datasheet's bandwidth."""
    ring_beaten = 0
    for call in read_measurements(data_dir / "measurements" / "aic_collectives.csv.gz").calls:
        machine = pm.hardware(call.hardware)
        rates = {link.name: link.bandwidth_bytes_per_s for link in machine.links}
        ((name, sent),) = link_traffic(call.op, machine).items()
        assert (sent / rates[name] <= call.time_s).all(), f"{call.hardware} {call.op.op} {call.implementation}"
        ring_beaten += int((call.op.link_traffic()["nvlink"] / rates[name] > call.time_s).sum())
    assert ring_beaten > 0  # H200 reduces 512 MiB over 8 GPUs faster than any ring could
